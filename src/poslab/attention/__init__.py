"""Attention with a position scheme.

To see how a scheme's score is computed, read these files in their order:

    model/decoder.py           the pass: positions, embedding, the scheme in each layer, blocks (`GPT.hidden`)
    attention/module.py        the owner of a scheme's tables: positions, `embed`, terms of each layer (`SchemeModule`)
    positions/NAME.py          the formula, the learned table, its rows by distance (`relative`, which `terms` calls)
    model/block.py             queries, keys and values; one call for the rest (`SelfAttention.forward`)
    attention/scheme.py        the scheme's hooks in one layer, in their order (`SchemeLayer.attend`)
    positions/terms.py         RelativeTerms: what a table by distance means for scores and outputs
    attention/dispatch.py      the call of a backend, which attention/choice.py chooses (`attend`)
    attention/reference.py     which keys a query sees, which row of the table a pair has; scores, softmax and output

`attend` (attention/dispatch.py) computes it by the backend that the table in attention/choice.py names: with relative
terms on a CPU reference.py up to 256 queries, as in the main job, else a faster one with the same result; tests hold
each of attention/kernels to reference.py.
"""

from poslab.attention.choice import Choice, check_backend, choose_backend
from poslab.attention.dispatch import attend
from poslab.attention.documents import checked_documents, numbered_documents
from poslab.attention.module import SchemeModule
from poslab.attention.position_ids import PositionIds
from poslab.attention.reference import for_queries
from poslab.attention.scheme import SchemeLayer, scheme_attention
from poslab.positions.base import BACKENDS

__all__ = [
    "BACKENDS",
    "Choice",
    "PositionIds",
    "SchemeLayer",
    "SchemeModule",
    "attend",
    "check_backend",
    "checked_documents",
    "choose_backend",
    "for_queries",
    "numbered_documents",
    "scheme_attention",
]
