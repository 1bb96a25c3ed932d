"""Positions of the tokens of a pass.

B batch, T sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from poslab.attention.documents import Documents
from poslab.errors import SettingError
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.base import knows_fractions
from poslab.positions.sizes import check_length
from poslab.positions.terms import distances_between


@dataclass(frozen=True, eq=False)
class PositionIds:
    """Positions of some tokens, (T,), or (B, T) where rows differ.

    irregular: they are not consecutive, so that a distance along the text is no difference of positions.
    documents: (B, T), the number of each token's document, where rows hold several; None: each row is one.
    """

    positions: Tensor
    irregular: bool = False
    documents: Tensor | None = None

    @classmethod
    def explicit(cls, positions: Tensor) -> PositionIds:
        """Take a caller's positions. Raises SettingError unless they are (T,) or (B, T) numbers from 0 on."""
        numbers = not (positions.is_complex() or positions.dtype == torch.bool)
        if positions.dim() not in (1, 2) or not numbers or (positions.numel() and not positions.min() >= 0):
            form = f"{list(positions.shape)} {positions.dtype}".replace("torch.", "")
            raise SettingError("positions", form, "must be numbers from 0 on, (T,) or (B, T)")
        # A copy, because what is computed once per pass would not notice that numpy changes its own memory.
        positions = positions.clone() if positions.is_floating_point() else positions.to(torch.int64, copy=True)
        return cls(positions, irregular=bool((positions.diff() != 1).any()))

    @property
    def stop(self) -> int:
        """One more than the last position; 0 where there are no tokens."""
        return int(self.positions.max()) + 1 if self.positions.numel() else 0

    def last(self, count: int) -> PositionIds:
        """Return the positions of the last `count` tokens, and their documents."""
        begin = self.positions.shape[-1] - count
        documents = None if self.documents is None else self.documents[:, begin:]
        return replace(self, positions=self.positions[..., begin:], documents=documents)

    def apart(self, queries: int) -> tuple[Documents, list[PositionIds]]:
        """Return the documents of these keys, of which the last `queries` tokens ask, and the positions of each batch.

        They are made once for all layers of a pass.
        """
        assert self.documents is not None
        if queries not in self._apart:
            documents = Documents(self.documents, queries)
            rows = self.positions.expand(self.documents.shape)[..., None]
            batches = []
            for batch_rows in documents.batched(rows):
                positions = batch_rows[..., 0]
                if (positions == positions[0]).all():  # one row for all is what kernels know best
                    positions = positions[0]
                batches.append(PositionIds(positions, irregular=bool((positions.diff() != 1).any())))
            self._apart[queries] = documents, batches
        return self._apart[queries]

    def check(self, batch: int, length: int, scheme: PositionScheme, shape: ModelShape) -> None:
        """Raise SettingError unless these are positions that the scheme knows, of `batch` texts of `length` tokens."""
        *rows, count = self.positions.shape
        if count != length:
            raise SettingError("positions", [*rows, count], f"must be one for each of the {length} tokens")
        if rows and rows[0] != batch:
            raise SettingError("positions", f"{rows[0]} rows", f"must be one row, or one for each of the {batch} texts")
        if self.positions.is_floating_point() and not knows_fractions(scheme, shape):
            problem = "must be whole numbers: this position scheme has tables by distance, or a last position"
            raise SettingError("positions", str(self.positions.dtype).removeprefix("torch."), problem)
        stop = self.stop
        check_length(scheme, shape, stop, "positions", f"up to {stop - 1}")

    def distances(self, causal: bool) -> range:
        """Return all distances between the positions of a query and of a key that it sees, 0 always among them."""
        if self.documents is not None and not torch.compiler.is_compiling():
            reaches = [ids.distances(causal) for ids in self.apart(self.documents.shape[-1])[1]]
            return range(min(reach.start for reach in reaches), max(reach.stop for reach in reaches))
        reach = torch.sym_max(1, self.positions.shape[-1])
        if self.irregular and self.positions.numel():
            reach = int(self.positions.max() - self.positions.min()) + 1
        falling = self.irregular and bool((self.positions.diff() < 0).any())
        return distances_between(0 if causal and not falling else 1 - reach, reach)

    def map(self, hook: Callable[..., Tensor], x: Tensor, **further: Tensor | None) -> Tensor:
        """Apply a scheme's hook(x, positions) to x (B, ..., T, n).

        A hook takes positions (T,) and maps each token by itself: where rows have positions of their own, all tokens
        are handed to it as one row of B T. further: more arguments of the hook, (B, ..., T, n) or None.
        """
        if self.positions.dim() == 1:
            return hook(x, self.positions, **further)
        rows = {name: None if value is None else _one_row(value) for name, value in further.items()}
        # Dynamo knows no cached property, and finds by itself what is computed twice.
        positions = self.positions.flatten() if torch.compiler.is_compiling() else self._one_row
        return hook(_one_row(x), positions, **rows)[0].unflatten(-2, self.positions.shape).movedim(-3, 0)

    @cached_property
    def _apart(self) -> dict[int, tuple[Documents, list[PositionIds]]]:
        return {}

    @cached_property
    def _one_row(self) -> Tensor:
        """Return positions (B T,), one tensor for all calls, by which schemes cache results of this pass."""
        return self.positions.flatten()


def _one_row(x: Tensor) -> Tensor:
    """Concatenate the tokens of all rows of x (B, ..., T, n), (1, ..., B T, n)."""
    return x.movedim(0, -3).flatten(-3, -2)[None]
