"""DeBERTa: against transformers."""

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.positions.deberta import DeBERTa

HEADS, HEAD_DIM = 3, 4


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("length", "max_distance"), [(12, 4), (12, 12), (7, 12), (300, 140)])
def test_equals_transformers(length: int, max_distance: int, causal: bool) -> None:
    library = pytest.importorskip(
        "transformers.models.deberta.modeling_deberta", reason="needs transformers, in the extra 'bench'"
    )
    config = library.DebertaConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        relative_attention=True,
        max_relative_positions=max_distance,
        pos_att_type=["c2p", "p2c"],
    )
    theirs = library.DisentangledSelfAttention(config).double()
    x = torch.randn(2, length, config.hidden_size, dtype=torch.float64)
    distances = torch.randn(2 * max_distance, config.hidden_size, dtype=torch.float64)  # their embedding of them
    seen = torch.ones(2, 1, length, length)
    relative_pos = library.build_relative_position(x, x)
    expected, _ = theirs(x, seen.tril() if causal else seen, relative_pos=relative_pos, rel_embeddings=distances)

    q, k, v = theirs.transpose_for_scores(theirs.in_proj(x)).chunk(3, dim=-1)  # each (B, H, T, Dh)
    projected = {"position_keys": theirs.pos_proj(distances), "position_queries": theirs.pos_q_proj(distances)}
    tables = {name: theirs.transpose_for_scores(table[None]) for name, table in projected.items()}  # (L = 1, H, R, Dh)
    for backend in ("reference", "blockwise"):
        found = scheme_attention(DeBERTa(max_distance), tables, q, k, v, causal=causal, backend=backend)
        # Their square root of 3 Dh is in single precision.
        assert torch.allclose(found.transpose(1, 2).flatten(2), expected, rtol=1e-6, atol=1e-6)
