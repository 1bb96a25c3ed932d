"""Data that schemes and attention exchange: tables by distance, and tiles of scores for everything else.

Axes: B batch, H heads, Dh head dimension, Tq / Tk queries / keys, m / n queries / keys of a tile, R rows of a table.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RelativeTerms:
    """Tables by the distance between query position i and key position j, and what attention does with them.

    Each table has R = highest - lowest + 1 rows; the pair (i, j) uses row r = clip(i - j, lowest, highest) - lowest:

        score[i, j] = scale * (q_i . (k_j + keys[r]) + queries[r] . k_j) + bias[h, r]
        out[i]      = sum_j w[i, j] * (v_j + values[r])           w = softmax of score over the visible j, and null[h]

    bias: (H, R), of any size, -inf for keys that are not to be seen; a query that sees none gets zeros. keys, values
    and queries: (R, Dh), or (H, R, Dh) where heads differ. window: a query sees at most so many keys, its own and those
    right before it, and as many after it where it sees the future. null: (H,), the null score, that of a key without a
    value, which only takes weight from the others. Any of the six may be None. linear: the bias changes by the same
    number from each distance to the next, so that causal attention may take it as a bias of keys.
    Raises ValueError for a table whose number of rows is not R, and for a window below 1.
    """

    lowest: int
    highest: int
    bias: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None
    queries: Tensor | None = None
    window: int | None = None
    null: Tensor | None = None
    linear: bool = False

    def __post_init__(self) -> None:
        rows = self.highest - self.lowest + 1
        for name, table in self.tables.items():
            rows_there = table.shape[-1 if name == "bias" else -2]
            if rows_there != rows:
                problem = f"has {rows_there} rows, but distances {self.lowest} to {self.highest} need {rows}"
                raise ValueError(f"{name} {problem}")
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}, but a query sees at least one key")

    @property
    def tables(self) -> dict[str, Tensor]:
        """Tables by distance that are given, by name."""
        named = {"bias": self.bias, "keys": self.keys, "values": self.values, "queries": self.queries}
        return {name: table for name, table in named.items() if table is not None}

    def to(self, device: torch.device) -> RelativeTerms:
        """Move the tables to `device`; Apple's has no float64."""
        dtype = torch.float32 if device.type == "mps" else None
        tables: dict[str, Any] = {name: table.to(device, dtype) for name, table in self.tables.items()}
        null = None if self.null is None else self.null.to(device, dtype)
        return dataclasses.replace(self, null=null, **tables)

    def row_indices(self, query_length: int, key_length: int, offset: int | None = None) -> Tensor:
        """Return the table row of each pair, (Tq, Tk) int64.

        offset: position of the first query minus position of the first key. By default the last query stands at the
        last key, so that keys in excess of the queries are earlier memory.
        """
        if offset is None:
            offset = key_length - query_length
        device = next((table.device for table in self.tables.values()), None)
        query = torch.arange(offset, offset + query_length, device=device)
        key = torch.arange(key_length, device=device)
        return self.rows_of(query[:, None] - key)  # (Tq, Tk)

    def rows_of(self, distances: Tensor) -> Tensor:
        """Return the table row of each distance query - key, int64 of the same shape."""
        return distances.clamp(self.lowest, self.highest) - self.lowest

    def dense_bias(self, query_length: int, key_length: int, offset: int | None = None) -> Tensor:
        """Return the bias of each pair, (1, H, Tq, Tk); `offset` as in `row_indices`. Raises ValueError without one."""
        return self.bias_of(self.row_indices(query_length, key_length, offset))[None]

    def bias_of(self, rows: Tensor) -> Tensor:
        """Look up rows (..., Tq, Tk) in the bias, (..., H, Tq, Tk). Raises ValueError without a bias."""
        if self.bias is None:
            raise ValueError("these relative terms have no bias")
        heads = (*rows.shape[:-2], len(self.bias), -1)
        # gather() rather than indexing: its backward is fast.
        flat = rows.flatten(-2)[..., None, :].expand(heads)  # (..., H, Tq Tk)
        return self.bias.expand(heads).gather(-1, flat).unflatten(-1, rows.shape[-2:])


@dataclass(frozen=True, eq=False)
class ScoreTile:
    """Tile of scores: some queries, every key that any of them sees, for `PositionScheme.score_mod`."""

    scores: Tensor  # (B, H, m, n): scale * q_i . k_j, relative terms included
    queries: Tensor  # (B, H, m, Dh), and keys (B, H, n, Dh): as the scheme's own hooks left them
    keys: Tensor
    token_state: Tensor | None  # (B, H, n, E): of the keys; query_index says which of them the queries are
    i: Tensor  # (B or 1, 1, m, 1): positions of the queries
    j: Tensor  # (B or 1, 1, 1, n): positions of the keys
    seen: Tensor  # (B or 1, 1, m, n) bool: whether the query sees the key; hidden pairs may get any finite score
    scale: float
    causal: bool
    query_index: Tensor  # (m,): which of the n keys each query stands at
    subtracted: Tensor | float = 0.0  # (B or 1, H, m, 1): of biases in the scores, which no softmax notices
    first_query: int = 0  # the first of query_index
    first_key: int = 0  # which of all keys is the first of the n
    has_null: bool = False  # beside a null score, a number added to all scores of a query counts

    @property
    def whole_scores(self) -> Tensor:
        """Scores with what was subtracted, (B, H, m, n)."""
        nothing = not isinstance(self.subtracted, Tensor) and not self.subtracted
        return self.scores if nothing else (self.scores + self.subtracted).to(self.scores.dtype)


class _SymbolicRange:
    """Distances from `start` to `stop` - 1, either of which may be a symbol, of which Python's range knows nothing."""

    def __init__(self, start: Any, stop: Any) -> None:
        self.start, self.stop = start, stop

    def __getitem__(self, index: int) -> Any:
        """Return the first (0) or the last (-1)."""
        return self.start if index == 0 else self.stop - 1


def distances_between(start: int | torch.SymInt, stop: int | torch.SymInt) -> range:
    """Return all distances from `start` on and below `stop`.

    In a compiled or exported graph, whose lengths may be symbols, it has of a range `start`, `stop`, [0] and [-1].
    """
    if torch.compiler.is_compiling():
        return cast("range", _SymbolicRange(start, stop))
    return range(int(start), int(stop))
