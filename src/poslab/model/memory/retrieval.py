"""Retrieved memory: a layer finds tokens of its document by what they hold, however far back they stand.

Memorizing Transformers (Wu, Rabe, Hutchins, Szegedy 2022, section 3.1). The layer keeps keys and values of the last
`size` tokens before the segment, without gradient. Each query takes the k with the largest inner products, attends over
these alone, and a gate of each head mixes that with attention within the segment, which is as ever:

    retrieved_i = sum_n w_in v_n     w_i = softmax over the k best n of   scale_h q'_i . k'_n
    out_i       = g_h retrieved_i + (1 - g_h) local_i     g_h = sigmoid(gate_h)     q' = q / |q|, k' = k / |k|

Queries and keys are those from before the position scheme has touched them: "we don't use a position bias for the
retrieved memories". With `position_bias` their scores get the scheme's bias[h, distance] all the same; which k they are
is decided without it. As in the authors' code, the gate begins at 1/2, retrieved weights have no dropout, and memory
holds tokens that `memory_length` may show as well.

Where tokens repeat, so do keys and values, and only the bias tells which of them were found. Segments and cached
reading must find the same, and round differently. So with `position_bias`, products within _EQUAL of the k-th largest
count as equal to it, and of these the newest are taken.

What differs from the paper:

    search      exact, in blocks of queries; there it is approximate
    normalised  queries and keys of retrieval only: local attention stays that of the scheme; there both are
    scale       begins at log2(k^2 - k), as that of Henry et al. 2020, whose normalisation the paper takes; in the
                authors' code at 1, with some 1e5 steps to leave it
    no memory   a row without any has local attention alone; there (1 - g) of it

B batch, H heads, T queries, N remembered tokens, Dh head dimension, R rows of a relative table.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import SchemeLayer
from poslab.attention.once import once_differentiable
from poslab.attention.reference import softmax_or_zeros, without_autocast
from poslab.errors import SettingError, require_at_least
from poslab.positions import ModelShape, PositionScheme, Tables

_BLOCK = 2**22  # scores that are computed at a time
_EQUAL = 1e-5  # apart; of vectors of length 1, rounding moves a product by some 1e-7, as their own rounding does


@dataclass(frozen=True)
class Retrieval:
    """Settings of the layer that looks up earlier tokens of its document.

    layer: from 0 on. size: tokens before the segment that are kept. k: tokens retrieved by each query of each head.
    position_bias: whether their scores get the scheme's bias by distance as well. Raises SettingError.
    """

    layer: int
    size: int = 8192
    k: int = 32
    position_bias: bool = False

    def __post_init__(self) -> None:
        require_at_least(0, **{"retrieval.layer": self.layer})
        require_at_least(1, **{"retrieval.size": self.size, "retrieval.k": self.k})
        if self.k > self.size:
            raise SettingError("retrieval.k", self.k, f"must be at most size={self.size}, the tokens to choose from")

    def check(self, scheme: PositionScheme, tables: Tables, shape: ModelShape) -> None:
        """Raise SettingError where the model can't retrieve, or has no bias for every distance in memory if it must."""
        last = shape.num_layers - 1
        if self.layer > last:
            problem = f"must be from 0 to {last}, by num_layers={shape.num_layers}"
            raise SettingError("retrieval.layer", self.layer, problem)
        if not shape.causal:
            raise SettingError("retrieval.layer", self.layer, "needs a causal model: this one sees the future")
        if not self.position_bias:
            return
        terms = scheme.relative(tables, shape, self.layer, range(1))
        longest, needed = scheme.max_length(shape), self.size + shape.context_length
        if terms is None or terms.bias is None:
            problem = f"this position scheme has no bias by distance in layer {self.layer}"
        elif longest is not None and longest < needed:
            problem = f"this position scheme knows {longest} positions, and size={self.size} needs {needed}"
        else:
            return
        raise SettingError("retrieval.position_bias", True, problem)


@dataclass(eq=False)
class Lookup:
    """Keys and values that a layer retrieves from; after a pass, with those of its segment."""

    size: int
    readable: Tensor  # (B,): tokens that each row has read of its document
    keys: Tensor | None  # (B, H, N, Dh), of length 1
    values: Tensor | None  # (B, H, N, Dh)
    next_index: int = 0  # of the next query in its segment

    def add(self, k: Tensor, v: Tensor) -> None:
        """Add keys and values of a segment, (B, H, T, Dh) from the projections."""
        self.keys = remembered(self.keys, unit(k), self.size)
        self.values = remembered(self.values, v, self.size)


class CachedLookup(Lookup):
    """Lookup of cached reading, where tokens of a segment come a few at a time."""

    def __init__(self, size: int, segment: int, readable: Tensor) -> None:
        super().__init__(size, readable, None, None)
        self._recent = Lookup(segment, readable, None, None)

    def add(self, k: Tensor, v: Tensor) -> None:
        """Add keys and values of new tokens, which are found once their segment has ended."""
        self._recent.add(k, v)
        self.next_index += k.shape[-2]

    def end_segment(self) -> None:
        """Move the complete segment, if there is one, into memory, before new tokens."""
        recent = self._recent
        if recent.keys is not None and recent.values is not None:
            self.keys = remembered(self.keys, recent.keys, self.size)
            self.values = remembered(self.values, recent.values, self.size)
            self.readable, self.next_index = self.readable + recent.size, 0


class RetrievedAttention(nn.Module):
    """Mixing of a layer's attention with what its queries retrieve; holds the learned gate and scale."""

    def __init__(self, heads: int, settings: Retrieval) -> None:
        super().__init__()
        self.settings = settings
        self.gate = nn.Parameter(torch.zeros(heads))
        scale = math.log2(max(2, settings.k**2 - settings.k))
        self.log_scale = nn.Parameter(torch.full((heads,), math.log(scale)))

    @torch.compiler.disable
    def forward(
        self, local: Tensor, q: Tensor, k: Tensor, v: Tensor, lookup: Lookup, layer: SchemeLayer, first: int = 0
    ) -> Tensor:
        """Return the layer's output from index `first` on; q, k, v: (B, H, T, Dh) from the projections.

        local (B, H, T - first, Dh): what the queries from there on get of the segment. The lookup then has its tokens.
        """
        values, weights_and_indices = lookup.values, self.find(q, lookup, layer, first)
        lookup.add(k, v)
        if weights_and_indices is None or values is None:
            # With gradients, all zero: processes that train together must have the same ones.
            return local + 0.0 * (self.gate.sum() + self.log_scale.sum()).to(local.dtype)
        with without_autocast(q.device):
            retrieved = _sum(*weights_and_indices, values)
            share = self.shares[:, None, None] * lookup.readable.gt(0)[:, None, None, None]  # (B, H, 1, 1)
            if (documents := layer.position_ids.documents) is not None:  # only the first is that of the memory
                share = share * (documents == documents[:, :1])[:, None, first:, None]
            return torch.lerp(local.to(retrieved.dtype), retrieved, share.to(retrieved.dtype)).to(local.dtype)

    def find(self, q: Tensor, lookup: Lookup, layer: SchemeLayer, first: int = 0) -> tuple[Tensor, Tensor] | None:
        """Return weights (B, H, T - first, k) of retrieved tokens for queries (B, H, T, Dh), and their indices.

        The weights of a query sum to 1, or are zeros in a row that knows nothing; None where no row knows anything.
        """
        keys = lookup.keys
        if keys is None or not lookup.readable.any():
            return None
        readable, count = lookup.readable.clamp(max=keys.shape[-2]), keys.shape[-2]
        with without_autocast(q.device):
            scores, indices = nearest(
                unit(q[:, :, first:]), keys, readable, self.settings.k, self.settings.position_bias
            )
            scores = scores * self.log_scale.exp()[:, None, None].to(scores.dtype)
            if self.settings.position_bias:
                terms = layer.relative_terms(count + lookup.next_index + q.shape[-2])
                assert terms is not None
                assert terms.bias is not None
                index = lookup.next_index + first  # of the first query in its segment
                queries = torch.arange(index, index + indices.shape[-2], device=indices.device)[:, None]  # (T, 1)
                rows = terms.rows_of(queries + count - indices).transpose(0, 1)  # (H, B, T, k)
                bias = terms.bias.gather(-1, rows.flatten(1)).unflatten(-1, rows.shape[1:]).transpose(0, 1)
                scores = scores + bias.to(scores.dtype)
            return softmax_or_zeros(scores.masked_fill(~_there(scores, readable), -math.inf)), indices

    @property
    def shares(self) -> Tensor:
        """Proportion of each head's output that is retrieved, (H,)."""
        return self.gate.sigmoid()


def unit(x: Tensor) -> Tensor:
    """Normalise queries or keys (..., Dh) to length 1, in float32 or better."""
    return F.normalize(x.to(torch.promote_types(x.dtype, torch.float32)), dim=-1)


def remembered(before: Tensor | None, new: Tensor, size: int) -> Tensor:
    """Append keys or values of a segment, (B, H, T, Dh), to those before, (B, H, N, Dh), and keep the last `size`."""
    new = new.detach().to(torch.promote_types(new.dtype, torch.float32))[:, :, -size:]
    if before is None:
        return new.contiguous()
    kept = min(before.shape[-2], size - new.shape[-2])
    return torch.cat([before[:, :, before.shape[-2] - kept :], new], dim=-2)


def nearest(q: Tensor, keys: Tensor, readable: Tensor, k: int, newest: bool = False) -> tuple[Tensor, Tensor]:
    """Return the k largest inner products of each query (B, H, T, Dh), best first, and their keys' indices.

    keys: (B, H, N, Dh). readable: (B,), only the last so many of each row exist. Both are (B, H, T, k), or fewer;
    those that a row lacks are 0. Of equal ones it may be any; with `newest`, of those equal to the last the newest.
    Scores have gradients of the queries, none of the keys.
    """
    most = min(k, int(readable.max()))
    scores, indices = _Nearest.apply(q, keys, readable, most, newest)
    return scores, indices


class _Nearest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, keys: Tensor, readable: Tensor, k: int, newest: bool) -> tuple[Tensor, Tensor]:
        scores = q.new_zeros(*q.shape[:3], k)
        retrieved = torch.zeros_like(scores, dtype=torch.int64)
        largest = _newest_of_equal if newest else torch.topk
        for row, count in enumerate(readable.tolist()):
            if count:
                first, best = keys.shape[-2] - count, min(k, count)
                seen = keys[row, :, first:]  # (H, N', Dh)
                queries = q[row].split(max(1, _BLOCK // (len(seen) * count)), dim=-2)
                products, indices = zip(*(largest(block @ seen.mT, best) for block in queries), strict=True)
                scores[row, ..., :best] = torch.cat(products, -2)
                retrieved[row, ..., :best] = torch.cat(indices, -2) + first
        ctx.save_for_backward(keys, retrieved, readable)
        ctx.mark_non_differentiable(retrieved)
        return scores, retrieved

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_scores: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        keys, indices, readable = ctx.saved_tensors
        return _sum(grad_scores * _there(indices, readable), indices, keys), None, None, None, None


def _there(indices: Tensor, readable: Tensor) -> Tensor:
    """Mask the tokens retrieved, (B, H, T, k), that a row with `readable` (B,) tokens has at all, (B, 1, 1, k) bool."""
    return torch.arange(indices.shape[-1], device=indices.device) < readable[:, None, None, None]


def _newest_of_equal(products: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return topk of products (H, T, N), but of those equal to the k-th the last of the N."""
    scores, indices = products.topk(min(k + 1, products.shape[-1]))
    least = scores[..., k - 1 : k] - _EQUAL
    tied = (scores[..., k:] >= least).any(-1)  # (H, T): where there is a choice
    scores, indices = scores[..., :k], indices[..., :k]
    if tied.any():
        rows, least, chosen = products[tied], least[tied], indices[tied]
        larger = scores[tied] > least + 2 * _EQUAL  # they stay, and the newest of the others follow
        equal = (rows >= least).scatter_(-1, chosen, ~larger)
        row, key = equal.nonzero(as_tuple=True)  # in ascending order
        after = torch.bincount(row, minlength=len(rows)).cumsum(0)[:, None]  # the last of a row
        nth = torch.arange(1, k + 1, device=row.device) - larger.sum(-1, keepdim=True)
        chosen = torch.where(larger, chosen, key[(after - nth).clamp(max=len(key) - 1)])
        scores[tied], indices[tied] = rows.gather(-1, chosen), chosen
    return scores, indices


def _sum(weights: Tensor, indices: Tensor, table: Tensor) -> Tensor:
    """Sum rows of a table (B, H, N, Dh) with weights (B, H, T, k), (B, H, T, Dh).

    Without the (B, H, T, k, Dh) tensor of these rows, in either direction.
    """
    count = table.shape[-2]
    first = count * torch.arange(len(table) * table.shape[1], device=table.device).view(*table.shape[:2], 1, 1)
    bags = (indices + first).flatten(0, 2)  # (B H T, k)
    out = F.embedding_bag(bags, table.flatten(0, 2), mode="sum", per_sample_weights=weights.flatten(0, 2))
    return out.unflatten(0, indices.shape[:-1])
