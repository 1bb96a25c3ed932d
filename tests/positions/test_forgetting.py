"""Forgetting Transformer: x-transformers, its two definitions, gates that are open, long texts."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from poslab import GPT
from poslab.attention import attend, scheme_attention
from poslab.evaluation.pictures import sample_pairs
from poslab.positions import ModelShape
from poslab.positions.forgetting import Forgetting


@dataclass(frozen=True)
class ByPairs(Forgetting):
    """Forgetting by `score_mod`, without a bias of keys."""

    def key_bias(self, tables: object, shape: object, layer: int, token_state: Tensor) -> None:
        return None


def some_text(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    q, k, v = torch.randn(3, 2, 2, length, 8, dtype=dtype)
    return q, k, v, torch.randn(2, length, 16, dtype=dtype)


def some_tables(strength: float = 0.5) -> dict[str, Tensor]:
    """Tables of one layer with two heads of 8."""
    return {"gate": strength * torch.randn(1, 2, 16).double(), "bias": 2 + torch.randn(1, 2).double()}


def test_equals_x_transformers() -> None:
    library = pytest.importorskip("x_transformers.x_transformers", reason="needs x-transformers, in the extra 'bench'")
    tables, (q, k, v, x) = some_tables(), some_text(30)
    gates = library.DataDependentAlibi(16, 2).double()
    linear = gates.to_forget_gates[0]
    linear.load_state_dict({"weight": tables["gate"][0], "bias": tables["bias"][0]})
    hidden = torch.ones(30, 30, dtype=torch.bool).triu(1)
    scores = (q @ k.mT / 8**0.5 + gates(x)).masked_fill(hidden, -torch.inf)
    found = scheme_attention(Forgetting(), tables, q, k, v, x=x)
    assert torch.allclose(found, scores.softmax(-1) @ v, atol=1e-12)


@pytest.mark.parametrize("scheme", [Forgetting(), ByPairs()], ids=["fast", "by pairs"])
def test_far_along_the_text_digits_remain(scheme: Forgetting) -> None:
    """The sums are at 10,000, of which float32 knows three decimals, when the gates open."""
    (q, k, v, x), tables = some_text(400), some_tables(strength=0.0)
    x[..., 0] = torch.where(torch.arange(400) < 350, -1.0, 1.0)
    tables["gate"][..., 0], tables["bias"][:] = 28, 0
    single = {name: table.float() for name, table in tables.items()}
    found = scheme_attention(scheme, single, *(part.float() for part in (q, k, v)), x=x.float())
    total = torch.nn.functional.logsigmoid(28 * x[0, :, 0]).cumsum(-1)
    expected = attend(q, k, v, key_bias=-total.expand(2, 2, -1), backend="reference")
    assert (found - expected)[:, :, 350:].abs().max() < 1e-5


def test_gates_begin_where_they_are_told_to() -> None:
    shape = ModelShape(32, 64, 3, 4)
    tables = Forgetting(init_bias=5.0).tables(shape)
    assert (tables["bias"] == 5).all()
    assert tables["gate"].shape == (3, 4, 64)
    assert 0.015 < tables["gate"].std() < 0.025


def test_what_is_left_of_each_token_is_the_product_of_later_gates() -> None:
    model = GPT(Forgetting(), vocab_size=11, context_length=9, embed_dim=16, num_layers=2, num_heads=2, dropout=0.0)
    found = model.position.explanations(sample_pairs(model, torch.randint(11, (9,))))
    gates, left = found["gates"].values, found["left"].values  # (L, H, T)
    expected = [gates[..., t + 1 :].prod(-1) for t in range(9)]
    assert torch.allclose(left, torch.stack(expected, -1))
