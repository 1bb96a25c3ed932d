"""Attention maps: distributions over what may be seen, of a model that is left as it was."""

import pytest
import torch
from common import SCHEMES
from runs_to_evaluate import CONTEXT, lively_model, random_text

from poslab.evaluation.pictures import LEGIBLE, attention_figure, attention_maps


@pytest.mark.parametrize("name", SCHEMES)
def test_attention_maps(name: str) -> None:
    model = lively_model(name, dropout=0.5)
    tokens = random_text(CONTEXT)
    maps = attention_maps(model.train(), tokens.long())
    assert model.training
    assert maps.shape == (2, 2, CONTEXT, CONTEXT)
    total = maps.sum(-1)
    if model.pos.overrides("reference_null"):  # the rest goes to nobody
        assert total.max() < 1 + 1e-6
    else:
        assert torch.allclose(total, torch.ones(2, 2, CONTEXT))
    assert maps.triu(1).abs().max() == 0
    assert torch.equal(attention_maps(model.eval(), tokens.long()), maps)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_an_attention_picture_says_what_it_is_a_mean_of() -> None:
    """And its words are legible where TensorBoard shows it, at two thirds of its size."""
    figure = attention_figure({"t5": torch.rand(2, 2, LEGIBLE, LEGIBLE)}, ["word"] * LEGIBLE)
    assert figure.get_suptitle() == "attention, mean over layers and heads"
    assert {label.get_fontsize() for axes in figure.axes[:1] for label in axes.get_yticklabels()} == {9}
