"""Pictures of a scheme, as data: of what it learned, and of how it works. `poslab.evaluation` draws them.

Each has a caption for readers who see its kind for the first time: what it shows, and what would be surprising.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Curves:
    """Lines by name over a common x axis; logarithmic: the y axis."""

    title: str
    x_label: str  # where it is "distance", a page lets its reader choose one
    y_label: str
    x: list[int]
    lines: dict[str, Tensor]  # each (len(x),)
    caption: str = ""
    logarithmic: bool = False

    def __post_init__(self) -> None:
        for name, line in self.lines.items():
            if tuple(line.shape) != (len(self.x),):
                raise ValueError(f"line {name} must be (len(x),) = ({len(self.x)},), not {tuple(line.shape)}")


def curves_of(
    kind: str, title: str, x_label: str, y_label: str, numbers: Tensor, caption: str, x: Iterable[int] | None = None
) -> Curves:
    """Return the curves of numbers (N, n), a line for each layer or head, the `kind`, over x, by default 0 .. n - 1."""
    lines = {f"{kind} {number}": line.float() for number, line in enumerate(numbers)}
    return Curves(title, x_label, y_label, list(range(numbers.shape[1]) if x is None else x), lines, caption)


@dataclass(frozen=True, eq=False)
class Matrix:
    """Values in -1 to 1 as colours."""

    title: str
    x_label: str
    y_label: str
    values: Tensor  # (rows, columns)
    caption: str = ""

    def __post_init__(self) -> None:
        if self.values.dim() != 2:
            raise ValueError(f"values must be (rows, columns), not {tuple(self.values.shape)}")


@dataclass(frozen=True, eq=False)
class Strip:
    """Distances grouped by the row of the scheme's tables that they share."""

    title: str
    unit: str  # what they share: "bucket"
    distances: list[int]
    rows: list[int]  # of each distance
    caption: str = ""


@dataclass(frozen=True, eq=False)
class OnText:
    """Number of each head at each token of a sample text, from 0 to `highest`; None: to the highest of them."""

    title: str
    values: Tensor  # (L, H, T)
    highest: float | None = None
    caption: str = ""


Picture = Curves | Matrix
Explanation = Picture | Strip | OnText
