"""One entry to attention for every scheme, and the choice of the backend behind it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.banded import banded_attention
from poslab.attention.blocks import BLOCK
from poslab.attention.blockwise import blockwise_attention
from poslab.attention.flex import flex_problem, flex_terms_attention
from poslab.attention.reference import reference_attention, visible
from poslab.errors import SettingError, one_of
from poslab.positions import RelativeTerms

BACKENDS = ("auto", "reference", "sdpa", "blockwise", "flex")


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
    backend: str = "auto",
) -> Tensor:
    """Attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), with what `terms` knows of position.

    causal: a query sees the keys at its own position and before; a query that sees none gets zeros.
    offset: position of the first query minus position of the first key.
    scale: factor of the query-key products, 1 / sqrt(Dh) by default; the bias is added after it.
    dropout_p: the probability of dropping an attention weight, the same for every scheme; 0 outside training.
    window: a query sees at most so many keys, its own and those right before it.
    first_key: (B,), the first key of each row that is seen at all, where texts of unequal length end together.
    backend: one of BACKENDS. "reference" is dense and meant to be read, "blockwise" takes memory linear in the length,
        "sdpa" is torch's scaled_dot_product_attention, which knows no relative keys and values, "flex" torch's
        FlexAttention, which trains on a GPU only and has no dropout. A window that hides keys, and first_key, are for
        generation: only the reference knows them, and only for causal attention.

    Returns (B, H, Tq, Dh). Raises SettingError for a backend that is unknown or can't compute this.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if window is not None and window >= offset + q.shape[-2]:
        window = None  # no key is so far away
    if window is not None or first_key is not None:
        if backend not in ("auto", "reference") or not causal:
            raise SettingError("backend", backend, "only causal attention of the reference has a window or a first key")
        return reference_attention(
            q,
            k,
            v,
            terms,
            causal=True,
            offset=offset,
            scale=scale,
            dropout_p=dropout_p,
            window=window,
            first_key=first_key,
        )
    if backend == "auto":
        backend = choose_backend(terms, q.shape[-2], dropout_p=dropout_p, device=q.device)
    check_backend(backend, terms, causal=causal, dropout_p=dropout_p)
    if backend == "reference":
        return reference_attention(q, k, v, terms, causal=causal, offset=offset, scale=scale, dropout_p=dropout_p)
    if backend == "blockwise":
        square = causal and offset == 0 and q.shape[-2] == k.shape[-2]
        if terms is not None and square and dropout_p == 0 and _band_pays(terms, q):
            return banded_attention(q, k, v, terms, scale=scale)
        return blockwise_attention(q, k, v, terms, causal=causal, offset=offset, scale=scale, dropout_p=dropout_p)
    if backend == "flex":
        return flex_terms_attention(q, k, v, terms, causal=causal, offset=offset, scale=scale)
    mask, is_causal = _sdpa_mask(q, k, terms, causal, offset)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)


def check_backend(
    backend: str, terms: RelativeTerms | None, *, causal: bool, dropout_p: float, option: str = "backend"
) -> None:
    """Raises SettingError, under the name `option`, for a backend that is unknown or can't compute this."""
    one_of(BACKENDS, **{option: backend})
    if backend == "sdpa" and terms is not None and (terms.keys is not None or terms.values is not None):
        problem = "can't compute relative keys or values; valid: auto, reference, blockwise, flex"
        raise SettingError(option, backend, problem)
    reason = flex_problem(terms, causal=causal, dropout_p=dropout_p) if backend == "flex" else None
    if reason is not None:
        raise SettingError(option, backend, f"{reason}; valid: auto, reference, blockwise")


def choose_backend(terms: RelativeTerms | None, query_length: int, *, dropout_p: float, device: torch.device) -> str:
    """What "auto" means, from timings on two cores.

    scaled_dot_product_attention trains with a fast kernel only where there are no terms and, on a CPU, no dropout; the
    gradient of a bias sends it through a dense path. There the other two compute every scheme, and draw the same
    dropout masks for all, so that schemes are compared under equal dropout. Queries that fill no block leave nothing
    to skip, and the reference has the smaller overhead. "flex" is never chosen: no GPU has been measured yet.
    """
    if terms is None and (dropout_p == 0 or device.type != "cpu"):
        return "sdpa"
    return "reference" if query_length < BLOCK else "blockwise"


def _band_pays(terms: RelativeTerms, q: Tensor) -> bool:
    """Whether flash attention for all keys beyond a band is faster than blocks; by timings on two cores."""
    length = q.shape[-2]
    return q.device.type == "cpu" and terms.lowest <= 0 < terms.highest and length >= max(1024, 16 * terms.highest)


def _sdpa_mask(
    q: Tensor, k: Tensor, terms: RelativeTerms | None, causal: bool, offset: int
) -> tuple[Tensor | None, bool]:
    """(attn_mask, is_causal) for scaled_dot_product_attention; its own causal mask is the one of offset 0."""
    query_length, key_length = q.shape[-2], k.shape[-2]
    if terms is not None and terms.bias is not None:
        bias = terms.dense_bias(query_length, key_length, offset).to(q.dtype)  # (1, H, Tq, Tk)
        if causal:
            bias = bias.masked_fill(~visible(query_length, key_length, offset, q.device), float("-inf"))
        return bias, False
    if not causal or offset >= key_length - 1:
        return None, False
    if offset == 0:
        return None, True
    return visible(query_length, key_length, offset, q.device), False
