"""Learned absolute positions: the formula, the random start, and what lies beyond the table."""

from dataclasses import replace

import pytest
import torch
from common import compose_config
from refusals import refused

from poslab import GPT
from poslab.positions import ModelShape
from poslab.positions.absolute import Absolute
from poslab.positions.base import Tables

SHAPE = ModelShape(context_length=8, embed_dim=4, num_layers=1, num_heads=1)
FAR = Absolute(random_offset=True, max_positions=20)


def tiny(scheme: Absolute) -> GPT:
    return GPT(scheme, vocab_size=11, context_length=8, embed_dim=4, num_layers=1, num_heads=1, dropout=0.0)


def test_every_start_is_drawn_and_every_position_learned() -> None:
    drawn = [FAR.sample(SHAPE, 8, torch.Generator().manual_seed(seed)) for seed in range(400)]
    assert all(torch.equal(positions, positions[0] + torch.arange(8)) for positions in drawn)
    starts = torch.stack(drawn)[:, 0].bincount(minlength=13)
    assert len(starts) == 13  # 0 to 20 - 8
    assert starts.min() > 10  # 31 are expected
    assert Absolute().sample(SHAPE, 8, torch.Generator()) is None
    model = tiny(FAR)
    for _ in range(60):
        model(torch.zeros(1, 8, dtype=torch.long)).square().sum().backward()
    assert (model.position_tables.position.grad.abs().sum(-1) > 0).all()


def test_a_task_leaves_room_for_a_start() -> None:
    """Lines of a task are shorter than the longest test, which is the context."""
    random_start = ["pos=absolute", "pos.random_offset=true", "pos.max_positions=122"]
    for settings in (random_start, ["pos=randomized", "pos.max_position=122"]):
        config = compose_config("data=copy", *settings)
        assert config.pos.warnings(config.model.shape) == []


def test_each_text_of_a_batch_has_its_own_start(monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def noted(scheme: Absolute, tables: Tables, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        given.append(positions)
        return embed(scheme, tables, x, positions)

    embed = Absolute.embed
    monkeypatch.setattr(Absolute, "embed", noted)
    model = tiny(FAR)
    given.clear()
    model(torch.zeros(8, 6, dtype=torch.long))
    whole = given[0].view(8, 6)
    assert len(set(whole[:, 0].tolist())) > 3
    assert torch.equal(whole, whole[:, :1] + torch.arange(6))


def test_evaluation_begins_at_0() -> None:
    model = tiny(FAR).eval()
    tokens = torch.randint(0, 11, (1, 8))
    assert torch.equal(model(tokens), model(tokens, positions=torch.arange(8)))
    assert model(torch.randint(0, 11, (1, 20))).isfinite().all()


def test_settings_of_the_random_start() -> None:
    offset = Absolute(random_offset=True)
    assert (offset.max_length(SHAPE), offset.max_length(replace(SHAPE, longest_text=3))) == (16, 8)
    with refused("max_positions", "7", "8"):
        Absolute(max_positions=7).check(SHAPE)
    assert FAR.warnings(SHAPE) == Absolute().warnings(SHAPE) == []
    full = Absolute(random_offset=True, max_positions=8)
    (said,) = full.warnings(SHAPE)
    assert said.startswith("pos.random_offset=true does nothing for texts of 8 tokens, the longest")
    assert full.warnings(replace(SHAPE, longest_text=7)) == []
    (said,) = Absolute(max_positions=20).warnings(SHAPE)
    assert said.startswith("pos.max_positions=20: a context of 8 never trains positions 8 to 19")
