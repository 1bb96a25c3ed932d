"""Schemes as strangers may write them: what no scheme of poslab's own is, so that no test takes it for granted.

tests/test_foreign_schemes.py runs the whole suite with most of them among the schemes of configs/pos.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from poslab.positions.base import Curves, HeadInputs, ModelShape, Picture, PositionScheme, RelativeTerms, ScoreTile
from poslab.positions.rope import RoPE

if TYPE_CHECKING:
    from torch import Tensor

    from poslab.positions.base import Tables


@dataclass(frozen=True)
class PerLayerBias(PositionScheme):
    """A learned bias per layer, head and distance up to `reach`: tables of every layer, pictures without captions."""

    reach: int = 20

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        rows = self.reach + 1 if shape.causal else 2 * self.reach + 1
        return {"bias": torch.randn(shape.num_layers, shape.num_heads, rows)}

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        return RelativeTerms(0 if shape.causal else -self.reach, self.reach, bias=tables["bias"][layer])

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        distances = list(range(0 if shape.causal else -self.reach, self.reach + 1))
        pictures: dict[str, Picture] = {}
        for number, bias in enumerate(tables["bias"].float()):
            lines = {f"head {head}": row for head, row in enumerate(bias)}
            pictures[f"layer_{number}"] = Curves(f"Bias of layer {number}", "distance", "bias", distances, lines)
        return pictures


@dataclass(frozen=True)
class FastDecay(PositionScheme):
    """A bias that falls so fast that nothing but the nearest tokens is seen; nothing is learned or pictured."""

    slope: float = 4.0
    share_layers = True

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        bias = -self.slope * torch.arange(distances.start, distances.stop).abs().float()
        return RelativeTerms(distances[0], distances[-1], bias=bias.expand(shape.num_heads, -1))


@dataclass(frozen=True)
class Mixed(PositionScheme):
    """Whatever terms can do: tables per head, distances that begin above 0."""

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        heads, head_dim = shape.num_heads, shape.head_dim
        tables = {name: torch.randn(heads, 8, head_dim) for name in ("keys", "values")}
        return {"bias": torch.randn(heads, 8)} | tables

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
        return RelativeTerms(2, 9, **tables)


@dataclass(frozen=True)
class Gated(PositionScheme):
    """Each token says how much of what lies before it is forgotten: marks, and a function of a tile."""

    gain: float = 2.0

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"gate": torch.randn(shape.num_layers, shape.num_heads, shape.embed_dim) * 0.3}

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        gate = torch.nn.functional.linear(x, tables["gate"][layer]).sigmoid()  # (B, T, H)
        return gate.transpose(1, 2)[..., None]

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        assert tile.token_state is not None
        passed = tile.token_state[..., 0].cumsum(-1)  # (B, H, n)
        between = passed[..., tile.query_index, None] - passed[..., None, :]  # (B, H, m, n)
        return tile.scores - self.gain * between.abs()


@dataclass(frozen=True)
class Stretched(PositionScheme):
    """A learned slope over the share of the text that lies between key and query: not a function of the distance."""

    shift_invariant = False

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"slope": torch.ones(shape.num_layers, shape.num_heads)}

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        share = (tile.i - tile.j).abs() / (tile.i + 1)  # (B or 1, 1, m, n)
        return tile.scores - tables["slope"][layer][:, None, None] * share.to(tile.scores.dtype)


@dataclass(frozen=True)
class Abacus(PositionScheme):
    """A digit's place in its number, counted from its beginning (after McLeish et al. 2024); ids below `digits` are."""

    digits: int = 30
    places: int = 6

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"place": torch.randn(self.places + 1, shape.embed_dim)}

    def embed(self, tables: Tables, x: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
        index = torch.arange(tokens.shape[1], device=tokens.device)
        digit = (tokens >= 0) & (tokens < self.digits)
        before = index.where(~digit, index.new_tensor(-1)).cummax(1).values  # (B, N): the last that is no digit
        place = (index - before).clamp(max=self.places)[:, -x.shape[1] :]
        return x + tables["place"][place].to(x.dtype)


@dataclass(frozen=True)
class Fractional(RoPE):
    """RoPE at random positions of floating point, in evaluation, too."""

    samples_in_evaluation = True

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor:
        return (4 * shape.context_length * torch.rand(length, generator=generator, dtype=torch.float64)).sort().values


@dataclass(frozen=True)
class Sharpened(PositionScheme):
    """Later queries are longer, by a learned number per head: its gradient is a sum in which nearly all cancels."""

    shift_invariant = False

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"growth": torch.full((shape.num_heads,), 0.3)}

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        factor = 1 + tables["growth"][:, None] * (positions + 1).log()  # (H, T)
        return (q * factor[..., None]).to(q.dtype)


@dataclass(frozen=True)
class TurnedByTokens(PositionScheme):
    """Halves of queries and keys turned against each other by their position, and by an angle of their token."""

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        return {"speed": torch.randn(shape.num_layers, shape.num_heads, shape.embed_dim) * 0.3}

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        return torch.nn.functional.linear(x, tables["speed"][layer].to(x.dtype)).mT[..., None].tanh()  # (B, H, T, 1)

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor, token_state: Tensor) -> Tensor:
        return self._turned(q, positions, token_state)

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor, token_state: Tensor) -> Tensor:
        return self._turned(k, positions, token_state)

    def _turned(self, x: Tensor, positions: Tensor, token_state: Tensor) -> Tensor:
        wide = x.to(token_state.dtype)
        angle = positions[:, None] + token_state  # (B, H, T, 1)
        a, b = wide.chunk(2, dim=-1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=-1).to(x.dtype)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        speed, half = tables["speed"][text.layer, text.head], text.shape.head_dim // 2
        own, other = (text.positions[t] + (speed * text.x[t]).sum().tanh() for t in (i, j))
        (a, b), (c, d) = text.q[i].split(half), text.k[j].split(half)
        along, across = (a * c + b * d).sum(), (b * c - a * d).sum()
        return (along * (own - other).cos() - across * (own - other).sin()) / text.shape.head_dim**0.5
