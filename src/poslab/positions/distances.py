"""Distances that a text has, also where a graph's lengths are symbols."""

from __future__ import annotations

from typing import Any, cast

import torch


class _SymbolicRange:
    """Distances from `start` to `stop` - 1, either of which may be a symbol, of which Python's range knows nothing."""

    def __init__(self, start: Any, stop: Any) -> None:
        self.start, self.stop = start, stop

    def __getitem__(self, index: int) -> Any:
        """Return the first (0) or the last (-1)."""
        return self.start if index == 0 else self.stop - 1


def distances_between(start: int, stop: int) -> range:
    """Return all distances from `start` on and below `stop`.

    In a compiled or exported graph, whose lengths may be symbols, it has of a range `start`, `stop`, [0] and [-1].
    """
    return cast("range", _SymbolicRange(start, stop)) if torch.compiler.is_compiling() else range(start, stop)
