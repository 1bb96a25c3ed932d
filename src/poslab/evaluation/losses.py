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

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, Subset

from poslab.data.windows import CoveringWindows
from poslab.metric import IGNORED
from poslab.model.decoder import GPT
from poslab.progress import progress
from poslab.runs.evaluation import STRETCH, last_reach, window_ends

BATCH_TOKENS = 4096  # per forward pass, or one window
_LOGIT_ROWS = 512  # logits that exist at a time
# By the number of a window: the sum of its tokens' losses, and how many they are. One that came twice counts once.
WindowLosses = dict[int, tuple[float, int]]


class SlidingLosses(NamedTuple):
    """Losses in windows of one length that advance by a stride."""

    losses: Tensor  # (K,): of each token that counts, nats
    by_position: Tensor  # (length,): the mean of those windows read that end within the text, float64
    windows: int  # that do


def window_losses(
    model: GPT, numbers: Tensor, inputs: Tensor, targets: Tensor, documents: Tensor | None = None
) -> WindowLosses:
    """Return the losses of a batch of `CoveringWindows` side by side: numbers (B,), and all others (B, T)."""
    return by_window(numbers, _losses(model, inputs, targets, documents), targets)


def by_window(numbers: Tensor, losses: Tensor, targets: Tensor) -> WindowLosses:
    sums = losses.sum(1, dtype=torch.float64)
    counts = (targets != IGNORED).sum(1)
    return dict(zip(numbers.tolist(), zip(sums.tolist(), counts.tolist(), strict=True), strict=True))


def mean_loss(losses: Mapping[int, Sequence[Any]]) -> float:
    """Return the mean over all tokens, in nats per token, exactly summed, so that their order doesn't matter. losses:
    by number, the sum of some tokens' losses and how many they are, as in WindowLosses."""
    return math.fsum(row[0] for row in losses.values()) / sum(row[1] for row in losses.values())


@torch.no_grad()
def sliding_losses(
    model: GPT, tokens: Tensor, length: int, stride: int, every: int = 1, ends: Tensor | None = None
) -> SlidingLosses:
    """Return losses of the tokens after the first, in every `every`-th stretch; stride = length: without overlap.

    ends: of documents that don't see each other, and whose first tokens don't count; None: the text is one.
    """
    new_losses, by_position, full_windows = [], torch.zeros(length, dtype=torch.float64), 0
    windows, place, period = CoveringWindows(tokens, length, stride, ends), torch.arange(length), STRETCH * every
    counts = torch.zeros(length, dtype=torch.float64)
    starts = range(0, len(windows) * stride, stride)
    new = ((start and start + length - stride, min(start + length, len(tokens) - 1) - 1) for start in starts)  # targets
    read = [n for n, (first, last) in enumerate(new) if first % period < STRETCH or first // period < last // period]
    # With a generator of its own, or it would draw from the global one.
    batches = DataLoader(Subset(windows, read), max(1, BATCH_TOKENS // length), generator=torch.Generator())
    for numbers, inputs, targets, *documents in progress(batches, f"windows of {length:,}"):
        losses, counted = _losses(model, inputs, targets, *documents), targets != IGNORED
        is_new = (numbers[:, None] == 0) | (place >= length - stride)
        in_stretch = (numbers[:, None] * stride + place) % period < STRETCH
        new_losses.append(losses[counted & is_new & in_stretch])
        full = numbers * stride + length < len(tokens)
        by_position += losses[full].sum(0, dtype=torch.float64)
        counts += counted[full].sum(0)
        full_windows += int(full.sum())
    return SlidingLosses(torch.cat(new_losses), by_position / counts, full_windows)


@torch.no_grad()
def last_losses(
    model: GPT,
    tokens: Tensor,
    length: int,
    last: int,
    most_tokens: int | None = None,
    ends: Tensor | None = None,
) -> Tensor | None:
    """Return the losses of the last tokens of windows of a length, (windows, last), nats; None where it is below `last`
    or beyond the reach. The targets are the same for all lengths: windows of the whole reach would overlap by half.

    ends: as in `sliding_losses`; the result is then (n,), of the tokens that count.
    """
    reach = last_reach(model.shape.context_length, len(tokens) - 1)
    if not last <= length <= reach:
        return None
    targets = torch.tensor(window_ends(model.shape.context_length, len(tokens) - 1, last, most_tokens))
    losses = []
    for some in progress(targets.split(max(1, BATCH_TOKENS // length)), f"windows of {length:,}, their ends"):
        indices = some[:, None] + torch.arange(-length, 1)
        windows = tokens[indices].to(torch.int64)  # (B, length + 1)
        if ends is None:
            losses.append(_losses(model, windows[:, :-1], windows[:, -last:]))
            continue
        numbers = torch.searchsorted(ends, indices, right=True)
        same = (numbers[:, 1:] == numbers[:, :-1])[:, -last:]
        losses.append(_losses(model, windows[:, :-1], windows[:, -last:], numbers[:, :-1])[same])
    return torch.cat(losses)


def _losses(model: GPT, inputs: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
    """Return the losses (B, K) of inputs (B, T) and targets of their last positions (B, K), on the CPU, 0 where
    ignored; the logits (B K, V) never exist all at once. documents: (B, T) numbers."""
    inputs, draw_losses = inputs.to(model.token_embedding.weight.device), []
    for draw in model.position.draws:
        with model.position.drawing(draw):
            hidden = model.read(inputs, documents=documents)
        draw_losses.append(head_losses(model, hidden[:, -targets.shape[1] :], targets))
    return torch.stack(draw_losses).mean(0)


def head_losses(model: GPT, hidden: Tensor, targets: Tensor) -> Tensor:
    """Return the losses (B, K) of hidden states (B, K, D) and targets (B, K), on the CPU."""
    weight = model.head_weight
    rows, wanted = hidden.flatten(0, 1), targets.to(weight.device).flatten()  # (B K, D), (B K,)
    losses = [
        F.cross_entropy(F.linear(row_block, weight).float(), target_block, reduction="none")
        for row_block, target_block in zip(rows.split(_LOGIT_ROWS), wanted.split(_LOGIT_ROWS), strict=True)
    ]
    return torch.cat(losses).view(targets.shape).cpu()
