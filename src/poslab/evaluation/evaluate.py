"""Evaluation of a model on a text, at several lengths; `losses` says what is measured."""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from poslab.evaluation.losses import last_losses, sliding_losses
from poslab.evaluation.stream_losses import losses_by_memory
from poslab.model.decoder import GPT
from poslab.runs.evaluation import Evaluation, LengthLoss, every_stretch, last_tokens, sliding_stride


def evaluate(
    model: GPT,
    tokens: Tensor,
    lengths: Sequence[int],
    stride: int | None = None,
    last: int | None = None,
    memory_lengths: Sequence[int] = (),
    ends: Tensor | None = None,
    most_tokens: int | None = None,
    apart: bool = False,
) -> Evaluation:
    """Return the losses of `model`, in eval mode, on tokens (N,), N at least 2, in memory linear in the length.

    stride: of the sliding windows; None: half of each length. last: tokens of a window that count in `last_loss`; None:
    half of the training length. memory_lengths: at which the loss of windows of the training length that follow each
    other is measured, too. ends: of documents in the tokens. apart: whether documents don't see each other, and their
    first tokens don't count. most_tokens: about how many count at each length, in
    stretches spread evenly over the text; None: all. Raises SettingError for memory that the model can't have.
    """
    context, alone = model.shape.context_length, ends if apart else None
    last = last_tokens(context, last)
    with model.evaluating():
        results = [
            _at_length(model, tokens, length, sliding_stride(length, stride), last, most_tokens, alone)
            for length in sorted(set(lengths))
        ]
        by_memory = losses_by_memory(model, tokens, ends, memory_lengths, apart)
    weights = hashlib.sha256()
    for name, weight in model.state_dict().items():
        weights.update(name.encode())
        weights.update(weight.cpu().flatten().view(torch.uint8).numpy())
    return Evaluation(
        context,
        len(tokens) - 1,
        results,
        weights_sha256=weights.hexdigest(),
        most_tokens=most_tokens,
        memory_losses=by_memory,
    )


def _at_length(
    model: GPT, tokens: Tensor, length: int, stride: int, last: int, most_tokens: int | None, ends: Tensor | None
) -> LengthLoss:
    if model.longest_read is not None and length > model.longest_read:
        return LengthLoss(length, stride, last=last, note=f"knows {model.longest_read} positions")
    if length > len(tokens) - 1:
        return LengthLoss(length, stride, last=last, note=f"the text has {len(tokens):,} tokens")
    every = every_stretch(len(tokens) - 1, most_tokens)
    sliding, consecutive = (sliding_losses(model, tokens, length, each, every, ends) for each in (stride, length))
    end_losses = last_losses(model, tokens, length, last, most_tokens, ends)
    return LengthLoss(
        length,
        stride,
        loss=float(consecutive.losses.mean(dtype=torch.float64)),
        sliding_loss=float(sliding.losses.mean(dtype=torch.float64)),
        by_position=[round(loss, 5) for loss in sliding.by_position.tolist()],
        windows=sliding.windows,
        last=last,
        last_loss=None if end_losses is None else float(end_losses.mean(dtype=torch.float64)),
    )
