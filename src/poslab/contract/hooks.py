"""Position scheme that watches its own hooks: each result must have the axes and the dtype that `base` says.

An author who swaps two axes reads which hook returned which shape, and which one it must return, instead of an error
deep in a kernel, or of none where the sizes happen to fit. Letters as in `base`.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from poslab.errors import SettingError, blamed_on, described
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.base import ENTRANCES, knows_fractions

Sizes = Sequence[int | None]  # None: any
_MAY_BE_NONE = ("sample", "query_scale", "relative", "token_state", "key_bias")


def watched(scheme: PositionScheme, shape: ModelShape) -> PositionScheme:
    """Return a copy of the scheme whose hooks raise SettingError for a result that attention can't use."""
    hooks = {name: _watched(name, scheme, shape) for name in (*ENTRANCES, "prepare") if scheme.overrides(name)}
    copied = copy.copy(scheme)
    object.__setattr__(copied, "__class__", type(type(scheme).__name__, (type(scheme),), hooks))
    return copied


def _watched(name: str, scheme: PositionScheme, shape: ModelShape) -> Callable[..., Any]:
    hook = getattr(type(scheme), name)
    signature, check = inspect.signature(hook), _CHECKS.get(name, _check_tensor)

    @functools.wraps(hook)
    def checked(self: PositionScheme, *values: Any, **further: Any) -> Any:
        with blamed_on("pos", scheme, name):
            result = hook(self, *values, **further)
        if result is not None or name not in _MAY_BE_NONE:
            arguments = list(signature.bind(self, *values, **further).arguments.values())
            check(scheme, shape, name, arguments, result)
        return result

    return checked


def _check_tensor(scheme: PositionScheme, shape: ModelShape, name: str, arguments: list[Any], result: Any) -> None:
    """Raise SettingError unless a hook's result has the sizes and dtype of its arguments, and finite values."""
    heads, x = shape.num_heads, arguments[{"embed": 2, "rotate": 2, "query_scale": 4, "key_bias": 4}.get(name, 3)]
    match name:
        case "embed":
            axes, sizes = "(B, T, D)", x.shape
        case "rotate" | "query" | "key":
            axes, sizes = "(B, H, T, Dh)", x.shape
        case "mix":
            axes, sizes = "(B, T, D)", (len(x), x.shape[1] + 1 - scheme.mixed_tokens, x.shape[2])
        case "query_scale":
            is_shared = isinstance(result, Tensor) and result.shape[1:2] == (1,)
            axes, sizes = "(1 or B, 1 or H, Tq)", (len(x), 1 if is_shared else heads, x.shape[1])
        case "token_state":
            axes, sizes = "(B, H, T, E)", (len(x), heads, x.shape[1], None)
        case "prepare":
            axes, sizes = "(B, H, N, E)", (*x.shape[:3], None)
        case "key_bias":
            axes, sizes = "(B, H, N)", x.shape[:3]
        case "score_mod":
            x = x.scores
            null = isinstance(result, Tensor) and result.shape[-1:] == (x.shape[-1] + 1,)
            axes, sizes = "(B, H, m, n)", (*x.shape[:3], x.shape[-1] + null)
    _require(scheme, name, result, axes, sizes, None if name == "key_bias" else x.dtype)


def _check_terms(scheme: PositionScheme, shape: ModelShape, name: str, arguments: list[Any], terms: Any) -> None:
    if not isinstance(terms, RelativeTerms):
        raise _wrong(scheme, name, f"must give RelativeTerms or None, not {described(terms)}")
    rows = terms.highest - terms.lowest + 1
    for table_name, table in (terms.tables | ({} if terms.null is None else {"null": terms.null})).items():
        axes, sizes = ["H", "R", "Dh"], [shape.num_heads, rows, shape.head_dim]
        own_axes = {"null": slice(1), "bias": slice(2)}.get(table_name, slice(0 if table.dim() == 3 else 1, 3))
        _require(scheme, name, table, f"({', '.join(axes[own_axes])})", sizes[own_axes], None, table_name)


def _check_positions(
    scheme: PositionScheme, shape: ModelShape, name: str, arguments: list[Any], positions: Any
) -> None:
    fractions = isinstance(positions, Tensor) and positions.is_floating_point() and knows_fractions(scheme, shape)
    _require(scheme, name, positions, "(T,)", arguments[2:3], positions.dtype if fractions else torch.int64)
    longest = scheme.max_length(shape)
    if positions[0] < 0 or (positions.diff() <= 0).any() or (longest is not None and positions[-1] >= longest):
        limit = "" if longest is None else f" below {longest}"
        raise _wrong(scheme, name, f"must give rising positions from 0 on{limit}")


_Check = Callable[[PositionScheme, ModelShape, str, list[Any], Any], None]
_CHECKS: dict[str, _Check] = {"relative": _check_terms, "sample": _check_positions}


def _require(
    scheme: PositionScheme,
    hook: str,
    result: Any,
    axes: str,
    sizes: Sizes,
    dtype: torch.dtype | None,
    name: str = "its result",
) -> None:
    """Raise SettingError for other sizes, another dtype (None: any floating one), NaN, and with `dtype` infinity."""
    fits = isinstance(result, Tensor) and result.dim() == len(sizes)
    if not fits or any(size not in (None, there) for size, there in zip(sizes, result.shape, strict=True)):
        wanted = str(tuple("any" if size is None else size for size in sizes)).replace("'", "")
        raise _wrong(scheme, hook, f"{name} must be {axes} = {wanted} here, not {described(result)}")
    if not (result.is_floating_point() if dtype is None else result.dtype == dtype):
        wanted = "floating point" if dtype is None else str(dtype).removeprefix("torch.")
        raise _wrong(scheme, hook, f"{name} must be of {wanted}, not {described(result)}")
    if result.isnan().any():
        raise _wrong(scheme, hook, f"{name} has values that are no numbers (NaN)")
    if dtype is not None and result.isinf().any():
        raise _wrong(scheme, hook, f"{name} has infinite values")


def _wrong(scheme: PositionScheme, hook: str, problem: str) -> SettingError:
    return SettingError("pos", f"{type(scheme).__name__}.{hook}", problem)
