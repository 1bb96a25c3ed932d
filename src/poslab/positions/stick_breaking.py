"""Stick-breaking attention: each token before the query, the nearest first, breaks its part off what is left of a stick
(Tan et al. 2024, "Scaling Stick-Breaking Attention: An Efficient Implementation and In-depth Study", section 2).

    z_ij = q_i . k_j / sqrt(Dh)
    w_ij = sigmoid(z_ij) prod_{j < k < i} (1 - sigmoid(z_ik))          j < i

Nearness decides only where several tokens want the weight, and nothing is learned for it. What is left of the stick,
the product over all k < i, is nobody's, so that weights sum to less than 1, and those of a text's first token to 0. It
is exact under a softmax: scores are log w_ij, and the null score is the logarithm of what is left.

The paper's formula and the authors' kernels (shawntan/stickbreaking-attention) leave out the query's own token; their
tests and models then give that token what is left, here `rest=true`. Left out: `attend_current`, it breaks first.

Chosen here: the paper is causal. Where a query sees the future it has two sticks of half the length, one for each
direction. What other schemes add to scores is in z.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.positions.base import Explanation, HeadInputs, ModelShape, OnText, PositionScheme, ScoreTile, Tables

_NO_WEIGHT = -1e9  # finite, as scores must be
_WIDTH = 32  # keys that one product sums up: of 16 to 128 the fastest
_LEFT = (
    "Read from the right: each token breaks its part off what those after it have left. Where it falls, there the last "
    "token looks. Surprising: heads that are at 0 within a few tokens, and heads that look at nobody and stay at 1."
)


@dataclass(frozen=True)
class StickBreaking(PositionScheme):
    """Stick-breaking; rest: whether the query's own token gets what is left, and not nobody."""

    rest: bool = False

    variants = ({"rest": True},)

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        z, taken = self._taken(tile, before=True)
        scores, left = z - taken, -taken[..., :1]
        if not tile.causal:
            z, taken = self._taken(tile, before=False)
            both = (scores, z - taken), (left, -taken[..., -1:])
            scores, left = (torch.logaddexp(*pair) - math.log(2) for pair in both)
        if not self.rest:
            return torch.cat([scores, left], -1)
        key = torch.arange(scores.shape[-1], device=scores.device)
        return torch.where(key == tile.query_index[:, None], left, scores)

    def _taken(self, tile: ScoreTile, before: bool) -> tuple[Tensor, Tensor]:
        """Return z of a stick and -log of what each key leaves of it, both (B, H, m, n).

        before: whether it is the stick for keys before the query, or that for later ones.
        """
        key, own = torch.arange(tile.scores.shape[-1], device=tile.scores.device), tile.query_index[:, None]
        breaks = tile.seen & (key < own if before else key > own)
        added = torch.zeros_like(breaks, dtype=tile.scores.dtype).masked_fill_(~breaks, _NO_WEIGHT)
        z = tile.scores + (added + tile.subtracted).to(added.dtype)  # filling all pairs would take longer
        return z, _sums(torch.nn.functional.softplus(z), to_the_end=before)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        if i == j:
            return _rest(text, i).log() if self.rest else text.q.new_tensor(_NO_WEIGHT)
        between = range(j + 1, i) if j < i else range(i + 1, j)
        halves = 1 if text.shape.causal else 2
        return (_share(text, i, j) * _left(text, i, between) / halves).log()

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        return None if self.rest else _rest(text, i).log()

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        left = torch.stack([(-self._taken(tile, before=True)[1][0, :, -1]).exp() for tile in sample])  # (L, H, n)
        return {"left": OnText("What each token leaves of the stick of the last one", left, 1.0, _LEFT)}


def _share(text: HeadInputs, i: int, j: int) -> Tensor:
    """Return sigmoid(z_ij), a scalar."""
    return 1 / (1 + (-(text.q[i] * text.k[j]).sum() / math.sqrt(text.shape.head_dim)).exp())


def _left(text: HeadInputs, i: int, keys: range) -> Tensor:
    """Return what keys leave of a stick of query i, a scalar."""
    shares = [_share(text, i, key) for key in keys if text.seen[i][key]]
    return torch.stack([1 - share for share in shares] or [text.q.new_ones(())]).prod()


def _rest(text: HeadInputs, i: int) -> Tensor:
    """Return what is left of the stick of query i, or of its two halves, a scalar."""
    before, after = _left(text, i, range(i)), _left(text, i, range(i + 1, len(text.seen)))
    return before if text.shape.causal else (before + after) / 2


def _sums(x: Tensor, to_the_end: bool) -> Tensor:
    """Return sums of x (..., n) from each number to the last, or to the first, (..., n).

    By products with triangles of ones, which take a third of the time of cumsum; a compiled graph, whose length may be
    a symbol, takes that.
    """
    if torch.compiler.is_compiling():
        return x.flip(-1).cumsum(-1).flip(-1) if to_the_end else x.cumsum(-1)
    parts = torch.nn.functional.pad(x, (0, -x.shape[-1] % _WIDTH)).unflatten(-1, (-1, _WIDTH))  # (..., parts, width)
    within = parts @ _triangle(parts, _WIDTH, to_the_end)
    total = within[..., 0] if to_the_end else within[..., -1]  # (..., parts)
    between = total @ _triangle(total, total.shape[-1], to_the_end).fill_diagonal_(0)
    return (within + between[..., None]).flatten(-2)[..., : x.shape[-1]]


def _triangle(like: Tensor, size: int, lower: bool) -> Tensor:
    ones = like.new_ones(size, size)
    return ones.tril() if lower else ones.triu()
