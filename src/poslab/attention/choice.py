"""Choice of the backend of attention: what each can compute, and which one "auto" takes for how many queries."""

from collections.abc import Set
from typing import NamedTuple

import torch

from poslab.attention.blocks import BLOCK
from poslab.attention.reference import NEAR
from poslab.errors import SettingError, require_one_of
from poslab.positions.base import BACKENDS
from poslab.processors import in_transform

# What each backend of limited use can compute, by the names of `parts_of` in reference.py and of `large_sizes`.
_LARGE_HEADS, _LARGE_TEXTS = "heads above 128", "texts of 2^31 numbers"
_LARGE = {_LARGE_HEADS, _LARGE_TEXTS}
_ALWAYS = {"far rows", "bias that isn't linear", "later keys", "cached keys"} | _LARGE
_OF_BANDED = {"keys", "values"} | _LARGE
_OF_TRITON = {"bias", "key_bias", "keys", "values", "window"}
TAKES = {
    "sdpa": {"bias", "window", "first_key", "documents"} | _ALWAYS,
    "flex": {"bias", "window", "first_key", "keys", "queries", "key_bias"} | _ALWAYS,
    "banded": _OF_BANDED | {"cached keys"},
    "columns": {"bias", "key_bias", "far rows", "cached keys"} | _LARGE,
    "triton": _OF_TRITON | {"far rows", "many rows", "bias that isn't linear", "cached keys"},
}
_WITHOUT_DROPOUT = "flex", "banded", "columns", "triton"


class Choice(NamedTuple):
    """Backend, and why it was chosen."""

    name: str
    why: str


class Row(NamedTuple):
    """Row of `CHOICES`: a backend, for which device and parts, from which to which number of queries."""

    backend: str
    device: str | None  # None: any
    bits: Set[int] | None  # of values; None: any
    parts: Set[str] | None  # that may enter; None: any
    first: int | None  # None: never, because no GPU has timed it
    last: int | None  # None: any longer text
    why: str
    figure: str  # that the lengths rest on


_16, _ANY = {16}, None
_MASKED = {"bias", "window"} | _ALWAYS
_MASK = "no more than a bias by distance and a window, up to 2,048 queries"
_BAND = f"no more than {NEAR} distances, more than 256 queries"
# The first row that fits is taken, unless its backend has a problem here. Figures with x are multiples of the time of
# flash without positions, forward and backward, 12 heads of 64, on an H200 (scripts/benchmarks/gpu_attention.csv);
# that of the last but one is the reference's share of blockwise's time, on a Xeon with AVX-512, 4 heads of 64.
CHOICES = (
    Row("columns", "cuda", _16, TAKES["columns"] - {"cached keys"}, None, None, "one flash call", "not timed"),
    Row("triton", "cuda", _16, TAKES["triton"] - {"cached keys"}, None, None, "poslab's own kernel", "not timed"),
    Row("sdpa", "cuda", _ANY, _MASKED, 1, 1023, _MASK, "float32, a bias at 512: 2.56 x, flex 16.8 x"),
    Row("sdpa", "cuda", {32, 64}, _MASKED, 1024, 2048, _MASK, "the same: in float32 flex is slower"),
    Row("banded", "cuda", _ANY, _OF_BANDED, 257, None, _BAND, "keys at 4,096: 2.62 x, blockwise 35.9 x"),
    Row("flex", "cuda", _ANY, None, BLOCK, None, "compiled into one kernel", "a bias at 4,096: 4.19 x, a mask 10.9 x"),
    Row("sdpa", "cuda", _16, _MASKED, 1024, 2048, _MASK, "where flex can't: a bias at 1,024: 6.78 x"),
    Row("reference", "cuda", _ANY, None, 1, 512, "up to 512 queries", "keys at 512: 14.9 x, blockwise 9.61 x"),
    Row("reference", None, _ANY, None, 1, 256, "up to 256 queries", "bias: .74 at 256, .96 at 384; keys: .89, 1.30"),
    Row("blockwise", None, _ANY, None, 1, None, "", "in memory linear in the length"),
)
_LONGEST_PAIRWISE = BLOCK - 1  # queries of the reference with a function of pairs, which takes memory for all at once


def large_sizes(length: int, heads: int, head_dim: int) -> set[str]:
    """Return the names of sizes that the kernels in Triton can't take: they hold the heads of a tile in registers, and
    count the numbers of a text in 32 bits."""
    sizes = set()
    if head_dim > 128:
        sizes.add(_LARGE_HEADS)
    if not torch.compiler.is_exporting() and length * heads * head_dim >= 2**31:  # a program has no limit of its length
        sizes.add(_LARGE_TEXTS)
    return sizes


def check_backend(backend: str, parts: Set[str], dropout_p: float = 0.0, option: str = "backend") -> None:
    """Raise SettingError, under the name `option`, for a backend that is unknown or can't compute this attention.

    parts: as for `choose_backend`.
    """
    require_one_of(BACKENDS, **{option: backend})
    lacking = sorted(parts - TAKES.get(backend, parts))
    lacking += ["dropout"] * (backend in _WITHOUT_DROPOUT and dropout_p > 0)
    if lacking:
        raise SettingError(option, backend, f"can't compute {', '.join(lacking)}; valid: auto, reference, blockwise")


def choose_backend(
    parts: Set[str],
    query_length: int,
    dropout_p: float,
    device: torch.device,
    may_compile: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Choice:
    """Return the backend that "auto" stands for: by `CHOICES`, but for a few cases that only one can take.

    parts: what enters, as in `AttentionSpec.parts`, "later keys" where it isn't causal, "cached keys" where queries and
    keys aren't those of one whole text. dtype: of the values; torch.bfloat16 under autocast. may_compile: False where
    lengths change all the time, or in float64.

    The reference and blockwise draw the same dropout masks for all schemes, so that schemes are compared under equal
    dropout on a CPU. Blockwise hands what has no more than a bias by distance that needs no gradient, as in a
    validation, to flash.py.
    """
    if in_transform():
        return Choice("reference", "torch.func and forward mode take no other")
    if parts <= _ALWAYS and (dropout_p == 0 or device.type != "cpu"):
        return Choice("sdpa", "nothing but queries and keys")
    if torch.compiler.is_exporting():
        return Choice("reference", "torch.export takes no other")
    dense = _LONGEST_PAIRWISE if "pairwise" in parts else 256
    if "pairwise" in parts and query_length <= dense:
        return Choice("reference", f"up to {dense} queries")

    problem: str | None = f"more than {dense} queries"  # of what would have been chosen
    for row in CHOICES:
        if row.device not in (None, device.type):
            continue
        if row.bits is not None and 8 * dtype.itemsize not in row.bits:
            continue
        if row.parts is not None and not parts <= row.parts:
            continue
        if row.first is None or query_length < row.first or (row.last is not None and query_length > row.last):
            continue
        if row.backend == "reference" and "pairwise" in parts:  # of which it has no more than the few above
            continue
        if row.backend == "blockwise":
            return Choice("blockwise", problem or "")
        problem = _problem(row.backend, parts, dropout_p, device, may_compile)
        if problem is None:
            return Choice(row.backend, row.why)
    raise AssertionError("the last row fits everything")


def _problem(backend: str, parts: Set[str], dropout_p: float, device: torch.device, may_compile: bool) -> str | None:
    """Say why a backend that `CHOICES` names doesn't compute this; None: it does."""
    lacking = sorted(parts - TAKES.get(backend, parts))
    lacking += ["dropout"] * (backend in _WITHOUT_DROPOUT and dropout_p > 0)
    if lacking:
        return f"{backend} can't compute {', '.join(lacking)}"
    if backend in ("banded", "flex") and not may_compile:
        return f"{backend} would be compiled for one length, or for float64"
    if backend in ("banded", "flex") and torch.are_deterministic_algorithms_enabled():
        return f"{backend} adds up gradients of tables in no fixed order"
    if torch.compiler.is_compiling():
        return None
    problem = None
    if backend == "flex":
        from poslab.attention.kernels.flex import flex_problem

        problem = flex_problem(device.type)
        problem = problem and f"flex does not compile; torch says: {problem}"
    elif backend == "triton":
        from poslab.attention.kernels.near_far import triton_problem

        problem = triton_problem(device.type)
    return problem
