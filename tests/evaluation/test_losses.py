"""Losses by length and position against a loop over windows, and the memory that they take."""

import math
from unittest import mock

import pytest
import torch
from common import ENDLESS, SCHEMES, UNBOUNDED, make_scheme
from hypothesis import example, given, settings
from hypothesis import strategies as st
from runs_to_evaluate import CONTEXT, VOCAB, lively_model, mean, random_text
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

from poslab import GPT
from poslab.data.windows import CoveringWindows
from poslab.evaluation import losses as evaluation
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.losses import last_losses, mean_loss, sliding_losses, window_losses
from poslab.metric import perplexity
from poslab.processors import largest_tensor


@torch.no_grad()
def by_windows(model: GPT, text: Tensor, length: int, stride: int) -> tuple[list[float], list[float], int]:
    """Return the loss of each token after the first, means by place in full windows, and their number."""
    counted: dict[int, float] = {}
    full = []
    for start in range(0, len(text), stride):
        window = text[start : start + length + 1].long()
        drawn = [model.position.evaluation_positions(length, draw) for draw in model.position.draws]
        places = [None if positions is None else positions[: len(window) - 1] for positions in drawn]
        each = [F.cross_entropy(model(window[None, :-1], None, at)[0], window[1:], reduction="none") for at in places]
        losses = torch.stack(each).mean(0)
        for place, loss in enumerate(losses.tolist()):
            counted.setdefault(start + 1 + place, loss)
        if len(losses) == length:
            full.append(losses)
        if len(counted) == len(text) - 1:
            break
    assert sorted(counted) == list(range(1, len(text)))
    means = torch.stack(full).mean(0).tolist() if full else []
    return [counted[i] for i in sorted(counted)], means, len(full)


@given(
    name=st.sampled_from(UNBOUNDED),
    count=st.integers(2, 34),
    length=st.integers(1, 36),
    stride=st.integers(1, 36),
    batch=st.integers(1, 80),
    rows=st.integers(1, 40),
)
@example(name=ENDLESS, count=2, length=1, stride=1, batch=1, rows=1)
@example(name=ENDLESS, count=2, length=2, stride=1, batch=1, rows=1)
@example(name=ENDLESS, count=30, length=29, stride=29, batch=4096, rows=512)  # one window, all of the text
@example(name=ENDLESS, count=30, length=30, stride=5, batch=4096, rows=512)  # longer than the text
@example(name=ENDLESS, count=30, length=8, stride=1, batch=20, rows=7)  # two windows in a batch
@example(name=ENDLESS, count=31, length=6, stride=6, batch=24, rows=10)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_losses_by_definition(name: str, count: int, length: int, stride: int, batch: int, rows: int) -> None:
    model, text = lively_model(name), random_text(count)
    overlapping = min(stride, length)
    with mock.patch.multiple(evaluation, BATCH_TOKENS=batch, _LOGIT_ROWS=rows):
        (found,) = evaluate(model, text, [length], stride).lengths
        tokens = sliding_losses(model, text, length, overlapping).losses.tolist()
    sliding, by_position, windows = by_windows(model, text, length, overlapping)
    assert tokens == pytest.approx(sliding, abs=1e-4)
    if length > count - 1:
        assert (found.loss, found.sliding_loss, found.by_position) == (None, None, None)
        assert found.note == f"the text has {count} tokens"
        return
    separate, _, _ = by_windows(model, text, length, length)
    assert (found.length, found.stride, found.windows) == (length, overlapping, windows)
    assert found.loss == pytest.approx(mean(separate), abs=1e-4)
    assert found.sliding_loss == pytest.approx(mean(sliding), abs=1e-4)
    assert found.by_position == pytest.approx(by_position, abs=1e-4)


@pytest.mark.parametrize("name", SCHEMES)
def test_losses_of_many_blocks(name: str) -> None:
    model, text = lively_model(name, context=200), random_text(901).to(torch.uint8)
    found = evaluate(model, text, [200])
    separate, _, _ = by_windows(model, text, 200, 200)
    sliding, by_position, windows = by_windows(model, text, 200, 100)
    assert found.lengths[0].windows == windows == 8
    assert found.lengths[0].stride == 100
    assert found.lengths[0].loss == pytest.approx(mean(separate), abs=1e-4)
    assert found.lengths[0].sliding_loss == pytest.approx(mean(sliding), abs=1e-4)
    assert found.lengths[0].by_position == pytest.approx(by_position, abs=1e-4)
    assert (found.context_length, found.tokens) == (200, 900)


@pytest.mark.parametrize("length", [8, 16, 24, 32, 128, 300])
def test_of_a_long_text_stretches_count_that_are_spread_evenly(length: int) -> None:
    """The same tokens at every length, each with all that stands before it in the text."""
    model, text, stride = lively_model(ENDLESS), random_text(1001), length // 2
    with mock.patch.multiple("poslab.runs.evaluation", STRETCH=64), mock.patch.object(evaluation, "STRETCH", 64):
        (found,) = evaluate(model, text, [length], most_tokens=200).lengths
    counted = [place for place in range(1000) if place // 64 % 5 == 0]
    sliding, _, _ = by_windows(model, text, length, stride)
    separate, _, _ = by_windows(model, text, length, length)
    assert found.sliding_loss == pytest.approx(mean([sliding[place] for place in counted]), abs=1e-4)
    assert found.loss == pytest.approx(mean([separate[place] for place in counted]), abs=1e-4)


def test_last_losses_of_a_long_text_are_of_fewer_windows() -> None:
    model, text, lengths = lively_model(ENDLESS), random_text(60 * CONTEXT), [CONTEXT, 2 * CONTEXT]
    last = CONTEXT // 2
    for length in lengths:
        few, every = (last_losses(model, text, length, last, most).flatten().tolist() for most in (8 * CONTEXT, None))
        assert len(few) == 7 * last
        assert few == pytest.approx([loss for n in range(0, len(every), 2 * last) for loss in every[n : n + last]])


@pytest.mark.parametrize("name", SCHEMES)
def test_beyond_the_training_length(name: str) -> None:
    model = lively_model(name)
    longest = model.pos.max_length(model.shape)
    at, beyond = evaluate(model, random_text(100), [CONTEXT, 4 * CONTEXT]).lengths
    assert at.loss is not None
    assert at.note == ""
    if longest is None or longest >= 4 * CONTEXT:
        assert beyond.loss is not None
        assert beyond.loss != at.loss
    else:
        assert beyond.loss is None
        assert beyond.note == f"knows {longest} positions"


@pytest.mark.parametrize(("count", "reach"), [(8 * CONTEXT + 1, 8), (30 * CONTEXT, 8), (4 * CONTEXT + 5, 4)])
@pytest.mark.parametrize("last", [None, 1, CONTEXT])
def test_last_losses_are_of_the_same_tokens_at_every_length(last: int | None, count: int, reach: int) -> None:
    model, text, kept = lively_model(ENDLESS), random_text(count), last or CONTEXT // 2
    found = evaluate(model, text, [CONTEXT // 4, *(CONTEXT * n for n in (1, 2, 3, 4, 8, 16))], last=last)
    ends = range(reach * CONTEXT, count, reach * CONTEXT // 2)
    for result in found.lengths:
        assert result.last == kept
        if not kept <= result.length <= reach * CONTEXT:
            assert result.last_loss is None
            continue
        losses = []
        for end in ends:
            window = text[end - result.length : end + 1].long()
            with torch.no_grad():
                logits = model(window[None, :-1])[0]
            losses += F.cross_entropy(logits, window[1:], reduction="none")[-kept:].tolist()
        assert result.last_loss == pytest.approx(mean(losses), abs=1e-4)
    at = found.last_losses
    assert found.context_gains == {n: at[CONTEXT] - at[n] for n in at if n > CONTEXT}
    assert found.metrics == {"last_loss": {str(n): loss for n, loss in at.items()}}


def test_a_text_shorter_than_the_context_has_no_last_losses() -> None:
    found = evaluate(lively_model(ENDLESS), random_text(CONTEXT), [CONTEXT // 2])
    assert (found.last_losses, found.context_gains, found.metrics) == ({}, {}, {})


def test_the_model_is_left_as_it_was() -> None:
    model, text = lively_model(ENDLESS, dropout=0.5), random_text(60)
    expected = evaluate(model, text, [8])
    model.train()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert evaluate(model, text, [8]) == expected  # no dropout
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(IndexError):
        evaluate(model, torch.tensor([1, 2, VOCAB]), [1])
    assert all(part.training for part in model.modules())
    model.eval()


def test_perplexity() -> None:
    assert perplexity(2.0) == math.exp(2)
    assert perplexity(1e4) == math.inf


def test_a_window_that_came_to_two_devices_counts_once() -> None:
    """The sampler that deals out 17 windows to two devices gives one of them to both."""
    model, text = lively_model(ENDLESS), random_text(17 * CONTEXT - 3)
    windows, losses = CoveringWindows(text, CONTEXT, CONTEXT), {}
    dealt = [DistributedSampler(windows, 2, rank, shuffle=False) for rank in (1, 0)]
    assert sum(map(len, dealt)) == 18
    with torch.no_grad():
        for batch in (batch for sampler in dealt for batch in DataLoader(windows, 4, sampler=sampler)):
            losses |= window_losses(model, *batch)
    (result,) = evaluate(model, text, [CONTEXT]).lengths
    assert mean_loss(losses) == pytest.approx(result.loss, rel=1e-7)
    assert sum(count for _, count in losses.values()) == len(text) - 1


@pytest.mark.parametrize("length", [512, 1024])
def test_logits_do_not_grow_with_the_length(length: int) -> None:
    sizes = {"vocab_size": 5000, "embed_dim": 16, "num_layers": 1, "num_heads": 2, "dropout": 0.0}
    model = GPT(make_scheme(ENDLESS), context_length=length, **sizes)
    with largest_tensor() as seen:
        (result,) = evaluate(model, torch.randint(0, 5000, (length + 1,)), [length]).lengths
    assert result.loss is not None
    assert seen.bytes == 512 * 5000 * 4
