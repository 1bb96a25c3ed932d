"""Causal self-attention as a band of near keys, with relative terms, and torch's flash kernel for all keys beyond it.

Flash kernels take no learned bias and no relative keys or values. But from distance `highest` on, all keys share one
row of the tables and so need none (see `relative`): that part is plain causal attention, of the queries from `highest`
on over as many keys. What is left is a band of K near keys for each query. The two parts are one softmax: each comes
with its log-sum-exp, and the flash kernel's backward pass is exact for its part when it is given the log-sum-exp and
the output of the whole.

What it buys, forward and backward, in processor time of one core, float32, 4 heads of 64: with a bias over 114
distances it is 1.06 times as fast as blocks at T = 2,048, 1.22 at 4,096 and 1.24 at 8,192, where it takes 1.10 times as
long as flash attention without positions; with keys and values of 17, 1.04, 1.20 and 1.15 times as fast. It serves
causal self-attention on a CPU without dropout: long texts in training without dropout, and in evaluation. Windows,
query-side tables and a bias of keys are left to blocks.

N = B H batch and heads, T queries and keys, K near keys and rows, Dh head dimension. The band is computed in g windows,
m queries and the W = m + K - 1 keys that are near to any of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from poslab.attention.kernels.flash import flash, flash_backward
from poslab.attention.kernels.relative import LOG2_E, NearTables, band, near_tables, no_infinity, with_far_values
from poslab.attention.spec import AttentionSpec

CHUNK = 2**19  # scores that are worked on at a time: few enough for a cache, enough for two cores


@torch.compiler.disable
def banded_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """Causal attention of q over k and v, each (B, H, T, Dh) with T above terms.highest -> (B, H, T, Dh). CPU only.

    The formula is in `RelativeTerms`, without `queries`. 16-bit inputs are computed in 32 bits, far
    keys of bfloat16 as flash does: products in bfloat16, the softmax and sums in 32 bits.
    """
    shape, dtype = q.shape[:2], torch.promote_types(q.dtype, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        near = near_tables(spec, q, k.shape[-2], dtype)
        wide = (q.to(dtype), k.to(dtype), with_far_values(v.to(dtype), spec.terms))
        flat = (x.flatten(0, 1) for x in wide)  # each (N, T, Dh)
        # Flash takes 16 bits as they are; float16, whose range is small, is left out.
        far_dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else dtype
        settings = spec.scale, near.lowest, near.highest, far_dtype
        out = _Banded.apply(*flat, *settings, *near.tables)  # type: ignore[no-untyped-call]
    return out.unflatten(0, shape).to(v.dtype)


class _Banded(torch.autograd.Function):
    """Attention of q over k and v, each (N, T, Dh); the tables are those of `NearTables`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        lowest: int,
        highest: int,
        far_dtype: torch.dtype,
        *tables: Tensor | None,
    ) -> Tensor:
        near = NearTables(lowest, highest, *tables)
        out, log_sum = torch.empty_like(q), q.new_empty(*q.shape[:2], 1)
        for chunk in _chunks(q, near.count):
            weights = chunk.scores(chunk.queries(q, scale), chunk.windows(k), near)  # (N, g, m, W)
            largest = no_infinity(weights.amax(-1, keepdim=True))
            weights.sub_(largest).exp2_()
            total = weights.sum(-1, keepdim=True)  # at least 1, or 0 where all scores are -inf
            result = weights @ chunk.windows(v)  # (N, g, m, Dh)
            if near.values is not None:
                result += chunk.in_windows(chunk.near_keys(weights).flatten(1, 2) @ near.values)
            chunk.put(result.div_(total.clamp(min=1)), out)
            chunk.put(largest.add_(total.log2_()), log_sum)

        far_out, far_log_sum = flash(*_far(near.count, far_dtype, q, k, v), is_causal=True, scale=scale)
        far_log_sum = (far_log_sum[0, ..., None] + _far_bias(near)) * LOG2_E  # (N, T - K, 1)
        near_out, near_log_sum = out[:, near.count :], log_sum[:, near.count :]
        whole = no_infinity(torch.logaddexp2(near_log_sum, far_log_sum))
        near_out.mul_((near_log_sum - whole).exp2_()).addcmul_(far_out[0].to(q.dtype), (far_log_sum - whole).exp2_())
        near_log_sum.copy_(whole)
        ctx.save_for_backward(q, k, v, out, no_infinity(log_sum), *tables)
        ctx.scale, ctx.lowest, ctx.highest, ctx.far_dtype = scale, lowest, highest, far_dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sum, *tables = ctx.saved_tensors
        near = NearTables(ctx.lowest, ctx.highest, *tables)
        grad_out = grad_out.contiguous()
        far_log_sum = log_sum[:, near.count :] / LOG2_E - _far_bias(near)  # (N, T - K, 1)
        far_grads = flash_backward(
            grad_out[None, :, near.count :].to(ctx.far_dtype),
            *_far(near.count, ctx.far_dtype, q, k, v),
            out[None, :, near.count :].to(ctx.far_dtype),
            far_log_sum[None, ..., 0].contiguous(),
            0.0,
            True,
            scale=ctx.scale,
        )
        far_grad_q, far_grad_k, far_grad_v = (grad[0].to(q.dtype) for grad in far_grads)  # each (N, T - K, Dh)
        grad_q = F.pad(far_grad_q, (0, 0, near.count, 0))
        # With room for the keys of the first windows before, and for those of the last window after them.
        room = near.count - 1, near.count + _window(near.count)
        grad_k, grad_v = F.pad(far_grad_k, (0, 0, *room)), F.pad(far_grad_v, (0, 0, *room))
        table_grads: list[Any] = [None if table is None else table.new_zeros(table.shape) for table in tables]
        grad_bias, grad_far_bias, _, grad_keys, grad_values, *_ = table_grads

        for chunk in _chunks(q, near.count):
            queries, k_windows = chunk.queries(q, ctx.scale), chunk.windows(k)
            grad = chunk.queries(grad_out)  # (N, g m, Dh)
            weights = chunk.scores(queries, k_windows, near, chunk.queries(log_sum)).exp2_()
            minus_mean = -(chunk.queries(out) * grad).sum(-1, keepdim=True)  # (N, g m, 1)
            grad_scores = chunk.products(grad, chunk.windows(v), minus_mean)  # (N, g, m, W)
            if near.values is not None:
                chunk.near_keys(grad_scores).add_(chunk.in_windows(grad @ near.values.transpose(1, 2)))
                grad_values.baddbmm_(chunk.near_keys(weights).flatten(1, 2).transpose(1, 2), grad)
            grad_scores.mul_(weights)
            result = grad_scores @ k_windows  # (N, g, m, Dh)
            by_distance = chunk.near_keys(grad_scores)  # (N, g, m, K)
            if near.bias is not None:
                grad_bias += by_distance.sum((1, 2))
                # A query's gradients of all scores sum to 0; the first that has far keys is number K.
                by_query = by_distance.sum(-1).flatten(1)  # (N, g m)
                grad_far_bias -= by_query[:, max(0, near.count - chunk.first) :].sum(-1, keepdim=True)
            if near.keys is not None:
                by_distance = by_distance.flatten(1, 2)  # (N, g m, K)
                grad_keys.baddbmm_(by_distance.transpose(1, 2), queries)
                result += chunk.in_windows(by_distance @ near.keys)
            chunk.put(result.mul_(ctx.scale), grad_q, add=True)
            chunk.add_windows(grad_scores.transpose(2, 3) @ chunk.in_windows(queries), grad_k)
            chunk.add_windows(weights.transpose(2, 3) @ chunk.in_windows(grad), grad_v)
        there = slice(near.count - 1, near.count - 1 + q.shape[1])
        grad_k, grad_v = grad_k[:, there], grad_v[:, there]
        return grad_q, grad_k, grad_v, None, None, None, None, *table_grads


def _far_bias(near: NearTables) -> Tensor | float:
    """(N, T - K, 1): the bias of the far keys, less the largest of each query that has any."""
    if near.far_bias is None or near.largest_bias is None:
        return 0.0
    return near.far_bias[:, None] - near.largest_bias[:, near.count :]


def _far(near_count: int, dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The far pairs as a square causal problem, each (1, N, T - K, Dh): query K + i sees the keys up to i."""
    own = q[None, :, near_count:], k[None, :, :-near_count], v[None, :, :-near_count]
    q, k, v = (x.to(dtype) for x in own)
    return q, k, v


def _window(near_count: int) -> int:
    """m: wider windows make better matrix products, but more of their W keys are not near."""
    return 32 if near_count <= 32 else 64


def _chunks(q: Tensor, near_count: int) -> Iterator["_Chunk"]:
    heads, length, _ = q.shape
    window = _window(near_count)
    count = max(1, CHUNK // (heads * window * (window + near_count - 1)))
    for first in range(0, length, count * window):
        left = length - first
        yield _Chunk(first, min(left, count * window), min(count, math.ceil(left / window)), window, near_count)


@dataclass(frozen=True)
class _Chunk:
    """Neighbouring windows. The last of a sequence may reach beyond its end; what is not there counts as zeros."""

    first: int  # query
    length: int  # queries that there are
    count: int  # windows, g
    window: int  # queries of a window, m
    near: int  # K

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.length)

    def queries(self, x: Tensor, scale: float | None = None) -> Tensor:
        """x (N, T, n) -> (N, g m, n), times scale."""
        own = x[:, self.rows] if scale is None else x[:, self.rows] * scale
        return self._pad(own, after=self.count * self.window - self.length).contiguous()

    def in_windows(self, x: Tensor) -> Tensor:
        """x (N, g m, n) -> (N, g, m, n)."""
        return x.unflatten(1, (self.count, self.window))

    def put(self, windows: Tensor, x: Tensor, add: bool = False) -> None:
        """Writes windows (N, g, m, n) to their place in x (N, T, n), or adds them to it."""
        own, place = windows.flatten(1, 2)[:, : self.length], x[:, self.rows]
        place.add_(own) if add else place.copy_(own)

    def windows(self, x: Tensor) -> Tensor:
        """x (N, T, Dh) -> (N, g, W, Dh): the keys, or values, near to any of a window's queries."""
        start = self.first - (self.near - 1)
        # Only the windows that reach back before the first key are padded: that is a copy more.
        early = min(self.count, max(0, math.ceil(-start / self.window)))
        split, end = start + early * self.window, self.first + self.length
        missing = self.count * self.window - self.length
        parts = []
        if early:
            early_end = min(end, split + self.near - 1)
            after = missing if early == self.count else 0
            parts.append(self._pad(x[:, max(0, start) : early_end], before=max(0, -start), after=after))
        if early < self.count:
            parts.append(self._pad(x[:, split:end], after=missing))
        width = self.window + self.near - 1
        return torch.cat([part.unfold(1, width, self.window).transpose(2, 3) for part in parts], 1)

    @staticmethod
    def _pad(x: Tensor, before: int = 0, after: int = 0) -> Tensor:
        """x (N, n, Dh) with zeros before and after; x itself, where F.pad would copy it, if there are none."""
        return F.pad(x, (0, 0, before, after)) if before or after else x

    def add_windows(self, windows: Tensor, x: Tensor) -> None:
        """Adds windows (N, g, W, Dh) to their places in x, which is (N, T, Dh) with room before and after."""
        for shift in range(0, windows.shape[2], self.window):  # in pieces of which no two overlap
            piece = windows[:, :, shift : shift + self.window]
            places = x.narrow(1, self.first + shift, (self.count - 1) * self.window + piece.shape[2])
            places.unfold(1, piece.shape[2], self.window).transpose(2, 3).add_(piece)

    def near_keys(self, windows: Tensor) -> Tensor:
        """The view (N, g, m, K) of windows (N, g, m, W) that holds the keys near to each query."""
        return band(windows.flatten(0, 1), 0, self.near).unflatten(0, windows.shape[:2])

    def products(self, queries: Tensor, windows: Tensor, start: Tensor, factor: float = 1.0) -> Tensor:
        """start (N, g m, 1 or W) + factor * queries (N, g m, Dh) times windows (N, g, W, Dh) -> (N, g, m, W)."""
        start, queries = self.in_windows(start).flatten(0, 1), self.in_windows(queries).flatten(0, 1)
        products = torch.baddbmm(start, queries, windows.flatten(0, 1).transpose(1, 2), alpha=factor)
        return products.unflatten(0, windows.shape[:2])

    def scores(self, queries: Tensor, k_windows: Tensor, near: NearTables, log_sum: Tensor | None = None) -> Tensor:
        """(N, g, m, W): in powers of two, less log_sum (N, g m, 1); -inf for keys that are not near."""
        start = queries.new_zeros(1).expand(*queries.shape[:2], 1) if log_sum is None else -log_sum
        scores = self.products(queries, k_windows, start, LOG2_E)
        near_scores = self.near_keys(scores)
        if near.keys is not None:
            near_scores.add_(self.in_windows(queries @ near.keys.transpose(1, 2)), alpha=LOG2_E)
        if near.bias is not None and near.largest_bias is not None:
            largest = self.in_windows(self.queries(near.largest_bias))
            near_scores.add_(near.bias[:, None, None] - largest, alpha=LOG2_E)
        query, key = torch.arange(scores.shape[2])[:, None], torch.arange(scores.shape[3])
        far = (key < query) | (key >= query + self.near)  # (m, W)
        scores.add_(torch.zeros(far.shape, dtype=scores.dtype).masked_fill_(far, -math.inf))
        missing = self.count * self.window - self.length
        scores[:, -1, self.window - missing :] = -math.inf
        # The first windows reach back before the first key.
        before_first = self.near - 1 - self.first
        for window in range(min(self.count, math.ceil(before_first / self.window))):
            scores[:, window, :, : before_first - window * self.window] = -math.inf
        return scores
