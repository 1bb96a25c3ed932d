"""Sampling, and text that goes on: what is drawn, when it stops, what a row's neighbours change, what is refused."""

from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch
from strong_models import CONTEXT, NAMES, VOCAB, some_tokens, strong_model, with_window

from poslab import GPT
from poslab.errors import SettingError
from poslab.model.generate import Sampling, generate, stream

every_scheme = pytest.mark.parametrize("name", NAMES)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.5), Sampling(1.5, top_k=5), Sampling(top_p=0.7), Sampling(2.0, 6, 0.8)]
)
def test_frequencies_are_the_probabilities(sampling: Sampling) -> None:
    logits = torch.tensor([0.1, 2.0, -1.0, 1.5, 0.0, 1.0, -3.0, 0.5])
    probabilities = (logits / sampling.temperature).softmax(-1)
    kept = probabilities.argsort(descending=True)[: sampling.top_k]
    if sampling.top_p is not None:
        sums = (probabilities[kept] / probabilities[kept].sum()).cumsum(-1)
        kept = kept[: int((sums < sampling.top_p).sum()) + 1]  # the last of them comes to that share
    expected = torch.zeros(len(logits))
    expected[kept] = probabilities[kept] / probabilities[kept].sum()
    generator = torch.Generator().manual_seed(0)
    ids = torch.cat([sampling.draw(logits.expand(1000, -1), [generator] * 1000) for _ in range(40)])
    found = torch.bincount(ids, minlength=len(logits)) / len(ids)
    assert (found[expected == 0] == 0).all()
    assert (found - expected).abs().max() < 0.012  # five standard deviations


def test_temperature_near_zero_and_top_k_of_one_are_greedy() -> None:
    logits = torch.randn(50, 30) * 3
    for sampling in (Sampling(0), Sampling(1e-320), Sampling(top_k=1), Sampling(top_p=1e-9), Sampling(9.0, 5, 1e-9)):
        assert torch.equal(sampling.draw(logits, [torch.Generator()] * 50), logits.argmax(-1))


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ({"temperature": -0.1}, "temperature=-0.1: must be at least 0"),
        ({"temperature": float("nan")}, "temperature=nan: must be at least 0"),
        ({"top_k": 0}, "top_k=0: must be at least 1"),
        ({"top_p": 0.0}, "top_p=0: must be above 0 and at most 1"),
        ({"top_p": 1.1}, "top_p=1.1: must be above 0"),
        ({"window": 0}, "window=0: must be at least 1"),
        ({"max_new_tokens": -1}, "max_new_tokens=-1: must be at least 0"),
        ({"prompts": ["I had"]}, "prompts=[...]: must be a list of token ids, at least one"),
        ({"prompts": []}, "prompts=[...]: must be a list of token ids, at least one"),
        ({"prompts": [[1], []]}, "prompts=[...]: must be a list of token ids, at least one"),
        ({"prompts": [[VOCAB]]}, "prompts=[...]: token ids must be from 0 to 60"),
    ],
)
def test_what_can_not_be(bad: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError) as refusal:
        generate(strong_model("none"), **({"prompts": [[1]], "max_new_tokens": 1} | bad))
    assert str(refusal.value).startswith(problem)


def assert_greedy(model: GPT, prompt: list[int], found: list[int], window: int = CONTEXT) -> None:
    """Compare each new token with the likeliest one after a full pass over all in the window before it."""
    text, count = found[max(0, len(prompt) - window) :], len(found) - len(prompt)
    positions = model.position.text_positions(len(text))
    longest = model.pos.max_length(model.shape) or len(text)
    if longest >= len(text) - 1:
        at = None if positions is None else positions[: len(text) - 1]
        likeliest = with_window(model, torch.tensor([text[:-1]]), window, at)[0, -count:].argmax(-1).tolist()
    else:  # each token is computed anew from those that there are positions for
        texts = (text[max(0, end - longest) : end] for end in range(len(text) - count, len(text)))
        likeliest = [int(with_window(model, torch.tensor([read]), window)[0, -1].argmax()) for read in texts]
    assert found == prompt + likeliest


@every_scheme
def test_greedy_is_the_likeliest_token_of_the_full_pass_each_time(name: str) -> None:
    model = strong_model(name)
    prompts = [some_tokens(n).tolist() for n in (5, 37, 1, 55)]
    for prompt, text in zip(prompts, generate(model, prompts, 6, temperature=0), strict=True):
        assert_greedy(model, prompt, text)
    (text,) = generate(model, prompts[:1], 12, temperature=0, window=3)  # the prompt's beginning is out of it
    assert_greedy(model, prompts[0], text, window=3)


@every_scheme
def test_a_row_alone_writes_what_it_writes_in_a_batch(name: str) -> None:
    model = strong_model(name)
    prompts = [some_tokens(n).tolist() for n in (9, 33, 2)]
    settings: dict[str, Any] = {"temperature": 1.2, "top_k": 20, "top_p": 0.95, "seed": 5}
    together = generate(model, prompts, 10, **settings)
    assert generate(model, prompts, 10, **(settings | {"seed": 6})) != together
    assert generate(model, prompts[:2], 10, **settings) == together[:2]


def test_hooks_are_called_once_for_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook sees positions (T,), however many rows have positions of their own."""
    model, calls = strong_model("rotary"), []
    rotate = type(model.pos).rotate
    monkeypatch.setattr(type(model.pos), "rotate", lambda *given: (calls.append(given[-1].shape), rotate(*given))[1])
    generate(model, [[1], [2, 3], [4, 5, 6], [7, 8]], 3, temperature=0)
    layers = model.shape.num_layers
    assert calls == [(4 * 3,)] * 2 * layers + [(4,)] * 2 * 2 * layers


def test_prompts_stay_as_they_are() -> None:
    model = strong_model("none")
    prompt = some_tokens(2, CONTEXT + 3).int()
    found = generate(model, prompt, 4, temperature=0)
    assert torch.equal(found[:, : CONTEXT + 3], prompt.long())
    assert found.shape == (2, CONTEXT + 7)
    assert torch.equal(model.generate(prompt, 0), prompt.long())
    assert model.generate([[3, 4]], 0) == [[3, 4]]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_new_ids_may_be_beyond_the_type_of_the_prompts(dtype: torch.dtype) -> None:
    model = strong_model("none", vocab_size=40_000)
    prompts = torch.tensor([[1, 2, 3], [4, 5, 6]])
    found = generate(model, prompts.to(dtype), 8, seed=1)
    assert torch.equal(found, generate(model, prompts, 8, seed=1))
    assert found.max() > 255


def test_stop_token() -> None:
    """Lists end with it, tensors repeat it, and when every row has stopped nothing more is computed."""
    model, prompts = strong_model("none"), [[4, 7], [9, 1, 5], [2]]
    write = partial(generate, model, max_new_tokens=30, temperature=1.0, seed=3)
    free = write(prompts)
    stop = free[1][len(prompts[1]) + 4]
    stopped = write(prompts, stop_token=stop)
    for prompt, without, text in zip(prompts, free, stopped, strict=True):
        new = without[len(prompt) :]
        assert text == prompt + (new[: new.index(stop) + 1] if stop in new else new)
    assert len(stopped[1]) <= len(prompts[1]) + 5

    same = torch.tensor([[4, 7], [9, 1]])
    free_tensor = write(same)
    stop = int(free_tensor[0, 5])
    ended = write(same, stop_token=stop)
    first = free_tensor[0].tolist().index(stop, 2)
    assert ended[0].tolist()[: first + 1] == free_tensor[0].tolist()[: first + 1]
    assert set(ended[0].tolist()[first:]) == {stop}

    (first,) = generate(model, [[4, 7]], 1, temperature=0)
    assert len(list(stream(model, [[4, 7]], 30, sampling=Sampling(0), stop_token=first[-1]))) == 1


@every_scheme
def test_strict_refuses_what_passes_the_positions(name: str) -> None:
    model = strong_model(name)
    longest = model.pos.max_length(model.shape)
    if longest is None:
        next(stream(model, [[1, 2]], 10**6, sampling=Sampling(), strict=True))
        return
    prompt = [some_tokens(longest - 9).tolist()]
    assert len(generate(model, prompt, 10, strict=True)[0]) == longest + 1  # the last is drawn, never read
    with pytest.raises(SettingError) as refusal:
        stream(model, prompt, 11, sampling=Sampling(), strict=True)  # before the first token
    assert str(refusal.value).endswith(f"knows {longest} positions, and the prompt has {longest - 9} tokens")
    with pytest.raises(SettingError, match=rf"\b{longest + 1}\b"):
        generate(model, [some_tokens(longest + 1).tolist()], 1, strict=True)


def test_the_model_keeps_its_mode_and_torch_its_random_numbers() -> None:
    """Dropout has no part in it, whatever the mode."""
    model = strong_model("none")
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.9
    (expected,) = generate(model.eval(), [[1, 2]], 20, temperature=0)
    before = torch.get_rng_state()
    found = []
    for ids in stream(model.train(), [[1, 2]], 20, sampling=Sampling(0), generator=torch.Generator().manual_seed(0)):
        assert all(part.training for part in model.modules())
        assert torch.is_grad_enabled()
        found.append(int(ids))
    assert found == expected[2:]
    assert torch.equal(torch.get_rng_state(), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_tokens_come_one_by_one() -> None:
    model = strong_model("none")
    steps = stream(model, [[1, 2], [3]], 10**9, sampling=Sampling(0))
    first = [ids.tolist() for ids in islice(steps, 7)]
    assert torch.tensor(first).T.tolist() == [text[-7:] for text in generate(model, [[1, 2], [3]], 7, temperature=0)]
