"""Relative attention as textbooks and other libraries write it, for the scheme that each of them was written for.

These are what poslab is measured against. No new scheme needs anything here.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention import attend
from poslab.benchmark.cases import Run, Shape, case, inputs, scheme_terms
from poslab.positions.shaw import Shaw
from poslab.positions.t5 import T5, relative_position_bucket


def _dense(shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    table = scheme_terms(T5(), shape)[0]["bias"]
    return case(lambda: dense_t5(q, k, v, table), [q, k, v, table], grad)


def _sdpa(shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    tables, terms = scheme_terms(T5(), shape)
    return case(lambda: attend(q, k, v, terms(), backend="sdpa"), [q, k, v, tables["bias"]], grad)


def _textbook(shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    tables, _ = scheme_terms(Shaw(), shape)
    keys, values = tables["keys"], tables["values"]
    return case(lambda: textbook_shaw(q, k, v, keys[0], values[0]), [q, k, v, keys, values], grad)


def _transformers(shape: Shape) -> Run:
    q, _, _, grad = inputs(shape)
    peer = transformers_t5(q)
    return case(peer.forward, [q, *peer.module.parameters()], grad)


def _x_transformers(shape: Shape) -> Run:
    q, k, v, grad = inputs(shape)
    peer = x_transformers_t5(q, k, v)
    return case(peer.forward, [q, k, v, *peer.module.parameters()], grad)


TEXTBOOK = "textbook shaw"
LEFT_OUT = "Textbook Shaw is left out where its (T, T, Dh) tensors would take half of the machine's memory."
RIVALS: dict[str, Callable[[Shape], Run]] = {
    "dense t5": _dense,
    "SDPA, dense t5 bias": _sdpa,
    "transformers T5Attention": _transformers,
    "x-transformers T5 bias": _x_transformers,
    TEXTBOOK: _textbook,
}


def fits(name: str, shape: Shape) -> bool:
    """Whether the tensors (T, T, Dh) of the textbook, their gradients, and what einsum makes of them fit in memory."""
    _, _, length, head_dim = shape
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return name != TEXTBOOK or 6 * 4 * length * length * head_dim < 0.5 * memory


def dense_t5(q: Tensor, k: Tensor, v: Tensor, table: Tensor) -> Tensor:
    """As most code does it: a bias (H, T, T), and the whole matrix of scores."""
    length = q.shape[-2]
    position = torch.arange(length)
    buckets = relative_position_bucket(position - position[:, None], bidirectional=False)
    bias = F.embedding(buckets, table).permute(2, 0, 1)  # (T, T, H) -> (H, T, T)
    scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias
    return scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1) @ v


def textbook_shaw(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Equations 3 and 4 of the paper as written, with a vector per pair of positions (T, T, Dh)."""
    length = q.shape[-2]
    position = torch.arange(length)
    rows = (position[:, None] - position).clamp(0, len(keys) - 1)
    pair_keys, pair_values = F.embedding(rows, keys), F.embedding(rows, values)  # each (T, T, Dh)
    scores = (q @ k.transpose(-2, -1) + torch.einsum("bhid,ijd->bhij", q, pair_keys)) * q.shape[-1] ** -0.5
    weights = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1)
    return weights @ v + torch.einsum("bhij,ijd->bhid", weights, pair_values)


@dataclass
class Peer:
    """Another library's attention: what it learns, and its output (B, H, T, Dh)."""

    module: torch.nn.Module
    forward: Callable[[], Tensor]


def transformers_t5(q: Tensor) -> Peer:
    """T5Attention with its four projections replaced by nothing, so that only attention is left: q = k = v."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    _, heads, length, head_dim = q.shape
    config = T5Config(d_model=heads * head_dim, d_kv=head_dim, num_heads=heads, is_decoder=True, dropout_rate=0.0)
    config._attn_implementation = "sdpa"  # what a T5 model chooses by default
    module = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    for projection in ("q", "k", "v", "o"):
        setattr(module, projection, torch.nn.Identity())
    mask = torch.full((1, 1, length, length), -math.inf).triu(1)

    def forward() -> Tensor:
        out = module(q.transpose(1, 2).flatten(2), mask=mask)[0]  # (B, T, H Dh)
        return out.unflatten(2, (heads, head_dim)).transpose(1, 2)

    return Peer(module, forward)


def x_transformers_t5(q: Tensor, k: Tensor, v: Tensor) -> Peer:
    """Its attention and its T5 bias."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import RelativePositionBias

    _, heads, length, head_dim = q.shape
    bias = RelativePositionBias(scale=head_dim**0.5, causal=True, heads=heads)
    attention = Attend(causal=True, heads=heads)
    return Peer(bias, lambda: attention(q, k, v, attn_bias=bias(length, length))[0])
