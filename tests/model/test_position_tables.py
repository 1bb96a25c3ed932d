"""A decoder's tables have one owner: its parameters are what its scheme computes with, whatever becomes of it."""

import copy

import pytest
import torch
from strong_models import SIZES, some_tokens, strong_model

from poslab import GPT


@pytest.mark.parametrize("name", ["t5", "shaw", "absolute", "mixed"])
@torch.no_grad()
def test_they_stay_what_a_scheme_computes_with(name: str) -> None:
    """In a copy, converted, and with weights that are assigned to an empty model."""
    model, tokens = strong_model(name), some_tokens(2, 9)
    expected = model(tokens)
    with torch.device("meta"):
        empty = GPT(model.pos, **SIZES, dropout=0.0).eval()
    empty.load_state_dict(model.state_dict(), assign=True)
    for other in (copy.deepcopy(model), copy.deepcopy(model).double(), empty):
        parameters, tables = dict(other.named_parameters()), other.position.own_tables
        names = {f"position_tables.{table}" for table in tables}
        assert {key for key in other.state_dict() if "position" in key} == names
        assert all(parameters[f"position_tables.{table}"] is owned for table, owned in tables.items())
        torch.testing.assert_close(other(tokens).float(), expected)
        for table in tables.values():
            table.copy_(torch.randn_like(table))  # of empty, the model's own
        assert not torch.allclose(other(tokens).float(), expected, atol=1e-3)
