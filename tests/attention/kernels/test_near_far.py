"""Attention by poslab's kernels in Triton against the dense formula in float64: interpreted on a CPU; marked gpu, on a
GPU."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from common import SOUND
from kernel_cases import (
    Case,
    compiled,
    decoder_gradients,
    interpreting,
    results,
    steep_gradients,
    stray_accesses,
    twice,
    with_the_row_on,
    with_tiles,
)
from torch.nn import functional as F

from poslab.attention.kernels import near_far
from poslab.errors import SettingError
from poslab.processors import largest_tensor

pytest.importorskip("triton")

# Every kind of table, with few rows and with more than a tile has, and tiles of each kind: cut by a window, far, near.
CASES = {
    "bias, far pairs": Case("bias", 150, 20),
    "bias, every distance its own": Case("bias", 71, 70, lowest=-3),
    "bias, a window": Case("bias", 200, 30, window=100),
    "bias, a window within the table": Case("bias", 90, 80, window=40),
    "bias, one row": Case("bias", 40, 0),
    "keys": Case("keys", 135, 16, head_dim=24),
    "keys and values": Case("keys, values", 150, 16, window=60),
    "keys of every distance": Case("keys per head", 100, 99),
    "values of many distances": Case("values", 110, 80),
    "all tables": Case("bias, keys, values", 70, 9),
    "heads that share keys": Case("bias, keys, values per head", 80, 70, heads=4),
    "one head of keys": Case("bias", 67, 5, heads=3, shared_heads=1, head_dim=40),
    "heads of 64": Case("bias, keys, values", 70, 9, head_dim=64),
    "heads of 128": Case("bias, keys, values", 70, 9, head_dim=128),
    "a single token": Case("bias, keys, values", 1, 4),
    "tables beyond the text": Case("bias, keys, values", 17, 40),
    "learned slopes": Case("slopes", 140),
    "gates": Case("none", 150, gates=True, shared_heads=1),
    "gates, a window and a bias": Case("bias", 100, 9, gates=True, window=40),
    "all tables and gates": Case("keys, values", 70, 7, gates=True),
    "a bias that rises far": Case("bias", 90, 89, steps=1e3),
    "hidden distances": Case("bias", 60, 20, hidden=(0, 3, 20)),
    "a negative scale": Case("bias", 33, 4, scale=-0.2),
}


@pytest.fixture(scope="module")
def interpreted() -> Iterator[Callable[..., Any]]:
    with interpreting() as ask:
        yield ask


def errors(found: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    """The largest error of each tensor, as a share of its largest number, where that is above 1."""
    pairs = zip(found, exact, strict=True)
    return [float((a.double() - b).abs().max() / b.abs().max().clamp(min=1)) for a, b in pairs]


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(name: str, interpreted: Callable[..., Any]) -> None:
    case = CASES[name]
    assert max(errors(interpreted(results, case, "triton"), results(case, "exact"))) < 1e-5


@pytest.mark.parametrize(("queries", "keys"), [(16, 32), (32, 16)])
def test_tiles_of_other_sizes_give_the_same(queries: int, keys: int, interpreted: Callable[..., Any]) -> None:
    """Queries, tables and GPUs have tiles of their own; within one, a distance is where its tile begins."""
    for case in (Case("bias, keys, values", 45, 20, window=30, gates=True), Case("keys", 70, 66)):
        found, exact = interpreted(with_tiles, case, queries, keys), results(case, "exact")
        assert max(errors(found, exact)) < 1e-5


def flash_errors(case: Case) -> float:
    """The largest error of torch's flash kernel in the case's precision without tables, of output and gradients."""

    def flash(dtype: torch.dtype) -> list[torch.Tensor]:
        *qkv, grad = (x.to(dtype) for x in case.inputs())
        qkv = [x.detach().requires_grad_() for x in qkv]
        out = F.scaled_dot_product_attention(*qkv, is_causal=True, scale=case.scale)
        return [out.detach(), *torch.autograd.grad(out, qkv, grad)]

    return max(relative_errors(flash(case.dtype), flash(torch.float64)))


def relative_errors(found: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    return [float((a.double() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


@pytest.mark.parametrize("tables", ["bias", "keys, values", "keys per head", "slopes"])
def test_16_bits_are_as_exact_as_flash_without_tables(tables: str, interpreted: Callable[..., Any]) -> None:
    """Tables have the far row of which products differ most, or each distance its own."""
    case = Case(tables, 130, 129 if tables == "keys per head" else 16, dtype=torch.bfloat16)
    found, exact = interpreted(results, case, "triton"), results(case, "exact")
    assert max(relative_errors(found, exact)) < 1.5 * flash_errors(case)


def test_float16(interpreted: Callable[..., Any]) -> None:
    case = Case("bias", 70, 9, dtype=torch.float16)
    assert max(relative_errors(interpreted(results, case, "triton"), results(case, "exact"))) < 1e-3


def test_two_runs_are_equal_to_the_bit(interpreted: Callable[..., Any]) -> None:
    first, second = interpreted(twice, Case("bias, keys, values", 90, 70, gates=True), "triton")
    assert all(map(torch.equal, first, second))


def test_a_steep_function_of_the_distance_has_exact_gradients(interpreted: Callable[..., Any]) -> None:
    """The bias of far pairs has a gradient of its own: minus the sum of all others, it would be noise times d^1.96."""
    found, exact = interpreted(steep_gradients, "triton", torch.float32), steep_gradients("reference", torch.float64)
    for of_table, expected in zip(found, exact, strict=True):
        torch.testing.assert_close(of_table.double(), expected, rtol=1e-4, atol=0)


def test_a_decoder_trains_by_it(interpreted: Callable[..., Any]) -> None:
    found, expected = interpreted(decoder_gradients, "triton"), decoder_gradients("reference")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_it_is_compiled_without_a_break(interpreted: Callable[..., Any]) -> None:
    case = Case("bias, keys, values", 20, 9, gates=True)
    torch.testing.assert_close(interpreted(compiled, case), interpreted(results, case, "triton"))


def test_memory_is_linear_in_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel that only allocates: what is kept for the backward pass, and the largest tensor."""
    monkeypatch.setattr(near_far, "triton_problem", lambda device: None)
    monkeypatch.setattr(near_far.Call, "launch", lambda *arguments, **given: None)
    largest, kept = {}, {}
    for length in (2048, 8192):
        sizes: list[int] = []

        def note(x: torch.Tensor, sizes: list[int] = sizes) -> torch.Tensor:
            sizes.append(x.untyped_storage().nbytes())
            return x

        with largest_tensor() as most, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            results(Case("bias, keys, values", length, length - 1, gates=True), "triton")
        largest[length], kept[length] = most.bytes, sum(sizes)
    assert largest[8192] < 4.1 * largest[2048]
    assert kept[8192] < 4.1 * kept[2048]


@pytest.mark.parametrize("name", ["bias, far pairs", "gates, a window and a bias", "heads that share keys"])
def test_nothing_outside_of_tensors_is_read_or_written(name: str, interpreted: Callable[..., Any]) -> None:
    """In 16 bits, in which tiles are the largest."""
    assert interpreted(stray_accesses, replace(CASES[name], dtype=torch.float16)) == 0


def test_what_the_kernels_cannot_take_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="TRITON_INTERPRET=1"):
        results(Case("bias", 8, 4), "triton")
    for case, problem in (
        (Case("queries", 8, 4), "can't compute queries"),
        (Case("bias, null", 8, 4), "can't compute null"),
        (Case("bias", 8, 4, head_dim=130), "can't compute heads above 128"),
    ):
        with pytest.raises(SettingError, match=problem):
            results(case, "triton")
    monkeypatch.setattr(near_far, "triton_problem", lambda device: None)
    with pytest.raises(SettingError, match="not in float64"):
        results(Case("bias", 8, 4, dtype=torch.float64), "triton")


@pytest.mark.parametrize("name", SOUND)
def test_with_its_row_on_every_scheme_trains_to_the_same(name: str, interpreted: Callable[..., Any]) -> None:
    """By the kernels where they can compute it, and else by what the rest of the table says."""
    _, as_the_table_says, difference = interpreted(with_the_row_on, name, 16)
    assert as_the_table_says
    assert difference < 1e-4
    calls, as_the_table_says, difference = interpreted(with_the_row_on, name, 136)  # heads too large for the kernels
    assert as_the_table_says
    assert (calls, difference < 1e-4) == (0, True)


def test_it_says_what_is_missing_without_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near_far, "find_spec", lambda name: None)
    assert "pip install triton" in str(near_far.triton_problem("cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    case = replace(CASES[name], device="cuda", dtype=dtype, head_dim=max(64, CASES[name].head_dim))
    found, exact = results(case, "triton"), results(replace(case, device="cpu"), "exact")
    if dtype == torch.float32:
        assert max(errors(found, exact)) < 1e-5
    else:
        assert max(relative_errors(found, exact)) < 1.5 * flash_errors(case)
    assert all(map(torch.equal, found, results(case, "triton")))
