"""Pictures of what a scheme learned, as data; `poslab.evaluation` draws them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Curves:
    """One line per name, over a common x axis."""

    title: str
    x_label: str
    y_label: str
    x: list[int]
    lines: dict[str, Tensor]  # each (len(x),)


@dataclass(frozen=True, eq=False)
class Matrix:
    """Values in -1 to 1 as colours."""

    title: str
    x_label: str
    y_label: str
    values: Tensor  # (rows, columns)


Picture = Curves | Matrix
