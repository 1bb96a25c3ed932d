"""Attention with relative terms: `attend` picks the fastest backend that computes exactly the same.

Words used by the kernels:
    near rows, far row    of a relative table: rows of single distances, and the last one, shared by all distances
                          from `highest` on (`relative`)
    block                 128 neighbouring queries, and the keys up to the last that any of them sees (`blocks`)
    tile                  the scores of one block (`tile`, `tiles`)
    band                  the diagonals of a tile, or of all scores, whose distances have near rows (`relative`)
    group, chunk          of `banded` only: some queries with their near keys, and the groups computed at a time
    window                how many keys a query sees, its own and those before it
"""

from poslab.attention.dispatch import attend, check_backend, choose_backend
from poslab.attention.scheme import PositionIds, SchemeLayer, scheme_attention
from poslab.positions.base import BACKENDS

__all__ = [
    "BACKENDS",
    "PositionIds",
    "SchemeLayer",
    "attend",
    "check_backend",
    "choose_backend",
    "scheme_attention",
]
