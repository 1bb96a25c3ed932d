"""Decoders of transformers that compute what poslab's does, by model_type: names and layouts of their weights, their
configuration, and the settings of the block that they have.

    gpt2        GPT-2; linear maps are stored as (inputs, outputs)
    gpt_neox    GPT-NeoX with its blocks one after the other; the rows of query, key and value are mixed head by head
    llama       Llama; query, key and value, and the two halves of the first map of the MLP, are matrices of their own
    qwen3       Qwen3: as Llama, with normalised queries and keys

Axes: D embedding, H heads, Dh head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from poslab.model.block import Block
from poslab.model.decoder import GPT
from poslab.model.mlp import GELU, SwiGLU
from poslab.positions import HFEquivalent

Settings = dict[str, Any]
_NORMS, _MLPS = {nn.LayerNorm: "layer", nn.RMSNorm: "rms"}, {GELU: "gelu", SwiGLU: "swiglu"}
_QK_NORM_EPS = 1e-6  # that of `poslab.model.block.HeadNorm`


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    positions: the model_type of the HFEquivalents that it can hold. prefix: of the names of all weights but the
    head's, which some files leave out. parts: poslab's name of a part -> those in transformers whose rows it has, one
    after the other, without ".weight" and ".bias"; {} stands for the layer. block: the settings, as `settings_of`
    returns them, that it has always. names: those of sizes in its configuration, by the settings that they are.
    fixed: what else a configuration may say, with the one value that poslab's decoder has. defaults: transformers' own
    of all these and of tie_word_embeddings, by their names there; None: made of others. layout: of a tensor by poslab's
    name, to transformers and back. aliases: other names by which transformers reads a size.
    """

    model_type: str
    class_name: str
    positions: str
    prefix: str
    parts: Mapping[str, tuple[str, ...]]
    block: Mapping[str, Any]
    names: Mapping[str, str]
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]
    layout: Callable[[str, Tensor, GPT, bool], Tensor] = lambda name, tensor, model, back: tensor
    aliases: Mapping[str, str] = field(default_factory=dict)

    def computes(self, model: GPT) -> bool:
        """Return whether it has this model's block."""
        own = settings_of(model)
        alike = all(own[name] == value for name, value in self.block.items())
        usual = {"num_kv_heads": own["num_heads"], "head_dim": own["embed_dim"] // own["num_heads"]}
        return alike and all(name in self.names or own[name] == value for name, value in usual.items())

    def config(self, model: GPT, vocab_size: int) -> Settings:
        """Return the configuration of this model, positions apart."""
        own = settings_of(model)
        sizes = {there: own[here] for here, there in self.names.items()}
        return {"vocab_size": vocab_size, **sizes, **self.fixed, "tie_word_embeddings": own["tied"]}

    def settings(self, config: Mapping[str, Any]) -> Settings:
        """Return the settings that a model of this configuration has, as `settings_of`; what it leaves out is as
        transformers has it. Raises ValueError where poslab has none such, and for what is no size."""
        config = {self.aliases.get(name, name): value for name, value in config.items()}
        said = dict(self.defaults) | {name: config[name] for name in self.defaults if config.get(name) is not None}
        for name, value in self.fixed.items():
            if said[name] != value:
                raise ValueError(f"its {name} is {said[name]}, and only {value} is poslab's decoder")
        if not config.get("is_causal", True):
            raise ValueError("its is_causal is false, and poslab's decoder begins with causal weights alone")
        if config.get("quantization_config"):
            raise ValueError("its weights are quantized, by its quantization_config")
        sizes: Settings = {here: said[there] for here, there in self.names.items()}
        for here, value in sizes.items():
            least, kind = (0, int | float) if here == "norm_eps" else (1, int)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not value >= least):
                raise ValueError(f"its {self.names[here]} is {value!r}, which is no size")
        sizes["num_kv_heads"] = sizes.get("num_kv_heads") or sizes["num_heads"]
        sizes["mlp_width"] = sizes["mlp_width"] or 4 * sizes["embed_dim"]
        sizes["head_dim"] = sizes.get("head_dim") or sizes["embed_dim"] // sizes["num_heads"]
        if self.block["qk_norm"] == "rms" and sizes["norm_eps"] != _QK_NORM_EPS:
            raise ValueError(f"its rms_norm_eps is {sizes['norm_eps']}, and only {_QK_NORM_EPS} is poslab's decoder")
        return {**self.block, **sizes, "tied": said["tie_word_embeddings"]}

    def theirs(self, model: GPT) -> dict[str, tuple[str, ...]]:
        """Map poslab's name of every weight but those of the scheme to the names in transformers."""
        names_there = {}
        for name, _ in model.named_parameters():
            if name.startswith("position_tables."):
                continue
            stem, _, suffix = name.rpartition(".")
            layer = ""
            if stem.startswith("blocks."):
                _, layer, rest = stem.split(".", 2)
                stem = f"blocks.{{}}.{rest}"
            names_there[name] = tuple(f"{there.format(layer)}.{suffix}" for there in self.parts[stem])
        return names_there

    def to_transformers(self, model: GPT) -> dict[str, Tensor]:
        """Return the weights by their names there."""
        weights: dict[str, Tensor] = {}
        own = model.state_dict()
        for here, there in self.theirs(model).items():
            whole = self.layout(here, own[here], model, False)
            pieces = whole.split(_rows(whole, model, len(there))) if len(there) > 1 else [whole]
            weights |= dict(zip(there, pieces, strict=True))
        return weights

    def to_poslab(self, weights: Mapping[str, Tensor], model: GPT) -> dict[str, Tensor]:
        """Return poslab's weights, positions apart, of those in a file. Raises ValueError for one that is missing."""
        kept = (self.prefix, "lm_head.", "embed_out.")
        named = {name if name.startswith(kept) else self.prefix + name: weight for name, weight in weights.items()}
        ours = {}
        for here, there in self.theirs(model).items():
            if missing := [name for name in there if name not in named]:
                raise ValueError(f"has no {missing[0]}")
            ours[here] = self.layout(here, torch.cat([named[name] for name in there]), model, True)
        return ours


def settings_of(model: GPT) -> Settings:
    """Return sizes of a decoder and the settings of its block that an architecture decides."""
    shape, block = model.shape, model.blocks[0]
    assert isinstance(block, Block)
    norm, mlp = model.final_norm, block.mlp
    return {
        "context_length": shape.context_length,
        "embed_dim": shape.embed_dim,
        "num_layers": shape.num_layers,
        "num_heads": shape.num_heads,
        "head_dim": shape.head_dim,
        "num_kv_heads": block.attention.num_kv_heads,
        "norm": _NORMS.get(type(norm)),
        "norm_eps": getattr(norm, "eps", None),
        "mlp": _MLPS.get(type(mlp)),
        "mlp_width": mlp.project.in_features if isinstance(mlp, GELU | SwiGLU) else None,
        "qk_norm": model.form.qk_norm,
        "gate": model.form.gate,
        "biases": block.attention.project.bias is not None,
        "window": model.position.window,
        "tied": model.head is None,
    }


def settings_as_typed(settings: Mapping[str, Any], embed_dim: int) -> list[str]:
    """Return some settings of `settings_of` as one would type them."""
    others = {"norm": "model/norm", "norm_eps": "model.norm.eps", "mlp": "model/mlp", "mlp_width": "model.mlp.factor"}
    lines = []
    for name, value in settings.items():
        value = value / embed_dim if name == "mlp_width" else value
        shown = str(value).lower() if isinstance(value, bool) else "null" if value is None else f"{value}"
        lines.append(f"{others.get(name, f'model.{name}')}={shown}")
    return lines


def hf_equivalent(model: GPT) -> tuple[Architecture, HFEquivalent] | None:
    """Return the architecture that computes this model, and what the scheme puts into it; None: there is none. The hook
    isn't inherited: a derived scheme differs."""
    if "hf_equivalent" not in vars(type(model.pos)) or not model.shape.causal:
        return None
    form = model.pos.hf_equivalent(dict(model.position_tables.named_parameters()), model.shape)
    fitting = (a for a in ARCHITECTURES.values() if form and a.positions == form.model_type and a.computes(model))
    architecture = next(fitting, None)
    if architecture is None or form is None:
        return None
    turned = form.settings.get("rope_parameters", {}).get("partial_rotary_factor", 1)
    return None if architecture in (LLAMA, QWEN3) and turned != 1 else (architecture, form)


def tables_of(model: GPT, architecture: Architecture, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the scheme's tables that such weights have as well, by the names of the model's parameters."""
    equivalent = hf_equivalent(model)
    if equivalent is None or equivalent[1].model_type != architecture.positions:
        return {}
    kept = {}
    for there, ours in equivalent[1].weights.items():
        theirs = weights.get(there, weights.get(there.removeprefix(architecture.prefix)))
        for name, table in model.position_tables.named_parameters(prefix="position_tables"):
            if table is ours and theirs is not None:
                kept[name] = theirs
    return kept


def _rows(whole: Tensor, model: GPT, pieces: int) -> list[int]:
    """Return how many rows each part of a tensor has: query, key and value, or the halves of the MLP's first map."""
    if pieces == 2:
        return [len(whole) // 2] * 2
    query_rows = model.shape.attention_dim
    return [query_rows, *[(len(whole) - query_rows) // 2] * 2]


def _transposed(name: str, tensor: Tensor, model: GPT, back: bool) -> Tensor:
    return tensor.T if name.startswith("blocks.") and tensor.dim() == 2 else tensor


def _by_head(name: str, tensor: Tensor, model: GPT, back: bool) -> Tensor:
    """Rows of query, then key, then value, each head after head -> head after head, each with its query, key, value."""
    if ".query_key_value." not in name:
        return tensor
    axes = (model.shape.num_heads, 3) if back else (3, model.shape.num_heads)
    return tensor.unflatten(0, (*axes, model.shape.head_dim)).transpose(0, 1).flatten(0, 2)


_GPT2S_BLOCK = {
    "norm": "layer", "mlp": "gelu", "qk_norm": "none", "gate": "none", "biases": True, "window": None,
}  # fmt: skip
_LLAMAS_BLOCK = _GPT2S_BLOCK | {"norm": "rms", "mlp": "swiglu", "biases": False}
_LLAMAS_PARTS = {
    "token_embedding": ("model.embed_tokens",),
    "blocks.{}.attention_norm": ("model.layers.{}.input_layernorm",),
    "blocks.{}.attention.query_key_value": tuple(f"model.layers.{{}}.self_attn.{part}_proj" for part in "qkv"),
    "blocks.{}.attention.query_norm": ("model.layers.{}.self_attn.q_norm",),
    "blocks.{}.attention.key_norm": ("model.layers.{}.self_attn.k_norm",),
    "blocks.{}.attention.project": ("model.layers.{}.self_attn.o_proj",),
    "blocks.{}.mlp_norm": ("model.layers.{}.post_attention_layernorm",),
    "blocks.{}.mlp.expand": ("model.layers.{}.mlp.gate_proj", "model.layers.{}.mlp.up_proj"),
    "blocks.{}.mlp.project": ("model.layers.{}.mlp.down_proj",),
    "final_norm": ("model.norm",),
    "head": ("lm_head",),
}
_LLAMAS_NAMES = {
    "context_length": "max_position_embeddings",
    "embed_dim": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "head_dim": "head_dim",
    "num_kv_heads": "num_key_value_heads",
    "mlp_width": "intermediate_size",
    "norm_eps": "rms_norm_eps",
}
_LLAMAS_FIXED = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "use_sliding_window": False}
# What a configuration leaves out, as transformers 5 has it.
_GPT2S_DEFAULTS = {
    "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None, "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new", "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False, "add_cross_attention": False, "tie_word_embeddings": True,
}  # fmt: skip
_NEOXS_DEFAULTS = {
    "max_position_embeddings": 2048, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
    "intermediate_size": 24576, "layer_norm_eps": 1e-5, "hidden_act": "gelu", "use_parallel_residual": True,
    "attention_bias": True, "tie_word_embeddings": False,
}  # fmt: skip
_LLAMAS_DEFAULTS = _LLAMAS_FIXED | {
    "max_position_embeddings": 2048, "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "head_dim": None, "num_key_value_heads": None, "intermediate_size": 11008, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}  # fmt: skip
_QWENS_DEFAULTS = _LLAMAS_DEFAULTS | {
    "max_position_embeddings": 32768, "intermediate_size": 22016, "head_dim": 128, "num_key_value_heads": 32,
}  # fmt: skip

GPT2 = Architecture(
    "gpt2",
    "GPT2LMHeadModel",
    "gpt2",
    "transformer.",
    {
        "token_embedding": ("transformer.wte",),
        "blocks.{}.attention_norm": ("transformer.h.{}.ln_1",),
        "blocks.{}.attention.query_key_value": ("transformer.h.{}.attn.c_attn",),
        "blocks.{}.attention.project": ("transformer.h.{}.attn.c_proj",),
        "blocks.{}.mlp_norm": ("transformer.h.{}.ln_2",),
        "blocks.{}.mlp.expand": ("transformer.h.{}.mlp.c_fc",),
        "blocks.{}.mlp.project": ("transformer.h.{}.mlp.c_proj",),
        "final_norm": ("transformer.ln_f",),
        "head": ("lm_head",),
    },
    _GPT2S_BLOCK,
    {
        "context_length": "n_positions",
        "embed_dim": "n_embd",
        "num_layers": "n_layer",
        "num_heads": "n_head",
        "mlp_width": "n_inner",
        "norm_eps": "layer_norm_epsilon",
    },
    {
        "activation_function": "gelu_new",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False,
        "add_cross_attention": False,
    },
    _GPT2S_DEFAULTS,
    _transposed,
    {
        "max_position_embeddings": "n_positions",
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
    },
)
GPT_NEOX = Architecture(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    "gpt_neox",
    "gpt_neox.",
    {
        "token_embedding": ("gpt_neox.embed_in",),
        "blocks.{}.attention_norm": ("gpt_neox.layers.{}.input_layernorm",),
        "blocks.{}.attention.query_key_value": ("gpt_neox.layers.{}.attention.query_key_value",),
        "blocks.{}.attention.project": ("gpt_neox.layers.{}.attention.dense",),
        "blocks.{}.mlp_norm": ("gpt_neox.layers.{}.post_attention_layernorm",),
        "blocks.{}.mlp.expand": ("gpt_neox.layers.{}.mlp.dense_h_to_4h",),
        "blocks.{}.mlp.project": ("gpt_neox.layers.{}.mlp.dense_4h_to_h",),
        "final_norm": ("gpt_neox.final_layer_norm",),
        "head": ("embed_out",),
    },
    _GPT2S_BLOCK,
    {
        "context_length": "max_position_embeddings",
        "embed_dim": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "mlp_width": "intermediate_size",
        "norm_eps": "layer_norm_eps",
    },
    {"hidden_act": "gelu_new", "use_parallel_residual": False, "attention_bias": True},
    _NEOXS_DEFAULTS,
    _by_head,
)
LLAMA = Architecture(
    "llama", "LlamaForCausalLM", "gpt_neox", "model.", _LLAMAS_PARTS, _LLAMAS_BLOCK, _LLAMAS_NAMES, _LLAMAS_FIXED,
    _LLAMAS_DEFAULTS,
)  # fmt: skip
QWEN3 = Architecture(
    "qwen3", "Qwen3ForCausalLM", "gpt_neox", "model.", _LLAMAS_PARTS, _LLAMAS_BLOCK | {"qk_norm": "rms"},
    _LLAMAS_NAMES, _LLAMAS_FIXED,
    _QWENS_DEFAULTS,
)  # fmt: skip
ARCHITECTURES = {architecture.model_type: architecture for architecture in (GPT2, GPT_NEOX, LLAMA, QWEN3)}
