"""Check of a scheme's hooks on a few tokens, in every layer, before anything is computed with them.

An author who swaps two axes reads here which hook returned which shape and which it must return, in place of an error
deep in a kernel, or of none where the sizes happen to fit. A hook that mixes tokens, by which a token would see the
next one, is refused as well. Letters as in `base`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from poslab.errors import SettingError, UserError, blamed_on
from poslab.lazy import Tensor, torch
from poslab.positions.base import HOOKS, ModelShape, PositionScheme, Tables
from poslab.positions.pictures import Curves, Matrix
from poslab.positions.terms import RelativeTerms, ScoreTile


def hook_at_fault(error: BaseException) -> str | None:
    """Return the scheme's hook that raised, as "Mine.rotate (my_file.py, line 12)"; None: none did."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        scheme, code = frame.f_locals.get("self"), frame.f_code
        if code.co_name in HOOKS and isinstance(scheme, PositionScheme):
            found = f"{type(scheme).__name__}.{code.co_name} ({Path(code.co_filename).name}, line {line})"
    return found


@contextmanager
def trying(scheme: PositionScheme, hook: str) -> Iterator[None]:
    """Raise SettingError, naming the hook, for errors in it that are not the user's or the machine's."""
    with blamed_on("pos", lambda error: hook_at_fault(error) or f"{type(scheme).__name__}.{hook}"):
        yield


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
        self.of_heads = self.x.unflatten(-1, (shape.num_heads, shape.head_dim)).transpose(1, 2)  # (B, H, T, Dh)

    def sample(self) -> None:
        if not self.scheme.overrides("sample"):
            return
        length = self.shape.context_length
        with torch.device("cpu"), trying(self.scheme, "sample"):
            positions = self.scheme.sample(self.shape, length, torch.Generator().manual_seed(0))
        if positions is None:
            return
        self._require("sample", positions, (length,), "(T,)")
        longest = self.scheme.max_length(self.shape)
        rising = positions.dtype == torch.int64 and positions[0] >= 0 and (positions.diff() > 0).all()
        if not rising or (longest is not None and positions[-1] >= longest):
            limit = "" if longest is None else f" below {longest}"
            raise wrong(self.scheme, "sample", f"must give rising int64 positions from 0 on{limit}")

    def embed(self) -> None:
        if self.scheme.overrides("embed"):
            self._map("embed", partial(self.scheme.embed, self.tables), self.x, "(B, T, D)")

    def rotate(self) -> None:
        if self.scheme.overrides("rotate"):
            self._map("rotate", partial(self.scheme.rotate, self.tables), self.of_heads, "(B, H, T, Dh)")

    def layer(self, layer: int) -> None:
        """Raise SettingError for the first hook that fails in this layer."""
        scheme, tables, x = self.scheme, self.tables, self.of_heads
        for name, hook in (("query", scheme.query), ("key", scheme.key)):
            if scheme.overrides(name):
                self._map(name, partial(hook, tables, layer), x, "(B, H, T, Dh)")
        self._relative(layer)
        entering = _precise(self.x)
        with trying(scheme, "token_state"):
            token_state = scheme.token_state(tables, layer, entering) if scheme.overrides("token_state") else None
        if token_state is not None:
            self._require("token_state", token_state, (*x.shape[:3], None), "(B, H, T, E)", like=entering)
            self._require_by_itself("token_state", partial(scheme.token_state, tables, layer), entering, token_state)
            with trying(scheme, "key_bias"):
                bias = scheme.key_bias(tables, self.shape, layer, token_state)
            if bias is not None:
                self._require("key_bias", bias, x.shape[:3], "(B, H, N)")
                self._require_past_keys(layer, token_state, bias)
        if scheme.overrides("score_mod"):
            self._scores(layer, token_state)

    def warnings(self) -> None:
        """Raise SettingError unless `warnings` returns a list of sentences."""
        with trying(self.scheme, "warnings"):
            texts = self.scheme.warnings(self.shape)
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise wrong(self.scheme, "warnings", f"must give a list of sentences, not {described(texts)}")

    def pictures(self) -> None:
        """Raise SettingError for pictures that can't be drawn; else training would fail at its first validation."""
        with trying(self.scheme, "pictures"):
            pictures = self.scheme.pictures(self.tables, self.shape)
        if not (isinstance(pictures, Mapping) and all(isinstance(name, str) for name in pictures)):
            raise wrong(self.scheme, "pictures", f"must give a dict of pictures by name, not {described(pictures)}")
        for name, picture in pictures.items():
            if isinstance(picture, Curves):
                for line, values in picture.lines.items():
                    self._require("pictures", values, (len(picture.x),), "(len(x),)", f"line {line} of {name}")
            elif isinstance(picture, Matrix):
                self._require("pictures", picture.values, (None, None), "(rows, columns)", f"values of {name}")
            else:
                raise wrong(self.scheme, "pictures", f"{name} must be Curves or a Matrix, not {described(picture)}")

    def _relative(self, layer: int) -> None:
        if not self.scheme.overrides("relative"):
            return
        distances = range(0 if self.shape.causal else 1 - self.length, self.length)
        with trying(self.scheme, "relative"):
            try:
                terms = self.scheme.relative(self.tables, self.shape, layer, distances)
                again = self.scheme.relative(self.tables, self.shape, layer, distances)
            except UserError:
                raise
            except ValueError as error:  # of RelativeTerms
                raise wrong(self.scheme, "relative", f"in layer {layer}, {error}") from error
        if not (terms is None or isinstance(terms, RelativeTerms)):
            raise wrong(self.scheme, "relative", f"must give RelativeTerms or None, not {described(terms)}")
        heads, head_dim = self.shape.num_heads, self.shape.head_dim
        for name, table in terms.tables.items() if terms is not None else ():
            rows = table.shape[-1 if name == "bias" else -2]  # as many as there are distances: RelativeTerms looks
            if name == "bias":
                self._require("relative", table, (heads, rows), "(H, R)", name)
            elif table.dim() == 3:
                self._require("relative", table, (heads, rows, head_dim), "(H, R, Dh)", name)
            else:
                self._require("relative", table, (rows, head_dim), "(R, Dh)", name)
            check_numbers(self.scheme, "relative", name, table)
            if again is None or not torch.equal(table, again.tables[name]):
                raise wrong(self.scheme, "relative", f"gives other numbers of {name} at every call")

    def _map(self, name: str, hook: Callable[[Tensor, Tensor], Any], x: Tensor, letters: str) -> None:
        """Check a hook that maps x to a tensor of its shape."""
        with trying(self.scheme, name):
            mapped = hook(x, self.positions)
        self._require(name, mapped, x.shape, letters, like=x)
        self._require_by_itself(name, lambda x: hook(x, self.positions), x, mapped)

    def _require_by_itself(self, name: str, hook: Callable[[Tensor], Any], x: Tensor, mapped: Tensor) -> None:
        """Raise SettingError where a hook's result for one token of x (B, ..., T, n) changes with the others."""
        near = 1e-2 if mapped.dtype.itemsize < 4 else 1e-5
        for index in {0, self.length - 1}:
            other = x.clone()
            other[0, ..., index, :] = 1 - 2 * other[0, ..., index, :]
            with trying(self.scheme, name):
                changed = hook(other)
            rest = [p for p in range(self.length) if p != index]
            same = torch.allclose(mapped[1], changed[1], rtol=near, atol=near)
            if not (same and torch.allclose(mapped[0, ..., rest, :], changed[0, ..., rest, :], rtol=near, atol=near)):
                problem = "must map each token by itself: what it gives for one changes with others, or by chance"
                raise wrong(self.scheme, name, problem)

    def _scores(self, layer: int, token_state: Tensor | None) -> None:
        """Raise SettingError where scores of a query differ from those that it has alone in its tile."""
        first = min(1, self.length - 1)
        whole = self._tile_of_scores(layer, token_state, range(first, self.length))
        for row, index in enumerate(range(first, self.length)):
            alone = self._tile_of_scores(layer, token_state, range(index, index + 1))
            if not torch.allclose(whole[:, :, row, : alone.shape[-1]], alone[:, :, 0], rtol=1e-4, atol=1e-5):
                problem = "scores of a query change with what else is in its tile"
                raise wrong(self.scheme, "score_mod", f"{problem}, look at pairs with `seen` alone, and at no sizes")

    def _tile_of_scores(self, layer: int, token_state: Tensor | None, queries: range) -> Tensor:
        tile = self._pairs(token_state, queries)
        with trying(self.scheme, "score_mod"):
            scores = self.scheme.score_mod(self.tables, layer, tile)
        self._require("score_mod", scores, tile.scores.shape, "(B, H, m, n)", like=tile.scores)
        return scores

    def _require_past_keys(self, layer: int, token_state: Tensor, bias: Tensor) -> None:
        """Raise SettingError where biases of neighbouring keys change with a later token."""
        if not self.shape.causal:
            return
        other = token_state.clone()
        other[:, :, -1] = 1 - 2 * other[:, :, -1]
        with trying(self.scheme, "key_bias"):
            changed = self.scheme.key_bias(self.tables, self.shape, layer, other)
        assert changed is not None
        before, after = (x[..., :-1] - x[..., :1] for x in (bias, changed))
        if not torch.allclose(before, after, rtol=1e-4, atol=1e-5):
            raise wrong(self.scheme, "key_bias", "a key's bias beside that of another changes with a later token")

    def _pairs(self, token_state: Tensor | None, indices: range) -> ScoreTile:
        """Return a tile with the queries of these indices, and every key that one of them sees."""
        keys = _precise(self.of_heads)[:, :, : indices.stop if self.shape.causal else self.length]
        queries, count = keys[:, :, indices.start : indices.stop], keys.shape[2]
        query_index = torch.arange(indices.start, indices.stop, device=keys.device)
        i, j = self.positions[None, None, query_index, None], self.positions[None, None, None, :count]
        scale = self.shape.head_dim**-0.5
        return ScoreTile(
            queries @ keys.mT * scale,
            queries,
            keys,
            None if token_state is None else token_state[:, :, :count],
            i,
            j,
            j <= i if self.shape.causal else torch.ones_like(j <= i),
            scale,
            self.shape.causal,
            query_index,
        )

    def _require(
        self,
        hook: str,
        given: Any,
        shape: Sequence[int | None],
        letters: str,
        name: str = "its result",
        like: Tensor | None = None,
    ) -> None:
        """Raise SettingError for a wrong shape (None: any size), for NaN, and with `like` for other dtypes or inf."""
        fits = isinstance(given, torch.Tensor) and given.dim() == len(shape)
        if not fits or any(size not in (None, found) for size, found in zip(shape, given.shape, strict=True)):
            sizes = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
            raise wrong(self.scheme, hook, f"{name} must be {letters} = {sizes} here, not {described(given)}")
        if hook != "sample" and not given.is_floating_point():
            raise wrong(self.scheme, hook, f"{name} must be of floating point, not {described(given)}")
        if given.isnan().any():
            raise wrong(self.scheme, hook, f"{name} has values that are no numbers (NaN)")
        if like is None:
            return
        if given.dtype != like.dtype:
            dtype = str(like.dtype).removeprefix("torch.")
            raise wrong(self.scheme, hook, f"{name} must be of {dtype}, as what it is given, not {described(given)}")
        if given.isinf().any():
            raise wrong(self.scheme, hook, f"{name} has infinite values")


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def check_numbers(scheme: PositionScheme, hook: str, name: str, table: Tensor) -> None:
    if not table.is_meta and table.sum().isnan():  # a sum takes a tenth of the time of a look at each
        raise wrong(scheme, hook, f"{name} has values that are no numbers (NaN)")


def described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    dtype = "" if value.dtype == torch.float32 else f" of {str(value.dtype).removeprefix('torch.')}"
    return f"{tuple(value.shape)}{dtype}"


def wrong(scheme: PositionScheme, hook: str, problem: str) -> SettingError:
    return SettingError("pos", f"{type(scheme).__name__}.{hook}", problem)
