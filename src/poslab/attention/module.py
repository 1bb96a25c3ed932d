"""Position scheme as a module: the owner of its tables, of the positions of tokens, and of its hooks in each layer.

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

from poslab.attention.choice import large_sizes
from poslab.attention.documents import Documents, positions_of_texts
from poslab.attention.position_ids import PositionIds
from poslab.attention.reference import parts_of
from poslab.attention.scheme import SchemeLayer
from poslab.positions import Explanation, ModelShape, Picture, PositionScheme, RelativeTerms, ScoreTile
from poslab.positions.sizes import check_length, initial_tables

_DRAWS = 4  # of positions, in an evaluation


class SchemeModule(nn.Module):
    """Position scheme with its tables as parameters; a decoder has one, `poslab.nn.Position` is one.

    Positions are explicit, sampled by the scheme, or 0, 1, 2, ... window: keys that a query sees at most, in every
    layer of a decoder. seed: of the run; a scheme that samples positions in evaluation draws them by it.
    """

    seed = 0
    _draw: int | None = None  # of positions, while `drawing`

    def __init__(self, scheme: PositionScheme, shape: ModelShape, window: int | None = None) -> None:
        super().__init__()
        self.scheme, self.shape, self.window = scheme, shape, window
        # A bare module rather than a ParameterDict, which can't hold a parameter called "keys" or "values".
        self.tables = nn.Module()
        for name, table in initial_tables(scheme, shape).items():
            self.tables.register_parameter(name, nn.Parameter(table))

    @property
    def own_tables(self) -> dict[str, nn.Parameter]:
        """Tables by the scheme's names."""
        return dict(self.tables.named_parameters())

    def check_length(self, length: int | torch.SymInt) -> None:
        """Raise SettingError where the scheme knows fewer positions."""
        check_length(self.scheme, self.shape, length)

    # A pass of a decoder

    def position_ids(
        self,
        tokens: Tensor,
        positions: Tensor | None = None,
        *,
        counted: Tensor | None = None,
        documents: Tensor | None = None,
        training: bool = False,
    ) -> PositionIds:
        """Return the positions of tokens (B, T): explicit, sampled by the scheme, or as counted.

        counted: (N,) or (B, N), N at least T, where tokens before these have positions, too; None: 0, 1, 2, ...
        documents: (B, N) numbers that rise along a row; each document is a text, with positions from 0 on unless these
        are explicit or counted. Raises SettingError for positions that the scheme doesn't know.
        """
        # A number is drawn for every scheme alike, so that what is random after it, as dropout, is the same for all.
        seed = int(torch.randint(2**62, ())) if training else None
        if positions is not None:
            position_ids = PositionIds.explicit(positions.to(tokens.device))
            position_ids.check(len(tokens), tokens.shape[1], self.scheme, self.shape)
            return replace(position_ids, documents=documents)
        if documents is not None and counted is None:
            # Texts have the draw of one seed, unless the scheme draws for each.
            seeds: Iterator[int | None] = itertools.repeat(seed)
            if seed is not None and self.scheme.samples_each_text:
                seeds = itertools.count(seed)

            def text_positions(length: int) -> Tensor | None:
                self.check_length(length)
                return self._sampled(length, next(seeds))

            return PositionIds(positions_of_texts(documents, text_positions), irregular=True, documents=documents)
        if counted is None:
            counted = torch.arange(tokens.shape[-1], device=tokens.device)
        length = counted.shape[-1]
        self.check_length(length)
        sampled = self._sampled(length, seed, len(tokens) if self.scheme.samples_each_text else None)
        if sampled is None:
            return PositionIds(counted, documents=documents)
        irregular = bool((sampled.diff() != 1).any())
        return PositionIds(sampled.to(tokens.device), irregular, documents)

    def embedded(
        self, x: Tensor, position_ids: PositionIds, text: Tensor | None, documents: Tensor | None = None
    ) -> Tensor:
        """Apply the hook `embed` to token embeddings x (B, T, D), (B, T, D); text: (B, N) ids, x those of the last.

        documents: (B, N), the numbers of the documents that rows of the text hold; None: each row is one.
        """
        embed: Callable[..., Tensor] = partial(self.scheme.embed, self.own_tables)
        if text is None or not self.scheme.further("embed", text):
            return position_ids.map(embed, x)
        if position_ids.positions.dim() == 1 and documents is None:
            return embed(x, position_ids.positions, tokens=text)

        def embed_rows(_: int, x: Tensor, positions: Tensor, text: Tensor) -> Tensor:
            # Rows can't become one, because ids are those of a row's text.
            rows = zip(x.split(1), positions[:, -x.shape[1] :, 0], text[..., 0], strict=True)
            return torch.cat([embed(row, own, tokens=ids[None]) for row, own, ids in rows])

        positions = F.pad(position_ids.positions.expand(x.shape[:2]), (text.shape[1] - x.shape[1], 0))
        if documents is None:
            return embed_rows(0, x, positions[..., None], text[..., None])
        return Documents(documents, x.shape[1]).apart(embed_rows, x, positions[..., None], text[..., None])

    def layers(
        self,
        position_ids: PositionIds,
        key_position_ids: PositionIds | None = None,
        terms: list[RelativeTerms | None] | None = None,
    ) -> list[SchemeLayer]:
        """Return the scheme in each layer; arguments as in `SchemeLayer`; terms: of each layer, if cached."""
        if terms is None:
            distances = (key_position_ids or position_ids).distances(self.shape.causal)
            terms = self.terms(distances, position_ids.positions.device)
        layer = partial(SchemeLayer, self.scheme, self.own_tables, self.shape)
        return [layer(number, terms[number], position_ids, key_position_ids) for number in range(len(terms))]

    def terms(self, distances: range, device: torch.device | None = None) -> list[RelativeTerms | None]:
        """Return what the hook `relative` gives for each layer; made once if layers share them.

        device: where the model is, because a scheme that learns nothing need not know it.
        """
        tables = self.own_tables
        different = 1 if self.scheme.share_layers else self.shape.num_layers
        terms = []
        for layer in range(different):
            own = self.scheme.relative(tables, self.shape, layer, distances)
            if self.window is not None:  # of this and the scheme's own the smaller
                own = own or RelativeTerms(0, 0)
                own = replace(own, window=min(self.window, own.window or self.window))
            terms.append(own if own is None or device is None else own.to(device))
        return terms * (self.shape.num_layers // different)

    # Positions that a scheme samples

    @property
    def draws(self) -> range:
        """Numbers of the draws of positions whose mean an evaluation takes; one for a scheme that counts."""
        return range(_DRAWS if self.scheme.samples_in_evaluation else 1)

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
        return self._drawn(length, self.seed * _DRAWS + draw) if self.scheme.samples_in_evaluation else None

    def text_positions(self, length: int) -> Tensor | None:
        """Draw the positions of a text that is generated token by token, (length,); None: 0, 1, 2, ...

        They are drawn for a whole context, so that they stay as they are while the text grows up to there.
        """
        longest = self.scheme.max_length(self.shape)
        drawn = max(length, self.shape.context_length)
        positions = self.evaluation_positions(drawn if longest is None else min(drawn, longest))
        return None if positions is None else positions[:length]

    def _sampled(self, length: int, seed: int | None, texts: int | None = None) -> Tensor | None:
        """Return positions that the scheme draws in training, by the seed, or in evaluation; None: 0, 1, 2, ..."""
        if seed is None:
            return None if self._draw is None else self.evaluation_positions(length, self._draw)
        return self._drawn(length, seed, texts) if self.scheme.overrides("sample") else None

    def _drawn(self, length: int, seed: int, texts: int | None = None) -> Tensor | None:
        """Draw positions (T,), or (B, T) for so many texts with their own; None: the scheme draws nothing."""
        generator = torch.Generator().manual_seed(seed)
        if texts is None:
            return self.scheme.sample(self.shape, length, generator)
        batch = [self.scheme.sample(self.shape, length, generator) for _ in range(texts)]
        rows = [positions for positions in batch if positions is not None]
        return torch.stack(rows) if rows else None

    # What a person sees of the scheme

    def pictures(self) -> dict[str, Picture]:
        """Return pictures of what the scheme has learned so far, by name."""
        return self.scheme.pictures(self.own_tables, self.shape)

    def explanations(self, sample: Sequence[ScoreTile]) -> dict[str, Explanation]:
        """Return what else a page shows of the scheme, by name; `sample` as `PositionScheme.explain` takes it."""
        return self.scheme.explain(self.own_tables, self.shape, sample)

    def attention_parts(self) -> list[set[str]]:
        """Return the names of what enters attention over a whole context in each layer; see `attend`."""
        entered = []
        sizes = large_sizes(self.shape.context_length, self.shape.num_heads, self.shape.head_dim)
        for layer, terms in enumerate(self.terms(self.shape.distances)):
            scores: set[str] = set()
            # Where there is a `key_bias`, `score_mod` is not called.
            if self._has_key_bias(layer):
                scores = {"key_bias"}
            elif self.scheme.overrides("score_mod", layer):
                scores = {"pairwise"}
            if not self.shape.causal:
                scores.add("later keys")
            window, null = (None, None) if terms is None else (terms.window, terms.null)
            if window is not None and window >= self.shape.context_length:
                window = None  # it hides nothing
            entered.append(scores | sizes | parts_of(terms, window=window, null=null))
        return entered

    @torch.no_grad()
    def _has_key_bias(self, layer: int) -> bool:
        """Return whether the hook `key_bias` returns one, which may depend on settings, of a single token."""
        if not self.scheme.overrides("key_bias", layer):
            return False
        like = next(iter(self.own_tables.values()), torch.empty(0))  # a scheme may have none
        state = self.scheme.token_state(self.own_tables, layer, like.new_zeros(1, 1, self.shape.embed_dim))
        return state is not None and self.scheme.key_bias(self.own_tables, self.shape, layer, state) is not None
