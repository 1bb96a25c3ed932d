"""GPT-2 and Llama of transformers with attention by any position scheme, as the page of poslab.nn sets it into them."""

import re
from typing import Any

import transformers
from common import REPOSITORY, SOUND, make_scheme, moved, python_in
from torch import Tensor, nn

from poslab.nn import Attention, Position
from poslab.positions import PositionScheme

V, D, H, L = 50, 32, 4, 2
ATTENTION_ALONE = [name for name in SOUND if not any(map(make_scheme(name).overrides, ("token_state", "mix")))]
SIZES = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0, "attn_implementation": "attend"}


# As the page switches off that of a Llama.
(NO_ROTATION,) = re.findall(r"`(nn\.init\.[^`]*rotary_emb[^`]*)`", (REPOSITORY / "src/poslab/nn/README.md").read_text())


def register() -> None:
    """Register attention as the page does."""
    (block,) = (block for block in python_in("src/poslab/nn/README.md") if "AttentionInterface.register" in block)
    exec(block, {})


class NoRotation(nn.Module):
    """Rotary embedding that turns nothing."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        size = *position_ids.shape, D // H
        return x.new_ones(size), x.new_zeros(size)


def gpt2(scheme: PositionScheme) -> Any:
    config = transformers.GPT2Config(vocab_size=V, n_positions=64, n_embd=D, n_layer=L, n_head=H, **SIZES)
    model = transformers.GPT2LMHeadModel(config)
    nn.init.zeros_(model.transformer.wpe.weight).requires_grad_(False)
    return with_scheme(model, [block.attn for block in model.transformer.h], scheme)


def llama(scheme: PositionScheme) -> Any:
    sizes = {"vocab_size": V, "hidden_size": D, "intermediate_size": 48, "num_hidden_layers": L}
    heads = {"num_attention_heads": H, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads, **SIZES))
    exec(NO_ROTATION, {"nn": nn, "llama": model})
    return with_scheme(model, [layer.self_attn for layer in model.model.layers], scheme)


def with_scheme(model: Any, attentions: list[Any], scheme: PositionScheme) -> Any:
    wpe = dict(model.named_parameters()).get("transformer.wpe.weight")
    moved(model, 0.15)
    if wpe is not None:
        nn.init.zeros_(wpe)
    for layer, attention in enumerate(attentions):
        position = moved(Position(scheme, heads=H, head_dim=D // H, layers=L, context_length=64), 0.3)
        attention.attend = OfLayer(position, layer)
    return model.eval()


class OfLayer(Attention):
    """Attention of one layer of a pattern over layers."""

    def __init__(self, position: Position, layer: int) -> None:
        super().__init__(position)
        self.number = layer

    def forward(self, *qkv: Tensor, **settings: Any) -> Tensor:
        return super().forward(*qkv, **settings, layer=self.number)
