"""RoPE and T5's bias in one model: queries and keys turn, and each pair gets a learned number by its distance.

    score[i, j] = R_i q_i . R_j k_j / sqrt(Dh) + table[bucket(j - i), h]          R_i: the rotation to position i

No paper's: an example of how two schemes are joined. See rope.py and t5.py for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from poslab.positions.base import PositionScheme
from poslab.positions.combined import Combined
from poslab.positions.rope import RoPE
from poslab.positions.t5 import T5


@dataclass(frozen=True)
class RoPET5(Combined):
    """Either may be replaced, as in any Combined; these are the defaults."""

    first: PositionScheme = field(default_factory=RoPE)
    second: PositionScheme = field(default_factory=T5)

    variants = ({"second": {"_target_": "t5", "share_layers": False, "max_distance": 20}},)
