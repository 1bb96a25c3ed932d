"""Rotary position embedding: queries and keys turn with their position (Su et al. 2021, "RoFormer", section 3.2).

    score[i, j] = Re sum_d q_i[d] conj(k_j[d]) e^(sqrt(-1) (i - j) f_d) / sqrt(Dh)          f_d = base^(-2 d / n)

where each pair of channels is one complex number, and the first n = fraction * Dh channels turn; the others add their
plain products (GPT-J, GPT-NeoX). Scalings change f_d, so that a model reads `factor` times its original context:

    linear   f_d / factor: positions between those known (Chen et al. 2023, "Extending Context Window of Large Language
             Models via Positional Interpolation")
    ntk      base * factor^(n / (n - 2)) in the place of base: the slowest pair turns `factor` times slower, the fastest
             as before ("NTK-aware scaled RoPE", bloc97 2023)
    yarn     pairs that turn more than 32 times within the original context keep f_d, those below one turn get
             f_d / factor, between them a ramp over d; queries and keys grow by 0.1 ln(factor) + 1 (Peng et al. 2023,
             "YaRN", sections 3.2 and 3.3)
    llama3   f_d above 4 turns, f_d / factor below one, between them a ramp over the turns (Llama 3.1)

`still` lets the slowest pairs stand still, f_d = 0, and leaves the others theirs, which `fraction` doesn't:

    a share  p-RoPE with p = 1 - still (Barbero et al. 2024, "Round and Round We Go! What makes Rotary Positional
             Encodings useful?", section 6); of the n / 2 pairs as many turn as p leaves whole, as in the paper's code
    context  pairs whose turn takes more than original_context positions: HoPE's position-independent components (Chen
             et al. 2024, "HoPE: A Novel Positional Encoding Without Long-Term Decay"); the paper also drops those that
             it finds "activated", which depends on the trained model, and is left out

Half-truncated RoPE (modded-nanogpt, train_gpt.py) is still=0.5 with base = 1024^((n / 2) / (n / 4 - 1)): its
frequencies go from 1 to 1 / 1024, both included. Which pairs stand still is decided before any scaling.

Conventions: pairs are channels (d, d + n / 2) as in GPT-NeoX and Llama; `interleaved` takes the paper's and GPT-J's
(2 d, 2 d + 1), the same but for the order of channels. yarn rounds the ends of its ramp to whole d, as its authors'
code does. Left out is a base that grows with the text read so far ("dynamic" NTK): keys in a cache would have to turn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least, require_one_of
from poslab.positions.base import HeadInputs, HFEquivalent, ModelShape, PositionScheme, ScoreTile, Tables
from poslab.positions.pictures import Curves, Explanation
from poslab.positions.rotary import Rotation, angles, once_per_pass

SCALINGS = ("none", "linear", "ntk", "yarn", "llama3")
# The turns within the original context above which a pair's frequency stays, and below which it is divided.
FAST_AND_SLOW = {"yarn": (32.0, 1.0), "llama3": (4.0, 1.0)}

_WAVELENGTHS = (
    "Each pair of channels is a hand of a clock. Fast ones tell neighbours apart and come round again and again; "
    "those above the line of the context never complete a turn in training, so that a longer text shows them angles "
    "that they have not seen. Pairs that stand still have no point. Surprising: no pair near the context, or none "
    "below ten."
)
_SCORE = (
    "How much of the match between two equal vectors is left when one is turned by a distance, if all pairs weigh "
    "the same. It falls at first and then swings: near keys have an advantage before anything is learned. The model "
    "can weigh pairs as it likes. Surprising: far distances that come back up to near ones."
)


@dataclass(frozen=True)
class RoPE(PositionScheme):
    """RoPE; original_context: the length that the model was trained at, for yarn, llama3 and still=context."""

    base: float = 10000.0
    fraction: float = 1.0
    interleaved: bool = False
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 256
    still: float | str = 0.0

    variants: ClassVar[tuple[dict[str, Any], ...]] = (
        {"interleaved": True, "fraction": 0.5},
        {"scaling": "linear", "factor": 4.0},
        {"scaling": "ntk", "factor": 4.0},
        {"scaling": "yarn", "factor": 4.0, "original_context": 64},
        {"scaling": "llama3", "factor": 4.0, "original_context": 64},
        {"still": 0.25},
        {"still": "context", "original_context": 12, "scaling": "linear", "factor": 2.0},
    )

    def __post_init__(self) -> None:
        if not self.base > 1:
            raise SettingError("base", self.base, "must be above 1")
        if not 0 < self.fraction <= 1:
            raise SettingError("fraction", self.fraction, "must be above 0 and at most 1")
        require_one_of(SCALINGS, scaling=self.scaling)
        require_at_least(1, factor=self.factor, original_context=self.original_context)
        if self.still != "context" and not (isinstance(self.still, float | int) and 0 <= self.still < 1):
            raise SettingError("still", self.still, "must be at least 0 and below 1, or context")

    def check(self, shape: ModelShape) -> None:
        turning = self._turning(shape.head_dim)
        if turning < 2:
            raise SettingError("fraction", self.fraction, f"leaves no pair of {shape.head_dim} channels that turns")
        if self.scaling == "ntk" and turning < 4:
            raise SettingError("scaling", self.scaling, f"needs two pairs that turn, but {turning} channels are one")
        if not any(self.frequencies(shape.head_dim)):
            raise SettingError("still", self.still, f"leaves no pair of {shape.head_dim} channels that turns")

    def warnings(self, shape: ModelShape) -> list[str]:
        found, scales = [], self.scaling != "none" and self.factor != 1
        if self.factor != 1 and not scales:
            found.append(f"pos.factor={self.factor} does nothing without pos.scaling")
        if self.scaling != "none" and not scales:
            found.append(f"pos.scaling={self.scaling} does nothing with pos.factor=1")
        known, context = self.original_context, shape.context_length
        used = self.still == "context" or (scales and self.scaling in FAST_AND_SLOW)
        if used and context not in (known, round(known * self.factor)):
            found.append(
                f"pos.original_context={known}: this model's context is {context}, neither that nor pos.factor="
                f"{self.factor} times as much; pos.still and pos.scaling need the length of training there"
            )
        return found

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        def rotation() -> Rotation:
            angle = angles(positions, self.frequencies(x.shape[-1]))  # (T, n / 2)
            return Rotation.by(angle, x, interleaved=self.interleaved, growth=self._growth)

        return once_per_pass(positions, (self, x.shape[-1], x.dtype), rotation).turn(x)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        q, k = text.q[i], text.k[j]
        turning = self._turning(text.shape.head_dim)
        total = (q[turning:] * k[turning:]).sum()
        for d, frequency in enumerate(self.frequencies(text.shape.head_dim)):
            a, b = (2 * d, 2 * d + 1) if self.interleaved else (d, d + turning // 2)
            angle = (text.positions[i] - text.positions[j]) * frequency
            real, imaginary = q[a] * k[a] + q[b] * k[b], q[b] * k[a] - q[a] * k[b]  # of q conj(k)
            total = total + self._growth**2 * (real * math.cos(angle) - imaginary * math.sin(angle))
        return total / math.sqrt(text.shape.head_dim)

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        frequencies = torch.tensor(self.frequencies(shape.head_dim), dtype=torch.float64)
        distances = list(shape.distances)
        lines = {"score": (torch.tensor(distances)[:, None] * frequencies).cos().mean(-1)}  # (R,)
        score = Curves("Score of a key that is the query itself", "distance", "of that at 0", distances, lines, _SCORE)
        return {"wavelengths": wavelengths(frequencies, shape), "score": score}

    def hf_equivalent(self, tables: Tables, shape: ModelShape) -> HFEquivalent | None:
        if self.interleaved or self.scaling == "ntk" or not all(self.frequencies(shape.head_dim)):
            return None
        rotation: dict[str, Any] = {"rope_type": "default", "rope_theta": self.base}
        if self.scaling != "none":
            rotation |= {"rope_type": self.scaling, "factor": self.factor}
        if self.scaling in FAST_AND_SLOW:
            rotation["original_max_position_embeddings"] = self.original_context
        if self.scaling == "llama3":
            fast, slow = FAST_AND_SLOW[self.scaling]
            rotation |= {"low_freq_factor": slow, "high_freq_factor": fast}
        turning = self._turning(shape.head_dim)
        share = turning / shape.head_dim
        share = share if int(shape.head_dim * share) == turning else math.nextafter(share, 1)  # as transformers rounds
        return HFEquivalent("gpt_neox", {"rope_parameters": rotation | {"partial_rotary_factor": share}})

    def _turning(self, head_dim: int) -> int:
        """Return how many channels turn, an even number."""
        return 2 * int(head_dim * self.fraction / 2 + 1e-9)  # 0.58 * 100 is a little below 58

    @property
    def _growth(self) -> float:
        return 0.1 * math.log(self.factor) + 1 if self.scaling == "yarn" else 1.0

    def frequencies(self, head_dim: int) -> list[float]:
        """Return the frequency of each of the n / 2 pairs, in radians per position; 0 for those that stand still."""
        turning = self._turning(head_dim)
        if self.still == "context":
            turn = sum(math.tau * self.base ** (2 * d / turning) <= self.original_context for d in range(turning // 2))
        else:
            turn = int((1 - float(self.still)) * (turning // 2) + 1e-9)
        return [f if d < turn else 0.0 for d, f in enumerate(self._scaled(turning))]

    def _scaled(self, turning: int) -> list[float]:
        """Return the frequencies by base and scaling."""
        base = self.base * self.factor ** (turning / (turning - 2)) if self.scaling == "ntk" else self.base
        plain = [base ** (-2 * d / turning) for d in range(turning // 2)]
        if self.scaling == "linear":
            return [frequency / self.factor for frequency in plain]
        if self.scaling not in FAST_AND_SLOW:
            return plain
        stays = self._shares(plain)
        return [f * share + f / self.factor * (1 - share) for f, share in zip(plain, stays, strict=True)]

    def _shares(self, frequencies: list[float]) -> list[float]:
        """Return the proportion of each frequency that stays, from 0 to 1; the rest is divided by factor."""
        fast, slow = FAST_AND_SLOW[self.scaling]
        if self.scaling == "llama3":
            turns = [self.original_context * frequency / math.tau for frequency in frequencies]
            return [_clipped((t - slow) / (fast - slow)) for t in turns]
        pairs = len(frequencies)
        first, last = (self._pair_that_turns(times, pairs) for times in (fast, slow))
        begin, end = max(math.floor(first), 0), min(math.ceil(last), 2 * pairs - 1)
        return [1 - _clipped((d - begin) / (end - begin or 0.001)) for d in range(pairs)]

    def _pair_that_turns(self, times: float, pairs: int) -> float:
        """Return the d, not rounded, whose pair turns so many times within the original context."""
        return pairs * math.log(self.original_context / (times * math.tau)) / math.log(self.base)


def wavelengths(frequencies: Tensor, shape: ModelShape) -> Curves:
    """Return the picture of the positions that each pair (n,) of channels takes for one turn, beside the context."""
    pairs, frequencies = frequencies.nonzero().flatten().tolist(), frequencies[frequencies != 0]
    lines = {"one turn": math.tau / frequencies, "the context": torch.full_like(frequencies, shape.context_length)}
    return Curves("Wavelengths beside the context", "pair of channels", "positions", pairs, lines, _WAVELENGTHS, True)


def _clipped(share: float) -> float:
    return min(max(share, 0.0), 1.0)
