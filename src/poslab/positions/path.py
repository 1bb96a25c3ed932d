"""PaTH: on its way to a query a key goes through a reflection, more or less, of each token between (Yang et al. 2025,
"PaTH Attention: Position Encoding via Accumulating Householder Transformations", section 3).

    score[i, j] = q_i' H_i H_(i-1) ... H_(j+1) k_j / sqrt(Dh)          H_l = I - b_l w_l w_l'

    w_l = up_h (down x_l), divided by its length          b_l = 2 sigmoid(strength_h . x_l + strength_bias_h)

x_l is what enters attention. As in the authors' code (fla, layers/path_attn.py) down and up are maps to `rank` numbers
and back, b lies between 0 and 2, and weights begin normal with std 0.02, the bias at 0. Left out is the code's short
convolution of w over three tokens, as a token's state is made of that token alone; and the variant with forget gates,
which is this scheme and `forgetting` combined.

Within a block of C tokens, of rows w, the products are found at once (the paper's section 3.2, the UT transform of
Joffrain et al. 2006). With T the inverse of I + strictly lower part of diag(b) w w':

    y = T diag(b) w          H_C ... H_1 = I - w' y          m = T strictly lower part of diag(b) w k'
    q_i of the block itself: scores q_i k' - (q_i w')[up to i] m, and q_i - (q_i w')[up to i] y goes on to the left;
    a later q: scores q (k - m' w)', and q (I - w' y) goes on to the left

Chosen here: the paper is causal. Of later keys no token lies on the way, the product is empty and the score plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.pictures import Explanation, OnText, Picture, curves_of

_ONE_BLOCK = 512  # tokens of a compiled graph, from which on several blocks take less memory
_STRENGTH = (
    "How much a token that says nothing does to what goes through it: at 0 nothing, at 1 one direction is forgotten, "
    "at 2 mirrored. Heads at 0 have no positions. Surprising: all heads at one value."
)
_STRENGTHS = (
    "How much each token does to the keys before it, on their way to later queries: at 0 nothing, at 1 one direction "
    "of them is forgotten, at 2 mirrored. Surprising, and the scheme's idea: columns that stand out, such as tokens "
    "that change what is said before."
)


@dataclass(frozen=True)
class PaTH(PositionScheme):
    """PaTH; rank: of the map to w, the code's 32."""

    rank: int = 32

    variants = ({"rank": 2},)

    def __post_init__(self) -> None:
        require_at_least(1, rank=self.rank)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        layers, heads, width = shape.num_layers, shape.num_heads, shape.embed_dim
        sizes = {"down": (self.rank, width), "up": (shape.attention_dim, self.rank), "strength": (heads, width)}
        drawn = {name: torch.randn(layers, *size) * 0.02 for name, size in sizes.items()}
        return drawn | {"strength_bias": torch.zeros(layers, heads)}

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        """Return w and b of each token, (B, H, T, Dh + 1), of x (B, T, D)."""
        own = {name: table[layer].to(x.dtype) for name, table in tables.items()}
        b = 2 * torch.nn.functional.linear(x, own["strength"], own["strength_bias"]).sigmoid()  # (B, T, H)
        w = (x @ own["down"].mT @ own["up"].mT).unflatten(-1, (b.shape[-1], -1)).transpose(1, 2)  # (B, H, T, Dh)
        return torch.cat([torch.nn.functional.normalize(w, dim=-1), b.mT[..., None]], -1)

    def prepare(self, tables: Tables, layer: int, keys: Tensor, token_state: Tensor) -> Tensor:
        """Return of each token, in its block: w, y, m, a row of I - w' y, k - m' w, k, b."""
        count, width = keys.shape[2:]
        size = _block_size(count, width)
        padding = (0, 0, 0, -count % size)  # by tokens that do nothing
        k, state = (torch.nn.functional.pad(x, padding).unflatten(2, (-1, size)) for x in (keys, token_state))
        w, b = state[..., :-1], state[..., -1:]  # (B, H, blocks, C, Dh), (B, H, blocks, C, 1)
        known = torch.cat([b * w, (b * (w @ k.mT)).tril(-1)], -1)
        lower = (b * (w @ w.mT)).tril(-1)  # (B, H, blocks, C, C), and ones on the diagonal
        solved = torch.linalg.solve_triangular(lower, known, upper=False, unitriangular=True)
        y, m = solved.split([width, size], -1)
        through = torch.eye(width, dtype=w.dtype, device=w.device) - w.mT @ y  # (B, H, blocks, Dh, Dh)
        through = torch.nn.functional.pad(through, (0, 0, 0, size - width))
        made = torch.cat([w, y, m, through, k - m.mT @ w, k, b], -1)
        return made.flatten(2, 3)[:, :, :count]

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        assert tile.token_state is not None
        width, count = tile.keys.shape[-1], tile.keys.shape[2]
        size = tile.token_state.shape[-1] - 5 * width - 1  # as `prepare` has chosen it
        begun = tile.first_key % size  # so many tokens of the first block aren't in the tile
        ends = [count] if size - begun >= count else [*range(size - begun, count, size), count]
        sizes = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        # Split at once: each slice would have a gradient of the whole tile's size.
        parts = (tile.token_state.split(sizes, 2), tile.scores.split(sizes, -1))
        plain = tile.queries * tile.scale
        q, scores = plain, []
        for end, length, state, given in reversed(list(zip(ends, sizes, *parts, strict=True))):
            near, through, at_end, _ = state.split([2 * width + size, width, 2 * width, 1], -1)
            if end <= tile.first_query:
                changes = torch.cat([q, -plain], -1) @ at_end.mT
                q = q @ through[:, :, :width] if length == size else q
            else:
                w, y, m = near.split([width, width, size], -1)
                own = torch.arange(end - length, end, device=q.device)
                passed = (q @ w.mT) * (own <= tile.query_index[:, None])
                before = begun if end == length else 0
                changes = (q - plain) @ at_end[..., width:].mT - passed @ m[..., before : before + length]
                q = q - passed @ y
            scores.append(given + changes)
        return torch.cat(scores[::-1], -1)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        own, width = {name: table[text.layer] for name, table in tables.items()}, text.shape.head_dim
        up, key = own["up"][text.head * width : (text.head + 1) * width], text.k[j]
        for token in range(j + 1, i + 1):
            x = text.x[token]
            w = up @ (own["down"] @ x)
            b = 2 / (1 + (-(own["strength"][text.head] @ x) - own["strength_bias"][text.head]).exp())
            key = key - b * w * (w @ key) / (w @ w)
        return text.q[i] @ key / width**0.5

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        strengths, title = 2 * tables["strength_bias"].float().sigmoid(), "Strength of a token that says nothing"
        return {"strength": curves_of("layer", title, "head", "b", strengths, _STRENGTH)}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        strengths = torch.stack([tile.token_state[0, ..., -1] for tile in sample if tile.token_state is not None])
        return {"strengths": OnText("What each token does to the keys before it", strengths, 2.0, _STRENGTHS)}


def _block_size(count: int, width: int) -> int:
    """Return the number of tokens of a block, with room for the rows of a matrix (Dh, Dh).

    A graph whose length may be a symbol has one block, as it has no number of blocks that depends on the length.
    """
    if torch.compiler.is_exporting() or (torch.compiler.is_compiling() and count < _ONE_BLOCK):
        return count
    return max(64, width)
