"""Positions from outside, and those that a scheme draws in training: what kernels and the cache make of them."""

from dataclasses import dataclass

import pytest
import torch
from foreign_schemes import Gated, Mixed, PerLayerBias
from oracles import attention_by_loops
from refusals import refused
from strong_models import NAMES, SIZES, some_tokens, strong_model
from torch import Tensor

from poslab import GPT
from poslab.attention import scheme_attention
from poslab.contract.trial import RISING
from poslab.errors import SettingError
from poslab.model.cache import KeyValueCache
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.sinusoidal import Sinusoidal

RESTARTING = torch.tensor([0, 1, 2, 3, 0, 1, 2, 0, 1, 2])


every_scheme = pytest.mark.parametrize("name", NAMES)


@every_scheme
def test_counting_positions_are_the_default(name: str) -> None:
    model, tokens = strong_model(name).double(), torch.randint(61, (2, 10))
    assert torch.equal(model(tokens, positions=torch.arange(10)), model(tokens))
    assert torch.allclose(model(tokens, positions=torch.arange(10).expand(2, -1)), model(tokens), atol=1e-12)


@every_scheme
def test_each_row_has_its_own_where_the_future_is_seen(name: str) -> None:
    model, tokens = strong_model(name, causal=False).double(), torch.randint(61, (2, 10))
    together = model(tokens, positions=RISING)
    for row, positions, logits in zip(tokens, RISING, together, strict=True):
        assert torch.allclose(model(row[None], positions=positions)[0], logits, atol=1e-10)


@every_scheme
def test_a_cache_reads_positions_that_restart(name: str) -> None:
    model, tokens = strong_model(name), torch.randint(61, (2, 10))
    cache = KeyValueCache()
    parts = zip(tokens.split([4, 1, 5], dim=1), RESTARTING.split([4, 1, 5], dim=-1), strict=True)
    found = torch.cat([model(part, cache, own) for part, own in parts], dim=1)
    assert torch.allclose(found, model(tokens, positions=RESTARTING), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("backend", ["reference", "blockwise"])
@pytest.mark.parametrize("positions", [RISING[0], RESTARTING], ids=["rising", "restarting"])
def test_relative_terms_go_by_them(positions: Tensor, backend: str, causal: bool) -> None:
    scheme, shape = Mixed(), ModelShape(40, 24, 1, 2, causal)
    tables = {name: table.double() for name, table in scheme.tables(shape).items()}
    terms = scheme.relative(tables, shape, 0, range(40))
    q, k, v = torch.randn(3, 1, 2, 10, 12, dtype=torch.float64)
    found = scheme_attention(scheme, tables, q, k, v, positions=positions, causal=causal, backend=backend)
    for i in range(10):
        keys = range(i + 1 if causal else 10)
        rows = [min(max(int(positions[i] - positions[j]), 2), 9) - 2 for j in keys]
        # One query, and a table that has a row for each of its keys, the last of them at distance 0.
        order = rows[::-1]
        own = {"bias": terms.bias[:, order], "keys": terms.keys[:, order], "values": terms.values[:, order]}
        seen = [x[:, :, list(keys)] for x in (k, v)]
        one = RelativeTerms(0, len(rows) - 1, **own)
        expected = attention_by_loops(q[:, :, i : i + 1], *seen, one, causal=True, offset=len(rows) - 1, scale=12**-0.5)
        assert torch.allclose(found[:, :, i : i + 1], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        (torch.arange(10) * 1j, "numbers from 0 on"),
        (torch.arange(10) - 0.5, "numbers from 0 on"),
        (torch.arange(9), "one for each of the 10 tokens"),
        (torch.zeros(3, 10).long(), "one row, or one for each of the 2 texts"),
        (torch.zeros(1, 2, 10).long(), r"\(T,\) or \(B, T\)"),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_what_are_no_positions(positions: Tensor, problem: str, cached: bool) -> None:
    model = strong_model("rotary")
    with pytest.raises(SettingError, match=f"^positions=.*{problem}"):
        model(torch.randint(61, (2, 10)), KeyValueCache() if cached else None, positions)


@pytest.mark.parametrize("name", ["rope", "sinusoidal", "fire"])
def test_they_may_lie_between_whole_numbers(name: str) -> None:
    model, tokens = strong_model(name).double(), torch.randint(61, (2, 10))
    whole = model(tokens, positions=RISING)
    assert torch.equal(model(tokens, positions=RISING.double()), whole)
    assert not torch.allclose(model(tokens, positions=RISING + torch.rand(10)), whole, atol=1e-3)
    for other, cache in (("t5", None), ("absolute", KeyValueCache())):
        with refused("positions", "float32"):
            strong_model(other)(tokens, cache, RISING / 2)


def test_a_text_has_them_for_all_its_tokens_or_for_none() -> None:
    model, cache = strong_model("rotary"), KeyValueCache()
    model(torch.randint(61, (2, 10)), cache)
    with pytest.raises(SettingError, match=r"^positions="):
        model(torch.randint(61, (2, 1)), cache, torch.tensor([10]))


@dataclass(frozen=True)
class Jumping(Sinusoidal):
    """Every second position in training, from a random one on."""

    def sample(self, shape: ModelShape, length: int, generator: torch.Generator) -> Tensor:
        return 2 * torch.arange(length) + torch.randint(9, (1,), generator=generator)


@dataclass(frozen=True)
class JumpingBias(PerLayerBias):
    sample = Jumping.sample


def test_a_draw_within_a_draw_gives_the_outer_one_back() -> None:
    model, tokens = strong_model("randomized"), some_tokens(1, 9)
    with torch.no_grad(), model.position.drawing(1):
        outer = model(tokens)
        with model.position.drawing(2):
            inner = model(tokens)
        assert torch.equal(model(tokens), outer)
    assert not torch.equal(inner, outer)


@pytest.mark.parametrize("scheme", [Jumping(), JumpingBias()])
def test_positions_of_a_training_step(scheme: PositionScheme) -> None:
    torch.manual_seed(0)
    model, tokens = GPT(scheme, dropout=0.0, **SIZES), torch.randint(61, (2, 10))
    plain = model.eval()(tokens)
    assert torch.equal(plain, model(tokens, positions=torch.arange(10)))
    sums = set()
    for seed in (1, 1, 2, 3):
        torch.manual_seed(seed)
        drawn = model.train()(tokens)
        candidates = [model.eval()(tokens, positions=2 * torch.arange(10) + start) for start in range(9)]
        assert any(torch.equal(drawn, candidate) for candidate in candidates)
        sums.add(float(drawn.detach().sum()))
    assert (len(sums) == 1) == scheme.shift_invariant  # a bias by distance doesn't notice the start


def test_what_is_random_after_them_is_the_same_for_all_schemes() -> None:
    after = []
    for scheme in (None, Jumping(), JumpingBias(), Gated()):
        torch.manual_seed(0)
        model = GPT(scheme, dropout=0.1, **SIZES).train()
        torch.manual_seed(1)
        model(torch.randint(61, (2, 10)))
        after.append(torch.rand(4))
    assert all(torch.equal(numbers, after[0]) for numbers in after)


def test_a_scheme_that_ends_before_the_context_is_refused_at_once() -> None:
    @dataclass(frozen=True)
    class Ending(PositionScheme):
        def max_length(self, shape: ModelShape) -> int:
            return 8

    with refused("context_length", "40", "8"):
        GPT(Ending(), **SIZES)
