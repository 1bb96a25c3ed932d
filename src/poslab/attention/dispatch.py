"""Entry to attention for every scheme, and the choice of the backend behind it.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension, E numbers of a token's state.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.blocks import BLOCK
from poslab.attention.kernels.blockwise import blockwise_attention
from poslab.attention.kernels.decode import decode_attention, is_decoding
from poslab.attention.kernels.pairwise import pairwise_attention
from poslab.attention.reference import AttentionSpec, Pairwise, reference_attention, without_autocast
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
    key_bias: Tensor | None = None,
    pairwise: Pairwise | None = None,
    cached: bool = False,
    backend: str = "auto",
) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh) with relative terms, (B, H, Tq, Dh).

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
    cached: k and v are those of a text so far, and q of its end; no gradient is needed.
    backend: one of BACKENDS. "reference" is dense and meant to be read, "blockwise" takes memory linear in the length,
        "sdpa" is torch's scaled_dot_product_attention, for attention without position.

    Raises SettingError for a backend that is unknown or can't compute this.
    """
    if not 0 <= dropout_p < 1:
        raise SettingError("dropout_p", dropout_p, "must be at least 0 and below 1")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    window = _hiding_window((window, None if terms is None else terms.window), q.shape[-2], k.shape[-2], offset, causal)
    null = None if terms is None else terms.null
    terms = terms if terms is not None and terms.tables else None
    spec = AttentionSpec(terms, causal, offset, scale, window, first_key, key_bias, pairwise, null)
    if cached and backend == "auto" and is_decoding(spec, q.shape[-2], k.shape[-2]):
        return decode_attention(q, k, v, spec)
    if backend == "auto":
        backend = choose_backend(spec.plain, q.shape[-2], dropout_p=dropout_p, device=q.device)
    else:
        check_backend(backend, spec.plain)
    if backend == "sdpa":
        mask, is_causal = _sdpa_mask(q.shape[-2], k.shape[-2], spec, q.device)
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)
    if backend == "blockwise" and pairwise is None:
        return blockwise_attention(q, k, v, spec, dropout_p=dropout_p)
    if backend == "reference" and pairwise is None and key_bias is None:
        return reference_attention(q, k, v, spec, dropout_p=dropout_p)
    # Sums along the text and logarithms of positions are noise in 16 bits.
    dtype = torch.promote_types(q.dtype, torch.float32)
    kernel = reference_attention if backend == "reference" else pairwise_attention
    with without_autocast(q.device):
        out = kernel(q.to(dtype), k.to(dtype), v.to(dtype), spec, dropout_p=dropout_p)
    return out.to(v.dtype)


def check_backend(backend: str, plain: bool, option: str = "backend") -> None:
    """Raise SettingError, under the name `option`, for a backend that is unknown or can't compute this attention.

    plain: True for attention without position.
    """
    require_one_of(BACKENDS, **{option: backend})
    if backend == "sdpa" and not plain:
        raise SettingError(option, backend, "can't compute relative terms; valid: auto, reference, blockwise")


def choose_backend(plain: bool, query_length: int, *, dropout_p: float, device: torch.device) -> str:
    """Return the backend that "auto" stands for, from timings on two cores; plain: attention without position.

    scaled_dot_product_attention has a fast kernel for training only where there are no terms and, on a CPU, no dropout.
    Everything else goes to the other two, which draw the same dropout masks for all schemes, so that schemes are
    compared under equal dropout: blocks of queries save time and memory, but with fewer queries than fill one block
    the reference is faster.
    """
    if plain and (dropout_p == 0 or device.type != "cpu"):
        return "sdpa"
    return "reference" if query_length < BLOCK else "blockwise"


def _hiding_window(
    windows: tuple[int | None, ...], query_length: int, key_length: int, offset: int, causal: bool
) -> int | None:
    """Return the smallest window that hides a key, or None."""
    farthest = offset + query_length - 1 if causal else max(offset + query_length - 1, key_length - 1 - offset)
    hiding = [window for window in windows if window is not None and window <= farthest]
    return min(hiding) if hiding else None


def _sdpa_mask(
    query_length: int, key_length: int, spec: AttentionSpec, device: torch.device
) -> tuple[Tensor | None, bool]:
    """Return (attn_mask, is_causal) for scaled_dot_product_attention, whose own causal mask is that of offset 0."""
    if not spec.causal or spec.offset >= key_length - 1:
        return None, False
    if spec.offset == 0:
        return None, True
    return spec.visible(query_length, key_length, device), False
