"""Causal attention whose relative terms tell near keys apart: the band of near pairs by matrix products, all
pairs beyond it, which share one row of the tables, by torch's flash kernel.

Pairs at distance K, `highest`, or more are those of plain causal attention of q[K:] over k[:-K]. Both parts meet in the
log-sum-exp of each query. From it and the whole output the flash kernel's backward pass computes the gradients of its
part alone, as it does for each block of keys (Dao 2023, arXiv 2307.08691, algorithm 2).

Compiled, in bfloat16, it takes 0.13 times the time of the dense formula at 1,024 tokens, 0.23 times that of blockwise,
and at 4,096 tokens 0.07 times (H200, torch 2.11, 12 heads of 64, 16,384 tokens).

N = B H batch and heads, T queries and keys, Dh head dimension, K near rows, m queries of a block, W keys of its band.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.kernels.near_tables import near_tables
from poslab.attention.once import once_differentiable
from poslab.attention.reference import AttentionSpec, without_autocast
from poslab.processors import causal_flash_kernels

_BLOCK = 64  # queries at least
_ALIGNED = 16  # a GPU multiplies matrices of other widths at a fraction of its speed


def banded_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """Return attention of q over k and v (B, H, T, Dh), (B, H, T, Dh), in the dtype of v.

    The specification is causal, over a whole text, with keys and values of at most `NEAR` distances. Products are in
    the inputs' precision, sums and softmax in 32 bits or more.
    """
    with without_autocast(q.device):
        near = near_tables(spec, q, k.shape[-2], torch.promote_types(q.dtype, torch.float32))
        if spec.values is not None:  # the far row, which each weight multiplies, too
            v = v + spec.values[..., -1:, :].to(v.dtype)
        q, k = q.to(v.dtype), k.to(v.dtype)
        out: Tensor = _Banded.apply(q, k, v, spec.scale, near.highest, near.keys, near.values)
    return out.unflatten(0, q.shape[:2])


class _Banded(torch.autograd.Function):
    """Attention of q over k and v (B, H, T, Dh), (N, T, Dh), with keys and values (N, K, Dh) of near rows less the
    far row; far: the least distance of far pairs."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, far: int, keys: Tensor | None, values: Tensor | None
    ) -> Tensor:
        band = _Band(far, q.shape[-2])
        scores = _near_scores(band, q, k, scale, keys)  # (N, T, K)
        log_sum = scores.logsumexp(-1)  # (N, T)
        far_out = far_log_sum = None
        if q.shape[-2] > far:
            far_out, far_log_sum = _flash(q[..., far:, :], k[..., :-far, :], v[..., :-far, :], scale)
            far_log_sum = F.pad(far_log_sum.flatten(0, 1), (far, 0), value=-torch.inf)
            log_sum = torch.logaddexp(log_sum, far_log_sum)
        weights = (scores - log_sum[..., None]).exp().to(v.dtype)
        out = band.sums_over_keys(weights, v)  # (N, T, Dh)
        if values is not None:
            out = out + _product(weights, values.to(v.dtype))
        if far_out is not None and far_log_sum is not None:
            share = (far_log_sum - log_sum).exp()[..., None]
            out = out + share * F.pad(far_out.flatten(0, 1), (0, 0, far, 0))
        if out.dtype != v.dtype:  # compiled by torch 2.11, .to() of the same dtype has no gradients
            out = out.to(v.dtype)
        ctx.save_for_backward(q, k, v, keys, values, out, log_sum)
        ctx.scale, ctx.far = scale, far
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, keys, values, out, log_sum = ctx.saved_tensors
        far, scale, shape = ctx.far, ctx.scale, q.shape[:2]
        band = _Band(far, q.shape[-2])
        weights = (_near_scores(band, q, k, scale, keys) - log_sum[..., None]).exp()  # (N, T, K)
        mean = (grad_out.to(log_sum.dtype) * out).sum(-1, keepdim=True)
        grad_heads = grad_out.unflatten(0, shape).contiguous()
        grad_weights = band.products(grad_heads, v)
        if values is not None:
            grad_weights = grad_weights + _product(grad_out, values.to(v.dtype).mT)
        grad_scores = (weights * (grad_weights - mean) * scale).to(q.dtype)
        weights = weights.to(v.dtype)
        grad_q = band.sums_over_keys(grad_scores, k)
        grad_k = band.sums_over_queries(grad_scores, q)
        grad_v = band.sums_over_queries(weights, grad_heads)
        grad_keys = grad_values = None
        if keys is not None:
            grad_q = grad_q + _product(grad_scores, keys.to(q.dtype))
            grad_keys = _product(grad_scores.mT, q.flatten(0, 1))
        if values is not None:
            grad_values = _product(weights.mT, grad_out)
        grads = [grad.unflatten(0, shape) for grad in (grad_q, grad_k, grad_v)]
        if q.shape[-2] > far:
            of_far = out.unflatten(0, shape)[..., far:, :], log_sum.unflatten(0, shape)[..., far:]
            parts = grad_heads[..., far:, :], q[..., far:, :], k[..., :-far, :], v[..., :-far, :], *of_far
            sides = (0, 0, far, 0), (0, 0, 0, far), (0, 0, 0, far)
            far_grads = _flash_backward(*parts, scale)
            grads = [grad + F.pad(more, side) for grad, more, side in zip(grads, far_grads, sides, strict=True)]
        grad_q, grad_k, grad_v = (grad.to(q.dtype) for grad in grads)
        return grad_q, grad_k, grad_v, None, None, grad_keys, grad_values


def _near_scores(band: "_Band", q: Tensor, k: Tensor, scale: float, keys: Tensor | None) -> Tensor:
    """Return the scores of near pairs, (N, T, K), from the farthest key to the query's own; -inf before the first."""
    scores = band.products(q, k)
    if keys is not None:
        scores = scores + _product(q.flatten(0, 1), keys.to(q.dtype).mT)
    i, row = torch.arange(scores.shape[1], device=q.device)[:, None], torch.arange(band.near, device=q.device)
    return (scores * scale).masked_fill(i + row < band.near - 1, -torch.inf)


class _Band:
    """Pairs of a query and the K keys up to its own, in blocks of m queries with the W keys that any of them needs.

    Between a tile (m, W) and its diagonals (m, K) padded rows are cut anew, one number longer or shorter (the shift of
    Huang et al. 2018, arXiv 1809.04281, section 3.4.1).
    """

    def __init__(self, near: int, length: int) -> None:
        self.near, self.length = near, length
        self.before = -(-(near - 1) // _ALIGNED) * _ALIGNED  # keys before the block's first query
        self.size = max(_BLOCK, self.before)
        self.unused = self.before + 1 - near  # diagonals

    def products(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the products of x_i and y_j (B, H, T, Dh) of near pairs, (N, T, K)."""
        tiles = _product(self._blocks(x), self._windows(y).mT)  # (N blocks, m, W)
        flat = F.pad(tiles.flatten(1), (0, self.size))
        diagonals = flat.unflatten(1, (self.size, -1))[..., self.unused : self.before + 1]
        return self._joined(diagonals, x.shape[0] * x.shape[1])

    def sums_over_keys(self, weights: Tensor, x: Tensor) -> Tensor:
        """Return the sums over near keys of weights (N, T, K) times x_j (B, H, T, Dh), (N, T, Dh)."""
        return self._joined(_product(self._tiles(weights), self._windows(x)), len(weights))

    def sums_over_queries(self, weights: Tensor, x: Tensor) -> Tensor:
        """Return the sums over near queries of weights (N, T, K) times x_i (B, H, T, Dh), (N, T, Dh)."""
        sums = _product(self._tiles(weights).mT, self._blocks(x)).unflatten(0, (len(weights), -1))  # (N, blocks, W, Dh)
        of_next = F.pad(sums[:, 1:, : self.before], (0, 0, self.size - self.before, 0, 0, 1))
        return (sums[:, :, self.before :] + of_next).flatten(1, 2)[:, : self.length]

    def _blocks(self, x: Tensor) -> Tensor:
        """Return x (B, H, T, Dh) in blocks, (N blocks, m, Dh)."""
        x = F.pad(x.flatten(0, 1), (0, 0, 0, -self.length % self.size))
        return x.unflatten(1, (-1, self.size)).flatten(0, 1)

    def _windows(self, x: Tensor) -> Tensor:
        """Return what stands at the keys of each block, of x (B, H, T, Dh), (N blocks, W, Dh)."""
        x = F.pad(x.flatten(0, 1), (0, 0, self.before, -self.length % self.size))
        return x.unfold(1, self.before + self.size, self.size).mT.flatten(0, 1)

    def _tiles(self, weights: Tensor) -> Tensor:
        """Lay weights (N, T, K) on the diagonals of their blocks, (N blocks, m, W)."""
        weights = F.pad(weights, (self.unused, self.size, 0, -self.length % self.size))
        flat = weights.unflatten(1, (-1, self.size)).flatten(0, 1).flatten(1)
        return flat[:, : -self.size].unflatten(1, (self.size, -1))

    def _joined(self, blocks: Tensor, heads: int) -> Tensor:
        return blocks.unflatten(0, (heads, -1)).flatten(1, 2)[:, : self.length]


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Return the products of matrices, (n, x, y) and (n, y, z), summed in 32 bits or more."""
    wide = torch.promote_types(a.dtype, torch.float32)
    if a.device.type == "cuda" and a.dtype != wide:
        return torch.bmm(a, b, out_dtype=wide)
    return a.to(wide) @ b.to(wide)


# Operators of their own: compiled by torch 2.11, those of torch return sizes that may be symbols, which a function with
# a backward pass of its own can't.


@torch.library.custom_op("poslab::causal_flash", mutates_args=())
def _flash(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return causal attention (B, H, T, Dh), and its log-sum-exp (B, H, T)."""
    out, log_sum = causal_flash_kernels(q)[0](q, k, v, scale)
    return out.contiguous(), log_sum.contiguous()


@_flash.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.promote_types(q.dtype, torch.float32))


@torch.library.custom_op("poslab::causal_flash_backward", mutates_args=())
def _flash_backward(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v, (B, H, T, Dh); log_sum: of all keys, (B, H, T)."""
    grad_q, grad_k, grad_v = causal_flash_kernels(q)[1](grad_out, q, k, v, out, log_sum.contiguous(), scale)
    return grad_q.contiguous(), grad_k.contiguous(), grad_v.contiguous()


@_flash_backward.register_fake
def _(
    grad_out: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
