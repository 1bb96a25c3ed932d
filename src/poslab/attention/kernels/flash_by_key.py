"""torch's flash kernel for causal attention with a bias of each key, as gates that forget have.

The kernel adds numbers to the scores, of which it gives no gradient. For a bias of keys one row of numbers is enough.
Its gradient, the sum of the gradients of all scores of a key, comes with that of the keys: one channel more of the
queries, which holds ones, makes the same channel of the keys' gradient hold that sum.

Queries are taken in blocks, and biases less the largest that the first query of a block sees: beside what has summed up
along a text, near keys would lose their digits. Where little is forgotten, one block holds all queries; keys that are
forgotten altogether are left out. Forward and backward, (1, 4, 2048, 64) in float32 on two cores, times causal
attention without positions: 1.36 with gates of 0.993, 1.44 of 0.96, 1.19 of 0.9, where blocks take 1.6; with gates of
0.5, for which blocks are used, but without keys that are forgotten, 0.75.

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from poslab.attention.kernels.blocks import BLOCK, Block, query_blocks
from poslab.attention.kernels.flash import flash, flash_backward
from poslab.attention.kernels.relative import NEAR_BY, largest_score, needed_keys
from poslab.attention.spec import AttentionSpec

_LEAST = 2 * BLOCK  # queries of a block
_PADDING = 8  # channels; it takes as long with one


class FlashByKey(torch.autograd.Function):
    """Attention of q (N, Tq, Dh) over k and v (N, Tk, Dh) with a bias of keys (N, Tk), by `blocks_by_key`."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float, blocks: list[Block]) -> Tensor:
        out, log_sum = torch.empty_like(q), q.new_empty(q.shape[:2])
        for block in blocks:
            parts = []
            for columns, causal in _parts(block):
                own = (x[None] for x in (q[:, block.rows], k[:, columns], v[:, columns]))
                numbers = _numbers(bias, block, columns).to(q.dtype)
                part, of_part = flash(*own, 0.0, causal, attn_mask=numbers, scale=scale)
                parts.append((part[0], of_part[0]))
            out[:, block.rows], log_sum[:, block.rows] = _joined(*parts)
        ctx.save_for_backward(q, k, v, bias, out, log_sum)
        ctx.scale, ctx.blocks = scale, blocks
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, bias, out, log_sum = ctx.saved_tensors
        zeros = [F.pad(x, (0, _PADDING))[None] for x in (grad_out, k, v, out)]
        grad_out, k, v, out = zeros
        q = F.pad(q, (0, _PADDING), value=1.0)[None]  # (1, N, Tq, Dh + _PADDING)
        grad_q, grad_k, grad_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for block in ctx.blocks:
            rows = block.rows
            for columns, causal in _parts(block):
                own = q[:, :, rows], k[:, :, columns], v[:, :, columns], out[:, :, rows], log_sum[None, :, rows]
                how: dict[str, Any] = {"attn_mask": _numbers(bias, block, columns).to(q.dtype), "scale": ctx.scale}
                of_q, of_k, of_v = flash_backward(grad_out[:, :, rows], *own, 0.0, causal, **how)
                grad_q[:, :, rows] += of_q
                grad_k[:, :, columns] += of_k
                grad_v[:, :, columns] += of_v
        of_bias = grad_k[0, ..., -1] / ctx.scale
        return *(grad[0, ..., :-_PADDING] for grad in (grad_q, grad_k, grad_v)), of_bias.to(bias.dtype), None, None


def blocks_by_key(spec: AttentionSpec, bias: Tensor, q: Tensor, k: Tensor) -> list[Block] | None:
    """The blocks for q (B, H, Tq, Dh) over k (B, H, Tk, Dh); None where the kernel can't compute this, or not well.

    bias: (N, Tk). Where it rises much within a block, that of the first query is no measure for the last: blocks are as
    large as they may be, and small ones are left to `blockwise`.
    """
    query_length, key_length = q.shape[-2], k.shape[-2]
    own_keys = 0 <= spec.offset <= key_length - query_length  # each query stands at a key that it sees
    more = (spec.terms, spec.window, spec.first_key, spec.pairwise)
    if not (q.device.type == "cpu" and spec.causal and own_keys and query_length >= _LEAST):
        return None
    if any(part is not None for part in more) or not bias.isfinite().all():
        return None
    of_queries = bias.detach().cummax(-1).values[:, spec.offset :][:, :query_length]  # the largest each one sees
    size = query_length
    while size >= _LEAST:
        blocks = list(query_blocks(query_length, key_length, spec.offset, causal=True, size=size))
        last = [block.rows.stop - 1 for block in blocks]
        rise = of_queries[:, last] - of_queries[:, [block.first_query for block in blocks]]
        if rise.max() <= NEAR_BY:
            return needed_keys(blocks, bias, largest_score(q, k, spec.scale), q.dtype)
        size = -(-size // 2)
    return None


def _parts(block: Block) -> Iterator[tuple[slice, bool]]:
    """The keys before the block's queries, and their own, of which only these are hidden from some."""
    own = block.first_key + block.position
    if block.position:
        yield slice(block.first_key, own), False
    yield slice(own, own + block.queries), True


def _numbers(bias: Tensor, block: Block, columns: slice) -> Tensor:
    """(1, N, 1, n)"""
    largest = bias[:, : block.first_key + block.position + 1].amax(-1, keepdim=True)
    return (bias[:, columns] - largest)[None, :, None]


def _joined(*parts: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Outputs (N, m, Dh) and log-sum-exps (N, m) of the same queries over different keys -> those over all."""
    if len(parts) == 1:
        return parts[0]
    (before, of_before), (own, of_own) = parts
    share = (of_own - of_before).sigmoid()[..., None]
    return torch.lerp(before, own, share), torch.logaddexp(of_before, of_own)
