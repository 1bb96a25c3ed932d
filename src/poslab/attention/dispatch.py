"""One entry to attention for every scheme, and the choice of the backend behind it."""

from torch import Tensor
from torch.nn import functional as F

from poslab.attention.reference import reference_attention, visible
from poslab.errors import SettingError, one_of
from poslab.positions import RelativeTerms

BACKENDS = ("auto", "reference", "sdpa")


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
    backend: str = "auto",
) -> Tensor:
    """Attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), with what `terms` knows of position.

    causal: a query sees the keys at its own position and before; a query that sees none gets zeros.
    offset: position of the first query minus position of the first key.
    scale: factor of the query-key products, 1 / sqrt(Dh) by default; the bias is added after it.
    dropout_p: the probability of dropping an attention weight, the same for every scheme; 0 outside training.
    backend: one of BACKENDS. "sdpa" is torch's scaled_dot_product_attention, which knows no relative keys and values.

    Returns (B, H, Tq, Dh). Raises SettingError for a backend that is unknown or can't compute these terms.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if backend == "auto":
        backend = choose_backend(terms, dropout_p=dropout_p, on_cpu=q.device.type == "cpu")
    if backend == "reference":
        return reference_attention(q, k, v, terms, causal=causal, offset=offset, scale=scale, dropout_p=dropout_p)
    check_backend(backend, terms)
    mask, is_causal = _sdpa_mask(q, k, terms, causal, offset)
    return F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)


def check_backend(backend: str, terms: RelativeTerms | None, option: str = "backend") -> None:
    """Raises SettingError, under the name `option`, for a backend that is unknown or can't compute these terms."""
    one_of(BACKENDS, **{option: backend})
    if backend == "sdpa" and terms is not None and (terms.keys is not None or terms.values is not None):
        raise SettingError(option, backend, "can't compute relative keys or values; valid: auto, reference")


def choose_backend(terms: RelativeTerms | None, *, dropout_p: float, on_cpu: bool) -> str:
    """What "auto" means.

    scaled_dot_product_attention trains with a fast kernel only where there are no terms; the gradient of a learned bias
    sends it through a dense path that is no faster than the reference. On a CPU neither has a fast kernel with dropout,
    and the reference then draws the same mask for every scheme, so that schemes are compared under equal dropout.
    """
    if terms is not None or (dropout_p > 0 and on_cpu):
        return "reference"
    return "sdpa"


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
