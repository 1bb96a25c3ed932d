"""The loss of a step: head and cross-entropy in one, whose gradients are known as soon as the loss is.

The logits (B T, V) are by far the largest tensors of a step. They are made some rows at a time, and become their own
gradient, the softmax less the right answers, while they are at hand: nothing of them is kept for the backward pass.

model=mini, 1,024 rows of 256 over 50,257 tokens, forward and backward on two cores with AMX: in float32 280 ms, where
torch's linear_cross_entropy takes 297; under bfloat16 autocast, which doesn't know that function, 106 ms, where linear
and cross_entropy take 147 and, compiled, 103. Its loss is as exact as theirs; that of linear_cross_entropy on bfloat16
is off by 0.007 nats.

N tokens, D channels, V tokens of the vocabulary.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from poslab.attention.problem import without_autocast
from poslab.memory import Memory
from poslab.model import GPT
from poslab.tasks.base import IGNORED

_FEW_LOGITS = 2**18  # up to which torch's functions take half of the time
# At a time, by timings, for as much memory as they take: 512 rows of GPT-2's vocabulary, and 1,024 in 16 bits.
_LOGITS, _LOGITS_OF_16_BITS = 2**25, 2**26
_IN_CACHE = 2**20


def language_model_loss(model: GPT, tokens: Tensor, targets: Tensor, positions: Tensor | None = None) -> Tensor:
    """Mean cross-entropy in nats; tokens, targets and positions (B, T). Targets of -100 don't count."""
    if targets.device.type == "cpu" and (asked := targets != IGNORED).any():  # a GPU would be waited for
        return _mean_loss(model, model.hidden_where(asked, tokens, positions), targets[asked])
    return _mean_loss(model, model.hidden(tokens, positions=positions).flatten(0, 1), targets.flatten())


def loss_in_segments(
    model: GPT, tokens: Tensor, targets: Tensor, memory: Memory | None = None
) -> tuple[Tensor, Memory]:
    """The same of texts that are read in segments, tokens and targets (B, N), after what the memory has of those
    before; and the memory after them."""
    asked = targets != IGNORED
    if targets.device.type == "cpu" and asked.any() and not asked.all():
        hidden, memory = model.hidden_in_segments(tokens, memory, asked)  # (n, D)
        return _mean_loss(model, hidden, targets[asked]), memory
    hidden, memory = model.hidden_in_segments(tokens, memory)
    return _mean_loss(model, hidden.flatten(0, 1), targets.flatten()), memory


def _mean_loss(model: GPT, hidden: Tensor, targets: Tensor) -> Tensor:
    """hidden (N, D), targets (N,)."""
    weight = model.token_embedding.weight
    if len(hidden) * len(weight) <= _FEW_LOGITS:
        return F.cross_entropy(F.linear(hidden, weight), targets)
    return head_loss(hidden, weight, targets)


def head_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy of hidden (N, D) @ weight (V, D).T with targets (N,), those of -100 left out; a float32.

    Products are in the precision of autocast, as those of other linear layers, the softmax and all sums in float32.
    """
    device = hidden.device.type
    autocast = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if autocast else hidden.dtype
    with without_autocast(hidden.device):
        loss: Tensor = _HeadLoss.apply(hidden, weight, targets, dtype)  # type: ignore[no-untyped-call]
    return loss


class _HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
        counts = (targets != IGNORED).unsqueeze(1)  # (N, 1)
        total = torch.promote_types(hidden.dtype, torch.float32)
        loss = torch.zeros((), dtype=total, device=hidden.device)
        rows, head = hidden.to(dtype), weight.to(dtype)
        grad_hidden = torch.empty_like(rows)
        grad_weight = torch.zeros_like(weight, dtype=total)
        limit = _LOGITS if dtype.itemsize > 2 else _LOGITS_OF_16_BITS
        at_once = max(1, limit // len(weight))
        parts = (x.split(at_once) for x in (rows, grad_hidden, targets.clamp(min=0).unsqueeze(1), counts))
        for of_rows, of_grad, of_targets, of_counts in zip(*parts, strict=True):
            logits = F.linear(of_rows, head)  # (n, V), soon their gradients
            losses = _to_gradients(logits, of_targets, total)
            loss += losses.mul(of_counts).sum()
            torch.mm(logits, head, out=of_grad)
            _add_product(grad_weight, logits.T, of_rows * of_counts)
        number = counts.sum()
        ctx.save_for_backward(grad_hidden.mul_(counts), grad_weight, number)
        ctx.dtypes = hidden.dtype, weight.dtype
        return loss / number

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Tensor) -> tuple[Tensor | None, ...]:
        grad_hidden, grad_weight, number = ctx.saved_tensors
        each = grad_loss / number
        of_hidden, of_weight = ctx.dtypes
        return grad_hidden.to(of_hidden) * each.to(of_hidden), (grad_weight * each).to(of_weight), None, None


def _to_gradients(logits: Tensor, targets: Tensor, dtype: torch.dtype) -> Tensor:
    """Puts the gradients of the cross-entropy in the place of logits (n, V), and returns it for each row, (n, 1).

    Both are computed in `dtype`, of few rows at a time, which stay in a cache of the processor.
    """
    rows = max(1, _IN_CACHE // logits.shape[1]) if logits.device.type == "cpu" else len(logits)
    losses = []
    for of_rows, of_targets in zip(logits.split(rows), targets.split(rows), strict=True):
        shares = torch.softmax(of_rows, -1, dtype=dtype)
        right = shares.gather(1, of_targets)
        # The logarithm of a share that underflows is infinite; its loss isn't. (To ask a GPU whether there is one, it
        # would be waited for.)
        hopeless = right < torch.finfo(dtype).tiny
        found = -right.log()
        if logits.device.type != "cpu" or bool(hopeless.any()):
            of_logits = F.cross_entropy(of_rows, of_targets[:, 0], reduction="none").to(dtype)
            found = torch.where(hopeless, of_logits[:, None], found)
        losses.append(found)
        of_rows.copy_(shares.scatter_(1, of_targets, right - 1))
    return torch.cat(losses)


def _add_product(sums: Tensor, left: Tensor, right: Tensor) -> None:
    """Adds left @ right to sums, which has as many bits or more."""
    if sums.dtype == left.dtype:
        sums.addmm_(left, right)
    else:
        sums.add_(left @ right)
