"""Pairwise attention against the dense formula: everything that a scheme can do, in outputs and all gradients."""

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from poslab.attention import attend
from poslab.attention.reference import Pairwise
from poslab.positions import RelativeTerms, ScoreTile

LENGTH = 300  # of three blocks


def change(tables: Mapping[str, Tensor], tile: ScoreTile) -> Tensor:
    """A function of all that a tile knows, large where a query sees nothing."""
    distance = (tile.i - tile.j).abs().to(tile.scores.dtype)
    own = tile.token_state[:, :, tile.query_index.clamp(min=0), 0]  # (B, H, m)
    total = (tile.scores.sigmoid() * tile.seen).cumsum(-1)
    by_content = (tile.queries @ tables["mixing"] @ tile.keys.mT).tanh() * tile.scale
    scores = tile.scores * tables["heads"][:, None, None] + by_content - 0.01 * total
    scores = (
        scores
        + own[..., None] * tile.token_state[..., None, :, 0]
        - tables["heads"].square()[:, None, None] * distance.sqrt()
    )
    return scores.masked_fill(~tile.seen, 1e30)


class Case:
    """Attention of the last queries of a text, with every tensor that may want a gradient."""

    def __init__(self, queries: int = LENGTH, keys: int = LENGTH, dtype: torch.dtype = torch.float64) -> None:
        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()

        self.q, self.k, self.v = draw(2, 2, queries, 8), draw(2, 2, keys, 8), draw(2, 2, keys, 8)
        self.token_state, self.key_bias = draw(2, 2, keys, 1), draw(2, 2, keys)
        self.tables = {"mixing": draw(2, 8, 8), "heads": draw(2), "unused": draw(3)}
        self.terms = {"bias": draw(2, 12), "keys": draw(12, 8), "values": draw(2, 12, 8), "queries": draw(12, 8)}
        self.terms["null"] = draw(2)
        self.key_positions = torch.randint(3 * keys, (2, keys)).sort().values
        self.offset = keys - queries

    @property
    def leaves(self) -> list[Tensor]:
        return [self.q, self.k, self.v, self.token_state, self.key_bias, *self.tables.values(), *self.terms.values()]

    def attend(self, backend: str, scores: Callable[..., Tensor] | None = change, **settings: object) -> Tensor:
        query_positions = self.key_positions[:, max(0, self.offset) :][:, : self.q.shape[-2]]
        pairwise = Pairwise(query_positions, self.key_positions, self.token_state, scores, self.tables, irregular=True)
        terms = RelativeTerms(-4, 7, **self.terms)
        how = {"offset": self.offset, "key_bias": self.key_bias, "pairwise": pairwise} | settings
        torch.manual_seed(5)  # of dropout
        return attend(self.q, self.k, self.v, terms, backend=backend, **how)

    def results(self, backend: str, **settings: object) -> list[Tensor]:
        """The output and the gradients of all leaves."""
        out = self.attend(backend, **settings)
        return [out, *torch.autograd.grad(out.sin().sum(), self.leaves, materialize_grads=True)]


def hidden_by_parity(tables: object, tile: ScoreTile) -> Tensor:
    """Scores that are not those of queries and keys: every other key is hidden."""
    return torch.where(tile.j % 2 == 0, -torch.inf, torch.zeros_like(tile.scores))


def with_null_scores(tables: Mapping[str, Tensor], tile: ScoreTile) -> Tensor:
    """Scores, and one more of each query for nobody."""
    scores = change(tables, tile)
    return torch.cat([scores, tile.queries.sum(-1, keepdim=True) + tables["heads"][:, None, None]], -1)


HOW: dict[str, tuple[int, int, dict]] = {
    "plain": (LENGTH, LENGTH, {}),
    "bidirectional": (LENGTH, LENGTH, {"causal": False}),
    "dropout": (LENGTH, LENGTH, {"dropout_p": 0.3}),
    "window": (LENGTH, LENGTH, {"window": 150}),
    "window both ways": (LENGTH, LENGTH, {"window": 70, "causal": False}),
    "padding": (LENGTH, LENGTH, {"first_key": torch.tensor([0, 170])}),
    "scores as they are": (LENGTH, LENGTH, {"scores": None}),
    "scores of nothing": (LENGTH, LENGTH, {"scores": hidden_by_parity}),
    "null scores of a tile": (LENGTH, LENGTH, {"scores": with_null_scores}),
    "null scores of nothing": (140, LENGTH, {"scores": with_null_scores, "first_key": torch.tensor([0, 290])}),
    "the last query": (1, LENGTH, {}),
    "the last queries": (140, LENGTH, {}),
    "a short text": (3, 3, {}),
    "a text that is all padding": (LENGTH, LENGTH, {"first_key": torch.tensor([0, LENGTH])}),
    "queries before all keys": (LENGTH, LENGTH, {"offset": -150}),
}


@pytest.mark.parametrize(("queries", "keys", "how"), HOW.values(), ids=HOW)
def test_equals_the_dense_formula(queries: int, keys: int, how: dict) -> None:
    case = Case(queries, keys)
    found, expected = (case.results(backend, **how) for backend in ("blockwise", "reference"))
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-5)


@pytest.mark.parametrize("wanted", range(13))
def test_each_gradient_alone(wanted: int) -> None:
    case = Case(130, 130)
    expected = case.results("blockwise")[1 + wanted]
    for leaf in case.leaves:
        leaf.requires_grad_(leaf is case.leaves[wanted])
    found = torch.autograd.grad(case.attend("blockwise").sin().sum(), case.leaves[wanted], materialize_grads=True)
    assert torch.equal(found[0], expected)


def test_bfloat16_is_computed_in_float32() -> None:
    """Forward pass, and a backward pass that runs under autocast itself."""
    case = Case(dtype=torch.float32)
    exact = case.results("blockwise")
    with torch.autocast("cpu", torch.bfloat16):
        found = case.results("blockwise")
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-4) for a, b in zip(found, exact, strict=True))
    q, k, v = (x.detach().bfloat16() for x in (case.q, case.k, case.v))
    with torch.autocast("cpu", torch.bfloat16):
        windowed = attend(q, k, v, window=50, backend="blockwise")
    expected = attend(q.float(), k.float(), v.float(), window=50, backend="reference")
    assert windowed.dtype == torch.bfloat16
    assert (windowed - expected).abs().max() < 2**-7 * expected.abs().max()
