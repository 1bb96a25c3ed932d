"""DAPE: any addend of scores under it, its base where the network gives nothing, schemes that add to no score."""

import pytest
import torch
from oracles import assert_is_the_formula

from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.dape import DAPE
from poslab.positions.fire import FIRE
from poslab.positions.forgetting import Forgetting
from poslab.positions.rope import RoPE
from poslab.positions.shaw import Shaw
from poslab.positions.stick_breaking import StickBreaking
from poslab.positions.t5 import T5
from poslab.positions.xpos import XPos

SHAPE = ModelShape(context_length=300, embed_dim=32, num_layers=1, num_heads=2)


@pytest.mark.parametrize("of", [Forgetting(), Forgetting(gate="cable"), Shaw(max_distance=2, values=False), DAPE(T5())])
def test_over_addends_that_depend_on_the_tokens(of: PositionScheme) -> None:
    assert_is_the_formula(DAPE(of=of, width=3))


@pytest.mark.parametrize("of", [FIRE(), Forgetting()])
def test_a_network_without_output_leaves_the_scheme(of: PositionScheme) -> None:
    tables = {name: table.double() for name, table in DAPE(of=of).tables(SHAPE).items()}
    tables |= {name: 0 * tables[name] for name in ("output", "output_bias")}
    q, k, v = torch.randn(3, 1, 2, 300, 16, dtype=torch.float64)
    x = torch.randn(1, 300, 32, dtype=torch.float64)
    found = scheme_attention(DAPE(of=of), tables, q, k, v, x=x)
    own = {name.removeprefix("of_"): table for name, table in tables.items() if name.startswith("of_")}
    assert torch.allclose(found, scheme_attention(of, own, q, k, v, x=x), atol=1e-12)


@pytest.mark.parametrize("of", [RoPE(), XPos(), StickBreaking()])
def test_schemes_that_do_more_than_add_are_refused(of: PositionScheme) -> None:
    name = type(of).__module__.rpartition(".")[2]
    with pytest.raises(SettingError, match=f"^of={name}: "):
        DAPE(of=of).check(SHAPE)
