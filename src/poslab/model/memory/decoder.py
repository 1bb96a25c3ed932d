"""GPT that reads a text of any length in segments, and carries memory from each to the next.

B batch, T sequence, D embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import torch
from torch import Generator, Tensor

from poslab.attention import checked_documents
from poslab.attention.documents import positions_within
from poslab.errors import SettingError, require_at_least
from poslab.model.block import TargetMask
from poslab.model.cache import KeyValueCache
from poslab.model.decoder import GPT
from poslab.model.memory.cache import SegmentCache
from poslab.model.memory.retrieval import Retrieval, RetrievedAttention
from poslab.model.memory.segments import Memory, Segment
from poslab.positions import PositionScheme
from poslab.positions.sizes import check_memory


def decoder_of(
    pos: PositionScheme | None = None,
    *,
    memory_length: int = 0,
    retrieval: Any = None,
    in_segments: bool = False,
    **sizes: Any,
) -> GPT:
    """Make a GPT, or a MemoryGPT where it has memory or reads texts in segments without any.

    retrieval: a Retrieval, or settings of these names. sizes: as those of GPT. Raises SettingError as GPT does.
    """
    if not (memory_length or retrieval or in_segments):
        return GPT(pos, **sizes)
    settings = None if retrieval is None else Retrieval(**vars(retrieval))
    return MemoryGPT(pos, memory_length=memory_length, retrieval=settings, **sizes)


class MemoryGPT(GPT):
    """GPT whose texts may be longer than the context: they are read in segments of context_length tokens.

    Each layer sees the last `memory_length` tokens before a segment, too. retrieval: one layer looks up tokens from
    farther back. With neither, segments are read each by itself. Raises SettingError for memory that the scheme can't
    have.
    """

    def __init__(
        self,
        pos: PositionScheme | None = None,
        *,
        memory_length: int = 0,
        retrieval: Retrieval | None = None,
        **sizes: Any,
    ) -> None:
        require_at_least(0, memory_length=memory_length)
        super().__init__(pos, **sizes)
        check_memory(self.pos, self.shape, memory_length)
        self.memory_length, self.retrieval = memory_length, retrieval
        if retrieval is not None:
            retrieval.check(self.pos, self.position.own_tables, self.shape)
            attention: Any = self.blocks[retrieval.layer].attention
            attention.retrieval = RetrievedAttention(self.shape.num_heads, retrieval)

    def attention_parts(self) -> list[set[str]]:
        """Return what enters attention in each layer, with the keys from memory, of which some are no tokens."""
        return [parts | {"first_key", "cached keys"} for parts in super().attention_parts()]

    @property
    def retrieved_attention(self) -> RetrievedAttention | None:
        """Part of the layer that retrieves; None: none does."""
        if self.retrieval is None:
            return None
        attention: Any = self.blocks[self.retrieval.layer].attention
        return attention.retrieval

    @property
    def reach(self) -> int:
        """Number of tokens before a segment that it may see."""
        return max(self.memory_length, 0 if self.retrieval is None else self.retrieval.size)

    def empty_memory(self, batch: int) -> Memory:
        """Return the memory of `batch` texts of which nothing has been read."""
        return Memory(torch.zeros(batch, dtype=torch.int64, device=self.token_embedding.weight.device))

    def hidden_with_memory(
        self,
        tokens: Tensor,
        memory: Memory,
        target_mask: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        """Return the hidden states (B, T, D) of one segment, tokens (B, T), and the memory after it.

        Each layer sees the last memory_length tokens of the memory, as far as their row has read them of its document;
        no gradient reaches earlier segments. target_mask: (B, T) bool, to return only the hidden states of those
        tokens, in order, (n, D); without any of them the segment only updates the memory. documents: (B, T) numbers
        that rise along a row; the memory is of the document with the first of them.
        """
        length = tokens.shape[1]
        documents = checked_documents(documents, tokens)
        attentions: list[Any] = [block.attention for block in self.blocks]
        segment = Segment(memory, len(tokens), self.memory_length, attentions, self.retrieved_attention)
        if not self.reach:
            if target_mask is None:
                return self.hidden(tokens, documents=documents), segment.after(length, documents)
            return self.hidden_at(target_mask, tokens, None, documents), segment.after(length, documents)
        chosen = None if target_mask is None else TargetMask.where(target_mask)
        by_distance = self.pos.shift_invariant and not self.pos.overrides("embed")
        # Without memory_length, no token sees another of an earlier segment: positions begin anew, as in windows.
        positions = segment.positions(length, counted=self.memory_length > 0 and not by_distance)
        key_documents = None if documents is None else segment.documents(documents)
        if key_documents is not None:
            positions = positions.where(key_documents == key_documents[:, :1], positions_within(key_documents))
        keys = self.position.position_ids(tokens, counted=positions, documents=key_documents, training=self.training)
        queries = keys.last(length)
        with torch.set_grad_enabled(torch.is_grad_enabled() and (chosen is None or len(chosen.indices) > 0)):
            x = self.embedded(tokens, queries)
            hidden = self.through_blocks(x, segment.layers(self.position.layers(queries, keys)), chosen)
        return hidden, segment.after(length, documents)

    def hidden_in_segments(
        self,
        tokens: Tensor,
        memory: Memory | None = None,
        target_mask: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> tuple[Tensor, Memory]:
        """Read tokens (B, N) of any number in segments of context_length; returns as `hidden_with_memory`.

        memory: of what came before, of the document with the first number; None: nothing did.
        """
        memory = self.empty_memory(len(tokens)) if memory is None else memory
        length, hidden_states = self.shape.context_length, []
        segments_of_tokens = tokens.split(length, dim=1)
        masks = [None] * len(segments_of_tokens) if target_mask is None else target_mask.split(length, dim=1)
        documents = checked_documents(documents, tokens)
        numbers = [None] * len(segments_of_tokens) if documents is None else documents.split(length, dim=1)
        last: Tensor | None = None  # (B,), the number of the last token before
        for segment, mask, own in zip(segments_of_tokens, masks, numbers, strict=True):
            if own is not None and last is not None:
                memory = memory.restarted(memory.read * (own[:, 0] == last))
            hidden, memory = self.hidden_with_memory(segment, memory, mask, own)
            hidden_states.append(hidden)
            last = None if own is None else own[:, -1]
        if target_mask is None:
            return torch.cat(hidden_states, dim=1), memory
        segments = target_mask.nonzero()[:, 1] // length  # of each target, text by text
        return torch.cat(hidden_states)[segments.argsort(stable=True).argsort()], memory

    def read(self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of texts, read in segments unless their positions are given."""
        if positions is not None:
            return self.hidden(tokens, None, positions, documents)
        return self.hidden_in_segments(tokens, documents=documents)[0]

    @property
    def longest_read(self) -> None:
        """None: positions don't go beyond a segment and what is remembered."""

    def hidden_after(
        self,
        tokens: Tensor,
        cache: KeyValueCache,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states of tokens (B, T) after those in the cache, which may read in segments."""
        if not isinstance(cache, SegmentCache):
            return super().hidden_after(tokens, cache, positions, documents)
        if documents is not None and self.retrieval is not None:
            raise SettingError("documents", "[...]", "can't be given with a cache to a model that retrieves")
        lengths, hidden_states = cache.piece_lengths(tokens.shape[1]), []
        position_ids = [None] * len(lengths) if positions is None else positions.split(lengths, -1)
        numbers = [None] * len(lengths) if documents is None else documents.split(lengths, 1)
        for piece, at, own in zip(tokens.split(lengths, 1), position_ids, numbers, strict=True):
            cache.begin_segment(len(tokens), tokens.device)
            hidden_states.append(super().hidden_after(piece, cache, at, own))
        return torch.cat(hidden_states, dim=1)

    def new_cache(
        self, window: int | None = None, padding: Tensor | None = None, positions: Tensor | None = None
    ) -> KeyValueCache:
        """Return a cache for texts that are read in segments, or in a window if there is one."""
        if window is not None:
            return super().new_cache(window, padding, positions)
        sizes = self.shape.context_length, self.memory_length
        return SegmentCache(*sizes, self.retrieved_attention, padding, positions)

    def write(
        self, tokens: Tensor, padding: Tensor, generators: Sequence[Generator], window: int | None, **how: Any
    ) -> Iterator[Tensor]:
        """Yield the next token of each row, as `poslab.model.generate.write`."""
        if window is not None or not padding.any():
            return super().write(tokens, padding, generators, window, **how)
        # Read in segments, texts of unequal length don't begin them at the same time, so each is read by itself.
        none, texts = padding.new_zeros(1), []
        for row, skipped, own in zip(tokens, padding.tolist(), generators, strict=True):
            texts.append(super().write(row[None, skipped:], none, [own], window, **how))
        return map(torch.cat, zip_longest(*texts, fillvalue=tokens.new_tensor([how["stop_token"] or 0])))

    def most_positions(self, window: int | None = None) -> int | None:
        """Return how many positions there are for a text; None: any number, as where they begin anew in segments."""
        return None if window is None and self.memory_length == 0 else super().most_positions(window)

    def most_read(self, window: int | None = None) -> int | None:
        """Return how many tokens at the end of a prompt are read: without a window all that have positions."""
        return self.most_positions() if window is None else super().most_read(window)

    def parameter_counts(self) -> dict[str, int]:
        """Count parameters as GPT does; those of retrieval are not the trunk's."""
        counts = super().parameter_counts()
        for module in self.modules():
            if isinstance(module, RetrievedAttention):
                counts["trunk"] -= sum(p.numel() for p in module.parameters())
        return counts

    def replace_scheme(self, scheme: PositionScheme) -> None:
        """Take another scheme, for the same tables. Raises SettingError where it can't be remembered by."""
        if self.retrieval is not None:
            self.retrieval.check(scheme, self.position.own_tables, self.shape)
        super().replace_scheme(scheme)


def with_memory(model: GPT, memory_length: int) -> MemoryGPT:
    """Return a model in eval mode that shares the weights, and remembers so many tokens. Raises SettingError."""
    sizes = model.shape.sizes
    retrieval = model.retrieval if isinstance(model, MemoryGPT) else None
    sizes |= {"vocab_size": model.token_embedding.num_embeddings, "tied": model.head is None}
    sizes["window"] = model.position.window
    attention: Any = model.blocks[0].attention
    sizes["biases"] = attention.project.bias is not None
    with torch.device("meta"):
        other = MemoryGPT(model.pos, memory_length=memory_length, retrieval=retrieval, **sizes, **vars(model.form))
    other.load_state_dict(model.state_dict(), assign=True)
    other.position.seed = model.position.seed
    return other.eval()
