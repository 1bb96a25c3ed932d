"""Decoders of transformers that compute what poslab's does, by model_type: the block that each has, and the names of
its weights and settings (conversion.py says what they mean).

    gpt2        GPT-2; linear maps are stored as (inputs, outputs)
    gpt_neox    GPT-NeoX with its blocks one after the other; the rows of query, key and value are mixed head by head
    llama       Llama; query, key and value, and the two halves of the first map of the MLP, are matrices of their own
    qwen3       Qwen3: as Llama, with normalised queries and keys
"""

from collections.abc import Mapping

from torch import Tensor

from poslab.model.conversion import Architecture
from poslab.model.decoder import GPT
from poslab.positions import HFEquivalent


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
