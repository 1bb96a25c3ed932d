"""Module with a position scheme: its tables, the positions of its tokens, and its hooks before and in each layer.

Positions are given by the caller, sampled by the scheme, or 0, 1, 2, ...

B batch, T sequence, D embedding, L layers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention.documents import Documents, positions_of_texts
from poslab.attention.position_ids import PositionIds
from poslab.attention.reference import parts_of
from poslab.attention.scheme import SchemeLayer
from poslab.errors import SettingError
from poslab.positions import Explanation, ModelShape, Picture, PositionScheme, RelativeTerms, ScoreTile

_DRAWS = 4  # of positions, in an evaluation


class SchemeModule(nn.Module):
    """Base of a decoder, which calls `position_ids`, `embed` and `layers` and knows no hook.

    seed: of the run; a scheme that samples positions in evaluation draws them by it.
    """

    pos: PositionScheme
    shape: ModelShape
    token_embedding: nn.Embedding
    position_tables: nn.Module  # whose parameters are the scheme's tables
    seed = 0
    window: int | None = None  # keys that a query sees at most, in every layer
    _draw: int | None = None  # of positions, while `drawing`

    def position_ids(
        self,
        tokens: Tensor,
        given: Tensor | None = None,
        counted: Tensor | None = None,
        documents: Tensor | None = None,
    ) -> PositionIds:
        """Return the positions of tokens (B, T): as given, sampled by the scheme, or as counted.

        counted: (N,) or (B, N), N at least T, where tokens before these have positions, too; None: 0, 1, 2, ...
        documents: (B, N) numbers that rise along a row; each document is a text, with positions from 0 on unless these
        are given or counted. Raises SettingError for positions that the scheme doesn't know.
        """
        # A number is drawn for every scheme alike, so that what is random after it, as dropout, is the same for all.
        seed = int(torch.randint(2**62, ())) if self.training else None
        if given is not None:
            position_ids = PositionIds.given(given.to(tokens.device))
            position_ids.check(len(tokens), tokens.shape[1], self.pos, self.shape)
            self.check_length(position_ids.stop)
            return replace(position_ids, documents=documents)
        if documents is not None and counted is None:
            # Texts have the draw of one seed, unless the scheme draws for each.
            seeds: Iterator[int | None] = itertools.repeat(seed)
            if seed is not None and self.pos.samples_each_text:
                seeds = itertools.count(seed)

            def of_text(length: int) -> Tensor | None:
                self.check_length(length)
                return self._sampled(length, next(seeds))

            return PositionIds(positions_of_texts(documents, of_text), irregular=True, documents=documents)
        counted = torch.arange(tokens.shape[-1], device=tokens.device) if counted is None else counted
        length = counted.shape[-1]
        self.check_length(length)
        sampled = self._sampled(length, seed, len(tokens) if self.pos.samples_each_text else None)
        if sampled is None:
            return PositionIds(counted, documents=documents)
        irregular = bool((sampled.diff() != 1).any())
        return PositionIds(sampled.to(tokens.device), irregular, documents)

    def _sampled(self, length: int, seed: int | None, texts: int | None = None) -> Tensor | None:
        """Return positions that the scheme draws in training, by the seed, or in evaluation; None: 0, 1, 2, ..."""
        if seed is None:
            return None if self._draw is None else self.evaluation_positions(length, self._draw)
        return self._sample(length, seed, texts) if self.pos.overrides("sample") else None

    def embed(self, x: Tensor, position_ids: PositionIds, text: Tensor, documents: Tensor | None = None) -> Tensor:
        """Apply the hook `embed` to token embeddings x (B, T, D), (B, T, D); text: (B, N) ids, x those of the last.

        documents: (B, N), the numbers of the documents that rows of the text hold; None: each row is one.
        """
        embed: Callable[..., Tensor] = partial(self.pos.embed, self.tables)
        if not self.pos.further("embed", None):
            return position_ids.map(embed, x)
        if position_ids.positions.dim() == 1 and documents is None:
            return embed(x, position_ids.positions, tokens=text)

        def embed_alone(_: int, x: Tensor, positions: Tensor, text: Tensor) -> Tensor:
            # Rows can't become one, because ids are those of a row's text.
            rows = zip(x.split(1), positions[:, -x.shape[1] :, 0], text[..., 0], strict=True)
            return torch.cat([embed(row, own, tokens=ids[None]) for row, own, ids in rows])

        positions = F.pad(position_ids.positions.expand(x.shape[:2]), (text.shape[1] - x.shape[1], 0))
        if documents is None:
            return embed_alone(0, x, positions[..., None], text[..., None])
        return Documents(documents, x.shape[1]).apart(embed_alone, x, positions[..., None], text[..., None])

    def layers(
        self,
        position_ids: PositionIds,
        key_position_ids: PositionIds | None = None,
        terms: list[RelativeTerms | None] | None = None,
    ) -> list[SchemeLayer]:
        """Return the scheme in each layer; arguments as in `SchemeLayer`; terms: of each layer, if they are known."""
        if terms is None:
            terms = self.terms((key_position_ids or position_ids).distances(self.shape.causal))
        made = partial(SchemeLayer, self.pos, self.tables, self.shape)
        return [made(layer, of_it, position_ids, key_position_ids) for layer, of_it in enumerate(terms)]

    def terms(self, distances: range) -> list[RelativeTerms | None]:
        """Return what the hook `relative` gives for each layer; made once if layers share them."""
        tables = self.tables
        layers = 1 if self.pos.share_layers else self.shape.num_layers
        different = [self.pos.relative(tables, self.shape, layer, distances) for layer in range(layers)]
        device = self.token_embedding.weight.device  # a scheme that learns nothing need not know it
        seen = [terms and terms.to(device) for terms in map(self._within_window, different)]
        return seen * (self.shape.num_layers // layers)

    def _within_window(self, terms: RelativeTerms | None) -> RelativeTerms | None:
        """Return terms by which a query sees no more keys than the window."""
        if self.window is None:
            return terms
        terms = terms or RelativeTerms(0, 0)
        return replace(terms, window=min(self.window, terms.window or self.window))

    def relative_terms(self, length: int) -> list[RelativeTerms | None]:
        """Return the terms of each layer for the distances within `length` tokens."""
        return self.terms(range(0 if self.shape.causal else 1 - length, length))

    @property
    def tables(self) -> dict[str, nn.Parameter]:
        """Learned tables of the scheme, by name."""
        return dict(self.position_tables.named_parameters())

    def check_length(self, length: int, option: str = "tokens", value: object = None) -> None:
        """Raise SettingError, for `option` and its value, where the scheme knows fewer positions."""
        longest = self.pos.max_length(self.shape)
        if longest is not None and length > longest:
            problem = f"this position scheme knows {longest} positions, no more"
            raise SettingError(option, f"{length} long" if value is None else value, problem)

    # Positions that a scheme samples

    @property
    def draws(self) -> range:
        """Numbers of the draws of positions whose mean an evaluation takes; one for a scheme that counts."""
        return range(_DRAWS if self.pos.samples_in_evaluation else 1)

    @contextmanager
    def drawing(self, draw: int) -> Iterator[None]:
        """Take the positions of this draw within the context, in eval mode, if the scheme draws any in evaluation.

        A draw depends on the run's seed, on its number and on the length of the text, and is the same for all texts.
        """
        earlier, self._draw = self._draw, draw
        try:
            yield
        finally:
            self._draw = earlier

    def evaluation_positions(self, length: int, draw: int = 0) -> Tensor | None:
        """Draw the positions of an evaluation for a text of that length, (length,); None: 0, 1, 2, ..."""
        return self._sample(length, self.seed * _DRAWS + draw) if self.pos.samples_in_evaluation else None

    def text_positions(self, length: int) -> Tensor | None:
        """Draw the positions of a text that is generated token by token, (length,); None: 0, 1, 2, ...

        They are drawn for a whole context, so that they stay as they are while the text grows up to there.
        """
        longest = self.pos.max_length(self.shape)
        drawn = max(length, self.shape.context_length)
        positions = self.evaluation_positions(drawn if longest is None else min(drawn, longest))
        return None if positions is None else positions[:length]

    def _sample(self, length: int, seed: int, texts: int | None = None) -> Tensor | None:
        """Draw positions (T,), or (B, T) for so many texts with their own; None: the scheme draws nothing."""
        generator = torch.Generator().manual_seed(seed)
        if texts is None:
            return self.pos.sample(self.shape, length, generator)
        of_batch = [self.pos.sample(self.shape, length, generator) for _ in range(texts)]
        sampled = [positions for positions in of_batch if positions is not None]
        return torch.stack(sampled) if sampled else None

    # What a person sees of the scheme

    def pictures(self) -> dict[str, Picture]:
        """Return pictures of what the scheme has learned so far, by name."""
        return self.pos.pictures(self.tables, self.shape)

    def explanations(self, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        """Return what else a page shows of the scheme, by name; `sample` as `PositionScheme.explain` takes it."""
        return self.pos.explain(self.tables, self.shape, sample)

    @torch.no_grad()
    def _has_key_bias(self, layer: int) -> bool:
        """Return whether the hook `key_bias` returns one, which may depend on settings, of a single token."""
        if not self.pos.overrides("key_bias", layer):
            return False
        like = next(iter(self.tables.values()), torch.empty(0))  # a scheme may have none
        state = self.pos.token_state(self.tables, layer, like.new_zeros(1, 1, self.shape.embed_dim))
        return state is not None and self.pos.key_bias(self.tables, self.shape, layer, state) is not None

    def attention_parts(self) -> list[set[str]]:
        """Return the names of what enters attention over a whole context in each layer; see `attend`."""
        found = []
        for layer, terms in enumerate(self.relative_terms(self.shape.context_length)):
            pairwise = {"pairwise"} if self.pos.overrides("score_mod", layer) else set()
            # Where there is a `key_bias`, `score_mod` is not called.
            of_tokens = {"key_bias"} if self._has_key_bias(layer) else pairwise
            window, null = (None, None) if terms is None else (terms.window, terms.null)
            hides = window is not None and window < self.shape.context_length
            of_text = set() if self.shape.causal else {"later keys"}
            found.append(of_tokens | of_text | parts_of(terms, window=window if hides else None, null=null))
        return found
