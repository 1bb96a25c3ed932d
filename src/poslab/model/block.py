"""One block of the decoder: attention over the segment, over what is remembered or cached of before it, and the MLP.

B batch, T sequence, D embedding, H heads, Dh head dimension, m tokens of memory.
"""

from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import SchemeLayer
from poslab.model.cache import LayerCache
from poslab.model.memory import LayerMemory
from poslab.model.memory.retrieval import RetrievedAttention
from poslab.positions import ModelShape


@dataclass(frozen=True, eq=False)
class TargetMask:
    """Targets of a batch (B, T), and the first index at which any text has one; the last index where there is none."""

    texts: Tensor  # (n,)
    indices: Tensor  # (n,)
    first: int

    @classmethod
    def where(cls, mask: Tensor) -> Self:
        """Take the targets of a mask (B, T) bool."""
        texts, indices = mask.nonzero().unbind(1)
        return cls(texts, indices, int(indices.min()) if len(indices) else mask.shape[1] - 1)

    def select(self, x: Tensor, first: int = 0) -> Tensor:
        """Select the targets of x (B, T - first, D), which begins at index `first`, (n, D)."""
        return x.flatten(0, 1).index_select(0, self.texts * x.shape[1] + self.indices - first)


class Block(nn.Module):
    """Residual block: x + attention(mix(norm(x))), then x + mlp(norm(x)); mix: the scheme's hook."""

    def __init__(self, shape: ModelShape, dropout: float, attention_backend: str) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(shape.embed_dim)
        self.attention = Attention(shape, dropout, attention_backend)
        self.mlp_norm = nn.LayerNorm(shape.embed_dim)
        self.mlp = MLP(shape.embed_dim, dropout)

    def forward(
        self,
        x: Tensor,
        layer: SchemeLayer,
        cache: LayerCache | None = None,
        target_mask: TargetMask | None = None,
        memory: LayerMemory | None = None,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        entering = self.attention_norm(x)
        if layer.scheme.overrides("mix"):
            entering = layer.mix(entering) if cache is None else cache.mix(entering, layer)
        attended = self.attention(entering, layer, cache, target_mask, memory)
        x = (x if target_mask is None else target_mask.select(x)) + attended
        return x + self.mlp(self.mlp_norm(x))


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, shape: ModelShape, dropout: float, backend: str) -> None:
        super().__init__()
        self.shape = shape
        self.backend = backend
        self.dropout_p = dropout
        self.query_key_value = nn.Linear(shape.embed_dim, 3 * shape.embed_dim)
        self.project = nn.Linear(shape.embed_dim, shape.embed_dim)
        self.dropout = nn.Dropout(dropout)
        self.retrieval: RetrievedAttention | None = None

    def forward(
        self,
        x: Tensor,
        layer: SchemeLayer,
        cache: LayerCache | None = None,
        target_mask: TargetMask | None = None,
        memory: LayerMemory | None = None,
    ) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        q, k, v = self.queries_keys_values(x)
        first_key, own = None, (q, k, v)
        if memory is not None:
            memory.entered, first_key = x, memory.first_key
            if memory.inputs is not None:
                # By themselves: nobody wants queries of them, nor a gradient.
                inputs = memory.inputs.to(x.dtype)
                before = self.keys_values(inputs)
                k, v = (torch.cat(pair, dim=2) for pair in zip(before, (k, v), strict=True))  # (B, H, m + T, Dh)
                x = torch.cat([inputs, x], dim=1) if layer.scheme.overrides("token_state") else x  # (B, m + T, D)
        q, k, token_state = layer.apply_hooks(q, k, x)
        first = 0 if target_mask is None else target_mask.first
        if cache is not None:
            out = cache.attend(q, k, v, token_state, layer)
        else:
            dropout_p = self.dropout_p if self.training else 0.0
            settings: dict[str, Any] = {"dropout_p": dropout_p, "first_key": first_key, "backend": self.backend}
            out = layer.attend(q[:, :, first:], k, v, token_state, **settings)
        if self.retrieval is not None:
            of_cache = cache and cache.lookup(len(x), self.retrieval.settings.size, x.device)
            lookup = memory.lookup if memory is not None else of_cache
            if lookup is not None:
                out = self.retrieval(out, *own, lookup, layer, first)
        out = out.transpose(1, 2).flatten(-2)  # (B, H, T, Dh) -> (B, T, D)
        return self.dropout(self.project(out if target_mask is None else target_mask.select(out, first)))

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (B, T, D) to queries, keys and values, (B, H, T, Dh) each, before the scheme's hooks."""
        q, k, v = self._by_head(self.query_key_value(x))
        return q, k, v

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project x (B, m, D) to keys and values, (B, H, m, Dh) each, for tokens whose queries are not needed."""
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        after = slice(self.shape.embed_dim, None)
        k, v = self._by_head(F.linear(x, weight[after], bias[after]))
        return k, v

    def _by_head(self, x: Tensor) -> tuple[Tensor, ...]:
        """Split x (B, T, n D) into n tensors (B, H, T, Dh)."""
        parts = x.unflatten(-1, (-1, self.shape.num_heads, self.shape.head_dim)).transpose(1, 3)  # (B, H, n, T, Dh)
        return parts.unbind(2)


class MLP(nn.Module):
    """Two linear maps with a GELU between them, 4 D wide."""

    def __init__(self, embed_dim: int, dropout: float) -> None:
        super().__init__()
        self.expand = nn.Linear(embed_dim, 4 * embed_dim)
        self.project = nn.Linear(4 * embed_dim, embed_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        return self.dropout(self.project(F.gelu(self.expand(x), approximate="tanh")))
