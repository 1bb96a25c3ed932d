"""Canon layers: torch's convolution, and what mixes twice."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab import GPT
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.canon import Canon
from poslab.positions.combined import Combined
from poslab.positions.rope import RoPE

SIZES = {"vocab_size": 61, "context_length": 40, "embed_dim": 24, "num_layers": 3, "num_heads": 2, "dropout": 0.0}


def mixed(scheme: PositionScheme, tables: dict[str, Tensor], x: Tensor) -> Tensor:
    return scheme.mix(tables, 1, F.pad(x, (0, 0, scheme.mixed_tokens - 1, 0)))


@pytest.mark.parametrize("tokens", [2, 4, 7])
def test_it_is_a_residual_causal_depthwise_convolution(tokens: int) -> None:
    scheme, x = Canon(tokens=tokens), torch.randn(2, 9, 24, dtype=torch.float64)
    tables = {name: table.double() for name, table in scheme.tables(ModelShape(40, 24, 3, 2)).items()}
    convolution = nn.Conv1d(24, 24, tokens, groups=24, bias=False, padding=tokens - 1).double()
    assert tables["canon"].abs().max() <= tokens**-0.5
    convolution.weight.data = tables["canon"][1].flip(0).T[:, None]  # its last number is the token's own
    expected = x + convolution(x.mT)[..., : x.shape[1]].mT
    assert torch.allclose(mixed(scheme, tables, x), expected, atol=1e-12)


def test_two_that_mix_reach_as_far_as_both() -> None:
    first, second = Canon(tokens=3), Canon(tokens=2)
    pair = Combined(first, Combined(RoPE(), second))
    tables = pair.tables(ModelShape(40, 24, 3, 2))
    assert pair.mixed_tokens == 4
    x = torch.randn(2, 9, 24)
    of_first, of_second = {"canon": tables["first_canon"]}, {"canon": tables["second_second_canon"]}
    assert torch.allclose(mixed(pair, tables, x), mixed(second, of_second, mixed(first, of_first, x)), atol=1e-6)
    model, tokens = GPT(pair, **SIZES).eval(), torch.randint(61, (2, 20))
    cache = model.new_cache()
    by_cache = torch.cat([model(part, cache) for part in tokens.split([1, 1, 5, 13], dim=1)], dim=1)
    assert torch.allclose(by_cache, model(tokens), atol=1e-5)
