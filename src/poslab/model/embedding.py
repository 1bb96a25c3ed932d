"""Embedding of tokens, whose matrix is the head's as well, and positions of tokens: given by the caller, drawn by the
scheme, or 0, 1, 2, ...

B batch, T sequence, D channels, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from poslab.attention import PositionIds
from poslab.errors import SettingError
from poslab.model.memory import Segment
from poslab.positions import ModelShape, PositionScheme

_FEW = 8  # rows of the matrix for each token that is looked up: with fewer, a gradient of all rows is as fast


class TokenEmbedding(nn.Embedding):
    """Embedding whose gradient can be summed with that of the tied head in less time."""

    _looked_up: Tensor | None = None

    @contextmanager
    def shared_with_head(self, tokens: Tensor) -> Iterator[Tensor]:
        """Yield the matrix (V, D) for a head that follows on these tokens, which are looked up once within the context.

        On a CPU the gradients of their rows are added to the head's gradient, where otherwise they become a matrix of
        zeros for all other tokens, and two are added: of a training step of model=mini in bfloat16 that took 4 %.
        """
        few = _FEW * tokens.numel() <= self.num_embeddings
        if not (few and tokens.device.type == "cpu" and self.weight.requires_grad and torch.is_grad_enabled()):
            yield self.weight
            return
        self._looked_up, of_head = _Shared.apply(self.weight)  # type: ignore[no-untyped-call]
        try:
            yield of_head
        finally:
            self._looked_up = None

    def forward(self, tokens: Tensor) -> Tensor:
        """Look up tokens (B, T), (B, T, D)."""
        if torch.compiler.is_compiling() or self._looked_up is None:
            return super().forward(tokens)
        return F.embedding(tokens, self._looked_up, sparse=True)


class _Shared(torch.autograd.Function):
    """Return a matrix (V, D) twice: first for a sparse gradient, then for a dense one that nobody else
    has."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return weight.view_as(weight), weight.view_as(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_rows: Tensor | None, of_all: Tensor | None) -> Tensor | None:
        if of_rows is None or of_all is None:
            return of_all if of_rows is None else of_rows.to_dense()
        tokens, of_each = of_rows._indices()[0].unique(return_inverse=True)
        # Equal tokens are summed first, in the order of the text, as in a matrix of zeros: to the same bits.
        sums = torch.zeros(len(tokens), of_all.shape[1], dtype=torch.promote_types(of_all.dtype, torch.float32))
        sums.index_add_(0, of_each, of_rows._values().to(sums.dtype))
        return of_all.index_add_(0, tokens, sums.to(of_all.dtype))


# Positions


_DRAWS = 4  # of positions, in an evaluation


class PositionedModule(nn.Module):
    """Module with a position scheme, which decides the positions of its tokens.

    seed: of the run; a scheme that draws positions in evaluation draws them by it. memory_length: tokens before a
    segment that its layers see.
    """

    pos: PositionScheme
    shape: ModelShape
    memory_length: int
    seed = 0
    first_text = 0  # of a training batch, where several processes share one
    _draw: int | None = None  # of positions, while `drawing`

    @property
    def draws(self) -> range:
        """Numbers of the draws of positions whose mean an evaluation takes; one for a scheme that counts."""
        return range(_DRAWS if self.pos.samples_in_evaluation else 1)

    @contextmanager
    def drawing(self, draw: int) -> Iterator[None]:
        """Take the positions of this draw within the context, in eval mode, if the scheme draws any in evaluation.

        A draw depends on the run's seed, on its number and on the length of the text, and is the same for all texts.
        """
        self._draw = draw
        try:
            yield
        finally:
            self._draw = None

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

    def _position_ids(self, tokens: Tensor, given: Tensor | None, segment: Segment | None = None) -> PositionIds:
        """Return the positions of tokens (B, T): as given, drawn by the scheme, or one after the other.

        Those of a segment follow what is remembered.
        """
        length, device = tokens.shape[-1], tokens.device
        # A number is drawn for every scheme alike: what is random after it, as dropout, stays the same for all.
        seed = int(torch.randint(2**62, ())) if self.training else None
        if given is not None:
            position_ids = PositionIds.given(given.to(device))
            position_ids.check(*tokens.shape)
            self._check_length(int(position_ids.positions.max()) + 1)
            return position_ids
        remembered = 0 if segment is None else segment.remembered
        self._check_length(remembered + length)
        sampled = None
        if seed is not None and self.pos.overrides("sample"):
            sampled = self._sample(remembered + length, seed, len(tokens) if self.pos.samples_each_text else None)
        elif seed is None and self._draw is not None:
            sampled = self.evaluation_positions(remembered + length, self._draw)
        if sampled is not None:
            return PositionIds(sampled.to(device), irregular=bool((sampled.diff() != 1).any()))
        if segment is None:
            return PositionIds(torch.arange(length, device=device))
        by_distance = self.pos.shift_invariant and not self.pos.overrides("embed")
        # Without memory_length, no token sees another of an earlier segment: positions begin anew, as in windows.
        return segment.position_ids(length, counted=self.memory_length > 0 and not by_distance)

    def _sample(self, length: int, seed: int, texts: int | None = None) -> Tensor | None:
        """Draw positions (T,), or (B, T) for so many texts with their own; None: the scheme draws nothing."""
        generator = torch.Generator().manual_seed(seed)
        if texts is None:
            return self.pos.sample(self.shape, length, generator)
        of_batch = [self.pos.sample(self.shape, length, generator) for _ in range(self.first_text + texts)]
        sampled = [positions for positions in of_batch[self.first_text :] if positions is not None]
        return torch.stack(sampled) if sampled else None

    def _check_length(self, length: int, option: str = "tokens", value: object = None) -> None:
        longest = self.pos.max_length(self.shape)
        if longest is not None and length > longest:
            problem = f"this position scheme knows {longest} positions, no more"
            raise SettingError(option, f"{length} long" if value is None else value, problem)
