"""Attention with a bias by distance that needs no gradient, a null score, or both, by torch's flash kernel for the CPU.

The kernel adds a matrix to the scores and gives no gradient for it: it serves a bias that is not learned, and outside
training also one that is. The matrices of all blocks of queries are parts of one, which takes memory linear in the
length. A null score changes what the kernel has returned, output and log-sum-exp, and of these the backward kernel
computes the gradients.

Forward and backward, 4 heads of 64 with a bias that falls in a line, `blockwise` takes 1.22, 1.20, 1.19 and 0.99 times
as long at T = 256, 512, 1,024 and 2,048 in float32, 1.17, 1.20, 1.18 and 1.22 times in bfloat16 (AMD EPYC with AVX-512
and bfloat16, two cores; with one thread 0.99 to 1.16). With a window `blockwise` is the faster one.

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from poslab.attention.blocks import BLOCK, QueryBlock, query_blocks
from poslab.attention.kernels.near_tables import LOG2_E, NearTables, largest_score
from poslab.attention.kernels.sdpa import skewed
from poslab.attention.once import once_differentiable
from poslab.attention.reference import AttentionSpec, with_null
from poslab.processors import cpu_flash_kernels

# Forward and backward, called by themselves because through autograd the backward pass can't go block by block.
_KERNELS = cpu_flash_kernels()
_BLOCK = 2 * BLOCK  # with 128 queries the kernel takes 1.27 times as long, with 512 1.05 times
_WHOLE = [(slice(None), slice(None), None)]  # all queries and keys at once, without a bias


@dataclass(frozen=True, eq=False)
class BiasByDistance:
    """Bias of each distance, without gradients, and the blocks of queries, computed one after the other."""

    blocks: list[QueryBlock]
    position: int  # the largest of the blocks' positions
    columns: int  # C, keys of the matrix that all blocks take parts of
    numbers: Tensor  # (H, C + m - 1), from the farthest distance down

    def parts(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield queries and keys of each block, and its part of the matrix, (1, H, m, n)."""
        # Of query i and key c the bias of distance position + i - c.
        matrix = skewed(self.numbers, self.numbers.shape[-1] - self.columns + 1)[None]  # (1, H, m, C)
        for block in self.blocks:
            part = matrix[:, :, : block.queries].narrow(-1, self.position - block.position, block.keys)
            yield block.rows, block.columns, part


def flash_attention(
    q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, bias: BiasByDistance | None, null: Tensor | None
) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), in the dtype of v; null: (B, H, Tq, 1).

    Of the specification only scale is used, and without a bias whether it is causal.
    """
    # bfloat16 is taken as it is, float16, whose range is small, in 32 bits.
    dtype = v.dtype if v.dtype == torch.bfloat16 else torch.promote_types(q.dtype, torch.float32)
    out: Tensor = _Flash.apply(*(x.to(dtype) for x in (q, k, v)), null, spec, bias)
    return out.to(v.dtype)


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, null: Tensor | None, spec: AttentionSpec, bias: BiasByDistance | None
    ) -> Tensor:
        assert _KERNELS is not None
        out, log_sum = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.promote_types(q.dtype, torch.float32))
        for rows, columns, mask in bias.parts() if bias else _WHOLE:
            own = q[:, :, rows], k[:, :, columns], v[:, :, columns]
            hides = mask is None and spec.causal
            out[:, :, rows], log_sum[:, :, rows] = _KERNELS[0](*own, 0.0, hides, attn_mask=mask, scale=spec.scale)
        if null is not None:
            in_powers_of_two = log_sum[..., None] * LOG2_E
            with_null(out, in_powers_of_two, null * LOG2_E)
            log_sum = in_powers_of_two[..., 0] / LOG2_E
        ctx.save_for_backward(q, k, v, null, out, log_sum)
        ctx.spec, ctx.bias = spec, bias
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, null, out, log_sum = ctx.saved_tensors
        assert _KERNELS is not None
        sums = log_sum.dtype
        grad_q, grad_k, grad_v = torch.empty_like(q), torch.zeros_like(k, dtype=sums), torch.zeros_like(v, dtype=sums)
        for rows, columns, mask in ctx.bias.parts() if ctx.bias else _WHOLE:
            own = q[:, :, rows], k[:, :, columns], v[:, :, columns], out[:, :, rows], log_sum[:, :, rows]
            hides = mask is None and ctx.spec.causal
            grads = _KERNELS[1](grad_out[:, :, rows], *own, 0.0, hides, attn_mask=mask, scale=ctx.spec.scale)
            grad_q[:, :, rows] = grads[0]
            grad_k[:, :, columns] += grads[1]
            grad_v[:, :, columns] += grads[2]
        grad_null = None
        if ctx.needs_input_grad[3]:
            grad_null = -(null - log_sum[..., None]).exp() * (grad_out * out).sum(-1, keepdim=True, dtype=sums)
        return grad_q, grad_k.to(k.dtype), grad_v.to(v.dtype), grad_null, None, None


def is_null_alone(spec: AttentionSpec, q: Tensor, k: Tensor) -> bool:
    """Return whether attention has no more than a null score, and the kernel can compute it without a bias."""
    known = not spec.causal or (spec.offset == 0 and q.shape[-2] == k.shape[-2])
    return _KERNELS is not None and known and q.device.type == "cpu" and spec.parts <= {"null"}


def bias_by_distance(spec: AttentionSpec, q: Tensor, k: Tensor, near: NearTables) -> BiasByDistance | None:
    """Return the kernel's bias for q (B, H, Tq, Dh) over k (B, H, Tk, Dh).

    None where the kernel can't compute `spec`, or is slow at it.
    near: the terms' tables, whose `largest_bias` is subtracted. The bias is float32 also where q and k have 16 bits.
    """
    terms, query_length, key_length = spec.terms, q.shape[-2], k.shape[-2]
    more = (spec.window, spec.first_key, spec.key_bias, spec.pairwise, near.keys, near.values, near.queries)
    if terms is None or terms.bias is None or near.largest_bias is None or any(part is not None for part in more):
        return None
    own_keys = 0 <= spec.offset <= key_length - query_length  # each query stands at a key that it sees
    long = _KERNELS is not None and q.device.type == "cpu" and query_length >= _BLOCK
    learns = terms.bias.requires_grad and torch.is_grad_enabled()
    if not (long and own_keys) or learns or near.steps_of_largest_bias():
        return None
    blocks = list(query_blocks(query_length, key_length, spec.offset, spec.causal, size=_BLOCK))
    position = max(block.position for block in blocks)
    columns = position + max(block.keys - block.position for block in blocks)
    distance = torch.arange(position + _BLOCK - 1, position - columns, -1)
    largest = near.largest_bias[: q.shape[1], 0]  # (H, 1)
    dtype = torch.promote_types(q.dtype, torch.float32)
    numbers = (terms.bias.detach()[:, terms.rows_of(distance)] - largest).to(dtype)
    # A bias so low that its key gets no weight beside the query's own is raised to the highest that still gives none,
    # because a CPU takes many times as long with denormal numbers. A product is bounded by that of the norms.
    own = numbers[:, distance == 0] - 2 * largest_score(q, k, spec.scale)  # (H, 1), the least that its score can be
    nothing = 2 * math.log(torch.finfo(dtype).eps)
    numbers = torch.where(numbers > -math.inf, numbers.maximum(own + nothing), numbers)
    denormal = math.log(torch.finfo(dtype).tiny) + 7  # with some room for the products
    if ((numbers < denormal) & (numbers > -math.inf)).any():
        return None
    if spec.causal:
        numbers = numbers.masked_fill(distance < 0, -math.inf)
    return BiasByDistance(blocks, position, columns, numbers)
