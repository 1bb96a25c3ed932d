"""Blocks of queries, flash and dropout against the dense reference: outputs, gradients, memory."""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import attention_by_loops, random_terms
from torch import Tensor

from poslab.attention import attend
from poslab.attention.blocks import query_blocks
from poslab.attention.kernels.flash import bias_by_distance, is_null_alone
from poslab.attention.kernels.near_tables import near_tables, needed_keys
from poslab.attention.kernels.products import products_for
from poslab.attention.reference import AttentionSpec
from poslab.positions import RelativeTerms

TERMS = ["none", "bias", "keys", "values", "bias, keys, values", "keys, values per head", "queries"]
TERMS += ["keys, queries per head", "null", "bias, keys, null per head", "bias, keys, values, queries, null"]

blockwise, reference = (partial(attend, scale=0.4, backend=name) for name in ("blockwise", "reference"))


def make_inputs(batch: int, heads: int, queries: int, keys: int, head_dim: int, dtype: torch.dtype) -> list[Tensor]:
    return [torch.randn(batch, heads, t, head_dim, dtype=dtype, requires_grad=True) for t in (queries, keys, keys)]


def assert_equal(qkv: list[Tensor], terms: RelativeTerms | None, tables: list[Tensor], **spec: Any) -> None:
    """Outputs and gradients: within 1e-10 for queries in double precision, else 1e-4 of the largest in each tensor.

    Some gradients are nothing but rounding: a row of scores has gradients that sum to zero, and so has a table of which
    one row is used. Rounding grows with the root of how many numbers were added, at most one for each score.
    """
    (query, key, _), leaves = qkv, [*qkv, *tables]
    rounding = 5e-5 + 2e-6 * (query[..., 0].numel() * key.size(-2)) ** 0.5
    results = []
    for attention in (blockwise, reference):
        torch.manual_seed(0)  # of the dropout
        out = attention(*qkv, terms, **spec)
        weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1), dtype=out.dtype)
        gradients = [torch.zeros_like(leaf) for leaf in leaves]
        if out.requires_grad:
            gradients = torch.autograd.grad((out * weights).sum(), leaves, materialize_grads=True)
        results.append([out, *gradients])
    for found, expected in zip(*results, strict=True):
        assert found.dtype == expected.dtype
        if query.dtype == torch.float64:
            assert (found - expected).abs().max() < 1e-10
        else:
            assert (found - expected).abs().max() <= 1e-4 * expected.abs().max() + rounding


LENGTHS = st.sampled_from([300, 257, 200, 129, 128, 60, 5, 1])


@pytest.mark.parametrize(
    ("kind", "dtype"), [*((kind, torch.float64) for kind in TERMS), ("none", torch.float32), (TERMS[-1], torch.float32)]
)
@given(
    sizes=st.tuples(st.integers(1, 2), st.integers(1, 3), LENGTHS, LENGTHS),
    lowest=st.just(0) | st.integers(-400, 5),
    clip=st.sampled_from([16, 150]) | st.integers(0, 400),
    spec=st.fixed_dictionaries(
        {
            "causal": st.sampled_from([True, False]),
            "offset": st.just(0) | st.integers(-150, 300),
            "window": st.none() | st.integers(1, 400),
            "dropout_p": st.sampled_from([0.0, 0.3]),
        }
    ),
    growth=st.sampled_from([0.0, 0.1, 10.0]),
    hidden=st.none() | st.integers(0, 300),
)
@example((1, 1, 300, 300), 1, 0, {"causal": True, "offset": 0, "window": None, "dropout_p": 0.0}, 0.0, None)
@settings(max_examples=20, deadline=None)
def test_blockwise_equals_reference(
    kind: str,
    dtype: torch.dtype,
    sizes: tuple[int, int, int, int],
    lowest: int,
    clip: int,
    spec: dict[str, Any],
    growth: float,
    hidden: int | None,
) -> None:
    """Compare outputs and gradients; growth: of the bias of keys along the text; hidden: this many keys at most."""
    torch.manual_seed(0)
    batch, heads, queries, keys = sizes
    qkv = make_inputs(batch, heads, queries, keys, 8, dtype)
    terms, tables = random_terms(kind, heads, 8, lowest, lowest + clip, dtype)
    if growth:
        steps = growth * torch.randn(batch, heads, keys, dtype=torch.float64)
        tables.append(steps.cumsum(-1).requires_grad_())
        spec["key_bias"] = tables[-1]
    if hidden is not None:
        spec["first_key"] = torch.randint(0, hidden + 1, (batch,))
    assert_equal(qkv, terms, tables, **spec)


def falling(slope: float, length: int, dtype: torch.dtype, **null: Tensor) -> RelativeTerms:
    """A bias that falls with the distance either way, in its second head not at all."""
    distances = torch.arange(1 - length, length, dtype=dtype)
    return RelativeTerms(1 - length, length - 1, bias=torch.stack([-slope * distances.abs(), 0 * distances]), **null)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("slope", [0.01, 0.3, 3.0])
@pytest.mark.parametrize("spec", [{}, {"causal": False}, {"offset": 37}], ids=str)
def test_flash_equals_reference(dtype: torch.dtype, slope: float, spec: dict[str, Any]) -> None:
    torch.manual_seed(0)
    q, k, v = make_inputs(2, 2, 530, 620, 8, dtype)
    terms = falling(slope, 620, dtype)
    own = {"causal": True, "offset": 0, "scale": 0.4} | spec
    near = near_tables(AttentionSpec(terms, **own), q, 620, dtype)
    assert bias_by_distance(AttentionSpec(terms, **own), q, k, near) is not None
    assert_equal([q, k, v], terms, [], **spec)
    null = torch.randn(2, dtype=dtype).requires_grad_()
    assert_equal([q, k, v], falling(slope, 620, dtype, null=null), [null], **spec)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_flash_with_a_null_score_alone(dtype: torch.dtype, causal: bool) -> None:
    null = torch.randn(2, dtype=dtype).requires_grad_()
    q, k, v = make_inputs(2, 2, 300, 300, 8, dtype)
    assert is_null_alone(AttentionSpec(None, causal, 0, 0.4, null=null), q, k)
    assert_equal([q, k, v], RelativeTerms(0, 0, null=null), [null], causal=causal)


def test_flash_is_left_where_it_would_be_slow_or_wrong() -> None:
    q, k, _ = make_inputs(1, 2, 300, 300, 8, torch.float32)

    def served(factor: float = 1.0, terms: RelativeTerms | None = None, **spec: Any) -> bool:
        terms = falling(0.5, 300, torch.float32) if terms is None else terms
        whole = AttentionSpec(terms, **({"causal": True, "offset": 0, "scale": 0.4} | spec))
        return bias_by_distance(whole, q * factor, k, near_tables(whole, q, 300, torch.float32)) is not None

    assert served()
    assert not served(factor=20.0)  # a product of query and key may outweigh what distance says
    assert served(factor=20.0, terms=falling(0.01, 300, torch.float32))
    assert not served(offset=-1)  # the first query sees no key
    assert not served(first_key=torch.tensor([3]))
    assert not served(window=100)
    learned = falling(0.5, 300, torch.float32).bias.requires_grad_()
    assert not served(terms=RelativeTerms(-299, 299, bias=learned))
    assert not served(terms=RelativeTerms(0, 1, keys=torch.zeros(2, 8)))
    rising = torch.arange(300.0).expand(2, -1)  # the largest bias that a query sees is that of the first key
    assert not served(terms=RelativeTerms(0, 299, bias=rising))


ROWS = {
    "far": slice(-1, None),
    "near": slice(None, -1),
    "first": slice(0, 1),
    "half": slice(6, None),
    "all": slice(None),
}
EXTREMES = [-math.inf, -1e9, 1e9, -1e4, 1e4, 40.0, torch.finfo(torch.float32).min]


def extreme_bias(rows: str, extreme: float, dtype: torch.dtype, count: int = 18) -> Tensor:
    """Return a bias (2, count), as large as scores are, but with `extreme` added to, or in, some rows."""
    bias = torch.randn(2, count, dtype=dtype)
    bias[0, ROWS[rows]] = extreme
    bias[1, ROWS[rows]] += extreme
    return bias


def causal_kernels(length: int) -> dict[str, Callable[..., Tensor]]:
    return {
        "reference": reference,
        "blockwise": blockwise,
        "last query": lambda q, k, v, terms: attend(q[:, :, -1:], k, v, terms, offset=length - 1, scale=0.4),
    }


def results(kernel: Callable[..., Tensor], inputs: list[Tensor], bias: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return the output with a bias for distances from 0 on, and gradients of inputs and bias, in float64."""
    q, k, v, bias = (x.detach().to(dtype).requires_grad_() for x in (*inputs, bias))
    out = kernel(q, k, v, RelativeTerms(0, bias.shape[-1] - 1, bias=bias))
    weights = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = (out * weights[:, :, -out.shape[2] :].to(dtype)).sum() + 0 * v.sum()
    return [x.double() for x in (out.detach(), *torch.autograd.grad(loss, [q, k, v, bias], materialize_grads=True))]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("extreme", [-math.inf, 1e9, -1e4])
def test_reference_equals_loops_for_any_bias(rows: str, extreme: float) -> None:
    """A key whose bias is -inf isn't seen, and a query that sees none gets zeros."""
    inputs, bias = make_inputs(1, 2, 16, 16, 4, torch.float64), extreme_bias(rows, extreme, torch.float64, count=12)
    loops = partial(attention_by_loops, causal=True, offset=0, scale=0.4)
    found, expected = (results(kernel, inputs, bias, torch.float64) for kernel in (reference, loops))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("extreme", EXTREMES)
@pytest.mark.parametrize("length", [18, 150])
def test_kernels_equal_the_reference_for_any_bias(length: int, extreme: float, rows: str, dtype: torch.dtype) -> None:
    """Keys lie beyond the last row (150), or none does (18)."""
    inputs, bias = make_inputs(1, 2, length, length, 8, torch.float32), extreme_bias(rows, extreme, torch.float32)
    reference, *_ = kernels = causal_kernels(length)
    for name, kernel in kernels.items():
        full = kernels[reference] if name != "last query" else lambda *given: kernels[reference](*given)[:, :, -1:]
        expected = results(full, inputs, bias, torch.float64)
        for found, want in zip(results(kernel, inputs, bias, dtype), expected, strict=True):
            assert (found - want).abs().max() <= (1e-11 if dtype == torch.float64 else 1e-5) * max(1, want.abs().max())


def test_single_precision_of_a_long_text() -> None:
    """Biases up to 1e4: in one head all about as large, in the other falling with distance."""
    length, rows = 1200, 40
    inputs = make_inputs(1, 2, length, length, 8, torch.float32)
    short = torch.stack([1e4 + torch.randn(rows), torch.linspace(0, -1e4, rows)])
    long = short[:, torch.arange(length).clamp(max=rows - 1)]  # the same, but no row is the far one
    kernels = causal_kernels(length)
    *expected, grad_bias = results(kernels["reference"], inputs, short, torch.float64)
    for name, bias in (("blockwise", short), ("blockwise", long)):
        *found, grad = results(kernels[name], inputs, bias, torch.float32)
        grad = torch.cat([grad[:, : rows - 1], grad[:, rows - 1 :].sum(-1, keepdim=True)], dim=-1)
        for x, want in zip([*found, grad], [*expected, grad_bias], strict=True):
            assert (x - want).abs().max() <= 1e-5 * want.abs().max(), name


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["blockwise", "reference"])
def test_what_sums_up_along_a_text_takes_no_digits(name: str, sign: int) -> None:
    """A bias of keys that moves on by thousands, here and there by a hundred at once, in single precision."""
    length = 700
    inputs = make_inputs(1, 2, length, length, 8, torch.float32)
    steps = torch.rand(1, 2, length, dtype=torch.float64) * torch.where(torch.rand(1, 2, length) < 0.1, 100.0, 0.01)
    key_bias = sign * steps.cumsum(-1).requires_grad_()
    kernel = causal_kernels(length)[name]

    def found(dtype: torch.dtype, kernel: Callable[..., Tensor]) -> list[Tensor]:
        q, k, v = (x.detach().to(dtype).requires_grad_() for x in inputs)
        out = kernel(q, k, v, None, key_bias=key_bias)
        return [out, *torch.autograd.grad(out.square().sum(), [q, k, v, key_bias])]

    for x, want in zip(found(torch.float32, kernel), found(torch.float64, reference), strict=True):
        assert (x - want).abs().max() <= 1e-5 * want.abs().max()


@pytest.mark.parametrize("steps", [0.3, 4.0])
def test_keys_without_weight_are_left_out(steps: float) -> None:
    """Keys are dropped as far as the last digit doesn't notice, whatever a query and a key can add."""
    bias = torch.full((2, 3000), steps, dtype=torch.float64).cumsum(-1)
    *_, last = needed_keys(list(query_blocks(3000, 3000, 0, causal=True)), bias, 5.0, torch.float32)
    assert last.first_key % 16 == 0
    lowest = bias[0, last.first_query] - 10 + 2 * math.log(torch.finfo(torch.float32).eps)
    assert bias[0, last.first_key] < lowest <= bias[0, last.first_key + 16]
    assert last.columns.stop == 3000
    assert last.first_key + last.position == last.first_query
    unknown = needed_keys([last], bias * math.nan, 5.0, torch.float32)
    assert unknown == [last]


def test_what_is_not_a_number_stays_so() -> None:
    """A training that diverged must not look like one that sees nothing."""
    q, k, v = (x.detach() for x in make_inputs(1, 2, 150, 150, 8, torch.float32))
    q[0, 0, 140] = math.nan
    for name, kernel in causal_kernels(150).items():
        if name != "last query":
            out = kernel(q, k, v, RelativeTerms(0, 17, bias=torch.randn(2, 18)))
            assert out[0, 0, 140].isnan().all(), name


@pytest.mark.parametrize("length", [200, 1100])  # blocks of 128 queries, and of 256
@pytest.mark.parametrize("kind", TERMS)
def test_bfloat16_is_as_close_as_rounding_allows(kind: str, length: int) -> None:
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in make_inputs(1, 2, length, length, 16, torch.float32))
    terms, tables = random_terms(kind, 2, 16, 0, 9, torch.float32)
    out = attend(q, k, v, terms, backend="blockwise")
    exact = attend(q.float(), k.float(), v.float(), terms, backend="reference")
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).abs().max() < 2**-7 * exact.abs().max()
    found = torch.autograd.grad(out.float().sum(), [q, k, v, *tables], materialize_grads=True)
    wanted = torch.autograd.grad(exact.sum(), [q, k, v, *tables], materialize_grads=True)
    for gradient, want in zip(found, wanted, strict=True):
        assert (gradient.float() - want.float()).abs().max() <= 2**-6 * want.float().abs().max() + 1e-3


@pytest.mark.parametrize("window", [None, 100])
def test_numbers_by_distance_keep_their_digits_beside_bfloat16(window: int | None) -> None:
    """Biases of neighbours would be equal in 16 bits, or a step of 1/16 apart."""
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in make_inputs(1, 2, 700, 700, 16, torch.float32))
    bias = -0.07 * torch.arange(700.0).repeat(2, 1)
    bias[:, -1] = 12  # which biases are taken less, and only the last query sees
    terms = RelativeTerms(0, 699, bias=bias)
    out = attend(q * 0, k, v, terms, window=window)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    exact = attend(wide[0] * 0, *wide[1:], terms, window=window, backend="reference")
    assert out.dtype == torch.bfloat16
    assert (out.double() - exact).abs().max() < 2**-7
    (found,), (wanted,) = torch.autograd.grad(out.sum(), v), torch.autograd.grad(exact.sum(), wide[2])
    assert (found.double() - wanted).abs().max() < 2**-6 * wanted.abs().max()


def test_rounding_ends_with_the_kernel() -> None:
    """Products in bfloat16 are a setting of the process: everybody else's are as they were."""
    a, b = torch.randn(2, 256, 256)
    exact = a @ b
    with pytest.raises(ZeroDivisionError), products_for(torch.bfloat16, a.device):
        raise ZeroDivisionError
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in make_inputs(1, 2, 300, 300, 16, torch.float32))
    attend(q, k, v, RelativeTerms(0, 9, bias=torch.randn(2, 10)), backend="blockwise").sum().backward()
    assert torch.equal(a @ b, exact)


def test_dropout_is_the_same_from_every_thread() -> None:
    """Backward passes may run in a thread of their own."""
    q, k, v = make_inputs(1, 2, 150, 150, 8, torch.float64)
    torch.manual_seed(0)
    out = attend(q, k, v, dropout_p=0.3, backend="blockwise")
    here = torch.autograd.grad(out.sum(), [q, k, v], retain_graph=True)
    there: list[Tensor] = []
    thread = threading.Thread(target=lambda: there.extend(torch.autograd.grad(out.sum(), [q, k, v])))
    thread.start()
    thread.join()
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_no_square_of_the_length_is_kept() -> None:
    """Memory that autograd keeps between forward and backward grows with T and not with T^2."""
    terms, _ = random_terms("bias, keys, values, queries", 1, 8, 0, 5, torch.float32)
    kept = {}
    for length in (1024, 4096):
        q, k, v = make_inputs(1, 1, length, length, 8, torch.float32)
        sizes: list[int] = []

        def note(x: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(x.untyped_storage().nbytes())
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            for dropout_p in (0.0, 0.1):
                attend(q, k, v, terms, dropout_p=dropout_p, backend="blockwise").sum().backward()
        kept[length] = sum(sizes)
    assert kept[4096] < 4.1 * kept[1024]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("length", [256, 1100])
def test_gpu_kernels_equal_the_reference(kind: str, length: int) -> None:
    q, k, v = (x.detach().cuda().requires_grad_() for x in make_inputs(2, 2, length, length, 64, torch.float32))
    terms, tables = random_terms(kind, 2, 64, 0, 16, torch.float32)
    results = []
    for name in ("blockwise", "reference"):
        out = attend(q, k, v, terms and terms.to(q.device), backend=name)
        results.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v, *tables])])
    for found, expected in zip(*results, strict=True):
        assert (found - expected).abs().max() <= 1e-3 * expected.abs().max() + 1e-4
