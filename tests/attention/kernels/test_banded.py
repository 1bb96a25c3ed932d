"""Attention with a band of near keys against the dense reference, on a CPU; marked gpu, with the kernels of a GPU."""

import pytest
import torch
from oracles import random_terms
from torch import Tensor

from poslab.attention import attend
from poslab.positions import RelativeTerms

KINDS = ["keys", "values", "keys, values", "keys, values per head"]


def results(qkv: list[Tensor], terms: RelativeTerms, leaves: list[Tensor], backend: str) -> list[Tensor]:
    """Return attention's output and gradients."""
    out = attend(*qkv, terms, scale=0.3, backend=backend)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad((out * weights).sum(), [*qkv, *leaves])]


def inputs(length: int, head_dim: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, 3, length, head_dim, device=device).to(dtype).requires_grad_() for _ in range(3)]


def assert_near(found: list[Tensor], expected: list[Tensor], rounding: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other.double()).norm() <= rounding * other.double().norm()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 16, 64, 150])
@pytest.mark.parametrize("highest", [1, 16, 100, 128])
def test_equals_the_reference(kind: str, length: int, highest: int) -> None:
    """Texts shorter than the tables, of whole blocks and of parts; heads that are no multiple of 8."""
    qkv = inputs(length, 12, torch.float64)
    terms, leaves = random_terms(kind, 3, 12, -3, highest)
    assert terms is not None
    found, expected = (results(qkv, terms, leaves, backend) for backend in ("banded", "reference"))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_bfloat16_is_as_close_as_rounding_allows() -> None:
    qkv = inputs(300, 16, torch.bfloat16)
    terms, leaves = random_terms("keys, values", 3, 16, 0, 16, torch.float32)
    assert terms is not None
    found = results(qkv, terms, leaves, "banded")
    wide = [x.detach().double().requires_grad_() for x in qkv]
    assert [x.dtype for x in found] == [torch.bfloat16] * 4 + [torch.float32] * 2
    assert_near(found, results(wide, terms, leaves, "reference"), 1e-2)


def test_memory_grows_linearly() -> None:
    terms, _ = random_terms("keys, values", 1, 8, 0, 16, torch.float32)
    kept = {}
    for length in (1024, 4096):
        qkv = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
        sizes: list[int] = []

        def note(x: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(x.untyped_storage().nbytes())
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            attend(*qkv, terms, backend="banded").sum().backward()
        kept[length] = sum(sizes)
    assert kept[4096] < 4.1 * kept[1024]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled(dtype: torch.dtype) -> None:
    """Of a second batch size, too, for which torch compiles sizes as symbols."""
    torch._dynamo.reset()
    terms, leaves = random_terms("keys, values", 3, 16, 0, 16, torch.float32)
    assert terms is not None
    compiled = torch.compile(results)
    for size in (2, 1):
        qkv = [x.detach()[:size].requires_grad_() for x in inputs(150, 16, dtype)]
        found = compiled(qkv, terms, leaves, "banded")
        assert_near(found, results(qkv, terms, leaves, "banded"), 1e-5 if dtype == torch.float32 else 1e-2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu(kind: str, dtype: torch.dtype, compiled: bool) -> None:
    qkv = inputs(1100, 64, dtype, "cuda")
    terms, leaves = random_terms(kind, 3, 64, 0, 16, torch.float32)
    assert terms is not None
    on_gpu = terms.to(qkv[0].device)
    found = (torch.compile(results) if compiled else results)(qkv, on_gpu, leaves, "banded")
    wide = [x.detach().double().requires_grad_() for x in qkv]
    assert_near(found, results(wide, on_gpu, leaves, "reference"), 1e-5 if dtype == torch.float32 else 1e-2)
