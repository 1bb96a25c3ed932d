"""Architectures of transformers whose decoder, positions apart, computes what poslab's does: names and layouts.

    gpt2        GPT-2; linear maps are stored as (inputs, outputs)
    gpt_neox    GPT-NeoX with its blocks one after the other; the rows of query, key and value are mixed head by head

Axes: D embedding, H heads, Dh head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from poslab.model.decoder import GPT
from poslab.model.mlp import GELU
from poslab.positions import HFEquivalent, ModelShape

_PARTS = ("weight", "bias")


@dataclass(frozen=True)
class Architecture:
    """One architecture: its class, the name there of each part of poslab's model, and its configuration.

    stems: poslab's name of a part -> that in transformers, without ".weight" and ".bias"; {} stands for the layer.
    layout: of a tensor by poslab's name, from poslab's to that of transformers.
    """

    model_type: str
    class_name: str
    stems: Mapping[str, str]
    layout: Callable[[str, Tensor, ModelShape], Tensor]
    config: Callable[[ModelShape, int], dict[str, Any]]

    def names(self, shape: ModelShape) -> dict[str, str]:
        """Map poslab's name of every weight but those of the scheme to its name in transformers."""
        stems = {
            here.format(layer): there.format(layer)
            for here, there in self.stems.items()
            for layer in (range(shape.num_layers) if "{}" in here else [0])
        }
        return {
            f"{here}.{part}": f"{there}.{part}"
            for here, there in stems.items()
            for part in (_PARTS[:1] if here == "token_embedding" else _PARTS)
        }


def hf_equivalent(model: GPT) -> HFEquivalent | None:
    """Return the scheme's equivalent in transformers. The hook isn't inherited: a derived scheme differs."""
    if "hf_equivalent" not in vars(type(model.pos)) or not (model.shape.causal and _has_gpt2s_block(model)):
        return None
    return model.pos.hf_equivalent(dict(model.position_tables.named_parameters()), model.shape)


def _has_gpt2s_block(model: GPT) -> bool:
    norm, mlp = model.final_norm, model.blocks[0].mlp
    alike = isinstance(norm, nn.LayerNorm) and norm.eps == 1e-5 and type(mlp) is GELU and model.window is None
    own = {name: tuple(x.shape) for name, x in model.named_parameters() if not name.startswith("position_tables.")}
    width = 4 * model.shape.embed_dim
    return alike and own.keys() == GPT2.names(model.shape).keys() and own["blocks.0.mlp.expand.weight"][0] == width


def transposed(name: str, tensor: Tensor, shape: ModelShape) -> Tensor:
    """GPT-2's layout; its own inverse."""
    is_linear = name.startswith("blocks.") and tensor.dim() == 2
    return tensor.T if is_linear else tensor


def _by_head(name: str, tensor: Tensor, shape: ModelShape) -> Tensor:
    """Rows of query, then key, then value, each head after head -> head after head, each with its query, key, value."""
    if ".query_key_value." not in name:
        return tensor
    return tensor.unflatten(0, (3, shape.num_heads, shape.head_dim)).transpose(0, 1).flatten(0, 2)


GPT2 = Architecture(
    "gpt2",
    "GPT2LMHeadModel",
    {
        "token_embedding": "transformer.wte",
        "blocks.{}.attention_norm": "transformer.h.{}.ln_1",
        "blocks.{}.attention.query_key_value": "transformer.h.{}.attn.c_attn",
        "blocks.{}.attention.project": "transformer.h.{}.attn.c_proj",
        "blocks.{}.mlp_norm": "transformer.h.{}.ln_2",
        "blocks.{}.mlp.expand": "transformer.h.{}.mlp.c_fc",
        "blocks.{}.mlp.project": "transformer.h.{}.mlp.c_proj",
        "final_norm": "transformer.ln_f",
    },
    transposed,
    lambda shape, vocabulary_size: {
        "vocab_size": vocabulary_size,
        "n_positions": shape.context_length,
        "n_embd": shape.embed_dim,
        "n_layer": shape.num_layers,
        "n_head": shape.num_heads,
        "activation_function": "gelu_new",
    },
)

GPT_NEOX = Architecture(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    {
        "token_embedding": "gpt_neox.embed_in",
        "blocks.{}.attention_norm": "gpt_neox.layers.{}.input_layernorm",
        "blocks.{}.attention.query_key_value": "gpt_neox.layers.{}.attention.query_key_value",
        "blocks.{}.attention.project": "gpt_neox.layers.{}.attention.dense",
        "blocks.{}.mlp_norm": "gpt_neox.layers.{}.post_attention_layernorm",
        "blocks.{}.mlp.expand": "gpt_neox.layers.{}.mlp.dense_h_to_4h",
        "blocks.{}.mlp.project": "gpt_neox.layers.{}.mlp.dense_4h_to_h",
        "final_norm": "gpt_neox.final_layer_norm",
    },
    _by_head,
    lambda shape, vocabulary_size: {
        "vocab_size": vocabulary_size,
        "max_position_embeddings": shape.context_length,
        "hidden_size": shape.embed_dim,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "intermediate_size": 4 * shape.embed_dim,
        "hidden_act": "gelu_new",
        "use_parallel_residual": False,
    },
)

ARCHITECTURES = {architecture.model_type: architecture for architecture in (GPT2, GPT_NEOX)}
