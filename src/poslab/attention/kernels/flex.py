"""Attention by torch's flex_attention, which makes one kernel of all that is added to a score.

On CUDA it computes biases by distance, products with tables of keys and queries, a bias of keys, windows and texts of
unequal length, in memory linear in the length. It needs torch.compile there. On a CPU torch has only its forward pass,
dense as long as it isn't compiled. Tables of values, null scores, dropout and the hook `score_mod` are left to the
other kernels.

Compiled, in bfloat16, with a learned bias it takes 0.80 times the time of a mask at 1,024 tokens and 0.38 times at
4,096, with one that isn't learned 1.01 and 0.95 times (H200, torch 2.11).

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, R rows of a table; b, h, i, j one of each: what is added to
one score.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from poslab.attention.blocks import BLOCK
from poslab.attention.kernels.near_tables import key_bias, largest_bias
from poslab.attention.reference import AttentionSpec, without_autocast
from poslab.processors import compiled, compiler_reason, shared_memory

Addend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # of (b, h, i, j)
_LEAST = 16  # numbers of a head, in torch's kernels
# What is looked up for a tile is in shared memory once for each stage. With torch's own sizes for 16 bits on an H100,
# three stages of 128 queries and 128 keys, there is no room for it.
_LARGER = 128 if shared_memory() > 2**17 else 64
_TILES: Any = {"fwd_BLOCK_M": _LARGER, "fwd_BLOCK_N": 64, "fwd_num_stages": 2, "bwd_num_stages": 2}
_TILES |= {"bwd_BLOCK_M1": 64, "bwd_BLOCK_N1": _LARGER, "bwd_BLOCK_M2": _LARGER, "bwd_BLOCK_N2": 64}


def flex_spec_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh); zeros where no key is seen."""
    added = _addends(q, k, spec)

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        for addend in added:
            score = score + addend(b, h, i, j).to(score.dtype)
        return score

    q, k, wide_v = (F.pad(x, (0, max(0, _LEAST - x.shape[-1]))).to(v.dtype) for x in (q, k, v))
    compiles = q.device.type == "cuda" and not torch.compiler.is_compiling()
    kernel: Any = _compiled() if compiles else flex_attention
    sizes = spec.causal, spec.offset, spec.window, q.shape[-2], k.shape[-2], q.device
    # All layers and steps share a mask without first keys; a compiler finds by itself what is computed twice.
    make_mask = _kept_mask if spec.first_key is None and not torch.compiler.is_compiling() else _make_mask
    seen = make_mask(*sizes, spec.first_key)
    # Few queries go to another of torch's kernels.
    options = _TILES if added and v.dtype.itemsize == 2 and q.shape[-2] >= BLOCK else None
    out: Tensor = kernel(q, k, wide_v, score_mod if added else None, seen, scale=spec.scale, kernel_options=options)
    return out[..., : v.shape[-1]]


@cache
def _compiled() -> Callable[..., Tensor]:
    return compiled(flex_attention)


@cache
@torch.inference_mode(False)
@torch.enable_grad()
def flex_problem(device: str) -> str | None:
    """Say why torch makes no kernels of flex_attention, forward and backward, for cuda; None: a trial has made some."""
    try:
        x, bias = (torch.ones(size, device=device, requires_grad=True) for size in ((1, 1, BLOCK, 64), BLOCK))
        _compiled()(x, x, x, lambda score, b, h, i, j: score + bias[j]).sum().backward()
    except (RuntimeError, OSError) as error:
        return compiler_reason(error)
    return None


def _addends(q: Tensor, k: Tensor, spec: AttentionSpec) -> list[Addend]:
    """Return what is added to the scores beside the products of queries and keys."""
    terms, dtype = spec.terms, torch.promote_types(q.dtype, torch.float32)
    added: list[Addend] = []
    query_length, key_length = q.shape[-2], k.shape[-2]
    with without_autocast(q.device):
        of_keys, largest_of_keys = key_bias(spec, q, k)  # (B H, Tk), (B H, Tq, 1)
        if of_keys is not None and spec.key_bias is not None and largest_of_keys is not None:
            of_key = of_keys.unflatten(0, q.shape[:2]).to(dtype)
            largest = largest_of_keys.unflatten(0, q.shape[:2])[..., 0].to(dtype)
            added.append(lambda b, h, i, j: of_key[b, h, j] - largest[b, h, i])
    if terms is None:
        return added
    lowest, highest, offset = terms.lowest, terms.highest, spec.offset

    def row(i: Tensor, j: Tensor) -> Tensor:
        return (i + offset - j).clamp(lowest, highest) - lowest

    if terms.bias is not None:
        # One number per distance: the gradient of few rows would be added up by all pairs in the same places.
        distance = torch.arange(offset - key_length + 1, offset + query_length, device=q.device)
        bias = terms.bias.to(dtype)[:, terms.rows_of(distance)]  # (H, Tq + Tk - 1)
        largest_by_query = largest_bias(spec, query_length, key_length).to(dtype)  # (H, Tq)
        added.append(lambda b, h, i, j: bias[h, i - j + (key_length - 1)] - largest_by_query[h, i])
    if terms.keys is not None:
        of_query = (q * spec.scale) @ terms.keys.to(q.dtype).mT  # (B, H, Tq, R): q_i . keys[r]
        added.append(lambda b, h, i, j: of_query[b, h, i, row(i, j)])
    if terms.queries is not None:
        by_key = k @ (terms.queries * spec.scale).to(k.dtype).mT  # (B, H, Tk, R): queries[r] . k_j
        added.append(lambda b, h, i, j: by_key[b, h, j, row(i, j)])
    return added


def _make_mask(
    causal: bool,
    offset: int,
    window: int | None,
    query_length: int,
    key_length: int,
    device: torch.device,
    first_key: Tensor | None,
) -> BlockMask | None:
    """Return which keys are seen, by blocks, so that those that none of a block's queries sees are left out."""

    def seen(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        distance = i + offset - j
        pairs = distance >= 0 if causal else j >= 0
        if window is not None:
            pairs = pairs & (distance < window) & (distance > -window)
        return pairs if first_key is None else pairs & (j >= first_key[b])

    if not causal and window is None and first_key is None:
        return None
    batch = None if first_key is None else len(first_key)
    return create_block_mask(seen, batch, None, query_length, key_length, device)


# Made in inference mode, as in a validation, it could have no part in a training.
_kept_mask = lru_cache(maxsize=16)(torch.inference_mode(False)(_make_mask))
