"""What a model does, as tensors on the CPU: attention, bias by distance, losses by position.

L layers, H heads, T sequence.
"""

import textwrap
from collections.abc import Sequence

import torch
from torch import Tensor

from poslab.errors import SettingError, require_at_least
from poslab.evaluation import pictures
from poslab.evaluation.losses import sliding_losses
from poslab.model.decoder import GPT
from poslab.nn.bias import dense_bias


def attention_maps(model: GPT, text: str | Sequence[int] | Tensor) -> Tensor:
    """Return the attention weights (L, H, T, T) of a text of T tokens, or of its ids: of each query (row) on each key.

    Raises SettingError for words that the model doesn't know, and for a text longer than it reads.
    """
    return pictures.attention_maps(model, _tokens(model, text))


@torch.no_grad()
def bias_by_distance(model: GPT, length: int | None = None) -> Tensor:
    """Return what each layer and head adds to the score of a key by its distance, (L, H, length), from 0 on.

    length: of the text, by default the context; the query is the last of it, for schemes that know more than distances.
    Where a query sees the future, (L, H, 2 length - 1): distances from 1 - length on. -inf: such a key isn't seen.

    Raises SettingError for a scheme that does something else to scores, or nothing.
    """
    require_at_least(0, length=length)
    count, device = model.shape.context_length if length is None else length, model.token_embedding.weight.device
    if count == 0:
        return torch.zeros(model.shape.num_layers, model.shape.num_heads, 0)
    farthest = count - 1 if model.shape.causal else 2 * count - 2
    query, keys = torch.tensor([count - 1], device=device), torch.arange(farthest, -1, -1, device=device)
    distances, causal = range(count - 1 - farthest, count), model.shape.causal
    tables = model.position.own_tables
    layers = [
        dense_bias(model.pos, tables, model.shape, layer, query, keys, distances, causal=causal)[0, :, 0]
        for layer in range(model.shape.num_layers)
    ]
    return torch.stack(layers).cpu()


def losses_by_position(model: GPT, text: str | Sequence[int] | Tensor, length: int | None = None) -> Tensor:
    """Return the mean loss at each position of windows of `length` tokens side by side, (length,), nats per token.

    length: by default the context. The loss at position 0 is that of the second token of a window, as a model predicts
    the next one. Raises SettingError for a text of less than one window, and for a length that the model can't read.
    """
    require_at_least(1, length=length)
    tokens, count = _tokens(model, text), length or model.shape.context_length
    if len(tokens) <= count:
        raise SettingError("text", f"{len(tokens)} tokens", f"must be more than {count}, the length of a window")
    with model.evaluating():
        return sliding_losses(model, tokens, count, count).by_position


def _tokens(model: GPT, text: str | Sequence[int] | Tensor) -> Tensor:
    if isinstance(text, str):
        named = textwrap.shorten(text, 40, placeholder="...")
        if model.tokenizer is None:
            raise SettingError("text", named, "must be ids: this model has no tokenizer; poslab.load gives one")
        try:
            text = model.tokenizer.encode(text)
        except SettingError as error:  # which has the whole text in its line
            raise SettingError("text", named, error.problem) from None
    tokens = torch.as_tensor(text, dtype=torch.int64)
    if tokens.dim() != 1:
        raise SettingError("text", list(tokens.shape), "must be one text, (T,)")
    return tokens
