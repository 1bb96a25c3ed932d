"""Exact attention with relative terms, in memory linear in the length, in plain PyTorch.

Queries are taken in blocks, and the scores of one block, (N, m, n), are all that ever exists of the (Tq, Tk) matrix. Of
the forward pass only the log-sum-exp of each query stays; the backward pass computes a block's scores again from it. A
causal block leaves out the keys after its last query, which is half of the work. Relative terms touch a band of
diagonals of a block; `relative` says how.

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension, R near rows that
occur in a block.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from poslab.attention.blocks import Block, query_blocks
from poslab.attention.dropout import WeightDropout
from poslab.attention.relative import (
    LOG2_E,
    NearTables,
    near_tables,
    with_far_values,
)
from poslab.attention.tile import Tile, storage_size
from poslab.positions import RelativeTerms


@torch.compiler.disable
def blockwise_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: RelativeTerms | None,
    *,
    causal: bool,
    offset: int,
    scale: float,
    dropout_p: float,
) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh); the formula is in `RelativeTerms`.

    A query that sees no key gets zeros. 16-bit inputs are computed in 32 bits.
    """
    shape, dtype = q.shape[:2], torch.promote_types(q.dtype, torch.float32)
    dropout = WeightDropout(dropout_p, q.device) if dropout_p > 0 else None
    with torch.autocast(q.device.type, enabled=False):
        near = near_tables(terms, *shape, causal=causal, dtype=dtype)
        wide = (q.to(dtype) * scale, k.to(dtype), with_far_values(v.to(dtype), terms))
        flat = (x.flatten(0, 1) for x in wide)  # each (N, T, Dh)
        masking = Masking(causal, offset, near.lowest, near.highest, dropout)
        # (N, Tq, Dh)
        out = _Blockwise.apply(*flat, near.bias, near.keys, near.values, masking)  # type: ignore[no-untyped-call]
    return out.unflatten(0, shape).to(v.dtype)


@dataclass(frozen=True)
class Masking:
    """What the kernel is told beside tensors: which pairs count, and which distances have near rows."""

    causal: bool
    offset: int
    lowest: int
    highest: int
    dropout: WeightDropout | None


class _Blockwise(torch.autograd.Function):
    """Attention of q (N, Tq, Dh), already scaled, over k and v (N, Tk, Dh)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        masking: Masking,
    ) -> Tensor:
        near = NearTables(masking.lowest, masking.highest, bias, keys, values)
        blocks = list(query_blocks(q.shape[1], k.shape[1], masking.offset, masking.causal))
        storage = _storage(q, blocks)
        out = torch.zeros_like(q)
        log_sum = q.new_zeros(*q.shape[:2], 1)  # (N, Tq, 1)
        for block in blocks:
            tile = Tile(storage, len(q), block, near, masking.causal)
            _fill(tile, block, q, k, near, masking)
            weights = tile.scores  # (N, m, n)
            largest = weights.amax(-1, keepdim=True)
            weights.sub_(largest).exp2_()
            total = weights.sum(-1, keepdim=True)
            torch.add(largest, total.log2(), out=log_sum[:, block.rows])
            if masking.dropout is not None:
                weights.mul_(masking.dropout.factors(block, weights))
            result = weights @ v[:, : block.keys]  # (N, m, Dh)
            if values is not None:
                result.baddbmm_(tile.collect(), values[:, tile.rows])
            torch.div(result, total, out=out[:, block.rows])
        ctx.save_for_backward(q, k, v, bias, keys, values, out, log_sum)
        ctx.masking = masking
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, keys, values, out, log_sum = ctx.saved_tensors
        masking: Masking = ctx.masking
        near = NearTables(masking.lowest, masking.highest, bias, keys, values)
        blocks = list(query_blocks(q.shape[1], k.shape[1], masking.offset, masking.causal))
        storage, grad_storage = _storage(q, blocks), _storage(q, blocks)
        grads: list[Any] = [
            x.new_zeros(x.shape) if x is not None and (x is not bias or ctx.needs_input_grad[3]) else None
            for x in (q, k, v, bias, keys, values)
        ]
        grad_q, grad_k, grad_v, grad_bias, grad_keys, grad_values = grads
        minus_mean = -(out * grad_out).sum(-1, keepdim=True)  # (N, Tq, 1)
        for block in blocks:
            rows, seen_k, seen_v = block.rows, k[:, : block.keys], v[:, : block.keys]
            tile = Tile(storage, len(q), block, near, masking.causal)
            _fill(tile, block, q, k, near, masking, start=-log_sum[:, rows])
            weights = tile.scores.exp2_()  # (N, m, n)

            grad_tile = Tile(grad_storage, len(q), block, near, masking.causal)
            grad_scores = grad_tile.scores
            start = minus_mean[:, rows] if masking.dropout is None else None
            _multiply(grad_out[:, rows], seen_v, start, out=grad_scores)
            if values is not None:
                grad_tile.add(grad_out[:, rows] @ values[:, tile.rows].transpose(1, 2))
            if masking.dropout is not None:
                factors = masking.dropout.factors(block, weights)
                grad_scores.mul_(factors).add_(minus_mean[:, rows])
            grad_scores.mul_(weights)
            torch.bmm(grad_scores, seen_k, out=grad_q[:, rows])
            grad_k[:, : block.keys].baddbmm_(grad_scores.transpose(1, 2), q[:, rows])
            if grad_bias is not None or keys is not None:
                by_row = grad_tile.collect()  # (N, m, R)
                if grad_bias is not None:
                    grad_bias[:, tile.rows] += by_row.sum(1)
                if keys is not None:
                    grad_keys[:, tile.rows].baddbmm_(by_row.transpose(1, 2), q[:, rows])
                    grad_q[:, rows].baddbmm_(by_row, keys[:, tile.rows])

            if masking.dropout is not None:
                weights.mul_(factors)
            grad_v[:, : block.keys].baddbmm_(weights.transpose(1, 2), grad_out[:, rows])
            if values is not None:
                grad_values[:, tile.rows].baddbmm_(tile.collect().transpose(1, 2), grad_out[:, rows])
        return (*grads, None)


def _storage(q: Tensor, blocks: list[Block]) -> Tensor:
    """Room for the tile of any of the blocks, used for one after another."""
    return q.new_empty(len(q) * max(map(storage_size, blocks), default=0))


def _multiply(a: Tensor, b: Tensor, start: Tensor | None, out: Tensor, factor: float = 1.0) -> None:
    """out (N, m, n) = start (N, m, 1) + factor * a (N, m, Dh) b (N, n, Dh)^T, in one pass over `out`."""
    beta = 0 if start is None else 1
    start = out if start is None else start.expand_as(out)
    torch.baddbmm(start, a, b.transpose(1, 2), beta=beta, alpha=factor, out=out)


def _fill(
    tile: Tile, block: Block, q: Tensor, k: Tensor, near: NearTables, masking: Masking, start: Tensor | None = None
) -> None:
    """Makes the tile's scores those of the block's pairs in powers of two, plus start (N, m, 1); -inf if hidden."""
    q = q[:, block.rows]
    _multiply(q, k[:, : block.keys], start, out=tile.scores, factor=LOG2_E)
    if near.keys is not None:
        tile.add(q @ near.keys[:, tile.rows].transpose(1, 2) * LOG2_E)
    if near.bias is not None:
        tile.add(near.bias[:, None, tile.rows] * LOG2_E)
    if masking.causal:
        later = tile.scores[..., block.position + 1 :]  # empty, or at most the block's own keys
        later.add_(torch.full(later.shape[1:], -math.inf, dtype=q.dtype, device=q.device).triu())
