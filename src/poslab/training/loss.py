"""Loss of a step: head and cross-entropy in one function, whose gradients are known as soon as the loss is.

The logits (B T, V) are by far the largest tensors of a step. They are made some rows at a time, and become their own
gradient, the softmax less the right answers, while they are at hand: nothing of them is kept for the backward pass.

model=mini, 1,024 rows of 256 over 50,257 tokens, forward and backward on two cores with AMX: in float32 273 ms, where
torch's linear_cross_entropy takes 307; under bfloat16 autocast, which doesn't know that function, 87 ms, where linear
and cross_entropy take 142 and, compiled, 109. Its loss is as exact as theirs; that of linear_cross_entropy on bfloat16
is off by 0.007 nats.

N tokens, D channels, V tokens of the vocabulary.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.once import once_differentiable
from poslab.attention.reference import without_autocast
from poslab.metric import IGNORED
from poslab.model.decoder import GPT
from poslab.processors import compiled, compiler_problem

_FEW_LOGITS = 2**18  # up to which torch's functions take half of the time
# At a time on a CPU, by timings, for as much memory as they take: 512 rows of GPT-2's vocabulary, and 1,024 in 16 bits.
_LOGITS, _LOGITS_OF_16_BITS = 2**25, 2**26
_LOGITS_ON_GPU = 2**27  # of two bytes a quarter of a gigabyte
_ALIGNED = 64  # columns: with the 50,257 of GPT-2 an H200 multiplies in 16 bits at a seventh of the speed
_IN_CACHE = 2**19
_COLUMNS = 2**13  # of the logits, by which a product in 16 bits takes two thirds of the time


def language_model_loss(
    model: GPT, tokens: Tensor, targets: Tensor, positions: Tensor | None = None, documents: Tensor | None = None
) -> Tensor:
    """Return the mean cross-entropy in nats; tokens, targets, positions and documents (B, T). Targets of -100 don't
    count."""
    head = model.head_weight
    if targets.device.type == "cpu" and (target_mask := targets != IGNORED).any():  # a GPU would be waited for
        return mean_loss(model.hidden_at(target_mask, tokens, positions, documents), head, targets[target_mask])
    return mean_loss(model.hidden(tokens, None, positions, documents).flatten(0, 1), head, targets.flatten())


def mean_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy by torch's functions or by `head_loss`, whichever is faster.

    hidden (N, D), weight (V, D), targets (N,).
    """
    if len(hidden) * len(weight) <= _FEW_LOGITS:
        return F.cross_entropy(F.linear(hidden, weight), targets)
    return head_loss(hidden, weight, targets)


def head_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of hidden (N, D) @ weight (V, D).T with targets (N,), those of -100 left out.

    Products are in the precision of autocast, as those of other linear layers, the softmax and all sums in float32.
    """
    device = hidden.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else hidden.dtype
    with without_autocast(hidden.device):
        loss: Tensor = _HeadLoss.apply(hidden, weight, targets, dtype)
    return loss


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        counts = (targets != IGNORED).unsqueeze(1)  # (N, 1)
        total = torch.promote_types(hidden.dtype, torch.float32)
        loss = torch.zeros((), dtype=total, device=hidden.device)
        rows, head = hidden.to(dtype), weight.to(dtype)
        on_cpu = _stays_in_cache(hidden)
        at_once = max(1, (_LOGITS if dtype.itemsize > 2 else _LOGITS_OF_16_BITS) // len(weight))
        if not on_cpu:
            if missing := -len(head) % _ALIGNED:
                head = F.pad(head, (0, 0, 0, missing))
            pieces = -(-len(rows) * len(head) // _LOGITS_ON_GPU)
            at_once = max(1, -(-len(rows) // max(1, pieces)))  # of equal sizes, for which one kernel is compiled
        grad_hidden, grad_weight = torch.empty_like(rows), None
        # So that sums over N rows of hidden states up to 32 stay within float16.
        shrink = 2.0 ** min(0, 11 - len(rows).bit_length()) if dtype == torch.float16 else 1.0
        blocks = (x.split(at_once) for x in (rows, grad_hidden, targets.unsqueeze(1).where(counts, 0), counts))
        for row_block, grad_block, target_block, count_block in zip(*blocks, strict=True):
            logits = _logits(row_block, head)  # (n, V), soon their gradients
            if on_cpu:
                losses = _to_gradients(logits, row_block, head, target_block, total)
            else:
                logits[:, len(weight) :] = -torch.inf
                logits, losses = _gradients_on(logits.device.type)(logits, target_block, total)
            loss += losses.mul(count_block).sum()
            torch.mm(logits, head, out=grad_block)
            if len(row_block) == len(rows):
                del head  # a copy, where it has 16 bits, which the only piece needs no more
            grad_weight = _with_product(grad_weight, logits.T, row_block * count_block.to(dtype).mul_(shrink), total)
            del logits  # or two are there at once
        grad_weight = None if grad_weight is None else grad_weight[: len(weight)]
        number = counts.sum()
        ctx.save_for_backward(grad_hidden.mul_(counts), grad_weight, number)
        ctx.dtypes, ctx.shrink = (hidden.dtype, weight.dtype), shrink
        return loss / number

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, number = ctx.saved_tensors
        each = grad_loss / number.clamp(min=1)  # none counts: the loss is no number, and its gradients are 0
        hidden_dtype, weight_dtype = ctx.dtypes
        return (
            _scaled(grad_hidden, each, hidden_dtype),
            _scaled(grad_weight, each / ctx.shrink, weight_dtype),
            None,
            None,
        )


def _stays_in_cache(hidden: Tensor) -> bool:
    """Return whether it pays to compute few rows at a time, as on a CPU; elsewhere all are, in few kernels."""
    return hidden.device.type == "cpu"


def _logits(rows: Tensor, head: Tensor) -> Tensor:
    """Return rows (n, D) @ head (V, D).T."""
    if rows.device.type != "cpu" or rows.dtype.itemsize > 2:
        return F.linear(rows, head)
    logits = rows.new_empty(len(rows), len(head))
    for logit_block, head_block in zip(logits.split(_COLUMNS, dim=1), head.split(_COLUMNS), strict=True):
        torch.mm(rows, head_block.T, out=logit_block)
    return logits


def _to_gradients(logits: Tensor, rows: Tensor, head: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
    """Replace logits (n, V), which are rows (n, D) @ head (V, D).T, by the gradients of the cross-entropy, and return
    the cross-entropy of each row, (n, 1).

    Both are computed in `dtype`, of few rows at a time, which stay in the cache.
    """
    at_once = max(1, _IN_CACHE // logits.shape[1])
    right = []
    for row_block, target_block in zip(logits.split(at_once), targets.split(at_once), strict=True):
        shares = row_block.to(dtype)  # the logits themselves where they are of that dtype
        torch.softmax(shares, -1, out=shares)
        right.append(shares.gather(1, target_block))
        shares.scatter_(1, target_block, right[-1] - 1)
        if shares is not row_block:
            row_block.copy_(shares)
    right_sums = torch.cat(right)
    row_losses = -right_sums.log()
    # The logarithm of a share that underflows is infinite; its loss isn't.
    hopeless = right_sums < torch.finfo(dtype).tiny
    if hopeless.any():
        again = hopeless[:, 0]
        right_logits = F.linear(rows[again], head)
        row_losses[again] = F.cross_entropy(right_logits, targets[again, 0], reduction="none").to(dtype)[:, None]
    return row_losses


def _gradients(logits: Tensor, targets: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the gradients of the cross-entropy of all rows, (n, V), and the cross-entropy, (n, 1), as `_to_gradients`
    does; logits of -inf get gradients of 0."""
    log_shares = torch.log_softmax(logits.to(dtype), -1)
    right = torch.arange(logits.shape[1], device=logits.device) == targets  # (n, V)
    return (log_shares.exp() - right.to(dtype)).to(logits.dtype), -log_shares.gather(1, targets)


@cache
def _gradients_on(device: str) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return `_gradients`, compiled into two passes over the logits where torch can."""
    return _gradients if compiler_problem(device) else compiled(_gradients)


def _with_product(sums: Tensor | None, left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """Add left @ right to the sums, in `dtype`, if there are any yet."""
    if sums is None:
        return left @ right
    if left.dtype == dtype:
        return sums.addmm_(left, right)
    sums = sums.to(dtype)
    at_once = _COLUMNS if left.device.type == "cpu" else len(left)  # a CPU's sum makes a copy in `dtype`
    for sum_block, left_block in zip(sums.split(at_once), left.split(at_once), strict=True):
        sum_block += left_block @ right
    return sums


def _scaled(gradient: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    """Scale the gradient into a new tensor of `dtype`: autograd may need the old one again."""
    if dtype.itemsize > gradient.dtype.itemsize:
        return gradient.to(dtype).mul_(factor)
    return (gradient * factor).to(dtype)
