"""Attention with `Pairwise` scores, any function of a tile, in memory linear in the length.

Each block of queries is the dense formula of `reference`. The forward pass keeps only the log-sum-exp of each query;
the backward pass computes a block's scores again and leaves their gradients to autograd. It serves what other kernels
can't: the hook `score_mod`, and relative terms by positions that are not consecutive.

Forward and backward, with a bias by the logarithm of the distance, the reference takes 2.2 times as long at T = 1,024
and 2.6 times at 2,048 in float32, 2.1 and 3.0 times in bfloat16 (processor time of one core, AMD EPYC with AVX-512 and
bfloat16, 4 heads of 64).

Tq / Tk queries / keys, m queries and n keys of a block.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poslab.attention.blocks import QueryBlock, WeightDropout, query_blocks
from poslab.attention.kernels.near_tables import LOG2_E
from poslab.attention.once import once_differentiable
from poslab.attention.reference import (
    AttentionSpec,
    by_row,
    hiding,
    no_infinity,
    pair_scores,
    with_null,
    without_autocast,
)


@torch.compiler.disable
def pairwise_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh); zeros where no key is seen."""
    dropout = WeightDropout(dropout_p, q.device) if dropout_p > 0 else None
    out: Tensor = _Tiled.apply(q, k, v, spec, dropout, *_tensors(spec))
    return out


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, dropout: WeightDropout | None, *tensors: Tensor
    ) -> Tensor:
        out = v.new_zeros(*q.shape[:3], v.shape[-1])
        log_sum = q.new_zeros(*q.shape[:3], 1)  # in powers of two
        for block in query_blocks(q.shape[2], k.shape[2], spec.offset, spec.causal, spec.window):
            own = _of_block(spec, block)
            seen = own.visible(block.queries, block.keys, q.device)
            scores, null = pair_scores(q[:, :, block.rows], k[:, :, block.columns], own, seen)  # (B, H, m, n)
            weights = torch.add(hiding(seen, scores.dtype), scores, alpha=LOG2_E)
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
            if null is not None:
                with_null(out[:, :, block.rows], log_sum[:, :, block.rows], null * LOG2_E)
        ctx.save_for_backward(q, k, v, out, log_sum, *tensors)
        ctx.spec, ctx.dropout = spec, dropout
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sum, *tensors = (x.detach() for x in ctx.saved_tensors)
        tensors = [x.requires_grad_(wanted) for x, wanted in zip(tensors, ctx.needs_input_grad[5:], strict=True)]
        spec, dropout = _with_tensors(ctx.spec, tensors), ctx.dropout
        grad_q, grad_k, grad_v, *grads = (torch.zeros_like(x) for x in (q, k, v, *tensors))
        state = None if spec.pairwise is None else spec.pairwise.token_state
        # A slice of each block is a leaf by itself: its gradient would else be of the whole tensor's size.
        by_key = [(k, grad_k), *((x, total) for x, total in zip(tensors, grads, strict=True) if x is state)]
        minus_mean = -(out * grad_out).sum(-1, keepdim=True)  # (B, H, Tq, 1)
        with without_autocast(q.device):
            for block in query_blocks(q.shape[2], k.shape[2], spec.offset, spec.causal, spec.window):
                rows, columns = block.rows, block.columns
                grad = grad_out[:, :, rows]
                slices = [q[:, :, rows], *(x[:, :, columns] for x, _ in by_key)]
                inputs = [x.detach().requires_grad_() for x in slices]
                with torch.enable_grad():
                    own = _of_block(spec, block)
                    if own.pairwise is not None and state is not None:
                        own = replace(own, pairwise=replace(own.pairwise, token_state=inputs[2]))
                    seen = own.visible(block.queries, block.keys, q.device)
                    scores, null = pair_scores(inputs[0], inputs[1], own, seen)
                weights = torch.add(-log_sum[:, :, rows], scores.detach(), alpha=LOG2_E)
                _exp2_(weights.add_(hiding(seen, weights.dtype)))  # (B, H, m, n)
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
                outputs = [(scores, grad_scores)]
                if null is not None:
                    weight = (null.detach() * LOG2_E - log_sum[:, :, rows]).exp2_()  # (B, H, m, 1)
                    outputs.append((null, weight.mul_(minus_mean[:, :, rows])))
                if own.values is not None:
                    with torch.enable_grad():
                        outputs.append((by_row(weights, own) @ own.values.to(v.dtype), grad))
                totals = (grad_q[:, :, rows], *(total[:, :, columns] for _, total in by_key), *grads)
                _add_gradients(outputs, [*inputs, *tensors], totals)
        return grad_q, grad_k, grad_v, None, None, *grads


def _add_gradients(outputs: list[tuple[Tensor, Tensor]], leaves: list[Tensor], totals: tuple[Tensor, ...]) -> None:
    """Add the gradients of the leaves to their totals; outputs: what was computed of them, each with its gradient."""
    outputs = [pair for pair in outputs if pair[0].requires_grad]
    wanted = [(leaf, total) for leaf, total in zip(leaves, totals, strict=True) if leaf.requires_grad]
    if not outputs:
        return
    tensors, gradients = zip(*outputs, strict=True)
    leaf_gradients = torch.autograd.grad(tensors, [leaf for leaf, _ in wanted], gradients, allow_unused=True)
    for (_, total), gradient in zip(wanted, leaf_gradients, strict=True):
        if gradient is not None:
            total += gradient


def _tensors(spec: AttentionSpec) -> tuple[Tensor, ...]:
    """Return the tensors that may need gradients, beside queries, keys and values."""
    named = () if spec.terms is None else spec.terms.tables.values()
    hook = () if spec.pairwise is None else (spec.pairwise.token_state, *spec.pairwise.tables.values())
    return tuple(tensor for tensor in (*named, spec.key_bias, spec.null, *hook) if tensor is not None)


def _with_tensors(spec: AttentionSpec, tensors: Iterable[Tensor]) -> AttentionSpec:
    """Replace the tensors that `_tensors` returns, in their order."""
    rest = iter(tensors)
    tables: dict[str, Any] = {} if spec.terms is None else {name: next(rest) for name in spec.terms.tables}
    terms = spec.terms and replace(spec.terms, **tables)
    key_bias, null = (None if tensor is None else next(rest) for tensor in (spec.key_bias, spec.null))
    pairwise = spec.pairwise
    if pairwise is not None:
        token_state = None if pairwise.token_state is None else next(rest)
        pairwise = replace(pairwise, token_state=token_state, tables={name: next(rest) for name in pairwise.tables})
    return replace(spec, terms=terms, key_bias=key_bias, null=null, pairwise=pairwise)


def _of_block(spec: AttentionSpec, block: QueryBlock) -> AttentionSpec:
    """Restrict the specification to the queries and keys of one block."""
    pairwise = spec.pairwise and replace(
        spec.pairwise,
        query_positions=spec.pairwise.query_positions[..., block.rows],
        key_positions=spec.pairwise.key_positions[..., block.columns],
        token_state=None if spec.pairwise.token_state is None else spec.pairwise.token_state[:, :, block.columns],
        first_key=block.first_key,
    )
    first_key = None if spec.first_key is None else spec.first_key - block.first_key
    key_bias = None if spec.key_bias is None else spec.key_bias[..., block.columns]
    return replace(spec, offset=block.position, first_key=first_key, key_bias=key_bias, pairwise=pairwise)


def _exp2_(scores: Tensor) -> Tensor:
    """Raise 2 to the power of scores up to 0, in place; 0 for weights so small that they, or products, are denormal.

    A CPU computes slowly with those numbers: a matrix product up to sixty times.
    """
    return torch.threshold_(scores, -100.0, -math.inf).exp2_()
