"""Documents that share a row of tokens and must not see each other, as in a packed batch.

Each document is computed by itself, whatever the position scheme and the backend, so that nothing that a scheme carries
along a text passes from one to the next. Short documents of equal length are computed together.

B batch, T sequence, Tq / Tk queries / keys, n numbers of a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.errors import SettingError

SHORT = 128  # tokens: in longer texts kernels leave out keys by what all rows hold, which would couple documents


def numbered_documents(positions: Tensor, text: Tensor | None = None) -> Tensor | None:
    """Return the number of each token's document where positions (B, T) start again, (B, T) int64; None: nowhere.

    A row's positions start again at each token, the first apart, that stands at the lowest position of the row, as in
    the packed batches of transformers' DataCollatorWithFlattening: 0 1 2 0 0 1 are three documents. 5 6 0 1 are two, of
    which the first began in another row. All other positions are those of one document: 0 1 5 9, 0 4 5 4 5.

    text: (B, T) bool, False for padding before and after a row's text, whose positions mean nothing and which gets
    numbers of its own, below and above those of documents. Raises SettingError for
    positions that start again and don't rise in between, as 0 0 1 1 or 0 0 0: nothing says what they mean. A compiled
    graph can't ask, and gets numbers of any positions.
    """
    if not positions.numel():
        return None
    text = torch.ones_like(positions, dtype=torch.bool) if text is None else text
    lowest = positions.masked_fill(~text, positions.max()).amin(-1, keepdim=True)
    begins = text & ((positions == lowest) | (text.cumsum(-1) == 1))
    documents = begins.cumsum(-1) + (~text & (text.cumsum(-1) > 0))
    if torch.compiler.is_compiling():
        return documents
    packed = begins.sum(-1) > 1  # (B,)
    if not packed.any():
        return None
    falls = (positions[:, 1:] <= positions[:, :-1]) & text[:, :-1] & text[:, 1:] & ~begins[:, 1:]
    odd = packed & (falls.any(-1) | (begins == text).all(-1))  # (B,)
    if odd.any():
        row = positions[int(odd.int().argmax())].tolist()
        problem = "start again but don't rise in between: say which documents there are, by `documents`"
        raise SettingError("positions", [*row[:12], *["..."] * (len(row) > 12)], problem)
    return documents


def checked_documents(documents: Tensor | None, tokens: Tensor) -> Tensor | None:
    """Return documents on the device of tokens (B, T); None where there are no tokens.

    Raises SettingError unless they are whole numbers (B, T) that never fall along a row.
    """
    if documents is None:
        return None
    shape = list(documents.shape)
    if shape != list(tokens.shape):
        raise SettingError("documents", shape, f"must be (B, T), a number for each token: {list(tokens.shape)}")
    whole = not documents.is_floating_point() and not documents.is_complex()
    # A compiled graph can't ask whether they fall.
    if not whole or (not torch.compiler.is_compiling() and (documents[:, 1:] < documents[:, :-1]).any()):
        problem = "must be whole numbers: one for all tokens of a document, and a higher one for those of the next"
        raise SettingError("documents", "[...]", problem)
    return documents.to(tokens.device, torch.int64) if documents.numel() else None


def positions_within(documents: Tensor) -> Tensor:
    """Count the tokens of each document from 0, (B, T) int64; documents: (B, T) numbers."""
    index = torch.arange(documents.shape[-1], device=documents.device)
    return index - torch.where(_begins(documents), index, 0).cummax(-1).values


def positions_of_texts(documents: Tensor, positions: Callable[[int], Tensor | None]) -> Tensor:
    """Return positions (B, T), in each document those that a text of its length has; None: 0, 1, 2, ..."""
    counted = positions_within(documents)
    last = _begins(documents).roll(-1, 1)  # whose row's first token begins one, too
    texts = [positions(index + 1) for index in counted[last].tolist()]
    drawn = [text for text in texts if text is not None]
    return torch.cat(drawn).to(documents.device).view(documents.shape) if drawn else counted


@dataclass(frozen=True)
class Batch:
    """Documents of equal length that are computed together; each list has an item for each of them."""

    numbers: list[int]  # among all documents
    rows: list[int]
    starts: list[int]  # index of the first token in its row

    def first_key(self, first_keys: Tensor | None) -> Tensor | None:
        """Return the first key that each document sees at all, of those of the rows (B,); None: they see all."""
        if first_keys is None:
            return None
        own = (first_keys[self.rows] - first_keys.new_tensor(self.starts)).clamp(min=0)
        return own if own.any() else None


class Documents:
    """Where documents begin and end in rows of keys, (B, Tk) numbers, whose last Tq tokens are the queries.

    Neighbours of the same number are a document. A document without queries is left out.
    """

    def __init__(self, numbers: Tensor, queries: int | None = None) -> None:
        batch, keys = numbers.shape
        first_query = 0 if queries is None else keys - queries
        starts = _begins(numbers).flatten().nonzero()[:, 0].tolist()
        self._batch, self._queries = batch, keys - first_query
        self._key_lengths = [end - start for start, end in zip(starts, [*starts[1:], batch * keys], strict=True)]
        self._query_lengths: list[int] = []
        together: dict[tuple[int, ...], Batch] = {}
        for number, (start, length) in enumerate(zip(starts, self._key_lengths, strict=True)):
            row, start = divmod(start, keys)
            asked = min(length, max(0, start + length - first_query))
            self._query_lengths.append(asked)
            alike = (length, asked) if length <= SHORT else (length, asked, number)
            alike_batch = together.setdefault(alike, Batch([], [], []))
            alike_batch.numbers.append(number)
            alike_batch.rows.append(row)
            alike_batch.starts.append(start)
        self.batches = [alike_batch for (_, asked, *_), alike_batch in together.items() if asked]

    def batched(self, x: Tensor) -> list[Tensor]:
        """Return what x (B, ..., Tk, n) has of the documents of each batch, (documents, ..., length, n)."""
        return self._stacked(x, self._key_lengths)

    def apart(self, attend: Callable[..., Tensor], q: Tensor, *keys: Tensor | None) -> Tensor:
        """Return attend(index, q, *keys) of each batch of documents, put together as q was: (B, ..., Tq, m).

        q (B, ..., Tq, n) and keys (B, ..., Tk, n) or None; attend gets those of a batch, and its index in `batches`.
        """
        queries = self._stacked(q, self._query_lengths)
        nothing: list[Tensor | None] = [None] * len(self.batches)
        batched_keys = [nothing if x is None else self.batched(x) for x in keys]
        outs: list[Tensor] = [q.new_empty(0)] * len(self._key_lengths)
        for index, tensors in enumerate(zip(queries, *batched_keys, strict=True)):
            for number, out in zip(self.batches[index].numbers, attend(index, *tensors), strict=True):
                outs[number] = out
        whole = torch.cat([out for out, asked in zip(outs, self._query_lengths, strict=True) if asked], -2)
        return whole.unflatten(-2, (self._batch, self._queries)).movedim(-3, 0)

    def _stacked(self, x: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        # Split at once: each slice would have a gradient of the whole tensor's size.
        alone = x.movedim(0, -3).flatten(-3, -2).split(list(lengths), -2)
        return [torch.stack([alone[number] for number in batch.numbers]) for batch in self.batches]


def _begins(documents: Tensor) -> Tensor:
    """Mark the first token of each document, (B, T) bool."""
    return F.pad(documents[:, 1:] != documents[:, :-1], (min(1, documents.shape[-1]), 0), value=True)
