"""Embedding of tokens, whose matrix is the head's as well.

D channels, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

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
