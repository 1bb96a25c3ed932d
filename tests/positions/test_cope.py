"""Contextual position encoding: x-transformers, tables that say nothing, what counts as a gate."""

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.positions import ModelShape
from poslab.positions.combined import Combined
from poslab.positions.cope import CoPE
from poslab.positions.sink import Sink
from poslab.positions.t5 import T5


@pytest.mark.parametrize("max_positions", [4, 16, 200])
def test_equals_x_transformers(max_positions: int) -> None:
    library = pytest.importorskip("x_transformers.x_transformers", reason="needs x-transformers, in the extra 'bench'")
    cope = library.CoPE(8, 2, max_positions).double()
    torch.nn.init.normal_(cope.pos_emb)
    q, k, v = torch.randn(3, 2, 2, 140, 8, dtype=torch.float64)
    scores = (q @ k.mT / 8**0.5).masked_fill(torch.ones(140, 140, dtype=torch.bool).triu(1), -torch.inf)
    expected = (scores + cope(q, scores)).softmax(-1) @ v
    found = scheme_attention(CoPE(max_positions), {"position": cope.pos_emb[None]}, q, k, v)
    assert torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("closed", [0.0, 5.0])
def test_far_keys_count_where_gates_are_closed(closed: float) -> None:
    """Blocks look back as far as positions differ: the dense formula looks at all keys."""
    q, k, v = torch.randn(3, 2, 2, 300, 8, dtype=torch.float64)
    q[..., 0], k[..., 0] = closed, -closed
    tables = {"position": torch.randn(1, 5, 8).double()}
    blocks, dense = (
        scheme_attention(CoPE(5), tables, q, k, v, backend=backend) for backend in ("blockwise", "reference")
    )
    assert torch.allclose(blocks, dense, atol=1e-12)


def test_gates_are_of_whole_scores_beside_a_bias() -> None:
    """Of the largest bias attention takes nothing off beside a null score; here one without weight."""
    scheme = Combined(T5(8, 20), CoPE(5))
    shape = ModelShape(context_length=30, embed_dim=16, num_layers=1, num_heads=2)
    tables = {name: torch.randn_like(table).double() for name, table in scheme.tables(shape).items()}
    q, k, v = torch.randn(3, 2, 2, 30, 8, dtype=torch.float64)
    alone = scheme_attention(scheme, tables, q, k, v)
    weightless = dict.fromkeys(["sink"], torch.full((1, 2), -1e4, dtype=torch.float64))
    assert Sink(scheme).tables(shape).keys() == tables.keys() | weightless.keys()
    assert torch.allclose(scheme_attention(Sink(scheme), tables | weightless, q, k, v), alone, atol=1e-12)
