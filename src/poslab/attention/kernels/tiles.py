"""Attention whose scores are any function of a tile, in memory linear in the length.

Each block of queries is the dense formula of `reference`, on those queries and all keys that they see. Of the forward
pass only the log-sum-exp of each query stays; the backward pass computes a block's scores again, and what autograd says
of them is left to it: here are the softmax and the products with the values. It serves what the other kernels can't:
the hook `scores`, and relative terms by positions that are not consecutive.

Tq / Tk queries / keys, m queries and n keys of a block.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from poslab.attention.kernels.dropout import WeightDropout
from poslab.attention.kernels.relative import LOG2_E, no_infinity
from poslab.attention.reference import by_row, pair_scores
from poslab.attention.spec import AttentionSpec, without_autocast


@torch.compiler.disable
def tiled_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh). A query that sees no key gets zeros."""
    dropout = WeightDropout(dropout_p, q.device) if dropout_p > 0 else None
    out: Tensor = _Tiled.apply(q, k, v, spec, dropout, *spec.tensors)  # type: ignore[no-untyped-call]
    return out


class _Tiled(torch.autograd.Function):
    """The tensors are the problem's own: given once more, for their gradients."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, dropout: WeightDropout | None, *tensors: Tensor
    ) -> Tensor:
        out = v.new_zeros(*q.shape[:3], v.shape[-1])
        log_sum = q.new_zeros(*q.shape[:3], 1)  # in powers of two
        for block in spec.blocks(q.shape[2], k.shape[2]):
            own = spec.of(block)
            seen = own.visible(block.queries, block.keys, q.device)
            scores = pair_scores(q[:, :, block.rows], k[:, :, block.columns], own, seen)  # (B, H, m, n)
            weights = (scores * LOG2_E).masked_fill_(~seen, -math.inf)
            largest = no_infinity(weights.amax(-1, keepdim=True))
            _exp2_(weights.sub_(largest))
            # At least 1, the weight of the largest score; where nothing is seen, 1 makes the output 0.
            total = weights.sum(-1, keepdim=True).clamp_(min=1)
            torch.add(largest, total.log2(), out=log_sum[:, :, block.rows])
            if dropout is not None:
                weights.mul_(dropout.factors(block, weights))
            result = weights @ v[:, :, block.columns]  # (B, H, m, Dh)
            if own.values is not None:
                result += by_row(weights, own) @ own.values.to(v.dtype)
            torch.div(result, total, out=out[:, :, block.rows])
        ctx.save_for_backward(q, k, v, out, log_sum, *tensors)
        ctx.spec, ctx.dropout = spec, dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sum, *tensors = (x.detach() for x in ctx.saved_tensors)
        tensors = [x.requires_grad_(wanted) for x, wanted in zip(tensors, ctx.needs_input_grad[5:], strict=True)]
        spec, dropout = ctx.spec.with_tensors(tensors), ctx.dropout
        grad_q, grad_k, grad_v, *grads = (torch.zeros_like(x) for x in (q, k, v, *tensors))
        minus_mean = -(out * grad_out).sum(-1, keepdim=True)  # (B, H, Tq, 1)
        with without_autocast(q.device):
            for block in spec.blocks(q.shape[2], k.shape[2]):
                rows, columns = block.rows, block.columns
                grad = grad_out[:, :, rows]
                inputs = [x.detach().requires_grad_() for x in (q[:, :, rows], k[:, :, columns])]
                with torch.enable_grad():
                    own = spec.of(block)
                    seen = own.visible(block.queries, block.keys, q.device)
                    scores = pair_scores(*inputs, own, seen)  # type: ignore[call-arg]
                weights = torch.add(-log_sum[:, :, rows], scores.detach(), alpha=LOG2_E)
                _exp2_(weights.masked_fill_(~seen, -math.inf))  # (B, H, m, n)
                grad_scores = grad @ v[:, :, columns].mT
                if own.values is not None:
                    of_rows = grad @ own.values.detach().to(v.dtype).mT  # (B, H, m, R)
                    grad_scores += of_rows.gather(-1, own.rows(block.queries, block.keys).expand(scores.shape))
                factors = None if dropout is None else dropout.factors(block, weights)
                if factors is not None:
                    grad_scores.mul_(factors)
                grad_scores.add_(minus_mean[:, :, rows]).mul_(weights)
                if factors is not None:
                    weights.mul_(factors)
                grad_v[:, :, columns] += weights.mT @ grad
                made = [(scores, grad_scores)]
                if own.values is not None:
                    with torch.enable_grad():
                        made.append((by_row(weights, own) @ own.values.to(v.dtype), grad))
                places = (grad_q[:, :, rows], grad_k[:, :, columns], *grads)
                _add_gradients(made, [*inputs, *tensors], places)
        return grad_q, grad_k, grad_v, None, None, *grads


def _add_gradients(made: list[tuple[Tensor, Tensor]], leaves: list[Tensor], places: tuple[Tensor, ...]) -> None:
    """Adds the gradients of the leaves to their places; made: what was made of the leaves, each with its gradient."""
    outputs = [pair for pair in made if pair[0].requires_grad]
    wanted = [(leaf, place) for leaf, place in zip(leaves, places, strict=True) if leaf.requires_grad]
    if not outputs:
        return
    tensors, gradients = zip(*outputs, strict=True)
    found = torch.autograd.grad(tensors, [leaf for leaf, _ in wanted], gradients, allow_unused=True)
    for (_, place), gradient in zip(wanted, found, strict=True):
        if gradient is not None:
            place += gradient


def _exp2_(scores: Tensor) -> Tensor:
    """2 to the power of scores up to 0, in place; 0 for weights so small that they, or their products, are denormal.

    A CPU computes slowly with those numbers: a matrix product up to sixty times.
    """
    return torch.threshold_(scores, -100.0, -math.inf).exp2_()
