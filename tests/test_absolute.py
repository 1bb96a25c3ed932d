"""Learned absolute positions: the formula, the table's size and start, and what lies beyond it."""

import pytest
import torch

from poslab import GPT
from poslab.errors import UserError
from poslab.positions import ModelShape
from poslab.positions.absolute import Absolute


def test_each_position_adds_its_own_row() -> None:
    tables = {"position": torch.randn(20, 6, dtype=torch.float64)}
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    out = Absolute().embed(tables, x, torch.arange(7, 12))
    for t in range(5):
        assert torch.equal(out[:, t], x[:, t] + tables["position"][7 + t])


def test_the_model_uses_row_t_at_position_t() -> None:
    model = GPT(Absolute(), vocab_size=11, context_length=8, embed_dim=4, num_layers=1, num_heads=1, dropout=0.0)
    tokens = torch.randint(0, 11, (1, 8))
    before = model(tokens)
    with torch.no_grad():
        model.position_tables.position[5] += torch.randn(4)
    changed = (model(tokens) != before).any(-1)[0]
    assert changed.tolist() == [False] * 5 + [True] * 3  # later positions attend to it


def test_table() -> None:
    table = Absolute().tables(ModelShape(context_length=256, embed_dim=256, num_layers=1, num_heads=1))["position"]
    assert table.shape == (256, 256)
    assert abs(table.std().item() / 0.02 - 1) < 0.02


def test_longer_input_names_both_lengths() -> None:
    model = GPT(Absolute(), vocab_size=11, context_length=8, embed_dim=4, num_layers=1, num_heads=1)
    with pytest.raises(UserError, match=r"9 long.* 8 positions"):
        model(torch.zeros(1, 9, dtype=torch.long))
