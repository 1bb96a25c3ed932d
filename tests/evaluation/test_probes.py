"""Probes against models of which is known where their heads look and what their hidden states hold."""

import pytest
import torch
from common import SCHEMES, make_scheme
from foreign_schemes import PerLayerBias
from runs_to_evaluate import lively_model, random_text

from poslab import GPT
from poslab.evaluation.probes import TEXTS, probe, spread

CONTEXT = 64
SIZES = {"vocab_size": 40, "context_length": CONTEXT, "embed_dim": 16, "num_layers": 2, "num_heads": 2}
TEXT = torch.randint(40, (TEXTS, CONTEXT), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("distance", "kind"), [(1, "previous_token"), (25, "duplicate_token"), (24, "induction")])
def test_heads_that_look_at_one_distance(distance: int, kind: str) -> None:
    """Of 25 tokens that come twice. The second layer has no bias: there the weights are even."""
    model = GPT(PerLayerBias(CONTEXT), **SIZES).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.query_key_value.weight.zero_()
        model.position_tables.bias.zero_()[0, :, distance] = 100
    probes = probe(model, TEXT)
    assert probes is not None
    for name, shares in probes.heads.items():
        if name in (kind, "duplicate_token", "induction"):  # where a distance leads before the text, weights are even
            assert shares[0].tolist() == pytest.approx([float(name == kind)] * 2, abs=1e-6)
    even = sum(1 / (i + 1) for i in range(25, 50)) / 25
    assert probes.heads["induction"][1].tolist() == pytest.approx([even] * 2, abs=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_position_is_read_where_it_is(dropout: float) -> None:
    """From learned positions nearly exactly; from words alone no better than a guess, as it is tested on other texts;
    in training as in evaluation, to which dropout and torch's own random numbers are nothing."""
    model = GPT(make_scheme("absolute"), **SIZES, dropout=dropout)
    with torch.no_grad():
        model.position_tables.position.copy_(torch.linspace(-1, 1, CONTEXT)[:, None].expand(-1, 16))
    state = torch.get_rng_state()
    probes = probe(model, TEXT)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert probes is not None
    assert probes.errors.shape == (3,)
    assert probes.errors[0] < 1
    assert probes.middle == CONTEXT / 4
    without = probe(GPT(**SIZES), TEXT)
    assert without is not None
    assert 0.9 < float(without.errors[0]) / without.middle < 1.1


@pytest.mark.parametrize("name", SCHEMES)
def test_all_schemes_are_probed(name: str) -> None:
    probes = probe(lively_model(name), spread(random_text(100), 99))
    assert probes is not None
    assert all(0 <= figure < 99 for figure in probes.scalars().values())


def test_too_little_to_probe() -> None:
    model = GPT(**SIZES)
    assert probe(model, TEXT[:1]) is None
    assert probe(model, TEXT[:, :3]) is None
    assert probe(model, torch.zeros_like(TEXT)) is None
    assert probe(model, spread(random_text(7), 5)) is None


@pytest.mark.parametrize(("count", "length"), [(100, 50), (1000, 20), (9, 20)])
def test_texts_to_test_share_no_token_with_those_to_fit(count: int, length: int) -> None:
    texts = spread(torch.arange(count), length)
    assert texts.shape == (TEXTS, min(length, count // 4))
    assert (texts.diff() == 1).all()
    assert texts[: TEXTS // 2].max() < texts[TEXTS // 2 :].min()
