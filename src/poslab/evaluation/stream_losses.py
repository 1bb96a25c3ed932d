"""Losses of a model that reads a text as a stream: with memory of what stands before each window."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from poslab.data.stream import Scans, segments_before
from poslab.data.windows import CoveringWindows
from poslab.errors import SettingError
from poslab.evaluation.losses import BATCH_TOKENS, WindowLosses, by_window, head_losses, sliding_losses
from poslab.metric import IGNORED
from poslab.model.decoder import GPT
from poslab.model.memory import MemoryGPT, with_memory
from poslab.positions.sizes import check_memory
from poslab.progress import progress


@torch.no_grad()
def scan_losses(model: MemoryGPT, scan: Sequence[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield of each segment of a scan that has targets the windows' numbers (R,), losses and targets, both (R, T)."""
    memories = [model.empty_memory(scan[0].shape[1])] * len(model.position.draws)
    for numbers, tokens, targets, read, *documents in zip(*scan, strict=True):
        judged, draw_losses = (targets != IGNORED).any(), []
        for draw, memory in enumerate(memories):
            with model.position.drawing(draw):
                here = memory.restarted(read)
                hidden, memories[draw] = model.hidden_with_memory(tokens.to(here.read.device), here, None, *documents)
            if judged:
                draw_losses.append(head_losses(model, hidden, targets))
        if judged:
            yield numbers, torch.stack(draw_losses).mean(0), targets


def scanned_losses(model: MemoryGPT, scan: Sequence[Tensor]) -> WindowLosses:
    """Return the losses of a scan as `window_losses` does."""
    return {
        number: row
        for numbers, losses, targets in scan_losses(model, scan)
        for number, row in by_window(numbers, losses, targets).items()
        if row[1]
    }


def consecutive_token_losses(
    model: GPT, tokens: Tensor, length: int, ends: Tensor | None = None, apart: bool = False
) -> Tensor:
    """Return the loss of each token after the first, (N - 1,), nats, in windows that follow each other, with what the
    model remembers of those before. ends: of documents in the tokens (N,); apart: whether these don't see each other,
    and their first tokens have no loss."""
    alone = ends if apart else None
    if not isinstance(model, MemoryGPT) or not model.reach:
        return sliding_losses(model, tokens, length, length, ends=alone).losses
    windows = CoveringWindows(tokens, length, length, alone)
    scans = Scans(windows, max(1, BATCH_TOKENS // length), segments_before(length, model.reach), ends)
    token_losses, counted = torch.zeros(len(windows), length), torch.zeros(len(windows), length, dtype=torch.bool)
    for scan in progress(range(len(scans)), f"windows of {length:,}"):
        for numbers, losses, targets in scan_losses(model, scans[scan]):
            judged = (targets != IGNORED).any(1)
            token_losses[numbers[judged]] = losses[judged]
            counted[numbers[judged]] = targets[judged] != IGNORED
    return token_losses[counted]


def losses_by_memory(
    model: GPT, tokens: Tensor, ends: Tensor | None, memory_lengths: Sequence[int], apart: bool = False
) -> dict[str, float]:
    """Return by the number of tokens remembered the mean loss of windows of the training length that follow each other,
    of the same targets whatever is remembered. Raises SettingError for memory that the scheme can't have."""
    length, losses = min(model.shape.context_length, len(tokens) - 1), {}
    for memory_length in sorted(set(memory_lengths)):
        remembering = with_memory(model, min(memory_length, len(tokens)))
        mean = consecutive_token_losses(remembering, tokens, length, ends, apart).mean(dtype=torch.float64)
        losses[str(memory_length)] = float(mean)
    return losses


def memory_lengths_of(model: GPT, wanted: Sequence[int] | None) -> Sequence[int]:
    """Return the memory lengths to evaluate a model at: those wanted, or of a model with memory 0, its own, its
    context, four times that. Raises SettingError for one of those wanted that the model can't have."""
    if wanted:
        for length in wanted:
            try:
                check_memory(model.pos, model.shape, length)
            except SettingError as error:
                raise error.prefixed("model") from None
        return wanted
    if not isinstance(model, MemoryGPT) or not model.reach:
        return []
    context, lengths = model.shape.context_length, []
    for length in sorted({0, model.memory_length, context, 4 * context}):
        with suppress(SettingError):  # a scheme may have fewer positions
            check_memory(model.pos, model.shape, length)
            lengths.append(length)
    return lengths
