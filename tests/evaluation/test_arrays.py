"""What a model does, as tensors: attention, the bias by distance, losses by position."""

import pytest
import torch
from common import SOUND, make_scheme
from refusals import refused
from runs_to_evaluate import CONTEXT, VOCAB, lively_model, random_text
from torch.nn import functional as F

import poslab
from poslab.data.tokenizer import Symbols
from poslab.errors import SettingError
from poslab.nn.bias import beyond_a_bias
from poslab.positions import ScoreTile


@pytest.mark.parametrize("name", SOUND)
def test_a_bias_by_distance(name: str) -> None:
    """It is what the last query's scores are more than products of queries and keys, where a scheme is a bias."""
    model = lively_model(name)
    terms = model.relative_terms(CONTEXT)
    nothing = not (model.pos.overrides("relative") or model.pos.overrides("score_mod"))
    if nothing or beyond_a_bias(model.pos, *terms):
        with pytest.raises(SettingError, match=r"^bias=\w+: "):
            poslab.bias_by_distance(model)
        return
    found = poslab.bias_by_distance(model)
    assert (found.shape, found.requires_grad) == ((2, 2, CONTEXT), False)
    query, keys = torch.full((1, 1, 1, 1), CONTEXT - 1), torch.arange(CONTEXT).view(1, 1, 1, -1)
    seen, nowhere = torch.ones(1, 1, 1, CONTEXT, dtype=torch.bool), torch.zeros(1, 2, CONTEXT, model.shape.head_dim)
    for layer, of_layer in enumerate(terms):
        expected = torch.zeros(1, 2, 1, CONTEXT)
        if of_layer is not None and of_layer.bias is not None:
            expected = expected + of_layer.dense_bias(1, CONTEXT)
        if model.pos.overrides("score_mod"):
            at = torch.tensor([CONTEXT - 1])
            tile = ScoreTile(expected, nowhere[:, :, :1], nowhere, None, query, keys, seen, 1.0, True, at)
            expected = model.pos.score_mod(model.position.own_tables, layer, tile)
        window = CONTEXT if of_layer is None else of_layer.window or CONTEXT
        assert torch.allclose(found[layer, :, :window], expected[0, :, 0].flip(-1)[:, :window].detach(), atol=1e-6)
        assert (found[layer, :, window:] == -torch.inf).all()


def test_a_bias_to_both_sides() -> None:
    model = poslab.GPT(
        make_scheme("t5"), vocab_size=2, context_length=5, embed_dim=8, num_layers=1, num_heads=2, causal=False
    )
    found = poslab.bias_by_distance(model, 5)
    terms = model.relative_terms(5)[0]
    assert torch.allclose(found[0], terms.bias[:, terms.rows_of(torch.arange(-4, 5))].detach())


def test_losses_by_position() -> None:
    model, text = lively_model("alibi"), random_text(4 * 10 + 6).long()
    windows = text[:40].view(4, 10), text[1:41].view(4, 10)
    expected = F.cross_entropy(model.eval()(windows[0]).flatten(0, 1), windows[1].flatten(), reduction="none")
    for given in (text, text.tolist()):
        found = poslab.losses_by_position(model.train(), given, length=10)
        assert model.training
        assert torch.allclose(found, expected.view(4, 10).mean(0).double(), atol=1e-6)
    assert poslab.losses_by_position(model, torch.randint(VOCAB, (CONTEXT + 1,))).shape == (CONTEXT,)


def test_maps_of_ids_and_what_is_refused() -> None:
    model = lively_model("t5")
    assert poslab.attention_maps(model, [1, 2, 3]).shape == (2, 2, 3, 3)
    assert poslab.attention_maps(model, []).shape == (2, 2, 0, 0)
    assert poslab.bias_by_distance(model, 0).shape == (2, 2, 0)
    with refused("length", "0", "1"):
        poslab.losses_by_position(model, [1, 2, 3], length=0)
    for text, problem in (
        ("words", "text=words: must be ids: this model has no tokenizer"),
        (torch.zeros(2, 3), r"text=\[2,3\]: must be one text"),
    ):
        with pytest.raises(SettingError, match=f"^{problem}"):
            poslab.attention_maps(model, text)
    model.tokenizer = Symbols(("a", "b"))
    assert torch.equal(poslab.attention_maps(model, "a b a"), poslab.attention_maps(model, [0, 1, 0]))
    with pytest.raises(SettingError, match=r"^text=a (a ){17}a\.\.\.: .*\bc\b"):
        poslab.attention_maps(model, "a " * 100 + "c")
    with refused("text", "10 tokens", "10"):
        poslab.losses_by_position(model, [1] * 10, length=10)
