"""One block of the decoder: attention by the scheme's layer, and the MLP.

B batch, T sequence, D embedding, H heads, Dh head dimension.
"""

from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import SchemeLayer
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

    def forward(self, x: Tensor, layer: SchemeLayer, target_mask: TargetMask | None = None) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        first = 0 if target_mask is None else target_mask.first
        out = self.attend(*self.queries_keys_values(x), x, layer, first)
        out = out.transpose(1, 2).flatten(-2)  # (B, H, T, Dh) -> (B, T, D)
        return self.dropout(self.project(out if target_mask is None else target_mask.select(out, first)))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor, layer: SchemeLayer, first: int) -> Tensor:
        """Return attention of queries (B, H, T, Dh) from index `first` on over the keys of x (B, N, D)."""
        q, k, token_state = layer.apply_hooks(q, k, x)
        dropout_p = self.dropout_p if self.training else 0.0
        return layer.attend(q[:, :, first:], k, v, token_state, dropout_p=dropout_p, backend=self.backend)

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (B, T, D) to queries, keys and values, (B, H, T, Dh) each, before the scheme's hooks."""
        q, k, v = self.by_head(self.query_key_value(x))
        return q, k, v

    def by_head(self, x: Tensor) -> tuple[Tensor, ...]:
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


class Block(nn.Module):
    """Residual block: x + attention(mix(norm(x))), then x + mlp(norm(x)); mix: the scheme's hook."""

    def __init__(self, attention: Attention, embed_dim: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(embed_dim)
        self.attention = attention
        self.mlp_norm = nn.LayerNorm(embed_dim)
        self.mlp = MLP(embed_dim, dropout)

    def forward(self, x: Tensor, layer: SchemeLayer, target_mask: TargetMask | None = None) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        attended = self.attention(layer.mix(self.attention_norm(x)), layer, target_mask)
        x = (x if target_mask is None else target_mask.select(x)) + attended
        return x + self.mlp(self.mlp_norm(x))
