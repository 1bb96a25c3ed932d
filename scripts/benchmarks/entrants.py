"""Entrants of the benchmarks: poslab with every scheme of configs/pos, and other libraries.

A name begins with that of its library.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measure import device
from benchmarks.settings import SCHEMES
from poslab.attention import BACKENDS, scheme_attention
from poslab.config.schemes import parse_scheme
from poslab.model.decoder import GPT
from poslab.model.mlp import SwiGLU
from poslab.positions import ModelShape

TRANSFORMERS_GPT2, X_TRANSFORMERS_GPT = "transformers GPT-2", "x-transformers"


@dataclass(frozen=True)
class Size:
    """Model and batch sizes; `settings` train the same in a run, with an answer at every position."""

    name: str
    batch: int
    length: int
    layers: int
    embed: int
    vocabulary: int
    settings: tuple[str, ...] = ()
    heads: int = 4


MINI = Size("model=mini, batch 4 x 256", 4, 256, 4, 256, 50257)
GPT2 = Size("model=gpt2, batch 1 x 1,024", 1, 1024, 12, 768, 50257, heads=12)
GPT2_ON_GPU = replace(GPT2, name="model=gpt2, batch 8 x 1,024", batch=8)


# The tensors that attention learns, and its forward pass to the output (B, H, T, Dh).
Attention = tuple[list[Tensor], Callable[[], Tensor]]


def ours(schemes: Sequence[str] = ()) -> dict[str, str]:
    """Return the schemes, or all, by the names of poslab's entrants."""
    return {f"poslab {scheme}": scheme for scheme in schemes or SCHEMES}


def of_libraries(names: Iterable[str], libraries: Sequence[str]) -> list[str]:
    """Return the names that begin with one of the libraries'."""
    return [name for name in names if name.partition(",")[0].split()[0] in libraries]


# Blocks in which poslab's entrants are measured, too, by what follows the scheme in their names.
MODERN: dict[str, Any] = {"norm": nn.RMSNorm, "mlp": SwiGLU, "qk_norm": "rms", "biases": False, "tied": False}
BLOCKS: dict[str, dict[str, Any]] = {
    "": {},
    "modern": MODERN,
    "modern, compiled": MODERN | {"compile": True},
    "modern, 1 key head, compiled": MODERN | {"num_kv_heads": 1, "compile": True},
}
# Setups that only a GPU can have.
ON_GPU: dict[str, dict[str, Any]] = {
    "CUDA graphs": {"compile": "reduce-overhead"},
    "triton, CUDA graphs": {"compile": "reduce-overhead", "attention_backend": "triton"},
}


def poslab_gpt(scheme: str, size: Size, setup: str = "") -> GPT:
    """Return a decoder without dropout, compiled as `model.compile` is by default. setup: its block, or its backend."""
    sizes: Any = {"embed_dim": size.embed, "num_layers": size.layers, "num_heads": size.heads}
    sizes |= {"vocab_size": size.vocabulary, "context_length": size.length, "compile": device().type == "cuda"}
    options = {"attention_backend": setup} if setup in BACKENDS else (BLOCKS | ON_GPU)[setup]
    return GPT(parse_scheme(scheme), dropout=0.0, **sizes | options)


def poslab_attention(scheme: str, backend: str, q: Tensor, k: Tensor, v: Tensor) -> Attention:
    """Return attention of one layer with every hook of the scheme, at positions as in training.

    Raises SettingError for a length that the scheme does not take.
    """
    pos = parse_scheme(scheme)
    batch, heads, length, head_dim = q.shape
    shape = ModelShape(length, heads * head_dim, 1, heads)
    pos.check(shape)
    tables = {name: table.to(q.device).requires_grad_() for name, table in pos.tables(shape).items()}
    x = torch.randn(batch, length, heads * head_dim).to(q.device).requires_grad_()
    positions = pos.sample(shape, length, torch.Generator().manual_seed(0))
    run = partial(scheme_attention, pos, tables, q, k, v, x=x, positions=positions, backend=backend)
    return [x, *tables.values()], run


def transformers_gpt2(size: Size) -> Any:
    """Return a GPT2LMHeadModel without dropout, and without an end-of-text token: untrained, it may choose any."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: Any = {"vocab_size": size.vocabulary, "n_positions": size.length, "n_embd": size.embed}
    sizes |= {"n_layer": size.layers, "n_head": size.heads}
    return GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, eos_token_id=None))


def x_transformers_gpt(size: Size) -> Any:
    """Return a decoder with learned absolute positions and flash attention."""
    from x_transformers import Decoder, TransformerWrapper

    layers = Decoder(dim=size.embed, depth=size.layers, heads=size.heads, attn_flash=True)
    sizes: Any = {"num_tokens": size.vocabulary, "max_seq_len": size.length}
    return TransformerWrapper(**sizes, tie_embedding=True, attn_layers=layers)


def transformers_t5(q: Tensor, k: Tensor, v: Tensor) -> Attention:
    """Return T5Attention without its four projections, so that only attention is left: q serves as k and v,
    unscaled."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    _, heads, length, head_dim = q.shape
    config = T5Config(d_model=heads * head_dim, d_kv=head_dim, num_heads=heads, is_decoder=True, dropout_rate=0.0)
    config._attn_implementation = "sdpa"  # the default of a T5 model
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(q.device)
    for projection in ("q", "k", "v", "o"):
        setattr(module, projection, nn.Identity())
    mask = torch.full((1, 1, length, length), -math.inf, device=q.device).triu(1)

    def forward() -> Tensor:
        out = module(q.transpose(1, 2).flatten(2), mask=mask)[0]  # (B, T, H Dh)
        return out.unflatten(2, (heads, head_dim)).transpose(1, 2)

    return [module.relative_attention_bias.weight], forward


def x_transformers_t5(q: Tensor, k: Tensor, v: Tensor) -> Attention:
    """Return causal attention with the T5 bias of x-transformers."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    _, heads, length, head_dim = q.shape
    bias = RelativePositionBias(scale=head_dim**0.5, causal=True, heads=heads).to(q.device)
    attention = Attend(causal=True, heads=heads)
    return [bias.relative_attention_bias.weight], lambda: attention(q, k, v, attn_bias=bias(length, length))[0]
