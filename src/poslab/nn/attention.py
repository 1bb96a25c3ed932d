"""Attention by any position scheme, as a module.

B batch, T sequence, Tq / Tk queries / keys, D embedding, H heads, Hkv heads of keys, Dh head dimension.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from poslab.attention import BACKENDS, PositionIds, SchemeLayer, checked_documents, numbered_documents
from poslab.errors import SettingError, require_kind, require_one_of
from poslab.nn.position import Position
from poslab.processors import in_transform


class Attention(nn.Module):
    """Self-attention of queries, keys and values with all that a scheme does to them, in memory linear in the length.

    position: a `Position`, whose `causal` is the attention's; layers may share one. dropout: the probability of
    dropping a weight, in training. backend: as in `poslab.attention.attend`.

    Parity: tests/nn/test_position.py, every scheme with `poslab.attention.scheme_attention`, and read token by token.
    """

    def __init__(self, position: Position, *, dropout: float = 0.0, backend: str = "auto") -> None:
        super().__init__()
        usage = "Attention(Position(SCHEME, heads=4, head_dim=16)), with a SCHEME of poslab.positions"
        require_kind(Position, usage, position=position)
        require_one_of(BACKENDS, backend=backend)
        if not 0 <= dropout < 1:
            raise SettingError("dropout", dropout, "must be at least 0 and below 1")
        self.position, self.dropout, self.backend = position, dropout, backend

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        x: Tensor | None = None,
        positions: Tensor | None = None,
        offset: int | None = None,
        mask: Tensor | None = None,
        window: int | None = None,
        documents: Tensor | None = None,
        layer: int = 0,
    ) -> Tensor:
        """Return attention of q (B, H, Tq, Dh) over k and v (B, Hkv, Tk, Dh), (B, H, Tq, Dh) in q's dtype.

        q, k, v: of the projections; what `needs` says comes before is the model's part. With a cache, k and v are those
        of the whole text so far, and q those of its last tokens. offset: which key the first query stands at, where
        the keys go on behind the queries, as in a cache of fixed size; None: Tk - Tq, less the keys at the end that are
        zeros in all texts, as free places of a cache are (a compiled graph doesn't look). x: (B, Tk, D), what the
        projections were made of, for schemes that read it or have mixed it. positions: (Tk,) or (B, Tk), of the keys;
        None: 0, 1, 2, ...

        mask: (B, N), the `attention_mask` of transformers: 0 for padding, before or after a row's text, 1 for the text,
        or 1, 2, 3, ... for the documents of a packed row. N is the number of tokens so far: of fewer keys, as a cache
        that slides keeps, these are the last, and of more the first, before free places. By default positions then
        count from a row's first token. Outputs of padding mean nothing. window: a query sees at most so many keys, its
        own included; None: all, or those of the scheme.

        documents: (B, Tk), whole numbers that rise along a row. A document sees no other, and by default its positions
        count from 0. None: those of the mask, or of positions that start again (`poslab.attention.numbered_documents`),
        or each row is one.

        Raises SettingError for another layout, a missing x, positions that the scheme doesn't know, and another mask.
        """
        position, shape = self.position, self.position.shape
        position.check_layout(q, k, v)
        documents = checked_documents(documents, k[:, 0, :, 0])
        dropped = 0  # tokens that a cache has no keys of any more
        if mask is not None:
            if not mask.is_floating_point() and mask.dtype != torch.bool:
                mask = mask.to(torch.int64)  # torch compares no unsigned numbers of 16 bits and more
            _check_mask(mask, q, k, offset)
            dropped = max(0, mask.shape[1] - k.shape[-2])
            offset = mask.shape[1] - dropped - q.shape[-2]
            mask = mask if mask.numel() else None
        elif offset is None and shape.causal:
            offset = _filled(k, v, q.shape[-2]) - q.shape[-2]
        queries, keys = q.shape[-2], k.shape[-2]
        if x is not None and (x.shape[0], x.shape[-2]) != (k.shape[0], keys):
            raise SettingError("x", list(x.shape), f"must be (B, Tk, D), of all {keys} keys of {k.shape[0]} texts")
        if queries > keys:
            raise SettingError("k", list(k.shape), f"must have the keys of all {queries} queries")
        if offset is not None and offset != keys - queries:
            if not shape.causal or not 0 <= offset < keys - queries:
                problem = f"must be {keys - queries}, or between 0 and that in a causal model: each query has its key"
                raise SettingError("offset", offset, problem)
            keys = offset + queries  # no query sees those behind
            k, v = k[:, :, :keys], v[:, :, :keys]
            x = None if x is None else x[:, :keys]
            positions = None if positions is None else positions[..., :keys]
            documents = None if documents is None else documents[:, :keys]

        # Where rows hold documents, padding is one more of them.
        text = None if mask is None else mask != 0  # (B, dropped + Tk)
        numbered = None  # the mask, if it numbers documents
        if documents is not None and text is not None:
            if dropped:
                raise SettingError("documents", "[...]", "can't be given where the mask has more tokens than k")
            documents = (documents - documents.min() + 1) * text
        elif documents is None and mask is not None and _is_numbered(mask):
            documents = numbered = mask.to(torch.int64)
        ids = position.token_positions(k, positions, dropped, "positions", documents)
        documents = None if documents is None else documents[:, dropped:]
        if positions is not None and (documents is None or (numbered is not None and torch.compiler.is_compiling())):
            key_text = None if text is None else text[:, dropped:]
            starting = numbered_documents(ids.positions.expand(len(k), -1), key_text)
            # A compiled graph can't ask which of the two tells documents apart.
            documents = starting if documents is None or starting is None else documents * (keys + 1) + starting

        first_key = None
        if documents is None and text is not None:
            if not shape.causal and not torch.compiler.is_compiling() and not text[:, -1].all():
                problem = "has padding after a text, which this model sees: put it before the text"
                raise SettingError("mask", list(text.shape), problem)
            first_key = text.int().argmax(1)  # (B,), of each row's text
            if not torch.compiler.is_compiling() and not first_key.any():
                first_key = None  # because kernels are faster where all rows see all keys
            else:
                if positions is None:
                    ids = PositionIds((ids.positions - first_key[:, None]).clamp(min=0))
                first_key = (first_key - dropped).clamp(min=0)
        ids = replace(ids, documents=documents)
        scheme, tables = position.scheme, position.own_tables
        terms = scheme.relative(tables, shape, layer, ids.distances(shape.causal))
        terms = terms and terms.to(q.device)
        scheme_layer = SchemeLayer(scheme, tables, shape, layer, terms, ids.last(queries), ids)
        settings: dict[str, Any] = {"dropout_p": self.dropout if self.training else 0.0, "backend": self.backend}
        settings |= {"first_key": first_key, "window": window}
        return scheme_layer.attend(q, k, v, x, **settings).to(q.dtype)


def _filled(k: Tensor, v: Tensor, queries: int) -> int:
    """Return how many keys there are before the free places of a cache of fixed size, which are zeros."""
    keys = k.shape[-2]
    if torch.compiler.is_compiling() or in_transform() or queries >= keys or k[:, :, -1].any() or v[:, :, -1].any():
        return keys
    used = (k != 0).any(-1) | (v != 0).any(-1)  # (B, Hkv, Tk)
    last = used.any(0).any(0).nonzero()
    return max(queries, int(last[-1]) + 1) if len(last) else keys


def _check_mask(mask: Tensor, q: Tensor, k: Tensor, offset: int | None) -> None:
    """Raise SettingError for a mask that can't be obeyed."""
    shape, most = list(mask.shape), k.shape[-2]
    if len(shape) != 2 or shape[0] != len(q) or shape[1] < q.shape[-2]:
        problem = f"must be (B, N) with B={len(q)}, for all tokens so far, the {q.shape[-2]} queries included"
        raise SettingError("mask", shape, problem)
    if offset not in (None, min(shape[1], most) - q.shape[-2]):
        raise SettingError("offset", offset, f"must be {min(shape[1], most) - q.shape[-2]}, which the mask says")
    if torch.compiler.is_compiling() or not mask.numel():
        return  # because a look at the numbers breaks the graph
    text, numbers = mask.bool(), mask.to(torch.int64)
    begins = text & ~text.roll(1, 1)
    begins[:, 0] = text[:, 0]
    falls = (numbers[:, 1:] < numbers[:, :-1]) & text[:, 1:]
    # Of a row that is padded longer than what has been read of it, there is no text yet.
    one_text = not (begins.sum(1) > 1).any() and text.any()
    if not one_text or not (numbers[begins] == 1).all() or falls.any() or (numbers != mask).any():
        problem = "ones for one text, or 1, 2, 3, ... for its documents, and zeros before and after it"
        raise SettingError("mask", shape, f"must be, in each row, {problem}")


def _is_numbered(mask: Tensor) -> bool:
    """Return whether rows of a mask hold several documents; a compiled graph can't ask those of whole numbers."""
    return mask.dtype != torch.bool and (torch.compiler.is_compiling() or bool((mask > 1).any()))
