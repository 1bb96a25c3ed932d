"""Sines and cosines added to the token embeddings (Vaswani et al. 2017, section 3.5).

    x_t = token_embedding_t + amplitude * signal_t
    signal[t, 2 d] = sin(t / base^(2 d / D))          signal[t, 2 d + 1] = cos(t / base^(2 d / D))

Order of the channels and frequencies are the paper's. tensor2tensor, the authors' code, puts all sines before all
cosines, which renames the channels, and takes base^(-d / (D/2 - 1)) for pair d = 0 .. D/2 - 1.

Deviation: the paper multiplies token embeddings by sqrt(D), so that a signal of amplitude 1 meets tokens of standard
deviation 1. Here tokens begin at 0.02, as in GPT-2, whatever the scheme, and the signal is as much smaller instead: the
same sum but for a factor. An amplitude of 1 would drown the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.base import Explanation, HFEquivalent, Matrix, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.rope import wavelengths
from poslab.positions.rotary import angles

_SIMILARITY = (
    "How alike two positions are before any token is added: it depends on their distance alone, so each stripe along "
    "the diagonal has one colour. Nothing here is learned; learned positions often come to look like this. "
    "Surprising: nothing, but see how little the far ones differ."
)


@dataclass(frozen=True)
class Sinusoidal(PositionScheme):
    """Sinusoidal positions, which learn nothing; any position has its signal."""

    base: float = 10000.0
    amplitude: float = 0.02
    shift_invariant = False

    def __post_init__(self) -> None:
        for name, value in (("base", self.base), ("amplitude", self.amplitude)):
            if not (value > 0 and math.isfinite(value)):
                raise SettingError(name, value, "must be above 0")

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        signal = self._signal(positions, x.shape[-1])
        return (x + self.amplitude * signal.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype)

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent:
        """GPT-2 with the signal as its table, which there ends at the context length."""
        signal = self._signal(torch.arange(shape.context_length), shape.embed_dim)
        return HFEquivalent("gpt2", weights={"transformer.wpe.weight": (self.amplitude * signal).float()})

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        signal = self._signal(torch.arange(shape.context_length), shape.embed_dim)
        unit = torch.nn.functional.normalize(signal, dim=-1)
        title = "Cosine similarity of positions"
        return {
            "wavelengths": wavelengths(torch.tensor(self._frequencies(shape.embed_dim)), shape),
            "similarity": Matrix(title, "position", "position", unit @ unit.T, _SIMILARITY),
        }

    def _signal(self, positions: Tensor, width: int) -> Tensor:
        """Return the signal of positions (T,), (T, D)."""
        angle = angles(positions, self._frequencies(width))  # (T, ceil(D / 2))
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :width]

    def _frequencies(self, width: int) -> list[float]:
        """Return the frequency of each pair, in radians per position."""
        return [self.base ** (-even / width) for even in range(0, width, 2)]
