"""Contextual position encoding, CoPE: a key's position is how many gates are open from it to the query.

Golovneva et al. 2024, sections 3 and 3.1, and the code in appendix B.

    s[i, j]     = q_i . k_j / sqrt(Dh)
    p[i, j]     = sum_{l = j .. i} sigmoid(s[i, l]), at most max_positions - 1
    score[i, j] = s[i, j] + q_i . e(p[i, j])          e: between two rows of the table, in proportion

Conventions, where the formulas leave them open, are those of appendix B (and of x-transformers): gates see the scaled
scores, q . e isn't divided by sqrt(Dh), the heads of a layer share a table, and it begins at zero. The repository of
the authors (facebookresearch/RAM, projects/cope) divides q . e by sqrt(Dh), too, unless it is told --cope-nodiv.

Chosen here: the paper is causal. Where a query sees the future, the gates from one place to the other are counted,
both ends included, in either direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.pictures import Explanation, OnText, Picture, curves_of
from poslab.processors import values_are_unknown

_NORM = (
    "How much a count of open gates can change a score, all zero at the start. Surprising: rows that the sample's "
    "counts never reach and that are long all the same."
)
_COUNTS = (
    "Each token adds its gate, between 0 and 1, to the count of all before it. Gates that are all half open count "
    "half of the tokens, which is a distance like any other. Surprising, and the scheme's idea: a count that jumps "
    "at some words, such as the ends of sentences, and stays in between."
)


@dataclass(frozen=True)
class CoPE(PositionScheme):
    """CoPE; max_positions: rows of the table; keys with more open gates up to the query share the last row."""

    max_positions: int = 64

    variants = ({"max_positions": 5},)

    def __post_init__(self) -> None:
        require_at_least(2, max_positions=self.max_positions)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"position": torch.zeros(shape.num_layers, self.max_positions, shape.head_dim)}

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        table = tables["position"][layer].to(tile.queries.dtype)
        # Less the last row, which no softmax notices without a null score: keys that are so far add nothing.
        by_row = tile.queries @ (table - table[-1]).mT  # (B, H, m, max_positions)
        position = self._positions(tile)  # (B, H, m, near)
        step = torch.nn.functional.pad(by_row.diff(dim=-1), (0, 1))  # to the row above; the last has none
        row = position.long()
        added = torch.addcmul(by_row.gather(-1, row), step.gather(-1, row), position.frac())
        scores = tile.scores + torch.nn.functional.pad(added, (tile.scores.shape[-1] - added.shape[-1], 0))
        return scores + tile.queries @ table[-1:].mT if tile.has_null else scores

    def _positions(self, tile: ScoreTile) -> Tensor:
        """Return positions of the last keys, as many as bring every query to the last row, (B, H, m, near)."""
        last, count = self.max_positions - 1, tile.scores.shape[-1]
        if not tile.causal:
            return _both_ways(tile).clamp(max=last)
        scores = tile.whole_scores
        if values_are_unknown():  # as to a compiler, which can't ask how far gates reach
            return _sum_to_the_end(scores.sigmoid() * tile.seen).clamp(max=last)
        near = len(tile.query_index) + 3 * self.max_positions
        while True:
            gates = scores[..., -near:].sigmoid() * tile.seen[..., -near:]
            position = _sum_to_the_end(gates)  # what is after the query is hidden
            if near >= count or position[..., 0].min() >= last:
                return position.clamp(max=last)
            near *= 2

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        q, root = text.q[i], math.sqrt(text.shape.head_dim)
        between = [token for token in range(min(i, j), max(i, j) + 1) if text.seen[i][token]]
        gates = [1 / (1 + (-(q * text.k[token]).sum() / root).exp()) for token in between]
        position = torch.stack(gates).sum().clamp(max=self.max_positions - 1)
        below, above = math.floor(position.detach()), math.ceil(position.detach())
        low, high = tables["position"][text.layer, below], tables["position"][text.layer, above]
        return (q * text.k[j]).sum() / root + (q * (low + (position - below) * (high - low))).sum()

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        norms = tables["position"].float().norm(dim=-1)  # (L, max_positions)
        return {"norm": curves_of("layer", "Norm of the position table", "open gates", "L2 norm", norms, _NORM)}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        counts = torch.stack([self._positions(tile)[0, :, -1] for tile in sample])  # (L, H, near)
        missing = sample[0].scores.shape[-1] - counts.shape[-1]
        counts = torch.nn.functional.pad(counts, (missing, 0), value=self.max_positions - 1)
        return {"counts": OnText("How far back each token is by its count, for the last one", counts, None, _COUNTS)}


def _sum_to_the_end(gates: Tensor) -> Tensor:
    return gates.flip(-1).cumsum(-1).flip(-1)


def _both_ways(tile: ScoreTile) -> Tensor:
    """Sum the gates between query and key, both included, whichever comes first, (B, H, m, n)."""
    gates = tile.whole_scores.sigmoid() * tile.seen
    key, own = torch.arange(gates.shape[-1], device=gates.device), tile.query_index[:, None]
    return _sum_to_the_end(gates * (key <= own)) + (gates * (key >= own)).cumsum(-1) * (key > own)
