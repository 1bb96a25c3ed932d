"""Attention of a model on a text, layer by layer: its weights, and the pairs that its scheme sees."""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from poslab.attention import SchemeLayer
from poslab.model.block import Attention
from poslab.model.decoder import GPT
from poslab.positions import ScoreTile

LEGIBLE = 20  # tokens: of more, a picture can't show the words

Found = TypeVar("Found")


def attention_maps(model: GPT, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the attention weights (L, H, T, T) of a text of tokens (T,): each layer's and head's weights of query
    (row) on key (column), without dropout.

    positions (T,): where the tokens stand, if not at 0, 1, 2, ...
    """
    found = _of_layers(model, tokens, positions, SchemeLayer.weights)
    return torch.stack([weights[0].float().cpu() for weights in found])  # (1, H, T, T) of each layer


def sample_pairs(model: GPT, tokens: Tensor, positions: Tensor | None = None) -> list[ScoreTile]:
    """Return all pairs of a text in each layer, for `PositionScheme.explain`; the arguments are those of
    `attention_maps`."""
    return _of_layers(model, tokens, positions, SchemeLayer.tile)


@torch.no_grad()
def _of_layers(
    model: GPT,
    tokens: Tensor,
    positions: Tensor | None,
    look: Callable[[SchemeLayer, Tensor, Tensor, Tensor | None], Found],
) -> list[Found]:
    """Call `look` with the queries, keys and marks of each layer, (1, H, T, ...), as the model reads a text."""
    found: list[Found] = []

    def record(attention: nn.Module, inputs: tuple) -> None:  # type: ignore[type-arg]
        assert isinstance(attention, Attention)
        x, layer, *_ = inputs
        q, k, _ = attention.queries_keys_values(x)
        found.append(look(layer, *layer.enter(q, k, x)))

    hooks = [part.register_forward_pre_hook(record) for part in model.modules() if isinstance(part, Attention)]
    was_training = model.training
    model.eval()
    try:
        with model.drawing(0):
            model.hidden(
                tokens[None].to(model.token_embedding.weight.device),
                positions=None if positions is None else positions[None],
            )
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return found
