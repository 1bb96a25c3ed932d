"""Tries a scheme's hooks on a few tokens, in every layer, before anything is computed with them.

Whoever writes a scheme and swaps two axes learns here which hook gave what and what it must give, not from an error
deep in a kernel, or from none at all, where the sizes happen to fit. Letters as in `base`.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from poslab.errors import SettingError, UserError, blamed_on
from poslab.lazy import Tensor, torch
from poslab.positions.base import HOOKS, ModelShape, PositionScheme, Tables
from poslab.positions.pictures import Curves, Matrix
from poslab.positions.terms import Pairs, RelativeTerms


def hook_at_fault(error: BaseException) -> str | None:
    """ "Mine.rotate (my_file.py, line 12)": the scheme's hook in which an exception came up; None: in none."""
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        scheme, code = frame.f_locals.get("self"), frame.f_code
        if code.co_name in HOOKS and isinstance(scheme, PositionScheme):
            found = f"{type(scheme).__name__}.{code.co_name} ({Path(code.co_filename).name}, line {line})"
    return found


@contextmanager
def _trying(scheme: PositionScheme, hook: str) -> Iterator[None]:
    """Raises SettingError, naming the hook, for whatever it raises that is not the user's or the machine's."""
    with blamed_on("pos", lambda error: hook_at_fault(error) or f"{type(scheme).__name__}.{hook}"):
        yield


def check_sizes(scheme: PositionScheme, shape: ModelShape) -> None:
    """Asks the hooks that need no torch: `check` raises SettingError where the settings can't work with this model."""
    with _trying(scheme, "check"):
        scheme.check(shape)
    with _trying(scheme, "max_length"):
        longest = scheme.max_length(shape)
    if longest is not None and (type(longest) is not int or longest < 1):
        raise _wrong(scheme, "max_length", f"must give a whole number from 1 on, or None, not {_described(longest)}")


def check_memory(scheme: PositionScheme, shape: ModelShape, memory_length: int) -> None:
    """Asks the same hooks whether keys may be so far away. Raises SettingError where the model can't remember."""
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
    """What `tables` gives. Raises SettingError where that can't be learned."""
    with _trying(scheme, "tables"):
        tables = scheme.tables(shape)
    check_tables(scheme, tables)
    return tables


def check_tables(scheme: PositionScheme, tables: Tables) -> None:
    """Raises SettingError where `tables` gave what can't be learned."""
    if not isinstance(tables, Mapping):
        raise _wrong(scheme, "tables", f"must give a dict of tensors, not {_described(tables)}")
    for name, table in tables.items():
        if not (isinstance(name, str) and name and "." not in name):
            raise _wrong(scheme, "tables", f"must name tables in words without a dot, not {name!r}")
        if not isinstance(table, torch.Tensor) or not table.is_floating_point():
            raise _wrong(scheme, "tables", f"{name} must be a tensor of floating point, not {_described(table)}")
        _check_numbers(scheme, "tables", name, table)


def check_hooks(scheme: PositionScheme, tables: Tables, shape: ModelShape, layers: Sequence[int] | None = None) -> None:
    """Raises SettingError, naming the hook and the shape, where a hook gives what attention can't use.

    tables: on any device but "meta", where nothing can be tried. layers: by default all.
    """
    device = next((table.device for table in tables.values()), torch.empty(0).device)
    if type(scheme) is PositionScheme or device.type == "meta":
        return
    with torch.no_grad():
        trial = _Trial(scheme, tables, shape, device)
        trial.sample()
        trial.embed()
        trial.rotate()
        for layer in range(shape.num_layers) if layers is None else layers:
            trial.layer(layer)
        if layers is None:
            trial.sentences()
            trial.pictures()


def check_once(scheme: PositionScheme, tables: Tables, shape: ModelShape, layer: int) -> None:
    """`check_tables` and `check_hooks` of one layer at its first call: for a caller who comes back at every step."""
    sizes = shape.embed_dim, shape.num_heads, shape.num_layers, shape.causal
    tried = repr(scheme), type(scheme), sizes, layer, tuple(map(_described, tables.values()))
    if tried not in _TRIED:
        check_tables(scheme, tables)
        with torch.random.fork_rng(devices=[]):
            expected = initial_tables(scheme, shape)
        if tables.keys() != expected.keys():
            listed = ", ".join(expected) or "none"
            problem = f"must be those of {type(scheme).__name__}.tables(shape): {listed}"
            raise SettingError("tables", ", ".join(tables) or "none", problem)
        check_hooks(scheme, tables, shape, [layer])
        _TRIED.add(tried)


_TRIED: set[Any] = set()


class _Trial:
    """A few tokens, of a number that is no other axis's, and the hooks that the scheme has."""

    def __init__(self, scheme: PositionScheme, tables: Tables, shape: ModelShape, device: torch.device) -> None:
        self.scheme, self.tables, self.shape = scheme, tables, shape
        longest = min(shape.context_length, scheme.max_length(shape) or shape.context_length)
        others = (shape.num_heads, shape.head_dim)
        self.length = next((n for n in (3, 5, 7, 2) if n <= longest and n not in others), min(3, longest))
        self.positions = torch.arange(self.length, device=device)
        dtype = next((table.dtype for table in tables.values()), None)
        self.x = torch.full((2, self.length, shape.embed_dim), 0.1, dtype=dtype, device=device)  # (B, T, D)
        self.of_heads = self.x.unflatten(-1, (shape.num_heads, shape.head_dim)).transpose(1, 2)  # (B, H, T, Dh)

    def sample(self) -> None:
        if not self.scheme.overrides("sample"):
            return
        length = self.shape.context_length
        with torch.device("cpu"), _trying(self.scheme, "sample"):
            positions = self.scheme.sample(self.shape, length, torch.Generator().manual_seed(0))
        if positions is None:
            return
        self._require("sample", positions, (length,), "(T,)")
        longest = self.scheme.max_length(self.shape)
        rising = positions.dtype == torch.int64 and positions[0] >= 0 and (positions.diff() > 0).all()
        if not rising or (longest is not None and positions[-1] >= longest):
            limit = "" if longest is None else f" below {longest}"
            raise _wrong(self.scheme, "sample", f"must give rising int64 positions from 0 on{limit}")

    def embed(self) -> None:
        if self.scheme.overrides("embed"):
            with _trying(self.scheme, "embed"):
                embedded = self.scheme.embed(self.tables, self.x, self.positions)
            self._require("embed", embedded, self.x.shape, "(B, T, D)")

    def rotate(self) -> None:
        if self.scheme.overrides("rotate"):
            with _trying(self.scheme, "rotate"):
                rotated = self.scheme.rotate(self.tables, self.of_heads, self.positions)
            self._require("rotate", rotated, self.of_heads.shape, "(B, H, T, Dh)")

    def layer(self, layer: int) -> None:
        """Raises SettingError for the first hook that fails in this layer."""
        scheme, tables, x = self.scheme, self.tables, self.of_heads
        for name, hook in (("query", scheme.query), ("key", scheme.key)):
            if scheme.overrides(name):
                with _trying(scheme, name):
                    mapped = hook(tables, layer, x, self.positions)
                self._require(name, mapped, x.shape, "(B, H, T, Dh)")
        self._relative(layer)
        with _trying(scheme, "marks"):
            marks = scheme.marks(tables, layer, _precise(self.x)) if scheme.overrides("marks") else None
        if marks is not None:
            self._require("marks", marks, (*x.shape[:3], None), "(B, H, T, E)")
            with _trying(scheme, "key_bias"):
                bias = scheme.key_bias(tables, self.shape, layer, marks)
            if bias is not None:
                self._require("key_bias", bias, x.shape[:3], "(B, H, N)")
        if scheme.overrides("scores"):
            pairs = self._pairs(marks)
            with _trying(scheme, "scores"):
                scores = scheme.scores(tables, layer, pairs)
            self._require("scores", scores, pairs.scores.shape, "(B, H, m, n)")
            self._require_past(layer, scores, pairs, marks)

    def sentences(self) -> None:
        """Raises SettingError where `warnings` gives none."""
        with _trying(self.scheme, "warnings"):
            texts = self.scheme.warnings(self.shape)
        if not (isinstance(texts, list) and all(isinstance(text, str) for text in texts)):
            raise _wrong(self.scheme, "warnings", f"must give a list of sentences, not {_described(texts)}")

    def pictures(self) -> None:
        """Raises SettingError for pictures that can't be drawn: training would learn of it at its first validation."""
        with _trying(self.scheme, "pictures"):
            pictures = self.scheme.pictures(self.tables, self.shape)
        if not (isinstance(pictures, Mapping) and all(isinstance(name, str) for name in pictures)):
            raise _wrong(self.scheme, "pictures", f"must give a dict of pictures by name, not {_described(pictures)}")
        for name, picture in pictures.items():
            if isinstance(picture, Curves):
                for line, values in picture.lines.items():
                    self._require("pictures", values, (len(picture.x),), "(len(x),)", f"line {line} of {name}")
            elif isinstance(picture, Matrix):
                self._require("pictures", picture.values, (None, None), "(rows, columns)", f"values of {name}")
            else:
                raise _wrong(self.scheme, "pictures", f"{name} must be Curves or a Matrix, not {_described(picture)}")

    def _relative(self, layer: int) -> None:
        if not self.scheme.overrides("relative"):
            return
        distances = range(0 if self.shape.causal else 1 - self.length, self.length)
        with _trying(self.scheme, "relative"):
            try:
                terms = self.scheme.relative(self.tables, self.shape, layer, distances)
            except UserError:
                raise
            except ValueError as error:  # of RelativeTerms
                raise _wrong(self.scheme, "relative", f"in layer {layer}, {error}") from error
        if not (terms is None or isinstance(terms, RelativeTerms)):
            raise _wrong(self.scheme, "relative", f"must give RelativeTerms or None, not {_described(terms)}")
        heads, head_dim = self.shape.num_heads, self.shape.head_dim
        for name, table in terms.tables.items() if terms is not None else ():
            rows = table.shape[-1 if name == "bias" else -2]  # as many as there are distances: RelativeTerms looks
            if name == "bias":
                self._require("relative", table, (heads, rows), "(H, R)", name)
            elif table.dim() == 3:
                self._require("relative", table, (heads, rows, head_dim), "(H, R, Dh)", name)
            else:
                self._require("relative", table, (rows, head_dim), "(R, Dh)", name)
            _check_numbers(self.scheme, "relative", name, table)

    def _require_past(self, layer: int, scores: Tensor, pairs: Pairs, marks: Tensor | None) -> None:
        """Raises SettingError where scores of a causal query change with a token that comes later."""
        if not self.shape.causal or len(pairs.query_index) < 2:
            return
        other = self.of_heads.clone()
        other[:, :, -1] = -2 * other[:, :, -1] + 1
        with _trying(self.scheme, "scores"):
            changed = self.scheme.scores(self.tables, layer, self._pairs(marks, other))
        seen = pairs.seen.expand_as(scores)[:, :, :-1]
        if not torch.allclose(scores[:, :, :-1][seen], changed[:, :, :-1][seen], rtol=1e-4, atol=1e-5):
            problem = "scores of a query change with a token that it doesn't see, look at pairs with `seen` alone"
            raise _wrong(self.scheme, "scores", problem)

    def _pairs(self, marks: Tensor | None, of_heads: Tensor | None = None) -> Pairs:
        """All queries but the first, and all keys."""
        first = min(1, self.length - 1)
        keys = _precise(self.of_heads if of_heads is None else of_heads)
        queries = keys[:, :, first:]
        i, j = self.positions[None, None, first:, None], self.positions[None, None, None, :]
        scale = self.shape.head_dim**-0.5
        return Pairs(
            queries @ keys.mT * scale,
            queries,
            keys,
            marks,
            i,
            j,
            j <= i if self.shape.causal else torch.ones_like(j <= i),
            scale,
            self.shape.causal,
            self.positions[first:],
        )

    def _require(
        self, hook: str, given: Any, shape: Sequence[int | None], letters: str, name: str = "its result"
    ) -> None:
        """shape: None for an axis of any size."""
        fits = isinstance(given, torch.Tensor) and given.dim() == len(shape)
        if not fits or any(size not in (None, found) for size, found in zip(shape, given.shape, strict=True)):
            sizes = str(tuple("any" if size is None else size for size in shape)).replace("'", "")
            raise _wrong(self.scheme, hook, f"{name} must be {letters} = {sizes} here, not {_described(given)}")
        if hook != "sample" and not given.is_floating_point():
            raise _wrong(self.scheme, hook, f"{name} must be of floating point, not {_described(given)}")
        if given.isnan().any():
            raise _wrong(self.scheme, hook, f"{name} has values that are no numbers (NaN)")


def _precise(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _check_numbers(scheme: PositionScheme, hook: str, name: str, table: Tensor) -> None:
    if not table.is_meta and table.sum().isnan():  # a sum takes a tenth of the time of a look at each
        raise _wrong(scheme, hook, f"{name} has values that are no numbers (NaN)")


def _described(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    dtype = "" if value.dtype == torch.float32 else f" of {str(value.dtype).removeprefix('torch.')}"
    return f"{tuple(value.shape)}{dtype}"


def _wrong(scheme: PositionScheme, hook: str, problem: str) -> SettingError:
    return SettingError("pos", f"{type(scheme).__name__}.{hook}", problem)
