"""Exact attention with relative terms, in memory linear in the length, in plain PyTorch.

The scores of one block of queries, (N, m, n), are all that ever exists of the (Tq, Tk) matrix. The forward pass keeps
only the log-sum-exp of each query; the backward pass computes a block's scores again from it. Keys that no query of a
block sees are left out. Relative terms touch a band of diagonals of a block (near_tables.py), a bias of keys all of it.

It saves time beside memory: forward and backward at T = 256, 1,024 and 2,048 the reference takes 0.9, 2.7 and 4.9 times
as long with a bias over 114 distances, 1.4, 4.1 and 5.5 times with keys and values of 17; in bfloat16 0.8, 1.8, 5.7 and
1.2, 3.0, 6.0 times (processor time of one core, AMD EPYC with AVX-512 and bfloat16, 4 heads of 64).

N = B H batch and heads, Tq / Tk queries / keys, m queries and n keys of a block, Dh head dimension, R near rows that
occur in a block.
"""

from typing import Any

import torch
from torch import Tensor

from poslab.attention.blocks import WeightDropout
from poslab.attention.kernels.band_tile import BandTile
from poslab.attention.kernels.flash import bias_by_distance, flash_attention, is_null_alone
from poslab.attention.kernels.near_tables import LOG2_E, NearTables, key_bias, near_tables, null_scores
from poslab.attention.kernels.products import for_product, products_for, rounded, unrounded
from poslab.attention.kernels.scores import Call, Scores, adding
from poslab.attention.once import once_differentiable
from poslab.attention.reference import AttentionSpec, no_infinity, with_null, without_autocast


@torch.compiler.disable
def blockwise_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, *, dropout_p: float = 0.0) -> Tensor:
    """Return attention of q (B, H, Tq, Dh) over k and v (B, H, Tk, Dh), (B, H, Tq, Dh).

    The formula is in `RelativeTerms`; the specification must have no `pairwise`. A query that sees no key gets zeros.
    16-bit inputs are computed in 32 bits, their products in bfloat16 where they come in it (`products`, or `flash`,
    whose kernel takes them as they are).
    """
    shape, dtype = q.shape[:2], torch.promote_types(q.dtype, torch.float32)
    dropout = WeightDropout(dropout_p, q.device) if dropout_p > 0 else None
    with without_autocast(q.device):
        near = near_tables(spec, q, k.shape[-2], dtype)
        bias_of_keys, largest_of_keys = key_bias(spec, q, k)
        null = null_scores(spec, q, near, largest_of_keys)  # (B, H, Tq, 1)
        if dropout is None and ((bias := bias_by_distance(spec, q, k, near)) or is_null_alone(spec, q, k)):
            return flash_attention(q, k, v, spec, bias, null)
        prunes_keys = bias_of_keys is not None and spec.terms is None and dropout is None
        wide_v = v.to(dtype)
        if spec.values is not None:  # the far row, which each weight multiplies, too
            wide_v = wide_v + spec.values[..., -1:, :].to(dtype)
        flat = (x.flatten(0, 1) for x in (q.to(dtype) * spec.scale, k.to(dtype), wide_v))
        null = null if null is None else null.flatten(0, 1)
        # The gradient of a bias of keys is small beside the numbers that it sums up: it needs all of their digits. And
        # where near rows reach far, tiles have much room beside the scores, and would be copied without it.
        products = v.dtype if bias_of_keys is None and 2 * near.count <= k.shape[-2] else dtype
        call = Call(
            causal=spec.causal,
            offset=spec.offset,
            window=spec.window,
            lowest=near.lowest,
            highest=near.highest,
            steps=near.steps_of_largest_bias(),
            far_bias_is_largest=near.far_bias_is_largest(),
            may_underflow=near.may_underflow() or bias_of_keys is not None,
            prunes_keys=prunes_keys,
            dropout=dropout,
            dtype=products,
        )
        out = _Blockwise.apply(*flat, bias_of_keys, largest_of_keys, null, call, *near.tables)
    return out.unflatten(0, shape).to(v.dtype)


class _Blockwise(torch.autograd.Function):
    """Attention of q (N, Tq, Dh), already scaled, over k and v (N, Tk, Dh); the tables are those of `NearTables`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        key_bias: Tensor | None,
        largest_key_bias: Tensor | None,
        null: Tensor | None,
        call: Call,
        *tables: Tensor | None,
    ) -> Tensor:
        near = NearTables(call.lowest, call.highest, *tables)
        out, log_sum = torch.zeros_like(q), q.new_zeros(*q.shape[:2], 1)  # (N, Tq, Dh); (N, Tq, 1), in powers of two
        with products_for(call.dtype, q.device):
            scores = Scores(q, k, near, call, key_bias, largest_key_bias)
            for block in scores.blocks:
                tile = scores.compute_tile(block)
                weights = tile.scores  # (N, m, n)
                largest = no_infinity(weights.amax(-1, keepdim=True))
                scores.exp2_(weights.sub_(largest))
                # At least 1, the weight of the largest score; where all are -inf, 1 makes the output 0.
                total = weights.sum(-1, keepdim=True).clamp_(min=1)
                torch.add(largest, total.log2(), out=log_sum[:, block.rows])
                if call.dropout is not None:
                    weights.mul_(call.dropout.factors(block, weights))
                result = for_product(weights) @ for_product(v[:, block.columns])  # (N, m, Dh)
                if near.values is not None:
                    with unrounded():
                        result.baddbmm_(tile.collect(), near.values[:, tile.rows])
                torch.div(result, total, out=out[:, block.rows])
        if null is not None:
            with_null(out, log_sum, null * LOG2_E)
        ctx.save_for_backward(q, k, v, key_bias, largest_key_bias, null, out, log_sum, *tables)
        ctx.call = call
        ctx.learns_key_bias = key_bias is not None and key_bias.requires_grad
        ctx.learns_bias = near.bias is not None and near.bias.requires_grad
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        with products_for(ctx.call.dtype, grad_out.device):
            return _Blockwise._backward(ctx, grad_out)

    @staticmethod
    def _backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, key_bias, largest_key_bias, null, out, log_sum, *tables = ctx.saved_tensors
        call: Call = ctx.call
        near = NearTables(call.lowest, call.highest, *tables)
        scores = Scores(q, k, near, call, key_bias, largest_key_bias, log_sum)
        grad_storage = scores.new_storage()
        grad_q, grad_k, grad_v = (torch.zeros_like(x) for x in (q, k, v))
        grad_key_bias = torch.zeros_like(key_bias) if ctx.learns_key_bias else None
        grads: Any = near.zeros()
        minus_mean = -(out * grad_out).sum(-1, keepdim=True)  # (N, Tq, 1)
        grad_null = None if null is None else (null * LOG2_E - log_sum).exp2_().mul_(minus_mean)
        # A mean is no product, and not to be rounded.
        at_once = call.dropout is None and not rounded()
        grad_and_mean, v_and_one = adding(minus_mean, grad_out, v) if at_once else (grad_out, v)
        for block in scores.blocks:
            rows, seen_k = block.rows, for_product(k[:, block.columns])
            tile = scores.compute_tile(block, seen_k)
            weights = scores.exp2_(tile.scores)  # (N, m, n)

            grad_tile = BandTile(grad_storage, len(q), block, near, call.causal)
            grad_scores = grad_tile.scores
            seen_v = for_product(v_and_one[:, block.columns])
            grad_scores.baddbmm_(for_product(grad_and_mean[:, rows]), seen_v.transpose(1, 2), beta=0)
            if near.values is not None:
                grad_tile.add_by_query(grad_out[:, rows], near.values[:, tile.rows])
            if call.dropout is not None:
                factors = call.dropout.factors(block, weights)
                grad_scores.mul_(factors)
            if not at_once:
                grad_scores.add_(minus_mean[:, rows])
            grad_scores.mul_(weights)
            left = for_product(grad_scores)
            grad_q[:, rows] = left @ seen_k
            grad_k[:, block.columns].baddbmm_(left.transpose(1, 2), for_product(scores.queries[:, rows]))
            if grad_key_bias is not None:
                precise = grad_key_bias.dtype
                grad_key_bias[:, block.columns] += grad_scores.sum(1, dtype=precise)
                # A row sums to 0 but for its rounding, which a sum along the text would pile up: it goes to a near key.
                residual = grad_scores.sum(-1, dtype=precise)  # (N, m)
                if grad_null is not None:
                    residual += grad_null[:, rows, 0]
                own_key = torch.arange(rows.start, rows.stop, device=q.device) + call.offset
                own_key = own_key.clamp(0, grad_key_bias.shape[1] - 1)
                grad_key_bias.index_add_(1, own_key, residual, alpha=-1)
            if near.queries is not None:
                grads.far_query.add_(grad_q[:, rows].sum(1, keepdim=True))
                by_key = (near.queries[:, tile.rows], seen_k, grads.queries[:, tile.rows], grad_k[:, block.columns])
                grad_tile.collect_by_key(*by_key)
            if ctx.learns_bias or near.keys is not None:
                by_row = grad_tile.collect()  # (N, m, R)
                if ctx.learns_bias:
                    grads.bias[:, tile.rows] += by_row.sum(1)
                    # As a softmax's gradients sum to 0, minus the sum of all others would be the same, but for its
                    # rounding: far from enough where the far row is a number of a steep function.
                    grads.far_bias.add_(grad_tile.sum_of_far())
                if near.keys is not None:
                    with unrounded():
                        grads.keys[:, tile.rows].baddbmm_(by_row.transpose(1, 2), q[:, rows])
                        grad_q[:, rows].baddbmm_(by_row, near.keys[:, tile.rows])

            if call.dropout is not None:
                weights.mul_(factors)
            grad_v[:, block.columns].baddbmm_(for_product(weights).transpose(1, 2), for_product(grad_out[:, rows]))
            if near.values is not None:
                with unrounded():
                    grads.values[:, tile.rows].baddbmm_(tile.collect().transpose(1, 2), grad_out[:, rows])
        return grad_q, grad_k, grad_v, grad_key_bias, None, grad_null, None, *grads.tables
