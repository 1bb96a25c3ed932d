"""Pattern over layers: a list of schemes, each with a window or none, repeated to the model's depth.

    layer n, from 0 on:      score and window of layers[n mod len(layers)]      query i sees key j if |i - j| < window

    [rope, rope, rope, nope]    SmolLM3 (Bakouch et al. 2025), without any window; with one for rope RNoPE-SWA (Yang et
                                al. 2025, "Rope to Nope and Back Again: A New Hybrid Attention Strategy"), SWAN (Puvvada
                                et al. 2025) and iRoPE of Llama 4 (Meta 2025)
    [rope, ..., rope]           Gemma 3 (Gemma Team 2025): five with base 10,000 and a window, one with base 1,000,000
                                and none

Equal schemes are one, whatever their windows: it learns in all its layers, and L is their number. What belongs to no
layer happens once: each scheme maps embeddings, one after the other, and the first that samples positions gives them.

Deviations from Llama 4: its layers with positions see chunks of the text, these the last `window` tokens (as in Yang et
al. 2025); it normalises queries and keys, and grows the queries of layers without positions by the logarithm of their
position, which are no parts of a pattern: the latter is `kind=llama4` of another scheme, around this one or in it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.positions.base import HeadInputs, ModelShape, PositionScheme, RelativeTerms, ScoreTile, Tables
from poslab.positions.combined import Composite
from poslab.positions.nope import NoPE
from poslab.positions.pictures import Explanation
from poslab.positions.rope import RoPE


@dataclass(frozen=True)
class Entry:
    """Entry of a pattern: scheme `of` a layer, and how many keys a query sees there, itself included; None: all."""

    of: PositionScheme
    window: int | None = None

    def __post_init__(self) -> None:
        require_at_least(1, window=self.window)
        if hasattr(self.of, "window"):  # because a node has room for one setting of that name
            raise SettingError("window", self.window, f"{type(self.of).__name__} has a setting of that name itself")


@dataclass(frozen=True)
class Layers(Composite):
    """Pattern of entries over the layers, repeated; there may be more of them than layers."""

    layers: tuple[Entry, ...] = (Entry(RoPE()), Entry(NoPE()))

    _in_one_layer = False

    variants = (
        {"layers": ["t5", {"_target_": "shaw", "window": 7}]},
        {"layers": ["forgetting", {"_target_": "canon", "of": "rope", "window": 20}]},
    )

    def __post_init__(self) -> None:
        if not self.layers:
            raise SettingError("layers", [], "must have at least one scheme")

    @cached_property
    def _names(self) -> list[str]:
        """Name of the part at each place of the pattern, after the first place that has an equal scheme."""
        schemes = [entry.of for entry in self.layers]
        return [f"layers.{schemes.index(scheme)}" for scheme in schemes]

    @cached_property
    def _parts(self) -> dict[str, PositionScheme]:
        return {name: self.layers[int(name.rpartition(".")[2])].of for name in dict.fromkeys(self._names)}

    def _parts_in(self, shape: ModelShape) -> dict[str, tuple[PositionScheme, ModelShape]]:
        names = [self._name(layer) for layer in range(shape.num_layers)]
        return {name: (self._parts[name], replace(shape, num_layers=names.count(name))) for name in sorted(set(names))}

    def _prefix(self, part: str) -> str:
        return super()._prefix(part.removeprefix("layers."))  # because names of tables have no dots

    def _name(self, layer: int) -> str:
        return self._names[layer % len(self.layers)]

    def _at(self, layer: int, tables: Tables) -> tuple[PositionScheme, Tables, int]:
        """Return the scheme of a layer, its tables, and which of its own layers this is."""
        name = self._name(layer)
        rank = sum(self._name(before) == name for before in range(layer))
        return self._parts[name], self._tables_of(name, tables), rank

    def _shape_at(self, layer: int, shape: ModelShape) -> ModelShape:
        return self._parts_in(shape)[self._name(layer)][1]

    def _window(self, layer: int) -> int | None:
        return self.layers[layer % len(self.layers)].window

    @property
    def share_layers(self) -> bool:  # type: ignore[override]
        return super().share_layers and all(entry == self.layers[0] for entry in self.layers)

    @property
    def mixed_tokens(self) -> int:  # type: ignore[override]
        return max(part.mixed_tokens for part in self._parts.values())

    def overrides(self, hook: str, layer: int | None = None) -> bool:
        if hook in ("relative", "reference_score"):
            windows = [entry.window for entry in self.layers] if layer is None else [self._window(layer)]
            if any(windows):
                return True
        if layer is None:
            return any(part.overrides(hook) for part in self._parts.values())
        part, _, rank = self._at(layer, {})
        return part.overrides(hook, rank)

    def check(self, shape: ModelShape) -> None:
        super().check(shape)
        for name in self._parts.keys() - self._parts_in(shape).keys():
            if any(map(self._parts[name].overrides, ("embed", "sample"))):
                problem = f"acts on all layers, but none of {shape.num_layers} is its own"
                raise SettingError(name, type(self._parts[name]).__name__, problem)

    def warnings(self, shape: ModelShape) -> list[str]:
        found = super().warnings(shape)
        for place, entry in enumerate(self.layers):
            if place >= shape.num_layers:
                found.append(f"pos.layers.{place}: with {shape.num_layers} layers, none has it")
            elif entry.window is not None and entry.window >= shape.context_length:
                known = f"hides nothing within a context of {shape.context_length}"
                found.append(f"pos.layers.{place}.window={entry.window} {known}")
        return found

    # The hooks of a layer are those of its scheme.

    def query(
        self, tables: Tables, layer: int, q: Tensor, positions: Tensor, token_state: Tensor | None = None
    ) -> Tensor:
        part, own, rank = self._at(layer, tables)
        return part.query(own, rank, q, positions, **part.further("query", token_state))

    def key(
        self, tables: Tables, layer: int, k: Tensor, positions: Tensor, token_state: Tensor | None = None
    ) -> Tensor:
        part, own, rank = self._at(layer, tables)
        return part.key(own, rank, k, positions, **part.further("key", token_state))

    def query_scale(self, tables: Tables, shape: ModelShape, layer: int, keys_seen: Tensor) -> Tensor | None:
        part, own, rank = self._at(layer, tables)
        return part.query_scale(own, self._shape_at(layer, shape), rank, keys_seen)

    def mix(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        part, own, rank = self._at(layer, tables)
        return part.mix(own, rank, x[:, self.mixed_tokens - part.mixed_tokens :])

    def relative(self, tables: Tables, shape: ModelShape, layer: int, distances: range) -> RelativeTerms | None:
        part, own, rank = self._at(layer, tables)
        terms, window = part.relative(own, self._shape_at(layer, shape), rank, distances), self._window(layer)
        if window is None:
            return terms
        terms = terms or RelativeTerms(0, 0)
        return replace(terms, window=window if terms.window is None else min(window, terms.window))

    def token_state(self, tables: Tables, layer: int, x: Tensor) -> Tensor | None:
        part, own, rank = self._at(layer, tables)
        return part.token_state(own, rank, x)

    def prepare(self, tables: Tables, layer: int, keys: Tensor, token_state: Tensor) -> Tensor:
        part, own, rank = self._at(layer, tables)
        return part.prepare(own, rank, keys, token_state)

    def score_mod(self, tables: Tables, layer: int, tile: ScoreTile) -> Tensor:
        part, own, rank = self._at(layer, tables)
        return part.score_mod(own, rank, tile)

    def key_bias(self, tables: Tables, shape: ModelShape, layer: int, token_state: Tensor) -> Tensor | None:
        part, own, rank = self._at(layer, tables)
        return part.key_bias(own, self._shape_at(layer, shape), rank, token_state)

    def reference_score(self, tables: Tables, text: HeadInputs, i: int, j: int) -> Tensor:
        part, own, rank = self._at(text.layer, tables)
        score, window = part.reference_score(own, self._inner(text, rank), i, j), self._window(text.layer)
        return score if window is None or abs(i - j) < window else score - math.inf  # tokens, whatever their positions

    def reference_null(self, tables: Tables, text: HeadInputs, i: int) -> Tensor | None:
        part, own, rank = self._at(text.layer, tables)
        return part.reference_null(own, self._inner(text, rank), i)

    def _inner(self, text: HeadInputs, rank: int) -> HeadInputs:
        """Return the inputs as the layer's scheme has them, which is that of so many layers."""
        window, seen = self._window(text.layer), text.seen
        if window is not None:
            seen = [[is_seen and abs(i - j) < window for j, is_seen in enumerate(of)] for i, of in enumerate(seen)]
        return replace(text, layer=rank, shape=self._shape_at(text.layer, text.shape), seen=seen)

    def explain(self, tables: Tables, shape: ModelShape, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        found: dict[str, Explanation] = {}
        for name, (part, inner) in self._parts_in(shape).items():
            tiles = [tile for layer, tile in enumerate(sample) if self._name(layer) == name]
            of_part = part.explain(self._tables_of(name, tables), inner, tiles)
            found |= {self._prefix(name) + key: picture for key, picture in of_part.items()}
        return found
