"""One entry to attention for every scheme, and the choice of the backend behind it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.banded import banded_attention
from poslab.attention.blocks import BLOCK
from poslab.attention.blockwise import blockwise_attention
from poslab.attention.reference import reference_attention, visible
from poslab.errors import SettingError, require_one_of
from poslab.positions.base import BACKENDS, RelativeTerms


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

    causal: a query sees the keys at its own position and before; a query that sees none gets zeros. A key whose bias
        is -inf isn't seen either.
    offset: position of the first query minus position of the first key.
    scale: factor of the query-key products, 1 / sqrt(Dh) by default; the bias is added after it.
    dropout_p: the probability of dropping an attention weight, the same for every scheme; 0 outside training.
    window: a query sees at most so many keys, its own and those right before it.
    first_key: (B,), the first key of each row that is seen at all, where texts of unequal length end together.
    backend: one of BACKENDS. "reference" is dense and meant to be read, "blockwise" takes memory linear in the length,
        "sdpa" is torch's scaled_dot_product_attention, for attention without terms. A window that hides keys, and
        first_key, are for generation: only the reference knows them, and only for causal attention.

    Returns (B, H, Tq, Dh). Raises SettingError for a backend that is unknown or can't compute this.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if window is not None and window >= offset + q.shape[-2]:
        window = None  # no key is so far away
    hides = window is not None or first_key is not None
    if hides and (backend not in ("auto", "reference") or not causal):
        raise SettingError("backend", backend, "only causal attention of the reference has a window or a first key")
    if backend == "auto":
        fastest = choose_backend(terms, q.shape[-2], dropout_p=dropout_p, device=q.device)
        backend = "reference" if hides else fastest
    check_backend(backend, terms)
    if backend == "sdpa":
        mask, is_causal = _sdpa_mask(q.shape[-2], k.shape[-2], causal, offset, q.device)
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)
    if backend == "blockwise":
        square = causal and offset == 0 and q.shape[-2] == k.shape[-2]
        if terms is not None and square and dropout_p == 0 and _band_pays(terms, q):
            return banded_attention(q, k, v, terms, scale=scale)
        return blockwise_attention(q, k, v, terms, causal=causal, offset=offset, scale=scale, dropout_p=dropout_p)
    return reference_attention(
        q,
        k,
        v,
        terms,
        causal=causal,
        offset=offset,
        scale=scale,
        dropout_p=dropout_p,
        window=window,
        first_key=first_key,
    )


def check_backend(backend: str, terms: RelativeTerms | None, option: str = "backend") -> None:
    """Raises SettingError, under the name `option`, for a backend that is unknown or can't compute these terms."""
    require_one_of(BACKENDS, **{option: backend})
    if backend == "sdpa" and terms is not None:
        raise SettingError(option, backend, "can't compute relative terms; valid: auto, reference, blockwise")


def choose_backend(terms: RelativeTerms | None, query_length: int, *, dropout_p: float, device: torch.device) -> str:
    """The backend that "auto" stands for, from timings on two cores.

    scaled_dot_product_attention has a fast kernel for training only where there are no terms and, on a CPU, no dropout.
    Everything else goes to the other two, which draw the same dropout masks for all schemes, so that schemes are
    compared under equal dropout: blocks of queries save time and memory, but with fewer queries than fill one block
    the reference is faster.
    """
    if terms is None and (dropout_p == 0 or device.type != "cpu"):
        return "sdpa"
    return "reference" if query_length < BLOCK else "blockwise"


def _band_pays(terms: RelativeTerms, q: Tensor) -> bool:
    """Whether `banded` is faster than blocks, and can compute this; by timings on two cores."""
    length = q.shape[-2]
    return q.device.type == "cpu" and terms.lowest <= 0 < terms.highest and length >= max(1024, 16 * terms.highest)


def _sdpa_mask(
    query_length: int, key_length: int, causal: bool, offset: int, device: torch.device
) -> tuple[Tensor | None, bool]:
    """(attn_mask, is_causal) for scaled_dot_product_attention, whose own causal mask is that of offset 0."""
    if not causal or offset >= key_length - 1:
        return None, False
    if offset == 0:
        return None, True
    return visible(query_length, key_length, offset, device), False
