"""GPT decoder that knows no position scheme by name.

B batch, T sequence, D embedding, H heads, Dh head dimension, V vocabulary, L layers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import PositionIds, SchemeLayer, check_backend
from poslab.attention.reference import parts_of
from poslab.config.schema import Retrieval, reach
from poslab.errors import SettingError, require_at_least
from poslab.model.block import Block, TargetMask
from poslab.model.cache import KeyValueCache
from poslab.model.generate import generate
from poslab.model.memory import LayerMemory, Memory, Segment
from poslab.model.memory.retrieval import RetrievedAttention, check_bias
from poslab.model.positions import PositionedModule
from poslab.positions import Explanation, ModelShape, Picture, PositionScheme, RelativeTerms, ScoreTile
from poslab.positions.sizes import check_memory, check_sizes, initial_tables
from poslab.processors import compiler_reason

if TYPE_CHECKING:
    from poslab.data.tokenizer import AnyVocabulary

# What enters attention by a hook, and the hook; the second is not called where there is the first.
_HOOK_PARTS = {"key_bias": "key_bias", "pairwise": "score_mod"}


class GPT(PositionedModule):
    """Pre-norm decoder after GPT-2 (Radford et al. 2019), its head tied to the token embedding.

    The defaults are `model=mini`. `pos` is any PositionScheme; without one the model has no positions at all. With
    `causal=False` every token sees every other. `longest_text` is how many tokens the longest text of training has,
    None for a whole context. `compile` trains through torch.compile; parameters keep their names, so that checkpoints
    know nothing of it. With a `memory_length` M, `hidden_with_memory` and `hidden_in_segments` read a text on beyond
    the context: each layer sees the last M tokens before a segment, too. Raises SettingError for sizes that don't fit.
    """

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
        dropout: float = 0.1,
        init_std: float = 0.02,
        causal: bool = True,
        longest_text: int | None = None,
        attention_backend: str = "auto",
        compile: bool = False,
        memory_length: int = 0,
        retrieval: Retrieval | None = None,
    ) -> None:
        super().__init__()
        require_at_least(1, vocab_size=vocab_size)
        require_at_least(0, init_std=init_std, memory_length=memory_length)
        # What a block adds is a product of two matrices: so tokens keep their proportion to it.
        token_std = 0.02 * (init_std / 0.02) ** 2
        self.shape = ModelShape(context_length, embed_dim, num_layers, num_heads, causal, token_std, longest_text)
        self.pos = pos or PositionScheme()
        check_sizes(self.pos, self.shape)
        check_memory(self.pos, self.shape, memory_length)
        self.memory_length, self.retrieval = memory_length, retrieval
        self.token_embedding = nn.Embedding(vocab_size, embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(self.shape, dropout, attention_backend) for _ in range(num_layers))
        if retrieval is not None:
            retrieval.check(self.shape)
            self.blocks[retrieval.layer].attention.retrieval = RetrievedAttention(num_heads, retrieval)  # type: ignore[union-attr]
        self.final_norm = nn.LayerNorm(embed_dim)
        initialise(self, init_std, token_std, num_layers)
        # Last, and without moving the generator on: at one seed the rest of the model, and every dropout mask after
        # it, is the same to the bit for every scheme.
        self._check_length(context_length, "context_length", context_length)
        with torch.random.fork_rng(devices=[]):
            tables = initial_tables(self.pos, self.shape)
            if retrieval is not None:
                check_bias(retrieval, self.pos, tables, self.shape)
        # A bare module rather than a ParameterDict, which can't hold a parameter called "keys" or "values".
        self.position_tables = nn.Module()
        for name, table in tables.items():
            self.position_tables.register_parameter(name, nn.Parameter(table))
        self._compiled: Callable[..., Tensor] | None = None
        if compile:
            # By itself, or of many models in a process only the first ones would be compiled.
            self._compiled = torch.compile(self._hidden_of_row, isolate_recompiles=True)  # type: ignore[call-overload]
        if attention_backend != "auto":
            check_backend(attention_backend, self.attention_parts(), dropout, option="attention_backend")

    def forward(self, tokens: Tensor, cache: KeyValueCache | None = None, positions: Tensor | None = None) -> Tensor:
        """Return the logits (B, T, V) of tokens (B, T).

        With a cache, these tokens follow those that it has read, and no gradient comes from the blocks. positions: of
        the tokens, (T,) or (B, T) numbers; by default 0, 1, 2, ..., or in training, and where `drawing` says so,
        what the scheme draws. Raises SettingError for positions that the scheme doesn't know.
        """
        return F.linear(self.hidden(tokens, cache, positions), self.token_embedding.weight)

    def hidden(self, tokens: Tensor, cache: KeyValueCache | None = None, positions: Tensor | None = None) -> Tensor:
        """Return the normalised last hidden states (B, T, D) of tokens (B, T), the input of the tied head."""
        if cache is not None:
            if positions is not None:
                PositionIds.given(positions).check(len(tokens), tokens.shape[1], self.pos, self.shape)
            parts = cache.parts(tokens.shape[1])
            position_ids = [None] * len(parts) if positions is None else positions.split(parts, -1)
            read = [self._hidden_after(*part, cache) for part in zip(tokens.split(parts, 1), position_ids, strict=True)]
            return read[0] if len(read) == 1 else torch.cat(read, dim=1)
        position_ids = self._position_ids(tokens, positions)
        # Compiled only where nothing but the weights changes: generation, with its growing lengths, would recompile.
        if self._compiled is not None and self.training and not position_ids.irregular:
            try:
                # The backward pass with it: when that is called, there is no other way any more.
                with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
                    return self._compiled(tokens, position_ids.positions)
            except torch._dynamo.exc.TorchDynamoException as error:
                self._compiled = None
                reason = compiler_reason(error)
                warnings.warn(f"trains uncompiled, to the same result; torch says: {reason}", stacklevel=2)
        return self._hidden(tokens, position_ids)

    def hidden_at(self, target_mask: Tensor, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
        """Return the hidden states of the n targets among tokens (B, T), in order, (n, D); target_mask: (B, T) bool.

        The last block computes only those, from the keys and values of all: next to nothing for a single answer.
        """
        if target_mask.all():
            return self.hidden(tokens, positions=positions).flatten(0, 1)
        if not target_mask.any():
            return self.token_embedding.weight.new_empty(0, self.shape.embed_dim)
        if self._compiled is not None:
            return self.hidden(tokens, positions=positions)[target_mask]
        return self._hidden(tokens, self._position_ids(tokens, positions), TargetMask.where(target_mask))

    @property
    def remembers(self) -> bool:
        """True if a segment of a text sees earlier ones, by memory or retrieval."""
        return self.reach > 0

    @property
    def reach(self) -> int:
        """Number of tokens before a segment that it may see."""
        return reach(self.memory_length, self.retrieval)

    def empty_memory(self, batch: int) -> Memory:
        """Return the memory of `batch` texts of which nothing has been read."""
        return Memory(torch.zeros(batch, dtype=torch.int64, device=self.token_embedding.weight.device))

    def new_cache(
        self, window: int | None = None, padding: Tensor | None = None, positions: Tensor | None = None
    ) -> KeyValueCache:
        """Return a cache for texts of which each token sees `window` tokens; None: the context, or segments.

        positions: (B, N), those of the texts' first N tokens; None: 0, 1, 2, ...
        """
        length = self.shape.context_length
        if window is None and self.remembers:
            return KeyValueCache(None, padding, positions, segment=length, memory_length=self.memory_length)
        return KeyValueCache(window or length, padding, positions)

    def hidden_with_memory(
        self, tokens: Tensor, memory: Memory, target_mask: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Return the hidden states (B, T, D) of one segment, tokens (B, T), and the memory after it.

        Each layer sees the last memory_length tokens of the memory, as far as their row has read them of its document;
        no gradient reaches earlier segments. target_mask: (B, T) bool, to return only the hidden states of those
        tokens, in order, (n, D); without any of them the segment only updates the memory.
        """
        segment = Segment(memory, len(tokens), self.memory_length, self.shape.num_layers, self.retrieval)
        chosen = None if target_mask is None else TargetMask.where(target_mask)
        if not self.remembers:
            hidden = self.hidden(tokens) if target_mask is None else self.hidden_at(target_mask, tokens)
            return hidden, segment.after(tokens.shape[1])
        keys = self._position_ids(tokens, None, segment)
        with torch.set_grad_enabled(torch.is_grad_enabled() and (chosen is None or len(chosen.indices) > 0)):
            hidden = self._hidden(tokens, keys.last(tokens.shape[1]), chosen, keys, segment.layers)
        return hidden, segment.after(tokens.shape[1])

    def hidden_in_segments(
        self, tokens: Tensor, memory: Memory | None = None, target_mask: Tensor | None = None
    ) -> tuple[Tensor, Memory]:
        """Read tokens (B, N) of any number in segments of context_length; returns as `hidden_with_memory`.

        memory: of what came before; None: nothing did.
        """
        memory = self.empty_memory(len(tokens)) if memory is None else memory
        length, hidden_states = self.shape.context_length, []
        parts = tokens.split(length, dim=1)
        masks = [None] * len(parts) if target_mask is None else target_mask.split(length, dim=1)
        for part, of_part in zip(parts, masks, strict=True):
            hidden, memory = self.hidden_with_memory(part, memory, of_part)
            hidden_states.append(hidden)
        if target_mask is None:
            return torch.cat(hidden_states, dim=1), memory
        segments = target_mask.nonzero()[:, 1] // length  # of each target, text by text
        return torch.cat(hidden_states)[segments.argsort(stable=True).argsort()], memory

    def _hidden_of_row(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states at consecutive positions (T,)."""
        return self._hidden(tokens, PositionIds(positions))

    def _hidden(
        self,
        tokens: Tensor,
        position_ids: PositionIds,
        target_mask: TargetMask | None = None,
        key_position_ids: PositionIds | None = None,
        memories: Sequence[LayerMemory | None] | None = None,
    ) -> Tensor:
        """Return the hidden states; key_position_ids and memories: of remembered tokens, too, if any."""
        x = self._embed(tokens, position_ids, tokens)
        terms = self._terms((key_position_ids or position_ids).distances(self.shape.causal))
        layers = self._layers(terms, position_ids, key_position_ids)
        for block, layer, memory in zip(self.blocks, layers, memories or [None] * len(layers), strict=True):
            x = block(x, layer, target_mask=target_mask if block is self.blocks[-1] else None, memory=memory)
        return self.final_norm(x)

    @torch.no_grad()
    def _hidden_after(self, tokens: Tensor, positions: Tensor | None, cache: KeyValueCache) -> Tensor:
        """Return the hidden states, as `_hidden`, of tokens at the end of a text whose beginning the cache has read."""
        if not self.shape.causal:
            raise SettingError("cache", "given", "this model isn't causal: a new token changes what all others see")
        length, longest = tokens.shape[-1], self.pos.max_length(self.shape)
        self._check_length(cache.positions_after(length) if positions is None else int(positions.max()) + 1)
        position_ids = cache.position_ids(length, tokens.device, positions)
        so_far = cache.text_so_far(tokens) if self.pos.further("embed", None) else tokens
        x = self._embed(tokens, position_ids, so_far)
        layers = self._layers(cache.terms(length, longest, self._terms), position_ids)
        for block, layer, layer_cache in zip(self.blocks, layers, cache.layers(len(layers)), strict=True):
            x = block(x, layer, layer_cache)
        cache.length += length
        return self.final_norm(x)

    def _embed(self, tokens: Tensor, position_ids: PositionIds, so_far: Tensor) -> Tensor:
        """Return the input of the first block, (B, T, D); so_far: (B, N) ids of the text, which end in these tokens."""
        x = self.token_embedding(tokens)
        embed: Callable[..., Tensor] = partial(self.pos.embed, self._tables())
        if not self.pos.further("embed", None):
            embedded = position_ids.map(embed, x)
        elif position_ids.positions.dim() == 1:
            embedded = embed(x, position_ids.positions, tokens=so_far)
        else:  # rows can't become one, as ids are those of a row's text
            rows = zip(x.split(1), position_ids.positions, so_far.split(1), strict=True)
            embedded = torch.cat([embed(row, positions, tokens=ids) for row, positions, ids in rows])
        dropped: Tensor = self.dropout(embedded)
        return dropped

    def _layers(
        self, terms: list[RelativeTerms | None], position_ids: PositionIds, key_position_ids: PositionIds | None = None
    ) -> list[SchemeLayer]:
        made = partial(SchemeLayer, self.pos, self._tables(), self.shape)
        return [made(layer, of_it, position_ids, key_position_ids) for layer, of_it in enumerate(terms)]

    def relative_terms(self, length: int) -> list[RelativeTerms | None]:
        """Return the terms of each layer for the distances within `length` tokens; made once if layers share them."""
        return self._terms(range(0 if self.shape.causal else 1 - length, length))

    def _terms(self, distances: range) -> list[RelativeTerms | None]:
        tables = self._tables()
        layers = 1 if self.pos.share_layers else self.shape.num_layers
        different = [self.pos.relative(tables, self.shape, layer, distances) for layer in range(layers)]
        device = self.token_embedding.weight.device  # a scheme that learns nothing need not know it
        return [terms and terms.to(device) for terms in different] * (self.shape.num_layers // layers)

    generate = generate

    def parameter_counts(self) -> dict[str, int]:
        """Count parameters in total, of the position scheme, and of the trunk, which models of all schemes share."""
        total = sum(p.numel() for p in self.parameters())
        scheme = sum(p.numel() for p in self.position_tables.parameters())
        retrieving = (p for part in self.modules() if isinstance(part, RetrievedAttention) for p in part.parameters())
        return {"total": total, "trunk": total - scheme - sum(p.numel() for p in retrieving), "scheme": scheme}

    def pictures(self) -> dict[str, Picture]:
        """Return pictures of what the scheme has learned so far, by name."""
        return self.pos.pictures(self._tables(), self.shape)

    def explanations(self, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        """Return what else a page shows of the scheme, by name; `sample` as `PositionScheme.explain` takes it."""
        return self.pos.explain(self._tables(), self.shape, sample)

    def attention_parts(self, *terms: RelativeTerms | None) -> set[str]:
        """Return the names of what enters attention with these terms, by default those of all layers; see `attend`."""
        hook = next((part for part, name in _HOOK_PARTS.items() if self.pos.overrides(name)), None)
        found: set[str] = set() if hook is None else {hook}
        for of_layer in terms or self.relative_terms(self.shape.context_length):
            window, null = (None, None) if of_layer is None else (of_layer.window, of_layer.null)
            hides = window is not None and window < self.shape.context_length
            found |= parts_of(of_layer, window=window if hides else None, null=null)
        return found

    def _tables(self) -> dict[str, nn.Parameter]:
        return dict(self.position_tables.named_parameters())


def initialise(decoder: nn.Module, std: float, token_std: float, num_layers: int) -> None:
    """Initialise as GPT-2 with another std: normal, biases zero, projections to the residual stream over sqrt(2 L)."""
    for name, parameter in decoder.named_parameters():
        if parameter.dim() < 2:
            continue  # torch's own: ones for a LayerNorm's weight, zeros for its bias
        residual = name.endswith(("attention.project.weight", "mlp.project.weight"))
        of_block = std / (2 * num_layers) ** 0.5 if residual else std
        nn.init.normal_(parameter, std=token_std if name == "token_embedding.weight" else of_block)
    for module in decoder.modules():
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)
