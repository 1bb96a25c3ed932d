"""Schemes made of others: two at once, such as rotated queries and keys with a learned bias by distance.

Maps are applied one after the other, the second's after the first's: embeddings, queries, keys, mixes, tiles of scores.
Relative terms and biases of keys are added. Everything else is that of both: checks, warnings, tables, pictures, the
names of the last three beginning with first and second.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add, mul
from typing import Any, ClassVar

import torch
from torch import Tensor

from poslab.errors import SettingError
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.nope import NoPE
from poslab.positions.pictures import Explanation, Picture


@dataclass(frozen=True)
class Composite(PositionScheme):
    """Scheme whose hooks are those of its parts, the schemes among its settings."""

    _own: ClassVar[tuple[str, ...]] = ()  # names of tables that are no part's
    _in_one_layer: ClassVar[bool] = True  # whether all parts act in each layer

    @property
    def _parts(self) -> dict[str, PositionScheme]:
        """Schemes among the settings, by the names of these."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: value for name, value in settings.items() if isinstance(value, PositionScheme)}

    def _shape_of_parts(self, shape: ModelShape) -> ModelShape:
        return shape

    def _parts_in(self, shape: ModelShape) -> dict[str, tuple[PositionScheme, ModelShape]]:
        """Return the parts that a model of this shape has, each with the shape that it sees, by their names."""
        return {name: (part, self._shape_of_parts(shape)) for name, part in self._parts.items()}

    @property
    def share_layers(self) -> bool:  # type: ignore[override]
        return all(part.share_layers for part in self._parts.values())

    @property
    def shift_invariant(self) -> bool:  # type: ignore[override]
        return all(part.shift_invariant for part in self._parts.values())

    @property
    def additive(self) -> bool:  # type: ignore[override]
        mods = [part.additive for part in self._parts.values() if part.overrides("score_mod")]
        return all(mods) and type(self).score_mod is Composite.score_mod

    @property
    def mixed_tokens(self) -> int:  # type: ignore[override]
        return 1 + sum(part.mixed_tokens - 1 for part in self._parts.values())

    @property
    def samples_each_text(self) -> bool:  # type: ignore[override]
        return self._sampled.samples_each_text

    @property
    def samples_in_evaluation(self) -> bool:  # type: ignore[override]
        return self._sampled.samples_in_evaluation

    @property
    def _sampled(self) -> PositionScheme:
        """Scheme whose positions are taken."""
        parts = [*self._parts.values()]
        return next((part for part in parts if part.overrides("sample")), parts[0])

    def overrides(self, hook: str, layer: int | None = None) -> bool:
        own = getattr(type(self), hook) is not getattr(Composite, hook)
        return own or any(part.overrides(hook, layer) for part in self._parts.values())

    def check(self, shape: ModelShape) -> None:
        for name, (part, inner) in self._parts_in(shape).items():
            try:
                part.check(inner)
            except SettingError as error:
                raise error.prefixed(name) from None
        states = [name for name, part in self._parts.items() if part.overrides("token_state")]
        if self._in_one_layer and len(states) > 1 and shape.attention_dim != shape.embed_dim:
            problem = f"must be embed_dim / num_heads, because {' and '.join(states)} share a token's state"
            raise SettingError("head_dim", shape.head_dim, problem)

    def warnings(self, shape: ModelShape) -> list[str]:
        """Return the parts' warnings, naming settings as the command line does."""
        parts = self._parts_in(shape).items()
        texts = [(name, text) for name, (part, inner) in parts for text in part.warnings(inner)]
        return [re.sub(r"\bpos\.(?=\w)", f"pos.{name}.", text) for name, text in texts]

    def max_length(self, shape: ModelShape) -> int | None:
        return _joined(min, (part.max_length(inner) for part, inner in self._parts_in(shape).values()))

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        parts = self._parts_in(shape).items()
        return {self._prefix(part) + name: x for part, (s, inner) in parts for name, x in s.tables(inner).items()}

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor | None:
        return self._sampled.sample(shape, length, generator)

    def further(self, hook: str, value: Tensor | None) -> dict[str, Tensor | None]:
        taken = any(part.further(hook, value) for part in self._parts.values())
        return super().further(hook, value) if taken else {}

    def embed(self, tables: Tables, x: Tensor, positions: Tensor, tokens: Tensor | None = None) -> Tensor:
        for part, own in self._with_tables(tables):
            x = part.embed(own, x, positions, **part.further("embed", tokens))
        return x

    def query(
        self, tables: Tables, layer: int, q: Tensor, positions: Tensor, token_state: Tensor | None = None
    ) -> Tensor:
        return self._map("query", tables, layer, q, positions, token_state)

    def key(
        self, tables: Tables, layer: int, k: Tensor, positions: Tensor, token_state: Tensor | None = None
    ) -> Tensor:
        return self._map("key", tables, layer, k, positions, token_state)

    def query_scale(self, tables: Tables, shape: ModelShape, layer: int, keys_seen: Tensor) -> Tensor | None:
        """Return the product of the factors. They count tokens, so the shape is that of the model for all parts."""
        factors = (part.query_scale(own, shape, layer, keys_seen) for part, own in self._with_tables(tables))
        return _joined(mul, factors)

    def mix(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        for part, own in self._with_tables(tables):
            x = part.mix(own, layer, x)
        return x

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        inner = self._shape_of_parts(shape)
        return _joined(added, (part.relative(own, inner, layer, distances) for part, own in self._with_tables(tables)))

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor | None:
        """Concatenate the states of the parts, (B, H, T, E1 + E2)."""
        states = (part.token_state(own, layer, x) for part, own in self._with_tables(tables))
        return _joined(lambda first, second: torch.cat([first, second], -1), states)

    def prepare(self, tables: Tables, layer: int, keys: Tensor, token_state: Tensor) -> Tensor:
        """Concatenate what the parts make of their own states, (B, H, N, E1' + E2')."""
        parts = self._with_states(tables, layer, token_state, keys.shape[1] * keys.shape[-1])
        return torch.cat([part.prepare(own, layer, keys, state) for part, own, state in parts if state is not None], -1)

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        width, count, nulls = tile.keys.shape[1] * tile.keys.shape[-1], tile.scores.shape[-1], []
        for part, own, state in self._with_states(tables, layer, tile.token_state, width, prepared=True):
            scores = part.score_mod(own, layer, dataclasses.replace(tile, token_state=state))
            nulls.append(scores[..., count:])
            tile = dataclasses.replace(tile, scores=scores[..., :count])
        null = torch.cat(nulls, dim=-1)  # (B, H, m, at most a column of each)
        return torch.cat([tile.scores, null.logsumexp(-1, keepdim=True)], -1) if null.shape[-1] else tile.scores

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        """Return the sum of the biases; None where one scheme has only `score_mod`, so that all need theirs."""
        biases, inner = [], self._shape_of_parts(shape)
        for part, own, state in self._with_states(tables, layer, token_state, shape.embed_dim):
            biases.append(None if state is None else part.key_bias(own, inner, layer, state))
            if biases[-1] is None and part.overrides("score_mod", layer):
                return None
        return _joined(add, biases)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        """Return the plain score plus what each adds to it: exact where none adds what depends on another."""
        plain = super().reference_score(tables, text, i, j)
        inner = dataclasses.replace(text, shape=self._shape_of_parts(text.shape))
        first, *others = (part.reference_score(own, inner, i, j) for part, own in self._with_tables(tables))
        return sum((other - plain for other in others), start=first)

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        inner = dataclasses.replace(text, shape=self._shape_of_parts(text.shape))
        nulls = (part.reference_null(own, inner, i) for part, own in self._with_tables(tables))
        return _joined(torch.logaddexp, nulls)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        found: dict[str, Picture] = {}
        for name, (part, inner) in self._parts_in(shape).items():
            of_part = part.pictures(self._tables_of(name, tables), inner)
            found |= {self._prefix(name) + key: picture for key, picture in of_part.items()}
        return found

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        layers = [self._with_states(tables, n, t.token_state, shape.embed_dim, True) for n, t in enumerate(sample)]
        found: dict[str, Explanation] = {}
        for name, of_layers in zip(self._parts, zip(*layers, strict=True), strict=True):
            part, own, _ = of_layers[0]
            tiles = [dataclasses.replace(tile, token_state=s) for tile, (*_, s) in zip(sample, of_layers, strict=True)]
            of_part = part.explain(own, self._shape_of_parts(shape), tiles)
            found |= {self._prefix(name) + key: picture for key, picture in of_part.items()}
        return found

    def _prefix(self, part: str) -> str:
        """Return what the names of a part's tables and pictures begin with, where there are several parts."""
        return f"{part}_" if len(self._parts) > 1 else ""

    def _with_tables(self, tables: Tables) -> Iterator[tuple[PositionScheme, Tables]]:
        """Yield each part with its own tables."""
        yield from ((part, self._tables_of(name, tables)) for name, part in self._parts.items())

    def _tables_of(self, part: str, tables: Tables) -> Tables:
        """Return the tables of the part of that name."""
        prefix = self._prefix(part)
        theirs = {name: table for name, table in tables.items() if name not in self._own}
        return {name.removeprefix(prefix): table for name, table in theirs.items() if name.startswith(prefix)}

    def _map(
        self, hook: str, tables: Tables, layer: int, x: Tensor, positions: Tensor, token_state: Tensor | None
    ) -> Tensor:
        """Apply each part's `query` or `key` to x (B, H, T, Dh), with the part's own state."""
        for part, own, state in self._with_states(tables, layer, token_state, x.shape[1] * x.shape[-1]):
            x = getattr(part, hook)(own, layer, x, positions, **part.further(hook, state))
        return x

    def _with_states(
        self, tables: Tables, layer: int, token_state: Tensor | None, width: int, prepared: bool = False
    ) -> Iterator[tuple[PositionScheme, Tables, Tensor | None]]:
        """Yield each part with its own tables and its part of the token state (B, H, N, E1 + E2); width: D.

        prepared: whether it is what `prepare` made of the state.
        """
        several = sum(part.overrides("token_state", layer) for part in self._parts.values()) > 1
        for part, own in self._with_tables(tables):
            state = token_state if part.overrides("token_state", layer) else None
            if state is not None and several:
                tried = part.token_state(own, layer, state.new_zeros(1, 1, width))
                if prepared and tried is not None:
                    heads = state.shape[1]
                    tried = part.prepare(own, layer, tried.new_zeros(1, heads, 1, width // heads), tried)
                count = 0 if tried is None else tried.shape[-1]
                state, token_state = state[..., :count], state[..., count:]
            yield part, own, state


@dataclass(frozen=True)
class Wrapper(Composite):
    """Composite of one scheme, its setting `of`, and of the hooks that the derived class defines."""

    of: PositionScheme = field(default_factory=NoPE)

    def check(self, shape: ModelShape) -> None:
        inner = self.of
        while isinstance(inner, Wrapper):
            if set(self._own) & set(inner._own):
                raise self._refused("is, or is around, a scheme of the same kind: give another")
            inner = inner.of
        super().check(shape)

    def _refused(self, problem: str) -> SettingError:
        return SettingError("of", type(self.of).__module__.removeprefix("poslab.positions."), problem)


@dataclass(frozen=True)
class Combined(Composite):
    """Combination of any two schemes; to combine three, one of the two is a Combined itself."""

    first: PositionScheme
    second: PositionScheme

    def warnings(self, shape: ModelShape) -> list[str]:
        texts = super().warnings(shape)
        if self.first.overrides("sample") and self.second.overrides("sample"):
            texts.append("pos.first and pos.second both draw positions: those of pos.first are taken")
        return texts


def added(first: RelativeTerms, second: RelativeTerms) -> RelativeTerms:
    """Add two schemes' terms, each extended beyond its distances by its last rows, within the smaller window."""
    both = first, second
    devices = [x.device for terms in both for x in (*terms.tables.values(), terms.null) if x is not None]
    device = next((device for device in devices if device.type != "cpu"), None)  # who learns nothing need not know it
    both = both if device is None else (first.to(device), second.to(device))
    lowest, highest = min(first.lowest, second.lowest), max(first.highest, second.highest)
    tables: dict[str, Any] = {}
    for terms in both:
        for name, table in terms.tables.items():
            rows = _extended(table, -1 if name == "bias" else -2, terms.lowest - lowest, highest - terms.highest)
            tables[name] = tables[name] + rows if name in tables else rows
    window = _joined(min, (terms.window for terms in both))
    null = _joined(torch.logaddexp, (terms.null for terms in both))  # two keys without a value are one
    return RelativeTerms(lowest, highest, window=window, null=null, **tables)


def _joined(join: Callable[[Any, Any], Any], found: Iterable[Any]) -> Any:
    """Join what isn't None, one after the other; None if there is nothing."""
    there = [one for one in found if one is not None]
    return reduce(join, there) if there else None


def _extended(table: Tensor, axis: int, before: int, after: int) -> Tensor:
    """Repeat the table's first and last row so many times more."""
    first, last = table.narrow(axis, 0, 1), table.narrow(axis, table.shape[axis] - 1, 1)
    parts = [first.repeat_interleave(before, axis), table, last.repeat_interleave(after, axis)]
    return torch.cat(parts, axis) if before or after else table
