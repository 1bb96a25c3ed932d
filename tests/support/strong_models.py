"""Decoders whose weights are large enough for position to matter, of poslab's schemes and of foreign ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from common import SCHEMES, make_scheme, moved
from foreign_schemes import Abacus, Fractional, Gated, Mixed, Stretched, TurnedByTokens
from torch import Tensor

from poslab import GPT
from poslab.attention import PositionIds
from poslab.positions import PositionScheme
from poslab.positions.rope import RoPE

VOCAB, CONTEXT = 61, 40
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "context_length": CONTEXT,
    "embed_dim": 24,
    "num_layers": 3,
    "num_heads": 2,
}


OTHERS = {
    "abacus": Abacus,
    "fractional": Fractional,
    "gated": Gated,
    "mixed": Mixed,
    "none": PositionScheme,
    "rotary": RoPE,
    "stretched": Stretched,
    "turned": TurnedByTokens,
}
# Foreign schemes that do what none of poslab's own does.
NAMES = [*SCHEMES, "abacus", "fractional", "gated", "mixed", "stretched", "turned"]


def strong_model(scheme: str | PositionScheme, kind: type[GPT] = GPT, **sizes: Any) -> Any:
    """Weights large enough for position to matter."""
    torch.manual_seed(0)
    if isinstance(scheme, str):
        scheme = OTHERS[scheme]() if scheme in OTHERS else make_scheme(scheme)
    return moved(kind(scheme, **({"dropout": 0.0} | SIZES | sizes)), 0.2).eval()


def some_tokens(*shape: int) -> Tensor:
    return torch.randint(VOCAB, shape)


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def with_window(model: GPT, tokens: Tensor, window: int, positions: Tensor | None = None) -> Tensor:
    """Compute the full pass in which a query sees the last `window` keys, by the definition, layer by layer."""
    at = torch.arange(tokens.shape[1]) if positions is None else positions
    position_ids = PositionIds(at, irregular=positions is not None)
    x = model.embedded(tokens, position_ids)
    layers = model.position.layers(position_ids)
    for block, layer in zip(model.blocks, layers, strict=True):
        entering = layer.mix(block.attention_norm(x))
        q, k, v = block.attention.queries_keys_values(entering)
        q, k, token_state = layer.apply_hooks(q, k, entering)
        rows = []
        for i in range(tokens.shape[1]):
            seen = slice(max(0, i + 1 - window), i + 1)
            query = dataclasses.replace(layer, position_ids=dataclasses.replace(position_ids, positions=at[i : i + 1]))
            seen_marks = None if token_state is None else token_state[:, :, seen]
            keys = dataclasses.replace(position_ids, positions=at[seen])
            rows.append(
                query.over_keys(
                    q[:, :, i : i + 1], k[:, :, seen], v[:, :, seen], seen_marks, keys, offset=i - seen.start
                )
            )
        x = x + block.attention.project(torch.cat(rows, dim=2).transpose(1, 2).flatten(-2))
        x = x + block.mlp(block.mlp_norm(x))
    return model.final_norm(x) @ model.token_embedding.weight.T
