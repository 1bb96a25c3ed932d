"""Positions of a model's tokens: given by the caller, drawn by the scheme, or 0, 1, 2, ...

B batch, T sequence.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from poslab.attention import PositionIds
from poslab.errors import SettingError
from poslab.model.memory import Segment
from poslab.positions import ModelShape, PositionScheme

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
            position_ids.check(len(tokens), length, self.pos, self.shape)
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
