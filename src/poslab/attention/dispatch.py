"""Entry to attention for every scheme; `choice.py` chooses the backend behind it.

A kernel is imported where it is chosen, so that a decoder loads those that it needs.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, E numbers of a token's state.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from poslab.attention.choice import TAKES, check_backend, choose_backend, large_sizes
from poslab.attention.documents import Documents, checked_documents
from poslab.attention.reference import (
    AttentionSpec,
    Pairwise,
    for_queries,
    reference_attention,
    without_autocast,
)
from poslab.errors import SettingError
from poslab.positions.base import RelativeTerms


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: RelativeTerms | None = None,
    *,
    causal: bool = True,
    offset: int = 0,
    scale: float | None = None,
    dropout_p: float = 0.0,
    window: int | None = None,
    first_key: Tensor | None = None,
    key_bias: Tensor | None = None,
    pairwise: Pairwise | None = None,
    documents: Tensor | None = None,
    cached: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, Hkv, Tk, Dh) with relative terms, (B, H, Tq, Dh).

    k, v: a head of theirs serves H / Hkv heads of q, one after the other.
    causal: a query sees the keys at its own position and before; a query that sees none gets zeros. A key whose bias
        is -inf isn't seen either.
    offset: position of the first query minus position of the first key.
    scale: factor of the query-key products, 1 / sqrt(Dh) by default; the bias is added after it.
    dropout_p: the probability of dropping an attention weight, the same for every scheme; 0 outside training.
    window: a query sees at most so many keys, its own and those right before it; where it sees the future, as many
        after it. The terms may have one, too.
    first_key: (B,), the first key of each row that is seen at all, where texts of unequal length end together.
    key_bias: (B, H, Tk), added to every score of a key.
    pairwise: positions and token states of a scheme, and its function of a tile of scores.
    documents: (B, Tk) whole numbers that never fall along a row: a query sees the keys of its own document alone, with
        every backend, and each document gets what it gets alone. The queries stand at the last keys.
    cached: k and v are those of a text so far, and q of its end; no gradient is needed.
    backend: one of BACKENDS. "reference" is dense and meant to be read, "blockwise" takes memory linear in the length,
        "sdpa" is torch's scaled_dot_product_attention, for no position or a bias by distance, "flex" torch's
        flex_attention, "banded" a flash kernel with a band of near keys, "columns" one with a bias of keys as further
        channels, "triton" poslab's own kernels for CUDA; `TAKES` in choice.py has what each can compute. For a part of
        a text the last three are "blockwise", and without tables "sdpa".

    Raises SettingError for a backend that is unknown or can't compute this.
    """
    if not 0 <= dropout_p < 1:
        raise SettingError("dropout_p", dropout_p, "must be at least 0 and below 1")
    if 0 in (q.shape[0], q.shape[-2], k.shape[-2]):
        k, v = for_queries(q, k, v)
        return (q.to(v.dtype) @ k.to(v.dtype).mT) @ v  # sums over nothing, of which gradients are 0
    if documents is not None and not torch.compiler.is_compiling():  # a graph can't depend on where documents begin
        if pairwise is not None:
            raise SettingError("documents", "[...]", "can't be given with `pairwise`, whose positions are of one text")
        settings: dict[str, Any] = {"causal": causal, "scale": scale, "dropout_p": dropout_p, "window": window}
        settings |= {"cached": cached, "backend": backend}
        return _attend_in_documents(q, k, v, terms, documents, offset, first_key, key_bias, **settings)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if scale <= 0 and pairwise is None:  # no scale of torch's kernels, nor of bounds on scores: the sign goes to q
        sign = -1.0 if scale < 0 else 0.0
        q, scale = q * sign, abs(scale) or 1.0
        if terms is not None and terms.queries is not None:  # which are multiplied by keys
            terms = replace(terms, queries=terms.queries * sign)

    # What of the window and the terms matters at these distances.
    farthest = offset + q.shape[-2] - 1
    farthest = farthest if causal else max(farthest, k.shape[-2] - 1 - offset)
    windows = [window, None if terms is None else terms.window]
    # A program that is exported has no limit of its lengths by which a window would hide nothing.
    exports = torch.compiler.is_exporting()
    hiding = [size for size in windows if size is not None and (exports or size <= farthest)]
    window = min(hiding) if hiding else None  # no default of min(), because torch.compile knows none
    null = None if terms is None else terms.null
    terms = terms if terms is not None and terms.tables else None
    if terms is not None and terms.linear and farthest > terms.highest:  # from where on the bias is one number
        terms = replace(terms, linear=False)
    spec = AttentionSpec(terms, causal, offset, scale, window, first_key, key_bias, pairwise, null, documents)

    if cached and backend == "auto" and _is_decoding(spec, q.shape[-2], k.shape[-2]):
        from poslab.attention.kernels.decode import decode_attention

        k, v = for_queries(q, k, v)
        return decode_attention(q, k, v, spec)

    # The backend.
    whole = offset == 0 and q.shape[-2] == k.shape[-2]
    parts = spec.parts | large_sizes(q.shape[-2], q.shape[1], q.shape[-1])
    if not causal:
        parts = parts | {"later keys"}
    if not whole:
        parts = parts | {"cached keys"}
    if documents is not None:  # in a compiled graph, in which only these two have a mask for them
        backend = "sdpa" if parts <= TAKES["sdpa"] else "reference"
    elif backend == "auto":
        may_flex = not cached and q.dtype != torch.float64
        backend = choose_backend(parts, q.shape[-2], dropout_p, q.device, may_flex, v.dtype).name
    else:
        check_backend(backend, parts, dropout_p)
    if backend in ("banded", "columns", "triton") and (not whole or spec.parts <= {"window"}):
        backend = "sdpa" if spec.parts <= {"window"} else "blockwise"
    if backend == "triton":
        from poslab.attention.kernels.near_far import near_far_attention

        return near_far_attention(q, k, v, spec)
    k, v = for_queries(q, k, v)
    if backend == "sdpa":
        from poslab.attention.kernels.sdpa import sdpa_attention

        return sdpa_attention(q, k, v, spec, dropout_p=dropout_p)
    if backend == "flex":
        from poslab.attention.kernels.flex import flex_spec_attention

        return flex_spec_attention(q, k, v, spec)
    if backend == "columns":
        from poslab.attention.kernels.columns import columns_attention

        return columns_attention(q, k, v, spec)
    if backend == "banded":
        from poslab.attention.kernels.banded import banded_attention

        return banded_attention(q, k, v, spec)
    if backend == "blockwise" and pairwise is None:
        from poslab.attention.kernels.blockwise import blockwise_attention

        return blockwise_attention(q, k, v, spec, dropout_p=dropout_p)
    if backend == "reference" and pairwise is None and key_bias is None:
        return reference_attention(q, k, v, spec, dropout_p=dropout_p)
    kernel = reference_attention
    if backend != "reference":
        from poslab.attention.kernels.pairwise import pairwise_attention as kernel
    # Sums along the text and logarithms of positions are noise in 16 bits.
    dtype = torch.promote_types(q.dtype, torch.float32)
    with without_autocast(q.device):
        out = kernel(q.to(dtype), k.to(dtype), v.to(dtype), spec, dropout_p=dropout_p)
    return out.to(v.dtype)


def _attend_in_documents(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: RelativeTerms | None,
    documents: Tensor,
    offset: int,
    first_key: Tensor | None,
    key_bias: Tensor | None,
    **settings: Any,
) -> Tensor:
    """Attend within each document, as `attend` does within a text. settings: its other arguments."""
    last = k.shape[-2] - q.shape[-2]
    if offset != last:
        raise SettingError("offset", offset, f"must be {last} with documents: the queries stand at the last keys")
    checked = checked_documents(documents, k[:, 0, :, 0])
    assert checked is not None  # as there are keys
    apart = Documents(checked, q.shape[-2])

    def attend_batch(index: int, q: Tensor, k: Tensor, v: Tensor, key_bias: Tensor | None) -> Tensor:
        first = apart.batches[index].first_key(first_key)
        bias = None if key_bias is None else key_bias[..., 0]
        return attend(q, k, v, terms, offset=k.shape[-2] - q.shape[-2], first_key=first, key_bias=bias, **settings)

    return apart.apart(attend_batch, q, k, v, None if key_bias is None else key_bias[..., None])


def _is_decoding(spec: AttentionSpec, query_length: int, key_length: int) -> bool:
    """Return whether `decode_attention` can compute this: tables by distance alone, no key hidden but by a bias."""
    terms = spec.terms
    others = (spec.window, spec.first_key, spec.key_bias, spec.pairwise, spec.null, spec.documents)
    if terms is None or terms.queries is not None or terms.lowest > 0 or any(other is not None for other in others):
        return False
    return query_length == 1 and spec.offset == key_length - 1 and terms.highest >= 0
