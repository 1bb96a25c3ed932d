"""GPT decoder that knows no position scheme by name.

B batch, T sequence, D embedding, H heads, Dh head dimension, V vocabulary, L layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import PositionIds, SchemeLayer, SchemeModule, check_backend, checked_documents
from poslab.errors import SettingError, require_at_least
from poslab.model.block import Block, BlockForm, SelfAttention, TargetMask
from poslab.model.cache import KeyValueCache
from poslab.model.generate import generate, write
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.sizes import check_length, check_sizes
from poslab.processors import backward_compiled_at_once, compiled, compiler_errors, compiler_reason

if TYPE_CHECKING:
    from poslab.data.tokenizer import AnyVocabulary


class GPT(nn.Module):
    """Pre-norm decoder; its defaults are GPT-2's block (Radford et al. 2019) in the sizes of `model=mini`.

    `pos` is any PositionScheme; without one the model has no positions at all. With `causal=False` every token sees
    every other. `head_dim`: numbers of a head; None: embed_dim / num_heads. `longest_text` is how many tokens the
    longest text of training has, None for a whole context. `tied`: the head is the token embedding. `biases=False`: no
    module of the blocks, nor the last norm, has a bias. `window`: how many keys a query sees at most, its own included.
    `block`: what `BlockForm` lists. `compile` trains through torch.compile; parameters keep their names, so that
    checkpoints know nothing of it. With compile="reduce-overhead" CUDA graphs replay the largest batch: then a step is
    one forward and one backward pass, and gradients don't accumulate. Raises SettingError for sizes that don't fit.
    """

    position: SchemeModule  # the scheme, its tables, and the positions of tokens
    tokenizer: AnyVocabulary | None = None  # set by `poslab.load`

    def __init__(
        self,
        pos: PositionScheme | None = None,
        *,
        vocab_size: int = 50257,
        context_length: int = 256,
        embed_dim: int = 256,
        num_layers: int = 4,
        num_heads: int = 4,
        head_dim: int | None = None,
        init_std: float = 0.02,
        causal: bool = True,
        longest_text: int | None = None,
        biases: bool = True,
        tied: bool = True,
        window: int | None = None,
        compile: bool | Literal["reduce-overhead"] = False,
        **block: Any,
    ) -> None:
        super().__init__()
        require_at_least(1, vocab_size=vocab_size, window=window, head_dim=head_dim)
        require_at_least(0, init_std=init_std)
        # What a block adds is a product of two matrices: so tokens keep their proportion to it.
        token_std = 0.02 * (init_std / 0.02) ** 2
        sizes = context_length, embed_dim, num_layers, num_heads
        self.shape = ModelShape(*sizes, causal, token_std, longest_text, head_dim or 0)
        scheme = pos or PositionScheme()
        self.form = BlockForm(**block)
        self.form.check(num_heads)
        check_sizes(scheme, self.shape)
        self.token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(self.form.dropout)
        self.blocks = nn.ModuleList(Block(SelfAttention(self.shape, self.form), self.form) for _ in range(num_layers))
        self.final_norm = self.form.norm(embed_dim)
        if not biases:
            remove_biases(self)
        self.head = None if tied else nn.Linear(embed_dim, vocab_size, bias=False)
        initialise(self, init_std, token_std, num_layers)
        # Last, and without moving the generator on: at one seed the rest of the model, and every dropout mask after
        # it, is the same to the bit for every scheme.
        check_length(scheme, self.shape, context_length, "context_length", context_length)
        with torch.random.fork_rng(devices=[]):
            position = SchemeModule(scheme, self.shape, window)
        # nn.Module registers the tables alone, whose weights are saved as `position_tables.NAME`, not their owner.
        self.position_tables = position.tables
        object.__setattr__(self, "position", position)
        self._compiled: Callable[..., Tensor] | None = None
        self._replayed: Callable[..., Tensor] | None = None
        self._replayed_shape = torch.Size()
        if compile:
            self._compiled = compiled(self._hidden_of_row)
        if compile == "reduce-overhead":
            self._replayed = compiled(self._hidden_of_row, mode=compile, dynamic=False)
        backend, dropout = self.form.attention_backend, self.form.dropout
        if backend != "auto":
            check_backend(backend, set().union(*self.attention_parts()), dropout, option="attention_backend")

    def forward(
        self,
        tokens: Tensor,
        cache: KeyValueCache | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Return the logits (B, T, V) of tokens (B, T).

        With a cache, these tokens follow those that it has read, and no gradient comes from the blocks. positions: of
        the tokens, (T,) or (B, T) numbers; by default 0, 1, 2, ..., or in training, and where `drawing` says so,
        what the scheme draws. documents: (B, T) whole numbers that rise along a row; tokens of the same number are a
        document, which sees no other and has positions of its own; None: each row is one. Raises SettingError for
        positions that the scheme doesn't know, and for other documents.
        """
        return F.linear(self.hidden(tokens, cache, positions, documents), self.head_weight)

    @property
    def pos(self) -> PositionScheme:
        """Position scheme."""
        return self.position.scheme

    @property
    def head_weight(self) -> Tensor:
        """Matrix (V, D) from the last hidden state to the logits."""
        return self.token_embedding.weight if self.head is None else self.head.weight

    def hidden(
        self,
        tokens: Tensor,
        cache: KeyValueCache | None = None,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
        targets: TargetMask | None = None,
    ) -> Tensor:
        """Return the normalised last hidden states (B, T, D) of tokens (B, T), the input of the head."""
        documents = checked_documents(documents, tokens)
        if cache is not None:
            if positions is not None:
                PositionIds.explicit(positions).check(len(tokens), tokens.shape[1], self.pos, self.shape)
            return self.hidden_after(tokens, cache, positions, documents)
        position_ids = self.position.position_ids(tokens, positions, documents=documents, training=self.training)
        # Compiled only where nothing but the weights changes, because generation, with its growing lengths, would
        # recompile.
        regular = not position_ids.irregular and documents is None
        if self._compiled is not None and self.training and regular:
            forward = self._compiled
            if self._replayed is not None and self._is_largest(tokens.shape):
                # Without it torch guesses where a step begins, whose memory the next one takes.
                torch.compiler.cudagraph_mark_step_begin()
                forward = self._replayed
            try:
                with backward_compiled_at_once():
                    return forward(tokens, position_ids.positions)
            except compiler_errors() as error:
                self._compiled = self._replayed = None
                reason = compiler_reason(error)
                warnings.warn(f"trains uncompiled, to the same result; torch says: {reason}", stacklevel=2)
        return self.through_blocks(self.embedded(tokens, position_ids), self.position.layers(position_ids), targets)

    def hidden_at(
        self, target_mask: Tensor, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None
    ) -> Tensor:
        """Return the hidden states of the n targets among tokens (B, T), in order, (n, D); target_mask: (B, T) bool.

        The last block computes only those, from the keys and values of all: next to nothing for a single answer.
        """
        if target_mask.all():
            return self.hidden(tokens, None, positions, documents).flatten(0, 1)
        if not target_mask.any():
            return self.token_embedding.weight.new_empty(0, self.shape.embed_dim)
        if self._compiled is not None:
            return self.hidden(tokens, None, positions, documents)[target_mask]
        return self.hidden(tokens, None, positions, documents, TargetMask.where(target_mask))

    @torch.no_grad()
    def hidden_after(
        self,
        tokens: Tensor,
        cache: KeyValueCache,
        positions: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> Tensor:
        """Return the hidden states (B, T, D) of tokens at the end of a text whose beginning the cache has read."""
        if not self.shape.causal:
            raise SettingError("cache", "given", "this model isn't causal: a new token changes what all others see")
        length, longest = tokens.shape[-1], self.pos.max_length(self.shape)
        read = cache.positions_after(length, documents) if positions is None else PositionIds(positions).stop
        self.position.check_length(read)
        position_ids = cache.position_ids(length, tokens.device, positions, documents)
        text = cache.text_so_far(tokens)
        text_documents = None if cache.documents is None else cache.documents[:, -text.shape[1] :]
        x = self.embedded(tokens, position_ids, text, text_documents)
        terms = cache.terms(length, longest, partial(self.position.terms, device=tokens.device))
        layers = self.position.layers(position_ids, terms=terms)
        x = self.through_blocks(x, cache.layers(layers))
        cache.length += length
        return x

    def read(self, tokens: Tensor, positions: Tensor | None = None, documents: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of whole texts, as an evaluation reads them."""
        return self.hidden(tokens, None, positions, documents)

    @property
    def longest_read(self) -> int | None:
        """Number of tokens of the longest text that `read` takes; None: any."""
        return self.pos.max_length(self.shape)

    def embedded(
        self, tokens: Tensor, position_ids: PositionIds, text: Tensor | None = None, documents: Tensor | None = None
    ) -> Tensor:
        """Return the input of the first block, (B, T, D); text: (B, N) ids, of which tokens (B, T) are the last, and
        documents theirs."""
        if text is None:
            text, documents = tokens, position_ids.documents
        return self.dropout(self.position.embedded(self.token_embedding(tokens), position_ids, text, documents))

    def through_blocks(self, x: Tensor, layers: Sequence[SchemeLayer], target_mask: TargetMask | None = None) -> Tensor:
        """Map the input of the first block to the hidden states, those of the targets if there is a mask."""
        for block, layer in zip(self.blocks, layers, strict=True):
            x = block(x, layer, target_mask if block is self.blocks[-1] else None)
        return self.final_norm(x)

    def _is_largest(self, shape: torch.Size) -> bool:
        """Return whether a batch (B, T) is of the largest shape so far. A CUDA graph serves one shape and keeps its
        memory, and smaller batches are few: the last ones of epochs."""
        if shape.numel() > self._replayed_shape.numel():
            self._replayed_shape = shape
        return shape == self._replayed_shape

    def _hidden_of_row(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states at consecutive positions (T,)."""
        position_ids = PositionIds(positions)
        return self.through_blocks(self.embedded(tokens, position_ids), self.position.layers(position_ids))

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Disable dropout within the context, and restore the mode after it."""
        if not self.training:
            yield
            return
        self.eval()
        try:
            yield
        finally:
            self.train()

    # Text, token by token

    generate = generate
    write = write

    def new_cache(
        self, window: int | None = None, padding: Tensor | None = None, positions: Tensor | None = None
    ) -> KeyValueCache:
        """Return a cache for texts of which each token sees `window` tokens; None: the context.

        positions: (B, N), those of the texts' first N tokens; None: 0, 1, 2, ...
        """
        return KeyValueCache(window or self.shape.context_length, padding, positions)

    def most_positions(self, window: int | None = None) -> int | None:
        """Return how many positions there are for a text; None: any number."""
        return self.pos.max_length(self.shape)

    def most_read(self, window: int | None = None) -> int | None:
        """Return how many tokens at the end of a prompt are read; None: all."""
        longest, seen = self.most_positions(window), window or self.shape.context_length
        return seen if longest is None else min(seen, longest)

    def relative_terms(self, length: int) -> list[RelativeTerms | None]:
        """Return the terms of each layer for the distances within `length` tokens."""
        distances = range(0 if self.shape.causal else 1 - length, length)
        return self.position.terms(distances, self.token_embedding.weight.device)

    def attention_parts(self) -> list[set[str]]:
        """Return the names of what enters attention over a whole context in each layer; see `attend`."""
        return self.position.attention_parts()

    def parameter_counts(self) -> dict[str, int]:
        """Count parameters in total, of the position scheme, and of the trunk, which models of all schemes share."""
        total = sum(p.numel() for p in self.parameters())
        scheme = sum(p.numel() for p in self.position_tables.parameters())
        return {"total": total, "trunk": total - scheme, "scheme": scheme}

    def replace_scheme(self, scheme: PositionScheme) -> None:
        """Take another scheme, for the same tables. Raises SettingError where the model can't."""
        self.position.scheme = scheme


def initialise(decoder: nn.Module, std: float, token_std: float, num_layers: int) -> None:
    """Initialise linear maps and embeddings as GPT-2 with another std: normal, biases zero, projections to the residual
    stream over sqrt(2 L). Whatever else a part has begins as the part makes it."""
    for name, module in decoder.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            residual = name.endswith(("attention.project", "mlp.project"))
            block_std = std / (2 * num_layers) ** 0.5 if residual else std
            nn.init.normal_(module.weight, std=token_std if name == "token_embedding" else block_std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


def remove_biases(decoder: nn.Module) -> None:
    """Leave every module without its bias, as torch's own modules with bias=False."""
    for module in decoder.modules():
        if isinstance(getattr(module, "bias", None), nn.Parameter):
            module.register_parameter("bias", None)
