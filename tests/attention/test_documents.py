"""Documents that share a row: where they begin, and what attention makes of them with each backend."""

from typing import Any

import pytest
import torch
from oracles import random_terms
from torch import Tensor

from poslab.attention import attend, numbered_documents
from poslab.attention.documents import SHORT, positions_within
from poslab.errors import SettingError
from poslab.positions import RelativeTerms

DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 2, 2, 2, 2, 2], [3, 3, 3, 3, 3, 3, 3, 7, 7, 8]])
T = DOCUMENTS.shape[1]


def alone(documents: Tensor) -> list[tuple[int, Tensor]]:
    """Return the row of each document, and the indices of its tokens."""
    return [(b, (row == n).nonzero()[:, 0]) for b, row in enumerate(documents) for n in row.unique()]


@pytest.mark.parametrize(
    ("positions", "numbers"),
    [
        ([0, 1, 2, 0, 0, 1], [1, 1, 1, 2, 3, 3]),
        ([5, 6, 0, 1, 0, 1], [1, 1, 2, 2, 3, 3]),  # the first began in another row
        ([2, 3, 4, 2, 3, 4], [1, 1, 1, 2, 2, 2]),  # as RoBERTa counts
        ([0, 3, 7, 0, 2, 9], [1, 1, 1, 2, 2, 2]),  # drawn at random
        ([0.0, 0.5, 1.0, 0.0, 0.5, 1.0], [1, 1, 1, 2, 2, 2]),
    ],
)
def test_positions_that_start_again(positions: list[float], numbers: list[int]) -> None:
    rows = torch.tensor([positions, list(range(6))])
    assert numbered_documents(rows).tolist() == [numbers, [1] * 6]


@pytest.mark.parametrize(
    "positions",
    [
        [0, 1, 2, 3, 4, 5],
        [7, 8, 9, 10, 11, 12],
        [0, 2, 5, 9, 20, 21],  # drawn at random
        [0, 5, 6, 5, 6, 5],  # coupled: numbers whose digits share positions
        [3],
        [],
    ],
)
def test_other_positions_are_those_of_one_document(positions: list[int]) -> None:
    assert numbered_documents(torch.tensor([positions, positions])) is None


def test_padding_has_no_positions() -> None:
    text = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0]]).bool()
    for of_padding in (0, 1):
        positions = torch.full((1, 8), of_padding)
        positions[:, 3:7] = torch.arange(4)
        assert numbered_documents(positions, text) is None
        positions[:, 3:7] = torch.tensor([0, 1, 0, 1])
        assert numbered_documents(positions, text).tolist() == [[0, 0, 0, 1, 1, 2, 2, 3]]


@pytest.mark.parametrize("positions", [[0, 0, 1, 1], [0, 0, 0, 0], [3, 2, 1, 0], [0, 1, 2, 0, 1, 1]])
def test_positions_that_may_mean_anything_are_refused(positions: list[int]) -> None:
    with pytest.raises(SettingError, match=r"^positions=\[.*documents"):
        numbered_documents(torch.tensor([positions]))


def test_positions_are_counted_in_each_document() -> None:
    assert positions_within(DOCUMENTS).tolist() == [[0, 1, 2, 3, 0, 0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5, 6, 0, 1, 0]]
    assert positions_within(DOCUMENTS[:, :0]).shape == (2, 0)


KINDS = [("none", b) for b in ("auto", "reference", "sdpa", "blockwise", "banded")]
KINDS += [("bias", b) for b in ("auto", "reference", "sdpa", "blockwise")]
KINDS += [("keys, values", b) for b in ("auto", "reference", "blockwise", "banded")]
KINDS += [("bias, keys, values, queries per head", b) for b in ("auto", "reference", "blockwise")]
KINDS += [("bias, values, null", b) for b in ("auto", "reference", "blockwise")]


@pytest.mark.parametrize(("kind", "backend"), KINDS)
@pytest.mark.parametrize("causal", [True, False])
def test_each_gets_what_it_gets_alone(kind: str, backend: str, causal: bool) -> None:
    """In outputs and gradients, within a window, with a bias of keys, and for the last queries of a cache."""
    if backend == "banded" and not causal:
        pytest.skip("is for causal attention")
    torch.manual_seed(0)
    terms, tables = random_terms(kind, 2, 4, 0 if causal else -5, 5)
    q, k, v = (torch.randn(2, 2, T, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    bias = torch.randn(2, 2, T, dtype=torch.float64)
    settings: list[dict[str, Any]] = [{"causal": causal, "backend": backend}]
    if backend not in ("sdpa", "banded"):
        settings.append(settings[0] | {"window": 3, "key_bias": bias})
    for how in settings:
        own = dict(how)
        found, expected = attend(q, k, v, terms, documents=DOCUMENTS, **how), torch.zeros_like(q)
        for b, at in alone(DOCUMENTS):
            if "key_bias" in how:
                own["key_bias"] = bias[b : b + 1, :, at]
            expected[b : b + 1, :, at] = attend(*(x[b : b + 1, :, at] for x in (q, k, v)), terms, **own)
        assert torch.allclose(found, expected, atol=1e-12)
        weights, leaves = torch.randn_like(found), [q, k, v, *tables]
        grads = [torch.autograd.grad((out * weights).sum(), leaves, allow_unused=True) for out in (found, expected)]
        for mine, theirs in zip(*grads, strict=True):
            assert (mine is None and theirs is None) or torch.allclose(mine, theirs, atol=1e-12)
        if causal:
            last = attend(q[:, :, 6:], k, v, terms, documents=DOCUMENTS, offset=6, **how)
            assert torch.allclose(last, found[:, :, 6:], atol=1e-12)


def test_padding_before_a_row_is_seen_by_no_document() -> None:
    q, k, v = torch.randn(3, 2, 2, T, 4).unbind()
    first = torch.tensor([2, 0])
    found = attend(q, k, v, documents=DOCUMENTS, first_key=first)
    expected = attend(*(x[:1, :, 2:4] for x in (q, k, v)))
    assert torch.allclose(found[:1, :, 2:4], expected, atol=1e-6)
    assert torch.equal(found[:, :, 4:], attend(q, k, v, documents=DOCUMENTS)[:, :, 4:])


def test_documents_that_can_not_be() -> None:
    q, k, v = torch.zeros(3, 2, 2, T, 4).unbind()
    wrong = [
        ({"documents": DOCUMENTS[:, :9]}, r"documents=\[2,9\]"),
        ({"documents": DOCUMENTS[:1]}, r"documents=\[1,10\]"),
        ({"documents": DOCUMENTS.flip(1)}, "documents=.*whole numbers"),
        ({"documents": DOCUMENTS / 2}, "documents=.*whole numbers"),
        ({"documents": DOCUMENTS, "offset": 2}, "offset=2"),
    ]
    for change, problem in wrong:
        with pytest.raises(SettingError, match=f"^{problem}"):
            attend(q, k, v, **change)
    nothing = q[:, :, :0]
    assert attend(nothing, nothing, nothing, documents=DOCUMENTS[:, :0]).shape == nothing.shape


def test_another_document_changes_no_bit_of_a_long_one() -> None:
    """Though kernels leave out keys without weight, as many as all texts that they compute together can spare."""
    length = 3 * SHORT
    documents = torch.arange(2).repeat_interleave(length)[None]
    q, k, v = torch.randn(3, 1, 2, 2 * length, 16).unbind()
    larger = torch.cat([30 * q[:, :, :length], q[:, :, length:]], 2)
    falling = RelativeTerms(0, length, bias=-torch.arange(length + 1.0).expand(2, -1))
    forgotten = 2.0 * torch.arange(2 * length, dtype=torch.float64).expand(1, 2, -1)
    for how in ({"terms": falling}, {"key_bias": forgotten}):
        with torch.no_grad():
            first, second = (attend(x, k, v, documents=documents, **how) for x in (q, larger))
        assert torch.equal(first[:, :, length:], second[:, :, length:])
        assert not torch.equal(first, second)


def test_a_compiled_graph_hides_documents_from_each_other() -> None:
    terms = RelativeTerms(0, 3, bias=torch.randn(2, 4), keys=torch.randn(4, 4))
    q, k, v = torch.randn(3, 2, 2, T, 4).unbind()
    torch._dynamo.reset()
    for own in (None, terms, RelativeTerms(0, 3, bias=terms.bias)):
        compiled = torch.compile(attend, fullgraph=True, backend="eager")
        expected = attend(q, k, v, own, documents=DOCUMENTS)
        assert torch.allclose(compiled(q, k, v, own, documents=DOCUMENTS, backend="blockwise"), expected, atol=1e-6)
