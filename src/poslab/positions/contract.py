"""Check of a scheme before anything is computed with it: it fits the model, and its hooks work, in every layer.

An author who swaps two axes reads here which hook returned which shape and which it must return, in place of an error
deep in a kernel, or of none where the sizes happen to fit. A hook that mixes tokens, by which a token would see the
next one, is refused as well. Letters as in `base`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from poslab.errors import SettingError, blamed_on, described
from poslab.positions.base import ModelShape, PositionScheme, Tables, knows_fractions
from poslab.positions.pictures import Curves, Matrix
from poslab.positions.terms import RelativeTerms, ScoreTile


def check_sizes(scheme: PositionScheme, shape: ModelShape) -> None:
    """Check the settings without torch. Raises SettingError where they can't work with this model."""
    with blamed_on("pos", scheme, "check"):
        scheme.check(shape)
    with blamed_on("pos", scheme, "max_length"):
        longest = scheme.max_length(shape)
        if longest is not None and longest < 1:
            raise _wrong(scheme, "max_length", f"must be at least 1, or None, not {longest}")


def check_memory(scheme: PositionScheme, shape: ModelShape, memory_length: int) -> None:
    """Check, without torch, that keys may be so far away. Raises SettingError where the model can't remember."""
    if memory_length == 0:
        return
    if not shape.causal:
        raise SettingError("memory_length", memory_length, "needs a causal model: this one sees the future")
    longest, needed = scheme.max_length(shape), shape.context_length + memory_length
    if longest is not None and not (scheme.shift_invariant and longest >= needed):
        problem = f"this position scheme ends at a length: it knows {longest} positions, no more"
        raise SettingError("memory_length", memory_length, problem)
    try:
        check_sizes(scheme, replace(shape, context_length=needed))
    except SettingError as error:
        problem = f"with a context of {shape.context_length} makes {needed} positions, and pos.{error.option}="
        raise SettingError("memory_length", memory_length, f"{problem}{error.value} {error.problem}") from None


def initial_tables(scheme: PositionScheme, shape: ModelShape) -> dict[str, Tensor]:
    """Return the scheme's initial tables. Raises SettingError where they can't be learned."""
    with blamed_on("pos", scheme, "tables"):
        tables = scheme.tables(shape)
        check_tables(scheme, tables)
    return tables


def check_tables(scheme: PositionScheme, tables: Tables) -> None:
    """Raise SettingError for tables that can't be learned."""
    for name, table in tables.items():
        if not isinstance(table, torch.Tensor) or not table.is_floating_point():
            raise _wrong(scheme, "tables", f"{name} must be a tensor of floating point, not {described(table)}")
        if not table.is_meta and table.isnan().any():
            raise _wrong(scheme, "tables", f"{name} has values that are no numbers (NaN)")


def check_hooks(scheme: PositionScheme, tables: Tables, shape: ModelShape, layers: Sequence[int] | None = None) -> None:
    """Raise SettingError, naming hook and shape, for a hook whose result attention can't use.

    tables: on any device but "meta", where nothing can be tried. layers: by default all.
    """
    device = next((table.device for table in tables.values()), torch.empty(0).device)
    if type(scheme) is PositionScheme or device.type == "meta":
        return
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        checker = HookChecker(scheme, tables, shape, device)
        checker.check_without_layer()
        for layer in range(shape.num_layers) if layers is None else layers:
            checker.check_layer(layer)
        if layers is None:
            _check_words_and_pictures(scheme, tables, shape)


def _check_words_and_pictures(scheme: PositionScheme, tables: Tables, shape: ModelShape) -> None:
    """Raise SettingError for pictures that can't be drawn; else training would fail at its first validation."""
    with blamed_on("pos", scheme, "warnings"):
        scheme.warnings(shape)
    with blamed_on("pos", scheme, "pictures"):
        pictures = scheme.pictures(tables, shape).items()
    for name, picture in pictures:
        if not isinstance(picture, Curves | Matrix):
            raise _wrong(scheme, "pictures", f"{name} must be Curves or a Matrix, not {described(picture)}")


def check_once(scheme: PositionScheme, tables: Tables, shape: ModelShape, layer: int) -> None:
    """Run `check_tables` and `check_hooks` of one layer at the first call only, for callers in a training loop."""
    sizes = shape.embed_dim, shape.num_heads, shape.num_layers, shape.causal
    tried = repr(scheme), type(scheme), sizes, layer, tuple(map(described, tables.values()))
    if tried not in _TRIED:
        check_tables(scheme, tables)
        check_hooks(scheme, tables, shape, [layer])
        _TRIED.add(tried)


_TRIED: set[Any] = set()
Sizes = Sequence[int | None]  # None: any


class HookChecker:
    """Checker of a scheme's hooks on a few tokens, whose number is no other axis's."""

    def __init__(self, scheme: PositionScheme, tables: Tables, shape: ModelShape, device: torch.device) -> None:
        self.scheme, self.tables, self.shape = scheme, tables, shape
        longest = min(shape.context_length, scheme.max_length(shape) or shape.context_length)
        others = (shape.num_heads, shape.head_dim)
        self.length = next((n for n in (3, 5, 7, 2) if n <= longest and n not in others), min(3, longest))
        self.positions = torch.arange(self.length, device=device)
        dtype = next((table.dtype for table in tables.values()), None)
        tokens = torch.linspace(0.1, 0.3, self.length, dtype=dtype, device=device)  # no two alike
        self.x = tokens[:, None].repeat(2, 1, shape.embed_dim)  # (B, T, D)
        self.of_heads = self._by_head(self.x)

    def check_without_layer(self) -> None:
        """Raise SettingError for the first of `sample`, `embed` and `rotate` that fails."""
        self._sample()
        self._embed()

        def rotate(x: Tensor) -> Any:
            return self._call("rotate", x, self.positions[-x.shape[2] :])

        self._map("rotate", rotate, self.of_heads, "(B, H, T, Dh)")

    def check_layer(self, layer: int) -> None:
        """Raise SettingError for the first hook that fails in this layer."""
        self._mix(layer)
        self._query_scale(layer)
        sizes, compute_state = (*self.of_heads.shape[:3], None), partial(self._call, "token_state", layer)
        state = self._map("token_state", compute_state, _precise(self.x), "(B, H, T, E)", sizes)
        for name in ("query", "key"):
            self._map(name, partial(self._of_tokens, name, layer), self.x, "(B, H, T, Dh)", self.of_heads.shape)
        self._relative(layer)
        if state is not None:
            self._key_bias(layer, state)
        self._scores(layer, state)

    def _embed(self) -> None:
        """Raise SettingError where a token's embedding changes with other tokens, or with a later id, too."""
        ids = torch.arange(self.length, device=self.x.device).repeat(2, 1) % 2  # (B, T)

        def embed(x: Tensor, ids: Tensor = ids) -> Any:
            return self._call("embed", x, self.positions[-x.shape[1] :], **self.scheme.further("embed", ids))

        found = self._map("embed", embed, self.x, "(B, T, D)")
        if found is not None and self.shape.causal:
            later = embed(self.x, torch.cat([ids[:, :-1], 1 - ids[:, -1:]], dim=1))
            problem = "what it gives for a token changes with the id of a later one"
            self._require_equal("embed", later[:, :-1], found[:, :-1], problem)

    def _by_head(self, x: Tensor) -> Tensor:
        """Split x (B, T, D) by head, (B, H, T, Dh)."""
        return x.unflatten(-1, (self.shape.num_heads, self.shape.head_dim)).transpose(1, 2)

    def _of_tokens(self, name: str, layer: int, x: Tensor) -> Any:
        """Apply the hook `query` or `key` to tokens x (B, T, D) and the states that these have."""
        further = self.scheme.further(name, self._call("token_state", layer, _precise(x)))
        return self._call(name, layer, self._by_head(x), self.positions[-x.shape[1] :], **further)

    def _sample(self) -> None:
        length, longest = self.shape.context_length, self.scheme.max_length(self.shape)
        with torch.device("cpu"), blamed_on("pos", self.scheme, "sample"):
            positions = self.scheme.sample(self.shape, length, torch.Generator().manual_seed(0))
        if positions is None:
            return
        real = isinstance(positions, torch.Tensor) and positions.is_floating_point()
        dtype = positions.dtype if real and knows_fractions(self.scheme, self.shape) else torch.int64
        self._require("sample", positions, (length,), "(T,)", dtype=dtype)
        if positions[0] < 0 or (positions.diff() <= 0).any() or (longest is not None and positions[-1] >= longest):
            limit = "" if longest is None else f" below {longest}"
            raise _wrong(self.scheme, "sample", f"must give rising positions from 0 on{limit}")

    def _map(
        self, name: str, hook: Callable[[Tensor], Any], x: Tensor, axes: str, sizes: Sizes | None = None
    ) -> Tensor | None:
        """Return what a hook, if the scheme has it, makes of x (B, ..., T, n): a tensor of these sizes or of x's.

        Raises SettingError, too, where its result for one token changes with the others.
        """
        if not self.scheme.overrides(name):
            return None
        mapped = hook(x)
        if mapped is None and name == "token_state":
            return None
        mapped = self._require(name, mapped, sizes or x.shape, axes, dtype=x.dtype)
        near = 1e-2 if mapped.dtype.itemsize < 4 else 1e-5
        for index in {0, self.length - 1}:
            other = x.clone()
            other[0, ..., index, :] = 1 - 2 * other[0, ..., index, :]
            kept = torch.ones(mapped.shape[:-1], dtype=torch.bool, device=x.device)
            kept[0, ..., index] = False
            problem = "must map each token by itself: what it gives for one changes with others, or by chance"
            self._require_equal(name, mapped[kept], hook(other)[kept], problem, near)
        self._require_equal(name, mapped[..., -1:, :], hook(x[..., -1:, :]), problem, near)
        return mapped

    def _mix(self, layer: int) -> None:
        """Raise SettingError where the result at a token changes with others than it and the K - 1 before it, too."""
        count = self.scheme.mixed_tokens
        x = torch.linspace(0.1, 0.3, 2 * count + 1, dtype=self.x.dtype, device=self.x.device)
        x = x[:, None].repeat(2, 1, self.shape.embed_dim)  # (B, K - 1 + T, D), T = K + 2
        for row in (0, -1):  # of all, the first token alone sees the first, and the last one the last
            changed = x.clone()
            changed[0, row] *= -1
            before, after = (self._call("mix", layer, given) for given in (x, changed))
            before = self._require("mix", before, (2, count + 2, x.shape[-1]), "(B, T, D)", dtype=x.dtype)
            after[0, row] = before[0, row]
            problem = "must make a token of itself and the `mixed_tokens` - 1 before it, and of nothing else"
            self._require_equal("mix", before, after, problem)

    def _query_scale(self, layer: int) -> None:
        """Raise SettingError where the factor of a query changes with other queries, too."""
        seen = 1 + torch.arange(self.length, dtype=_precise(self.x).dtype, device=self.x.device)[None] ** 2  # (1, T)
        one = self.length // 2
        whole, alone = (self._call("query_scale", self.shape, layer, n) for n in (seen, seen[:, one, None]))
        if whole is None:
            return
        heads = self.shape.num_heads if whole.dim() == 3 and whole.shape[1] != 1 else 1
        self._require("query_scale", whole, (1, heads, self.length), "(1 or B, 1 or H, Tq)", dtype=seen.dtype)
        problem = "the factor of a query changes with what other queries see"
        self._require_equal("query_scale", whole[..., one, None], alone, problem)

    def _relative(self, layer: int) -> None:
        sizes: Sizes = (self.shape.num_heads, None, self.shape.head_dim)  # R is what RelativeTerms wants
        distances = range(0 if self.shape.causal else 1 - self.length, self.length)
        terms = self._call("relative", self.shape, layer, distances)
        if terms is None:
            return
        if not isinstance(terms, RelativeTerms):
            raise _wrong(self.scheme, "relative", f"must give RelativeTerms or None, not {described(terms)}")
        for name, table in (terms.tables | ({} if terms.null is None else {"null": terms.null})).items():
            by_name = {"null": slice(1), "bias": slice(2)}
            axes = by_name.get(name, slice(0 if table.dim() == 3 else 1, 3))
            self._require("relative", table, sizes[axes], f"({', '.join(('H', 'R', 'Dh')[axes])})", name)

    def _key_bias(self, layer: int, token_state: Tensor) -> None:
        """Raise SettingError where biases of neighbouring keys change with a later token, too."""
        other = token_state.clone()
        other[:, :, -1] = 1 - 2 * other[:, :, -1]
        bias, changed = (self._call("key_bias", self.shape, layer, state) for state in (token_state, other))
        if bias is None:
            return
        self._require("key_bias", bias, token_state.shape[:3], "(B, H, N)")
        if self.shape.causal:
            before, after = (x[..., :-1] - x[..., :1] for x in (bias, changed))
            problem = "a key's bias beside that of another changes with a later token"
            self._require_equal("key_bias", before, after, problem, 1e-4)

    def _scores(self, layer: int, token_state: Tensor | None) -> None:
        """Raise SettingError where scores of a query differ from those that it has alone in its tile, too."""
        if not self.scheme.overrides("score_mod"):
            return
        first = min(1, self.length - 1)
        whole = self._scores_of(layer, token_state, range(first, self.length))
        for row, index in enumerate(range(first, self.length)):
            alone = self._scores_of(layer, token_state, range(index, index + 1))
            problem = "scores of a query change with what else is in its tile, look at pairs with `seen` alone"
            whole_row = whole[:, :, row, : alone.shape[-1]]
            self._require_equal("score_mod", whole_row, alone[:, :, 0], f"{problem}, and at no sizes", 1e-4)

    def _scores_of(self, layer: int, token_state: Tensor | None, indices: range) -> Tensor:
        """Return the scores of the queries of these indices and every key that one of them sees, null scores first."""
        keys = _precise(self.of_heads)[:, :, : indices.stop if self.shape.causal else self.length]
        queries, count = keys[:, :, indices.start : indices.stop], keys.shape[2]
        query_index = torch.arange(indices.start, indices.stop, device=keys.device)
        i, j = self.positions[None, None, query_index, None], self.positions[None, None, None, :count]
        state = None
        if token_state is not None:
            state = self._call("prepare", layer, keys, token_state[:, :, :count])
            state = self._require("prepare", state, (*keys.shape[:3], None), "(B, H, N, E)", dtype=keys.dtype)
        scale, causal = self.shape.head_dim**-0.5, self.shape.causal
        seen = j <= i if causal else torch.ones_like(j <= i)
        scores = queries @ keys.mT * scale
        tile = ScoreTile(scores, queries, keys, state, i, j, seen, scale, causal, query_index, 0.0, indices.start)
        scores = self._call("score_mod", layer, tile)
        null = isinstance(scores, torch.Tensor) and scores.shape[-1:] == (count + 1,)
        sizes = (*tile.scores.shape[:-1], count + null)
        scores = self._require("score_mod", scores, sizes, "(B, H, m, n)", dtype=tile.scores.dtype)
        return scores.roll(1, -1) if null else scores  # the keys that later queries alone see stay at the end

    def _call(self, hook: str, *given: Any, **further: Any) -> Any:
        with blamed_on("pos", self.scheme, hook):
            return getattr(self.scheme, hook)(self.tables, *given, **further)

    def _require_equal(self, hook: str, first: Tensor, second: Tensor, problem: str, near: float = 1e-5) -> None:
        """Raise SettingError where two results that must be equal are not, but for rounding."""
        if not torch.allclose(first, second, near, near):
            raise _wrong(self.scheme, hook, problem)

    def _require(
        self, hook: str, given: Any, sizes: Sizes, axes: str, name: str = "its result", dtype: torch.dtype | None = None
    ) -> Tensor:
        """Return `given`; raise SettingError for wrong sizes (None: any), NaN, and with `dtype` for others or inf."""
        fits = isinstance(given, torch.Tensor) and given.dim() == len(sizes)
        if not fits or any(size not in (None, found) for size, found in zip(sizes, given.shape, strict=True)):
            wanted = str(tuple("any" if size is None else size for size in sizes)).replace("'", "")
            raise _wrong(self.scheme, hook, f"{name} must be {axes} = {wanted} here, not {described(given)}")
        if not (given.is_floating_point() if dtype is None else given.dtype == dtype):
            wanted = "floating point" if dtype is None else str(dtype).removeprefix("torch.")
            raise _wrong(self.scheme, hook, f"{name} must be of {wanted}, not {described(given)}")
        if given.isnan().any():
            raise _wrong(self.scheme, hook, f"{name} has values that are no numbers (NaN)")
        if dtype is not None and given.isinf().any():
            raise _wrong(self.scheme, hook, f"{name} has infinite values")
        found: Tensor = given
        return found


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _wrong(scheme: PositionScheme, hook: str, problem: str) -> SettingError:
    return SettingError("pos", f"{type(scheme).__name__}.{hook}", problem)
