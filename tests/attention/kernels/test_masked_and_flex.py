"""Backends for GPUs against the dense reference: on a CPU, where flex computes as torch's eager formula; marked gpu, as
they run there."""

from functools import partial
from typing import Any

import pytest
import torch
from oracles import random_terms
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex

from poslab.attention import attend
from poslab.attention.kernels.flex import _compiled, flex_problem
from poslab.positions import RelativeTerms

MASKS = ["none", "bias"]
FLEX = [*MASKS, "keys", "queries", "bias, keys, queries", "bias, keys, queries per head"]
# Part of the queries and the keys of a cache, texts of unequal length, windows; some queries see nothing.
SPECS: list[dict[str, Any]] = [
    {},
    {"causal": False, "window": 20, "scale": 0.3},
    {"offset": -30, "window": 20},
    {"offset": 50, "first_key": torch.tensor([3, 140])},
]
BY_FLEX = [(kind, spec) for kind in FLEX for spec in (SPECS if kind == FLEX[-1] else SPECS[:1])]
CASES = [("sdpa", kind, spec) for kind in MASKS for spec in SPECS] + [("flex", *case) for case in BY_FLEX]


def inputs(length: int, head_dim: int, dtype: torch.dtype, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(0)
    sizes = (length, length + 9, length + 9)
    return [torch.randn(2, 3, n, head_dim, device=device).to(dtype).requires_grad_() for n in sizes]


def results(qkv: list[Tensor], terms: RelativeTerms | None, leaves: list[Tensor], **how: Any) -> list[Tensor]:
    """Return attention's output and gradients."""
    out = attend(*qkv, terms, **how)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return [out, *torch.autograd.grad((out * weights).sum(), [*qkv, *leaves], materialize_grads=True)]


def assert_near(found: list[Tensor], expected: list[Tensor], rounding: float) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.double() - other.double()).abs().max() <= rounding * (1 + other.double().abs().max())


@pytest.mark.parametrize(("backend", "kind", "spec"), CASES)
def test_equals_the_reference(backend: str, kind: str, spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    # Of flex's backward pass a CPU has the formula, which torch lets nobody call.
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *inputs: None)
    qkv = inputs(150, 8, torch.float64)
    terms, leaves = random_terms(kind, 3, 8, 0 if spec.get("causal", True) else -17, 17)
    if kind == FLEX[-1]:
        leaves.append(torch.randn(2, 3, 159, dtype=torch.float64).cumsum(-1).requires_grad_())
        spec = spec | {"key_bias": leaves[-1]}
    assert_near(*(results(qkv, terms, leaves, backend=name, **spec) for name in (backend, "reference")), 1e-12)


def test_a_training_goes_on_after_a_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of a pass in inference mode would have no part in a backward pass."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *inputs: None)
    qkv = inputs(131, 8, torch.float64)  # a length that no other test has
    with torch.inference_mode():
        expected = attend(*qkv, window=20, backend="flex")
    assert torch.equal(results(qkv, None, [], window=20, backend="flex")[0], expected)


@pytest.mark.parametrize("backend", ["sdpa", "flex"])
@pytest.mark.parametrize("extreme", [1e9, -1e9, -torch.inf])
def test_biases_of_any_size(backend: str, extreme: float) -> None:
    """A bias of -inf hides keys, here all that the first queries see."""
    qkv = [x.detach() for x in inputs(150, 8, torch.float64)]
    bias = torch.randn(3, 40, dtype=torch.float64) + torch.where(torch.arange(40) < 30, extreme, 0.0)
    out, expected = (attend(*qkv, RelativeTerms(0, 39, bias=bias), backend=name) for name in (backend, "reference"))
    assert_near([out], [expected], 1e-6)  # the digits that scores keep beside 1e9
    assert (out[:, :, :30] == 0).all() == (extreme == -torch.inf)


@pytest.mark.parametrize("kind", MASKS)
def test_bfloat16_is_as_close_as_rounding_allows(kind: str) -> None:
    qkv = inputs(300, 16, torch.bfloat16)
    terms, leaves = random_terms(kind, 3, 16, 0, 299, torch.float32, window=100)
    found = results(qkv, terms, leaves, backend="sdpa")
    wide = [x.detach().double().requires_grad_() for x in qkv]
    assert found[0].dtype == torch.bfloat16
    assert_near(found, results(wide, terms, leaves, backend="reference"), 2**-6)


def test_a_device_without_a_backward_pass_is_found_by_a_trial() -> None:
    assert "does not support backward on CPU" in str(flex_problem("cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_flex(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch compiles for a CPU, forward only: of the same functions as for a GPU."""
    torch._dynamo.reset()  # for another length its code for CPUs is no valid C++
    monkeypatch.setattr("poslab.attention.kernels.flex.flex_attention", _compiled())
    qkv = [x.detach() for x in inputs(300, 16, dtype)]
    terms, _ = random_terms("bias, keys, queries", 3, 16, 0, 17, torch.float32)
    with torch.no_grad():
        out = attend(*qkv, terms, window=90, backend="flex")
        expected = attend(*(x.double() for x in qkv), terms, window=90, backend="reference")
    assert out.dtype == dtype
    assert_near([out], [expected], 1e-5 if dtype == torch.float32 else 2**-6)


@pytest.mark.slow
def test_a_process_may_compile_many_kinds_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """After torch's own limit of 8 the others would be computed densely."""
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    compiled = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=compiled))
    kernel = _compiled.__wrapped__()
    for heads in range(1, 10):
        kernel(*torch.zeros(3, 1, heads, 8, 16))
    assert compiled.frame_count == 9


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [150, 1100])
@pytest.mark.parametrize(("backend", "kind", "spec"), CASES)
def test_on_a_gpu(backend: str, kind: str, spec: dict[str, Any], length: int, dtype: torch.dtype) -> None:
    qkv = inputs(length, 64, dtype, "cuda")
    terms, leaves = random_terms(kind, 3, 64, 0 if spec.get("causal", True) else -17, 17, torch.float32)
    on_gpu = terms and terms.to(qkv[0].device)
    spec = {name: value.cuda() if isinstance(value, Tensor) else value for name, value in spec.items()}
    found = results(qkv, on_gpu, leaves, backend=backend, **spec)
    wide = [x.detach().double().requires_grad_() for x in qkv]
    assert_near(found, results(wide, on_gpu, leaves, backend="reference", **spec), 2**-6)
