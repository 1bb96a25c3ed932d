"""Selective RoPE: pairs of channels turn by as much as each token wants (Movahedi et al. 2025, "Selective Rotary
Position Embedding").

    score[i, j] = Re sum_d q_i[d] conj(k_j[d]) e^(sqrt(-1) f_d (phi_(j+1)[d] + ... + phi_i[d])) / sqrt(Dh)
    phi_l       = sigmoid(gate_h . u_l + gate_bias_h) up_h down u_l          f_d = base^(-2 d / Dh)

where channels (d, d + Dh / 2) are one complex number and u_l is what enters attention, of length 1 in each head's part.
`gate=false` leaves the sigmoid out. Base, `rank` 16 and the gate are those of the authors' code for language models
(timurcarstensen/selective-rope, modules/rotary.py); weights begin as torch's linear maps do. Left out is the code's
convolution of phi over four tokens, as a token's state is made of that token alone. Where a query sees the future, the
sum from i + 1 to j turns the other way.

Of this paper's kin it needs no change of the contract: sums along a text are prepared once from states that a cache
keeps, while PoPE (Gopalakrishnan et al. 2025) needs queries and keys of twice the width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import Explanation, HeadInputs, ModelShape, OnText, PositionScheme, ScoreTile, Tables

_TURNS = (
    "How far each token turns the fastest pair, in radians, whichever way: what a step of one position is to RoPE. "
    "Tokens at 0 take no place. Surprising: the same for all tokens, which is RoPE with another base."
)


@dataclass(frozen=True)
class SelectiveRoPE(PositionScheme):
    """Selective RoPE; rank: of the map to phi. gate: whether tokens can also be passed over by a whole head."""

    base: float = 500000.0
    rank: int = 16
    gate: bool = True

    variants = ({"base": 10.0, "gate": False},)

    def __post_init__(self) -> None:
        if not self.base > 1:
            raise SettingError("base", self.base, "must be above 1")
        require_at_least(1, rank=self.rank)

    def check(self, shape: ModelShape) -> None:
        if shape.head_dim % 2:
            problem = f"makes heads of {shape.head_dim} channels, but pairs turn"
            raise SettingError("num_heads", shape.num_heads, problem)
        if shape.embed_dim % shape.num_heads:
            raise SettingError("num_heads", shape.num_heads, f"must divide embed_dim={shape.embed_dim}")

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        heads, width, rank = shape.num_heads, shape.embed_dim, self.rank
        sizes = {"down": (rank, width), "up": (heads, shape.head_dim // 2, rank)}
        sizes |= {"gate": (heads, width), "gate_bias": (heads,)} if self.gate else {}
        bounds = {"up": rank**-0.5}  # others are maps of D numbers
        return {
            name: torch.empty(shape.num_layers, *size).uniform_(-1, 1) * bounds.get(name, width**-0.5)
            for name, size in sizes.items()
        }

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        """Return phi of each token, (B, H, T, Dh / 2), of x (B, T, D)."""
        own = {name: table[layer].to(x.dtype) for name, table in tables.items()}
        unit = torch.nn.functional.normalize(x.unflatten(-1, (len(own["up"]), -1)), dim=-1).flatten(-2)  # (B, T, D)
        phi = (unit @ own["down"].mT)[:, None] @ own["up"].mT  # (B, H, T, Dh / 2)
        if not self.gate:
            return phi
        return phi * torch.nn.functional.linear(unit, own["gate"], own["gate_bias"]).sigmoid().mT[..., None]

    def prepare(self, tables: Tables, layer: int, keys: Tensor, token_state: Tensor) -> Tensor:
        """Return keys as they are turned, and cosines and sines of the angles, (B, H, N, 2 Dh)."""
        dtype = torch.float32 if keys.device.type == "mps" else torch.float64  # sums along a text, as positions are
        pair = torch.arange(token_state.shape[-1], dtype=dtype, device=keys.device)
        angle = token_state.to(dtype).cumsum(2) * self.base ** (-pair / len(pair))
        cos, sin = angle.cos().to(keys.dtype), angle.sin().to(keys.dtype)
        return torch.cat([_turned(keys, cos, sin), cos, sin], -1)

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        assert tile.token_state is not None
        keys, angles = tile.token_state.chunk(2, -1)  # (B, H, n, Dh) each
        queries = _turned(tile.queries, *angles[:, :, tile.query_index].chunk(2, -1))
        return tile.scores + tile.scale * (queries @ keys.mT - tile.queries @ tile.keys.mT)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        own, width = {name: table[text.layer] for name, table in tables.items()}, text.shape.head_dim
        angle = torch.zeros_like(text.q[i][: width // 2])
        for token in range(min(i, j) + 1, max(i, j) + 1):
            parts = text.x[token].view(-1, width)
            unit = (parts / (parts * parts).sum(-1, keepdim=True).sqrt()).flatten()
            phi = own["up"][text.head] @ (own["down"] @ unit)
            if self.gate:
                phi = phi / (1 + (-(own["gate"][text.head] @ unit) - own["gate_bias"][text.head]).exp())
            for d in range(width // 2):
                angle[d] += (1 if i > j else -1) * phi[d] * self.base ** (-2 * d / width)
        (a, b), (c, e) = text.q[i].chunk(2), text.k[j].chunk(2)  # of q_i and of k_j, real and imaginary
        return ((a * c + b * e) * angle.cos() - (b * c - a * e) * angle.sin()).sum() / width**0.5

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        states = torch.stack([tile.token_state[0] for tile in sample if tile.token_state is not None])
        cos, sin = states[..., shape.head_dim :].chunk(2, -1)  # (L, H, T, Dh / 2)
        angle = torch.atan2(sin, cos)[..., 0]
        turns = torch.nn.functional.pad(angle, (1, 0)).diff(dim=-1)
        return {"turns": OnText("How far each token turns", torch.atan2(turns.sin(), turns.cos()).abs(), None, _TURNS)}


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (d, d + Dh / 2) of x (B, H, T, Dh) by angles of which these are (B, H, T, Dh / 2)."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
