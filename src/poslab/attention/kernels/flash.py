"""torch's flash kernel, for what only distance decides: a bias by distance, a window, or both.

The kernel adds a matrix of numbers to the scores, and gives no gradient for them. Of a block of queries that matrix has
the same number along each diagonal, and the matrices of all blocks are parts of one, which takes memory linear in the
length. So blocks need a single call each, where `blockwise` makes fifteen. What the learned numbers of a bias need, the
gradient of each score, only `blockwise` computes: its backward pass then goes with this forward pass.

Forward and backward, (1, 4, 2048, 64) in float32 on two cores, times causal attention without positions: 1.31 with a
bias that falls in a line, 0.53 with a window of 256, where `blockwise` takes 1.68 and 0.58. With blocks of 128 queries
the kernel takes 1.27 times as long as with 256, with 512 1.05 times.

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from poslab.attention.kernels.blocks import BLOCK, Block, query_blocks
from poslab.attention.kernels.relative import LOG2_E, NearTables, largest_score
from poslab.attention.spec import AttentionSpec

# What scaled_dot_product_attention runs on a CPU. Only here is the log-sum-exp to be had.
flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

_BLOCK = 2 * BLOCK


@dataclass(frozen=True, eq=False)
class ByDistance:
    """Causal or full attention with a number for each distance: what the kernel is called with, block by block."""

    blocks: list[Block]
    position: int  # the largest of the blocks' positions
    columns: int  # C, keys of the matrix that all blocks take parts of
    numbers: Tensor  # (H or 1, C + m - 1), from the farthest distance down

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float = 1.0) -> tuple[Tensor, Tensor]:
        """q (N, Tq, Dh), k and v (N, Tk, Dh) -> the output, (N, Tq, Dh), and the log-sum-exp of each query in powers of
        two, (N, Tq, 1)."""
        q, k, v = self._by_head(q, k, v)
        out, log_sum = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=self.numbers.dtype)
        matrix = self._matrix()
        for block in self.blocks:
            rows, columns = block.rows, block.columns
            own = q[:, :, rows], k[:, :, columns], v[:, :, columns]
            out[:, :, rows], log_sum[:, :, rows] = flash(*own, attn_mask=self._part(matrix, block), scale=scale)
        return out.flatten(0, 1), log_sum.flatten(0, 1)[..., None] * LOG2_E

    def gradients(
        self, grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, scale: float = 1.0
    ) -> list[Tensor]:
        """Those of q, k and v, from what `attend` was given and gave."""
        grad_out, q, k, v, out, log_sum = self._by_head(grad_out, q, k, v, out, log_sum / LOG2_E)
        total = self.numbers.dtype
        grads = [torch.empty_like(q), torch.zeros_like(k, dtype=total), torch.zeros_like(v, dtype=total)]
        matrix = self._matrix()
        for block in self.blocks:
            rows, columns = block.rows, block.columns
            own = q[:, :, rows], k[:, :, columns], v[:, :, columns], out[:, :, rows], log_sum[:, :, rows, 0]
            mask = self._part(matrix, block)
            of_q, of_k, of_v = flash_backward(grad_out[:, :, rows], *own, 0.0, False, attn_mask=mask, scale=scale)
            grads[0][:, :, rows] = of_q
            grads[1][:, :, columns] += of_k
            grads[2][:, :, columns] += of_v
        return [grad.flatten(0, 1).to(q.dtype) for grad in grads]

    def _by_head(self, *of_all: Tensor) -> tuple[Tensor, ...]:
        """Each (N, ...) -> (B, H, ...), or (N, 1, ...) where heads are alike."""
        return tuple(x.unflatten(0, (-1, len(self.numbers))) for x in of_all)

    def _matrix(self) -> Tensor:
        """(1, H or 1, m, C): the number of query i and key c is that of distance position + i - c."""
        heads, count = self.numbers.shape
        queries = count - self.columns + 1
        copies = self.numbers[:, None].repeat(1, queries, 1)  # each row begins one number further back than the last
        skewed = (heads * queries * count, queries * count, count - 1, 1)
        return copies.as_strided((1, heads, queries, self.columns), skewed, queries - 1)

    def _part(self, matrix: Tensor, block: Block) -> Tensor:
        """(1, H or 1, m, n)."""
        return matrix[:, :, : block.queries].narrow(-1, self.position - block.position, block.keys)


class Flash(torch.autograd.Function):
    """Attention of q (N, Tq, Dh) over k and v (N, Tk, Dh), with numbers that nothing is learned of."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, numbers: ByDistance) -> Tensor:
        out, log_sum = numbers.attend(q, k, v, scale)
        ctx.save_for_backward(q, k, v, out, log_sum)
        ctx.scale, ctx.numbers = scale, numbers
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        return *ctx.numbers.gradients(grad_out, *ctx.saved_tensors, ctx.scale), None, None


def by_distance(spec: AttentionSpec, q: Tensor, k: Tensor, near: NearTables) -> ByDistance | None:
    """What the kernel needs for q (B, H, Tq, Dh) over k (B, H, Tk, Dh); None where it can't compute this, or slowly.

    near: the terms' tables, whose `largest_bias` is taken off the numbers. These stay in 32 bits beside inputs of 16.
    """
    terms, query_length, key_length = spec.terms, q.shape[-2], k.shape[-2]
    dtype = torch.promote_types(q.dtype, torch.float32)
    more = (spec.first_key, spec.key_bias, spec.pairwise, near.keys, near.values, near.queries)
    own_keys = 0 <= spec.offset <= key_length - query_length  # each query stands at a key that it sees
    long = q.device.type == "cpu" and query_length >= _BLOCK
    if not (long and own_keys) or near.steps_of_largest_bias() or any(part is not None for part in more):
        return None
    blocks = list(query_blocks(query_length, key_length, spec.offset, spec.causal, spec.window, _BLOCK))
    position = max(block.position for block in blocks)
    columns = position + max(block.keys - block.position for block in blocks)
    distance = torch.arange(position + _BLOCK - 1, position - columns, -1)
    numbers = torch.zeros(1, len(distance), dtype=dtype)
    if terms is not None and terms.bias is not None and near.largest_bias is not None:
        largest = near.largest_bias[: q.shape[1], 0]  # (H, 1)
        numbers = (terms.bias.detach()[:, terms.rows_of(distance)] - largest).to(dtype)
        numbers = _raised(numbers, numbers[:, distance == 0] - 2 * largest_score(q, k, spec.scale))
        if _denormal(numbers):
            return None
    hidden = distance < 0 if spec.causal else torch.zeros_like(distance, dtype=torch.bool)
    if spec.window is not None:
        hidden = hidden | (distance.abs() >= spec.window)
    return ByDistance(blocks, position, columns, numbers.masked_fill(hidden, -math.inf))


def _raised(numbers: Tensor, own: Tensor) -> Tensor:
    """The numbers, but for those that are so low that a key has no weight beside the query's own, and still has none.

    own: (H, 1), the least by which the query's own key can be better than another without the number of that one: a
        product of query and key is at most that of their norms.
    """
    nothing = 2 * math.log(torch.finfo(numbers.dtype).eps)
    return torch.where(numbers > -math.inf, numbers.maximum(own + nothing), numbers)


def _denormal(numbers: Tensor) -> bool:
    """Whether some of exp(numbers) are no normal numbers, but not 0, which take a CPU many times as long."""
    least = math.log(torch.finfo(numbers.dtype).tiny) + 7  # some room for the products
    return bool(((numbers < least) & (numbers > -math.inf)).any())
