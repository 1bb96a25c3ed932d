"""Backends of `attend`: each against loops in float64, for every kind of terms, mask and offset."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import attention_by_loops, random_terms
from refusals import refused
from torch import Tensor

from poslab.attention import BACKENDS, attend, choice, choose_backend
from poslab.attention.kernels import flex
from poslab.errors import SettingError
from poslab.positions import RelativeTerms

KINDS = ["none", "bias", "keys", "values", "queries", "keys, values", "bias, keys, values, queries", "null"]
KINDS += ["bias, values, null", "bias, keys, values, queries per head"]
# With the backends that compute them; "auto" is one of these, see test_choice_of_backend.
CASES = [(kind, backend) for kind in KINDS for backend in ("reference", "blockwise")]
CASES += [("none", "sdpa"), ("bias", "sdpa")]


def inputs(heads: int, queries: int, keys: int) -> list[Tensor]:
    return [torch.randn(2, heads, n, 4, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys)]


@pytest.mark.parametrize(("kind", "backend"), CASES)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 8)),
    offset=st.integers(-2, 9),
    clip=st.integers(0, 9),
    causal=st.booleans(),
    scale=st.sampled_from([None, 1.0, 0.3, 0.0, -0.3]),
    window=st.none() | st.integers(1, 9),
)
@settings(max_examples=15, deadline=None)
def test_equals_loops_in_outputs_and_gradients(
    kind: str,
    backend: str,
    sizes: tuple[int, int, int],
    offset: int,
    clip: int,
    causal: bool,
    scale: float | None,
    window: int | None,
) -> None:
    torch.manual_seed(0)
    heads, queries, keys = sizes
    q, k, v = inputs(heads, queries, keys)
    terms, tables = random_terms(kind, heads, 4, 0 if causal else -clip, clip, window=window)
    out = attend(q, k, v, terms, causal=causal, offset=offset, scale=scale, backend=backend)
    expected = attention_by_loops(q, k, v, terms, causal=causal, offset=offset, scale=0.5 if scale is None else scale)
    assert torch.allclose(out, expected, atol=1e-12)
    weights = torch.randn_like(out)
    found, wanted = (
        torch.autograd.grad((result * weights).sum() + 0 * q.sum(), [q, k, v, *tables], materialize_grads=True)
        for result in (out, expected)
    )
    torch.testing.assert_close(found, wanted, atol=1e-11, rtol=1e-5)


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_scale_that_is_not_positive_over_a_long_text(kind: str, scale: float) -> None:
    """torch's kernels hide keys by adding -inf before they multiply."""
    q, k, v = (3 * torch.randn(2, 2, 300, 4) for _ in range(3))
    terms, _ = random_terms(kind, 2, 4, 0, 400)
    if terms is not None:
        named = {name: getattr(terms, name) for name in ("bias", "keys", "values", "queries", "null")}
        terms = replace(terms, **{name: y if y is None else y.detach().float() for name, y in named.items()})
    expected = attend(q, k, v, terms, scale=scale, backend="reference")
    for backend in BACKENDS:
        try:
            out = attend(q, k, v, terms, scale=scale, backend=backend)
        except SettingError:  # for what it can't compute
            continue
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@given(
    keys=st.integers(1, 9),
    lowest=st.integers(-3, 0),
    clip=st.integers(0, 10),
    extreme=st.sampled_from([0.0, 1e9, -math.inf]),
)
@settings(max_examples=25, deadline=None)
def test_the_newest_token_of_a_cache(kind: str, keys: int, lowest: int, clip: int, extreme: float) -> None:
    torch.manual_seed(0)
    q, k, v = (x.detach() for x in inputs(2, 1, keys))
    terms, _ = random_terms(kind, 2, 4, lowest, clip)
    if terms is not None and terms.bias is not None:
        terms = replace(terms, bias=terms.bias.detach() + torch.tensor([[0.0], [extreme]]))
    out = attend(q, k, v, terms, offset=keys - 1, cached=True)
    expected = attend(q, k, v, terms, offset=keys - 1, backend="reference")
    assert torch.allclose(out, expected, atol=1e-12 if extreme == 0 else 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("causal", [True, False])
def test_dropout_drops_weights_and_keeps_the_mean(kind: str, causal: bool) -> None:
    """Every row of a batch has masks of its own: 4,000 equal rows are as many draws."""
    q, k, v = (x.detach()[:1] for x in inputs(2, 6, 6))
    terms, _ = random_terms(kind, 2, 4, 0 if causal else -3, 3)
    with torch.no_grad():
        exact = attend(q, k, v, terms, causal=causal)[0]
        rows = (x.expand(4000, -1, -1, -1) for x in (q, k, v))
        draws = attend(*rows, terms, causal=causal, dropout_p=0.3)
    standard_error = draws.std(0) / 4000**0.5
    assert draws.std(0).max() > 0.1
    assert ((draws.mean(0) - exact).abs() < 6 * standard_error + 1e-9).all()


@pytest.mark.parametrize("backend", ["reference", "blockwise"])
def test_dropout_masks_are_the_same_for_every_kind(backend: str) -> None:
    """At one seed, what differs between schemes is the scheme: tables of zeros leave exactly the plain attention."""
    q, k, v = (x.detach() for x in inputs(2, 6, 6))

    def draw(terms: RelativeTerms | None) -> Tensor:
        torch.manual_seed(7)
        return attend(q, k, v, terms, dropout_p=0.5, backend=backend)

    plain = draw(None)
    for name, rows in (("bias", 2), ("keys", 4), ("values", 4)):
        assert torch.allclose(draw(RelativeTerms(0, 3, **{name: torch.zeros(rows, 4).double()})), plain, atol=1e-12)


BIAS, KEYS, LATER = {"bias", "window", "far rows"}, {"bias", "keys", "queries", "key_bias", "first_key"}, 4096
SHAW = {"keys", "values"}


@pytest.mark.parametrize(
    ("device", "parts", "queries", "dropout_p", "backend", "why"),
    [
        ("cuda", SHAW, 256, 0.0, "reference", "up to 512"),
        ("cuda", SHAW, 257, 0.0, "banded", "no more than 128 distances, more than 256 queries"),
        ("cuda", SHAW, 257, 0.1, "reference", "up to 512"),
        ("cuda", SHAW | {"cached keys"}, 513, 0.0, "blockwise", "flex can't compute values"),
        ("cuda", {"keys", "far rows"}, 257, 0.0, "flex", "one kernel"),
        ("cpu", set(), 256, 0.0, "sdpa", "nothing but queries"),
        ("cpu", set(), 256, 0.1, "reference", "up to 256 queries"),
        ("cpu", BIAS, 257, 0.0, "blockwise", "more than 256 queries"),
        ("cpu", {"pairwise"}, 127, 0.0, "reference", "up to 127 queries"),
        ("cpu", {"pairwise"}, 128, 0.0, "blockwise", "more than 127 queries"),
        ("cuda", set(), LATER, 0.1, "sdpa", "nothing but queries"),
        ("cuda", BIAS, 2, 0.1, "sdpa", "up to 2,048"),
        ("cuda", BIAS, LATER, 0.0, "flex", "one kernel"),
        ("cuda", BIAS, LATER, 0.1, "blockwise", "flex can't compute dropout"),
        ("cuda", KEYS, 256, 0.0, "flex", "one kernel"),
        ("cuda", KEYS, 127, 0.0, "reference", "up to 512"),
        ("cuda", {"keys", "many rows", "values"}, 512, 0.0, "reference", "up to 512"),
        ("cuda", {"keys", "many rows", "values"}, 513, 0.0, "blockwise", "flex can't compute many rows, values"),
        ("cuda", {"pairwise"}, 256, 0.0, "blockwise", "flex can't compute pairwise"),
    ],
)
def test_choice_of_backend(
    device: str,
    parts: set[str],
    queries: int,
    dropout_p: float,
    backend: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex, "flex_problem", lambda device: None)
    choice = choose_backend(parts, queries, dropout_p=dropout_p, device=torch.device(device))
    assert choice.name == backend
    assert why in choice.why


def test_blocks_take_the_place_of_flex_without_a_compiler_and_in_deterministic_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(flex, "flex_problem", lambda device: f"no compiler for {device}")
    choose = partial(choose_backend, {"keys", "far rows"}, 1024, dropout_p=0.0, device=torch.device("cuda"))
    assert choose() == ("blockwise", "flex does not compile; torch says: no compiler for cuda")
    monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda: True)
    assert choose() == ("blockwise", "flex adds up gradients of tables in no fixed order")
    narrow = choose_backend(SHAW, 1024, 0.0, torch.device("cuda"))
    assert narrow == ("blockwise", "flex can't compute values")


def test_16_bits_take_flex_earlier_where_it_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flex, "flex_problem", lambda device: None)
    choose = partial(choose_backend, BIAS, device=torch.device("cuda"), dtype=torch.bfloat16)
    assert [choose(queries, 0.0).name for queries in (1023, 1024)] == ["sdpa", "flex"]
    assert [choose(queries, 0.1).name for queries in (1024, 2048, 2049)] == ["sdpa", "sdpa", "blockwise"]
    assert choose_backend(BIAS, 2048, 0.0, torch.device("cuda")).name == "sdpa"


@pytest.mark.parametrize(("backend", "parts"), [("columns", {"key_bias"}), ("triton", SHAW | {"window"})])
def test_a_row_without_a_measured_length_is_not_chosen(
    backend: str, parts: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poslab.attention.kernels.near_far.triton_problem", lambda device: None)
    monkeypatch.setattr(flex, "flex_problem", lambda device: None)
    choose = partial(choose_backend, parts, device=torch.device("cuda"), dtype=torch.bfloat16)
    before = [choose(queries, dropout_p=0.0).name for queries in (1023, 1024)]
    assert backend not in before
    measured = tuple(row._replace(first=1024) if row.backend == backend else row for row in choice.CHOICES)
    monkeypatch.setattr(choice, "CHOICES", measured)
    assert [choose(queries, dropout_p=0.0).name for queries in (1023, 1024)] == [before[0], backend]
    assert choose(1024, dropout_p=0.1).name != backend


def test_unusable_backends_are_refused() -> None:
    q, k, v = inputs(2, 4, 4)
    with pytest.raises(SettingError, match=", ".join(BACKENDS)):
        attend(q, k, v, backend="flash")
    keys, values = (random_terms(kind, 2, 4, 0, 3)[0] for kind in ("keys", "values"))
    with refused("backend", "sdpa", "keys", "auto", "reference", "blockwise"):
        attend(q, k, v, keys, backend="sdpa")
    with refused("backend", "flex", "values", "dropout", "auto"):
        attend(q, k, v, values, backend="flex", dropout_p=0.1)
    with refused("backend", "sdpa", "key_bias"):
        attend(q, k, v, key_bias=torch.zeros(2, 2, 4), backend="sdpa")


def test_a_band_leaves_parts_of_a_text_and_no_tables_to_others() -> None:
    q, k, v = inputs(2, 6, 6)
    terms, _ = random_terms("keys, values", 2, 4, 0, 3)
    for own_terms, queries in ((None, 6), (terms, 2), (None, 2)):
        how: dict[str, Any] = {"offset": 6 - queries}
        found, expected = (
            attend(q[:, :, -queries:], k, v, own_terms, backend=b, **how) for b in ("banded", "reference")
        )
        torch.testing.assert_close(found, expected)
    with refused("backend", "banded", "far rows", "later keys", "auto"):
        attend(q, k, v, random_terms("keys", 2, 4, -3, 200)[0], causal=False, backend="banded")
