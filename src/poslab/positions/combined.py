"""Two schemes at once, such as rotated queries and keys with a learned bias by distance.

Maps are applied one after the other, the second's after the first's: embeddings, queries, keys, tiles of scores.
Relative terms and biases of keys are added. Everything else is that of both: checks, warnings, tables, pictures, the
names of the last three beginning with first and second.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poslab.errors import SettingError
from poslab.lazy import Tensor, torch
from poslab.positions.base import (
    Explanation,
    HeadInputs,
    ModelShape,
    Picture,
    PositionScheme,
    RelativeTerms,
    ScoreTile,
    Tables,
)


@dataclass(frozen=True)
class Combined(PositionScheme):
    """Combination of any two schemes; to combine three, one of the two is a Combined itself."""

    first: PositionScheme
    second: PositionScheme

    @property
    def share_layers(self) -> bool:  # type: ignore[override]
        return self.first.share_layers and self.second.share_layers

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        return self.first.shift_invariant and self.second.shift_invariant

    @property
    def samples_each_text(self) -> bool:  # type: ignore[override]
        return self._sampled.samples_each_text

    @property
    def samples_in_evaluation(self) -> bool:  # type: ignore[override]
        return self._sampled.samples_in_evaluation

    def overrides(self, hook: str) -> bool:
        return self.first.overrides(hook) or self.second.overrides(hook)

    def check(self, shape: ModelShape) -> None:
        for name, scheme in self._parts.items():
            check_part(name, scheme, shape)

    def warnings(self, shape: ModelShape) -> list[str]:
        texts = [text for name, scheme in self._parts.items() for text in warnings_of_part(name, scheme, shape)]
        if self.first.overrides("sample") and self.second.overrides("sample"):
            texts.append("pos.first and pos.second both draw positions: those of pos.first are taken")
        return texts

    def max_length(self, shape: ModelShape) -> int | None:
        lengths = (scheme.max_length(shape) for scheme in self._parts.values())
        return min((length for length in lengths if length is not None), default=None)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        parts = {name: scheme.tables(shape) for name, scheme in self._parts.items()}
        return {f"{part}_{name}": table for part, tables in parts.items() for name, table in tables.items()}

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor | None:
        return self._sampled.sample(shape, length, generator)

    def embed(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        for name, scheme in self._parts.items():
            x = scheme.embed(_of(name, tables), x, positions)
        return x

    def rotate(self, tables: Tables, x: Tensor, positions: Tensor) -> Tensor:
        for name, scheme in self._parts.items():
            x = scheme.rotate(_of(name, tables), x, positions)
        return x

    def query(self, tables: Tables, layer: int, q: Tensor, positions: Tensor) -> Tensor:
        for name, scheme in self._parts.items():
            q = scheme.query(_of(name, tables), layer, q, positions)
        return q

    def key(self, tables: Tables, layer: int, k: Tensor, positions: Tensor) -> Tensor:
        for name, scheme in self._parts.items():
            k = scheme.key(_of(name, tables), layer, k, positions)
        return k

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        first, second = (s.relative(_of(name, tables), shape, layer, distances) for name, s in self._parts.items())
        return added(first, second) if first and second else first or second

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor | None:
        """Concatenate the states of the first and of the second, (B, H, T, E1 + E2)."""
        token_state = [
            s.token_state(_of(name, tables), layer, x) for name, s in self._parts.items() if s.overrides("token_state")
        ]
        there = [state for state in token_state if state is not None]
        return torch.cat(there, dim=-1) if there else None

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        token_state = self._own_states(tables, layer, tile.token_state, tile.keys.shape[1] * tile.keys.shape[-1])
        for name, scheme in self._parts.items():
            own = dataclasses.replace(tile, token_state=token_state[name])
            tile = dataclasses.replace(tile, scores=scheme.score_mod(_of(name, tables), layer, own))
        return tile.scores

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        """Return the sum of both biases; None where one scheme has only `score_mod`, so that both need theirs."""
        total = None
        for name, own in self._own_states(tables, layer, token_state, shape.embed_dim).items():
            scheme = self._parts[name]
            bias = None if own is None else scheme.key_bias(_of(name, tables), shape, layer, own)
            if bias is None and scheme.overrides("score_mod"):
                return None
            total = bias if total is None else total if bias is None else total + bias
        return total

    def reference_score(
        self, tables: Tables, shape: ModelShape, layer: int, head: int, text: HeadInputs, i: int, j: int
    ) -> Tensor:
        """Return the plain score plus what both add to it: exact where one of them adds what doesn't depend on it."""
        plain = super().reference_score(tables, shape, layer, head, text, i, j)
        of_parts = [
            s.reference_score(_of(name, tables), shape, layer, head, text, i, j) for name, s in self._parts.items()
        ]
        return of_parts[0] + of_parts[1] - plain

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        parts = {name: scheme.pictures(_of(name, tables), shape) for name, scheme in self._parts.items()}
        return {f"{part}_{name}": picture for part, pictures in parts.items() for name, picture in pictures.items()}

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        token_state = [
            self._own_states(tables, layer, tile.token_state, shape.embed_dim) for layer, tile in enumerate(sample)
        ]
        found: dict[str, Explanation] = {}
        for part, scheme in self._parts.items():
            own = [dataclasses.replace(tile, token_state=m[part]) for tile, m in zip(sample, token_state, strict=True)]
            of_part = scheme.explain(_of(part, tables), shape, own)
            found |= {f"{part}_{name}": picture for name, picture in of_part.items()}
        return found

    @property
    def _sampled(self) -> PositionScheme:
        """Scheme whose positions are taken."""
        return self.first if self.first.overrides("sample") else self.second

    @property
    def _parts(self) -> dict[str, PositionScheme]:
        return {"first": self.first, "second": self.second}

    def _own_states(
        self, tables: Tables, layer: int, token_state: Tensor | None, width: int
    ) -> dict[str, Tensor | None]:
        """Split the token state (B, H, N, E1 + E2) by scheme; width: D."""
        owners = [name for name, scheme in self._parts.items() if scheme.overrides("token_state")]
        own: dict[str, Tensor | None] = dict.fromkeys(self._parts)
        if token_state is None or len(owners) < 2:
            return own | dict.fromkeys(owners, token_state)
        one_token = token_state.new_zeros(1, 1, width)
        tried = self.first.token_state(_of("first", tables), layer, one_token)
        count = 0 if tried is None else tried.shape[-1]
        first, second = token_state[..., :count], token_state[..., count:]
        return {"first": first if count else None, "second": second if second.shape[-1] else None}


def added(first: RelativeTerms, second: RelativeTerms) -> RelativeTerms:
    """Add two schemes' terms, each extended beyond its distances by its last rows, within the smaller window."""
    devices = [table.device for terms in (first, second) for table in terms.tables.values()]
    device = next((device for device in devices if device.type != "cpu"), None)  # who learns nothing need not know it
    with_tables = [terms if device is None else terms.to(device) for terms in (first, second) if terms.tables]
    lowest = min((terms.lowest for terms in with_tables), default=0)
    highest = max((terms.highest for terms in with_tables), default=0)
    tables: dict[str, Any] = {}
    for terms in with_tables:
        for name, table in terms.tables.items():
            rows = _extended(table, -1 if name == "bias" else -2, terms.lowest - lowest, highest - terms.highest)
            tables[name] = tables[name] + rows if name in tables else rows
    window = min((terms.window for terms in (first, second) if terms.window is not None), default=None)
    return RelativeTerms(lowest, highest, window=window, **tables)


def check_part(name: str, scheme: PositionScheme, shape: ModelShape) -> None:
    """Check the scheme in the setting `name` of another; raises SettingError under that name."""
    try:
        scheme.check(shape)
    except SettingError as error:
        raise error.prefixed(name) from None


def warnings_of_part(name: str, scheme: PositionScheme, shape: ModelShape) -> list[str]:
    """Return the warnings of the scheme in the setting `name` of another, naming settings as the command line does."""
    return [re.sub(r"\bpos\.(?=\w)", f"pos.{name}.", text) for text in scheme.warnings(shape)]


def _of(part: str, tables: Tables) -> Tables:
    prefix = f"{part}_"
    return {name.removeprefix(prefix): table for name, table in tables.items() if name.startswith(prefix)}


def _extended(table: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Repeat the table's first and last row so many times more."""
    first, last = table.narrow(axis, 0, 1), table.narrow(axis, table.shape[axis] - 1, 1)
    parts = [first.repeat_interleave(before, axis), table, last.repeat_interleave(after, axis)]
    return torch.cat(parts, axis) if before or after else table
