"""Losses of a model by the length of its window, and by the position within it.

At every length the same tokens of a text count, once: all but the first, or of a long text those of every n-th stretch.
What differs is what stands before them.

    consecutive  windows side by side, as in a validation: a token has between nothing and a full window before it
    sliding      windows that advance by a stride; of each but the first only the last `stride` tokens count, which have
                 at least length - stride tokens before them
    last         the last K tokens of windows that end at the same positions at every length, up to eight times the
                 training length: does more context help?

Where a scheme draws positions in evaluation, too, each loss is the mean over the model's draws.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset

from poslab.data.stream import Scan, Scans, segments_before
from poslab.data.windows import CoveringWindows
from poslab.model.decoder import GPT
from poslab.positions.sizes import check_memory
from poslab.runs.evaluation import (
    STRETCH,
    Evaluation,
    LengthLoss,
    every_stretch,
    last_reach,
    last_tokens,
    sliding_stride,
    window_ends,
)

_BATCH_TOKENS = 4096  # per forward pass, or one window
_LOGIT_ROWS = 512  # logits that exist at a time
# By the number of a window: the sum of its tokens' losses, and how many they are. One that came twice counts once.
WindowLosses = dict[int, tuple[float, int]]


def evaluate(
    model: GPT,
    tokens: Tensor,
    lengths: Sequence[int],
    stride: int | None = None,
    last: int | None = None,
    memory_lengths: Sequence[int] = (),
    ends: Tensor | None = None,
    most_tokens: int | None = None,
    validated: int | None = None,
) -> Evaluation:
    """Return the losses of `model`, in eval mode, on tokens (N,), N at least 2, in memory linear in the length.

    stride: of the sliding windows; None: half of each length. last: tokens of a window that count in `last_loss`; None:
    half of the training length. memory_lengths: at which the loss of windows of the training length that follow each
    other is measured, too. ends: of documents in the tokens. most_tokens: about how many count at each length, in
    stretches spread evenly over the text; None: all. validated: how many of the first tokens have consecutive losses;
    None: all. A model that remembers reads windows beyond the training length in segments, and begins each without
    memory. Raises SettingError for memory that the model can't have.
    """
    context = model.shape.context_length
    with model.evaluating():
        results = [
            _at_length(model, tokens, length, sliding_stride(length, stride), last_tokens(context, last), most_tokens)
            for length in sorted(set(lengths))
        ]
        judged = tokens[: None if validated is None else validated + 1]
        consecutive = consecutive_token_losses(model, judged, min(context, len(judged) - 1), ends)
        with_memory = _by_memory(model, tokens, ends, memory_lengths)
    before = [] if ends is None else (ends - 1).tolist()  # the first token has no loss
    return Evaluation(
        context,
        len(tokens) - 1,
        results,
        consecutive_losses=[round(loss, 5) for loss in consecutive.tolist()],
        weights_sha256=_fingerprint(model),
        most_tokens=most_tokens,
        memory_losses=with_memory,
        document_ends=[end for end in before if 0 < end < len(consecutive)],
    )


class SlidingLosses(NamedTuple):
    """Losses in windows of one length that advance by a stride."""

    losses: Tensor  # (K,): of each token that counts, nats
    by_position: Tensor  # (length,): the mean of windows that end within the text, float64
    windows: int  # that do


def _at_length(model: GPT, tokens: Tensor, length: int, stride: int, last: int, most_tokens: int | None) -> LengthLoss:
    longest = model.pos.max_length(model.shape)
    if longest is not None and length > longest and not model.remembers:  # which begins anew in each segment
        return LengthLoss(length, stride, last=last, note=f"knows {longest} positions")
    if length > len(tokens) - 1:
        return LengthLoss(length, stride, last=last, note=f"the text has {len(tokens):,} tokens")
    every = every_stretch(len(tokens) - 1, most_tokens)
    sliding, consecutive = (sliding_losses(model, tokens, length, each, every) for each in (stride, length))
    of_last = last_losses(model, tokens, length, last, most_tokens)
    return LengthLoss(
        length,
        stride,
        loss=float(consecutive.losses.mean(dtype=torch.float64)),
        sliding_loss=float(sliding.losses.mean(dtype=torch.float64)),
        by_position=[round(loss, 5) for loss in sliding.by_position.tolist()],
        windows=sliding.windows,
        last=last,
        last_loss=None if of_last is None else float(of_last.mean(dtype=torch.float64)),
        last_losses=None if of_last is None else [round(loss, 4) for loss in of_last.flatten().tolist()],
    )


def window_losses(model: GPT, numbers: Tensor, inputs: Tensor, targets: Tensor) -> WindowLosses:
    """Return the losses of a batch of `CoveringWindows` side by side: numbers (B,), inputs and targets (B, T)."""
    return _by_window(numbers, _losses(model, inputs, targets), targets)


def _by_window(numbers: Tensor, losses: Tensor, targets: Tensor) -> WindowLosses:
    sums = losses.sum(1, dtype=torch.float64)
    counts = (targets != CoveringWindows.IGNORED).sum(1)
    return dict(zip(numbers.tolist(), zip(sums.tolist(), counts.tolist(), strict=True), strict=True))


@torch.no_grad()
def scan_losses(model: GPT, scan: Scan) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield of each segment of a scan that has targets the windows' numbers (R,), losses and targets, both (R, T)."""
    memories = [model.empty_memory(scan.numbers.shape[1])] * len(model.draws)
    for numbers, tokens, targets, read in zip(*scan, strict=True):
        judged, of_draws = (targets != CoveringWindows.IGNORED).any(), []
        for draw, memory in enumerate(memories):
            with model.drawing(draw):
                here = memory.restarted(read)
                hidden, memories[draw] = model.hidden_with_memory(tokens.to(here.read.device), here)
            if judged:
                of_draws.append(_head_losses(model, hidden, targets))
        if judged:
            yield numbers, torch.stack(of_draws).mean(0), targets


def scanned_losses(model: GPT, scan: Scan) -> WindowLosses:
    """Return the losses of a scan as `window_losses` does, of a model that remembers."""
    return {
        number: row
        for numbers, losses, targets in scan_losses(model, scan)
        for number, row in _by_window(numbers, losses, targets).items()
        if row[1]
    }


def mean_loss(losses: Mapping[int, Sequence[Any]]) -> float:
    """Return the mean over all tokens, in nats per token, exactly summed, so that their order doesn't matter. losses:
    by number, the sum of some tokens' losses and how many they are, as in WindowLosses."""
    return math.fsum(row[0] for row in losses.values()) / sum(row[1] for row in losses.values())


@torch.no_grad()
def sliding_losses(model: GPT, tokens: Tensor, length: int, stride: int, every: int = 1) -> SlidingLosses:
    """Return losses of the tokens after the first, in every `every`-th stretch; stride = length: without overlap."""
    new_losses, by_position, windows = [], torch.zeros(length, dtype=torch.float64), 0
    for numbers, inputs, targets in _batches(tokens, length, stride, every):
        losses, counted = _losses(model, inputs, targets), targets != CoveringWindows.IGNORED
        is_new = (numbers[:, None] == 0) | (torch.arange(length) >= length - stride)
        new_losses.append(losses[counted & is_new])
        full = counted.all(1)
        by_position += losses[full].sum(0, dtype=torch.float64)
        windows += int(full.sum())
    return SlidingLosses(torch.cat(new_losses), by_position / windows, windows)


def consecutive_token_losses(model: GPT, tokens: Tensor, length: int, ends: Tensor | None = None) -> Tensor:
    """Return the loss of each token after the first, (N - 1,), nats, in windows that follow each other, with what the
    model remembers of those before. ends: of documents in the tokens (N,)."""
    if not model.remembers:
        return sliding_losses(model, tokens, length, length).losses
    windows = CoveringWindows(tokens, length, length)
    scans = Scans(windows, max(1, _BATCH_TOKENS // length), segments_before(length, model.reach), ends)
    token_losses = torch.zeros(len(windows), length)
    for scan in map(scans.__getitem__, range(len(scans))):
        for numbers, losses, targets in scan_losses(model, scan):
            judged = (targets != CoveringWindows.IGNORED).any(1)
            token_losses[numbers[judged]] = losses[judged]
    return token_losses.flatten()[: len(tokens) - 1]


def _by_memory(model: GPT, tokens: Tensor, ends: Tensor | None, memory_lengths: Sequence[int]) -> dict[str, float]:
    """Return by the number of tokens remembered the mean loss of windows of the training length that follow each other,
    of the same targets whatever is remembered."""
    own, length = model.memory_length, min(model.shape.context_length, len(tokens) - 1)
    losses = {}
    try:
        for memory_length in sorted(set(memory_lengths)):
            check_memory(model.pos, model.shape, memory_length)
            model.memory_length = min(memory_length, len(tokens))
            mean = consecutive_token_losses(model, tokens, length, ends).mean(dtype=torch.float64)
            losses[str(memory_length)] = float(mean)
    finally:
        model.memory_length = own
    return losses


@torch.no_grad()
def last_losses(model: GPT, tokens: Tensor, length: int, last: int, most_tokens: int | None = None) -> Tensor | None:
    """Return the losses of the last tokens of windows of a length, (windows, last), nats; None where it is below `last`
    or beyond the reach. The targets are the same for all lengths: windows of the whole reach would overlap by half."""
    reach = last_reach(model.shape.context_length, len(tokens) - 1)
    if not last <= length <= reach:
        return None
    ends = torch.tensor(window_ends(model.shape.context_length, len(tokens) - 1, last, most_tokens))
    losses = []
    for some in ends.split(max(1, _BATCH_TOKENS // length)):
        windows = tokens[some[:, None] + torch.arange(-length, 1)].to(torch.int64)  # (B, length + 1)
        losses.append(_losses(model, windows[:, :-1], windows[:, -last:]))
    return torch.cat(losses)


def _batches(tokens: Tensor, length: int, stride: int, every: int) -> DataLoader[Any]:
    """Return batches of the windows whose new tokens begin in every `every`-th stretch."""
    windows = CoveringWindows(tokens, length, stride)
    starts = ((number, number and number * stride + length - stride) for number in range(len(windows)))
    chosen = [number for number, first_new in starts if first_new // STRETCH % every == 0]
    # With a generator of its own, or it would draw from the global one.
    return DataLoader(Subset(windows, chosen), max(1, _BATCH_TOKENS // length), generator=torch.Generator())


def _losses(model: GPT, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the losses (B, K) of inputs (B, T) and targets of their last positions (B, K), on the CPU, 0 where
    ignored; the logits (B K, V) never exist all at once."""
    inputs, of_draws = inputs.to(model.token_embedding.weight.device), []
    for draw in model.draws:
        with model.drawing(draw):
            hidden = model.hidden_in_segments(inputs)[0] if model.remembers else model.hidden(inputs)
        of_draws.append(_head_losses(model, hidden[:, -targets.shape[1] :], targets))
    return torch.stack(of_draws).mean(0)


def _head_losses(model: GPT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Return the losses (B, K) of hidden states (B, K, D) and targets (B, K), on the CPU."""
    weight = model.token_embedding.weight
    rows, wanted = hidden.flatten(0, 1), targets.to(weight.device).flatten()  # (B K, D), (B K,)
    losses = [
        F.cross_entropy(F.linear(some, weight).float(), of_some, reduction="none")
        for some, of_some in zip(rows.split(_LOGIT_ROWS), wanted.split(_LOGIT_ROWS), strict=True)
    ]
    return torch.cat(losses).view(targets.shape).cpu()


def _fingerprint(model: GPT) -> str:
    digest = hashlib.sha256()
    for name, weight in model.state_dict().items():
        digest.update(name.encode())
        digest.update(weight.cpu().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
