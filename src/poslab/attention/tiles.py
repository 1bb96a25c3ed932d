"""Attention whose scores are any function of a tile, in memory linear in the length.

Each block of queries is the dense formula of `reference`, on those queries and all keys that they see. Nothing of a
block is kept: the backward pass computes it again. It serves what the other kernels can't: the hook `scores`, and
relative terms by positions that are not consecutive.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from poslab.attention.blocks import Block, query_blocks
from poslab.attention.dropout import WeightDropout
from poslab.attention.problem import Problem
from poslab.attention.reference import dense_attention


@torch.compiler.disable
def tiled_attention(q: Tensor, k: Tensor, v: Tensor, problem: Problem, *, dropout_p: float = 0.0) -> Tensor:
    """q (B, H, Tq, Dh), k and v (B, H, Tk, Dh) -> (B, H, Tq, Dh). A query that sees no key gets zeros."""
    dropout = WeightDropout(dropout_p, q.device) if dropout_p > 0 else None

    def attention_of(block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        factors = None if dropout is None else dropout.factors(block, q.new_empty(*q.shape[:3], k.shape[-2]))
        return dense_attention(q, k, v, problem.of(block), factors)

    out = [v.new_zeros(*q.shape[:2], 0, v.shape[-1])]
    done = 0
    for block in query_blocks(q.shape[-2], k.shape[-2], problem.offset, problem.causal, problem.window):
        out.append(v.new_zeros(*q.shape[:2], block.first_query - done, v.shape[-1]))  # queries that see nothing
        parts = q[:, :, block.rows], k[:, :, block.columns], v[:, :, block.columns]
        out.append(checkpoint(attention_of, block, *parts, use_reentrant=False, preserve_rng_state=False))
        done = block.rows.stop
    out.append(v.new_zeros(*q.shape[:2], q.shape[-2] - done, v.shape[-1]))
    return torch.cat(out, dim=2)
