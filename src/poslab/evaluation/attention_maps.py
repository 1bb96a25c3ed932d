"""Attention maps: a model's attention weights on a text."""

import torch
from torch import Tensor, nn

from poslab.model import GPT, Attention

LEGIBLE = 20  # tokens: of more, a picture can't show the words


@torch.no_grad()
def attention_maps(model: GPT, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """tokens (T,) -> (L, H, T, T): each layer's and head's weights of query (row) on key (column), without dropout.

    positions (T,): where the tokens stand, if not at 0, 1, 2, ...
    """
    maps: list[Tensor] = []

    def record(attention: nn.Module, inputs: tuple) -> None:  # type: ignore[type-arg]
        assert isinstance(attention, Attention)
        x, layer, *_ = inputs
        q, k, _ = attention.queries_keys_values(x)
        q, k, marks = layer.enter(q, k, x)
        weights = layer.weights(q, k, marks)
        maps.append(weights[0].float().cpu())  # (1, H, T, T) -> (H, T, T)

    hooks = [part.register_forward_pre_hook(record) for part in model.modules() if isinstance(part, Attention)]
    was_training = model.training
    model.eval()
    try:
        model.hidden(
            tokens[None].to(model.token_embedding.weight.device),
            positions=None if positions is None else positions[None],
        )
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return torch.stack(maps)
