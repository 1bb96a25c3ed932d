"""Attention by torch's scaled_dot_product_attention: without position, or with a bias by distance as its mask.

On a GPU its kernels take a mask of numbers and give its gradient, where blocks of queries in eager torch start hundreds
of small kernels. Compiled, in bfloat16 at 1,024 tokens, a mask takes 0.99 times the time of flex with a bias that isn't
learned, and 1.24 times with one that is, whose gradient is a matrix, too; in float32 at 512 tokens, uncompiled, 0.15
times (H200). The mask (H, Tq, Tk) is dense: `choice.py` limits its length.

B batch, H heads, Tq / Tk queries / keys, Dh head dimension.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from poslab.attention.reference import AttentionSpec, no_infinity


def sdpa_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh).

    The specification may have a bias by distance, a window and first keys. A query that sees no key gets zeros.
    """
    query_length, key_length = q.shape[-2], k.shape[-2]
    if not spec.parts:
        # Branches, because in a compiled graph with symbols for lengths a comparison is no bool.
        seen, is_causal = None, False
        if spec.causal and spec.offset < key_length - 1:
            if spec.offset == 0:  # the only offset that torch's own causal mask has
                is_causal = True
            else:
                seen = spec.visible(query_length, key_length, q.device)
        return _attention(q, k, v, seen, dropout_p, is_causal, spec.scale)
    bias = torch.zeros(1, 1, 1, device=q.device, dtype=q.dtype)
    if spec.terms is not None:
        assert spec.terms.bias is not None
        # From the farthest distance down.
        distance = torch.arange(spec.offset + query_length - 1, spec.offset - key_length, -1, device=q.device)
        bias = skewed(spec.terms.bias[:, spec.terms.rows_of(distance)], query_length)  # (H, Tq, Tk)
    scores = torch.where(spec.visible(query_length, key_length, q.device), bias, -math.inf)
    # Biases are taken less the largest that a query sees, as in `reference`: beside it 16 bits are digits enough.
    largest = scores.detach().amax(-1, keepdim=True)
    nothing = largest == -math.inf  # (..., Tq, 1): the query sees no key
    mask = (scores - no_infinity(largest)).masked_fill(nothing, 0.0).to(q.dtype)
    return _attention(q, k, v, mask, dropout_p, False, spec.scale).masked_fill(nothing, 0.0)


def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout_p: float, is_causal: bool, scale: float
) -> Tensor:
    """Call torch's attention so that its gradients have gradients, too, which those of its fast kernels lack."""
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, scale=scale)
    if torch.compiler.is_compiling() or dropout_p > 0 or not out.requires_grad:
        return out
    twice: Tensor = _TwiceDifferentiable.apply(out, q, k, v, mask, is_causal, scale)
    return twice


class _TwiceDifferentiable(torch.autograd.Function):
    """Output of torch's attention of q, k and v, as it is.

    Its gradient goes to the kernel that has computed it, but under `create_graph=True` past it, to q, k and v by
    torch's dense formula.
    """

    @staticmethod
    def forward(
        ctx: Any, out: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool, scale: float
    ) -> Tensor:
        ctx.save_for_backward(q, k, v, mask)
        ctx.is_causal, ctx.scale = is_causal, scale
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        if not torch.is_grad_enabled():
            return grad_out, *[None] * 6
        inputs = ctx.saved_tensors
        wanted = [index for index, needed in enumerate(ctx.needs_input_grad[1:5]) if needed]
        q, k, v, mask = inputs
        with sdpa_kernel(SDPBackend.MATH):
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=ctx.is_causal, scale=ctx.scale)
            found = torch.autograd.grad(out, [inputs[index] for index in wanted], grad_out, create_graph=True)
        grads: list[Tensor | None] = [None] * 4
        for index, grad in zip(wanted, found, strict=True):
            grads[index] = grad
        return None, *grads, None, None


def skewed(numbers: Tensor, queries: int) -> Tensor:
    """Return the matrix (H, m, n) of m queries in which each of numbers (H, m + n - 1) fills a diagonal.

    The first number stands in the corner of the last query and the first key. Rows that each begin one number further
    back are cut from copies of the numbers, laid end to end (the shift of Huang et al. 2018, arXiv 1809.04281, section
    3.4.1). Its gradient is a sum, where one of looked-up rows would add all pairs into few places of a table, one after
    the other.
    """
    count = numbers.shape[-1]
    laid = F.pad(numbers, (0, 1))[:, None].expand(-1, queries, -1).flatten(1)[:, : queries * count]
    return laid.unflatten(1, (queries, count))[..., queries - 1 :]
