"""One block of the decoder: attention by the scheme's layer, and the MLP.

B batch, T sequence, D embedding, H heads of queries, Hkv heads of keys and values, Dh head dimension.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from torch import Tensor, nn
from torch.nn import functional as F

from poslab.attention import SchemeLayer
from poslab.errors import SettingError, require_at_least, require_one_of
from poslab.model.mlp import GELU
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


@dataclass(frozen=True)
class BlockForm:
    """What a block is made of, beside its sizes. Raises SettingError for a form that there isn't.

    norm: from a width to a module that normalises (..., width). mlp: from D to a module (B, T, D) -> (B, T, D).
    qk_norm: RMSNorm over each head's Dh numbers, of queries and keys ("rms", as in Qwen3) or of keys alone ("key").
    num_kv_heads: heads of keys and values, each of which serves several heads of queries (Ainslie et al. 2023, arXiv
        2305.13245); None: as many as there are heads.
    gate: a sigmoid of what enters attention, times what leaves its heads: one for each head ("head"), or for each
        number ("element") (Qiu et al. 2025, arXiv 2505.06708).
    """

    norm: Callable[[int], nn.Module] = nn.LayerNorm
    mlp: Callable[[int], nn.Module] = GELU
    qk_norm: str = "none"
    num_kv_heads: int | None = None
    gate: str = "none"
    dropout: float = 0.1
    attention_backend: str = "auto"

    def __post_init__(self) -> None:
        require_one_of(QK_NORMS, qk_norm=self.qk_norm)
        require_one_of(GATES, gate=self.gate)
        require_at_least(1, num_kv_heads=self.num_kv_heads)

    def check(self, num_heads: int) -> None:
        """Raise SettingError where the heads can't share keys and values."""
        if num_heads % (self.num_kv_heads or 1):
            raise SettingError("num_kv_heads", self.num_kv_heads, f"must divide num_heads={num_heads}")


QK_NORMS = ("none", "rms", "key")
GATES = ("none", "head", "element")


class HeadNorm(nn.RMSNorm):
    """RMSNorm of each head's queries or keys, (B, H, T, Dh), in the precision of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)


class SelfAttention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, shape: ModelShape, form: BlockForm) -> None:
        super().__init__()
        self.shape = shape
        self.backend = form.attention_backend
        self.dropout_p = form.dropout
        self.num_kv_heads = form.num_kv_heads or shape.num_heads
        width, head_dim, attended = shape.embed_dim, shape.head_dim, shape.attention_dim
        self.query_key_value = nn.Linear(width, attended + 2 * self.num_kv_heads * head_dim)
        self.query_norm = HeadNorm(head_dim, eps=1e-6) if form.qk_norm == "rms" else nn.Identity()
        self.key_norm = HeadNorm(head_dim, eps=1e-6) if form.qk_norm != "none" else nn.Identity()
        gates = {"head": shape.num_heads, "element": attended}
        self.gate = nn.Linear(width, gates[form.gate]) if form.gate in gates else None
        self.project = nn.Linear(attended, width)
        self.dropout = nn.Dropout(form.dropout)

    def forward(self, x: Tensor, layer: SchemeLayer, target_mask: TargetMask | None = None) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        # Queries before the first target are asked by nobody.
        first = 0 if target_mask is None else target_mask.first
        q, k, v = self.queries_keys_values(x)
        dropout_p = self.dropout_p if self.training else 0.0
        out = layer.attend(q, k, v, x, first, dropout_p=dropout_p, backend=self.backend)  # (B, H, T - first, Dh)
        out = out.transpose(1, 2)
        if self.gate is not None:
            out = out * self.gate(x[:, first:]).sigmoid().unflatten(-1, (self.shape.num_heads, -1))
        # Heads side by side, projected to the residual stream where there is a target.
        out = out.flatten(-2)
        if target_mask is not None:
            out = target_mask.select(out, first)
        return self.dropout(self.project(out))

    def queries_keys_values(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Project x (B, T, D) to queries (B, H, T, Dh), keys and values (B, Hkv, T, Dh), before the scheme's hooks."""
        q, k, v = self._by_head(self.query_key_value(x), [self.shape.num_heads, *[self.num_kv_heads] * 2])
        return self.query_norm(q), self.key_norm(k), v

    def keys_values(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Project x (B, T, D) to keys and values alone, as `queries_keys_values`."""
        after, bias = slice(self.shape.attention_dim, None), self.query_key_value.bias
        projected = F.linear(x, self.query_key_value.weight[after], None if bias is None else bias[after])
        k, v = self._by_head(projected, [self.num_kv_heads] * 2)
        return self.key_norm(k), v

    def _by_head(self, x: Tensor, heads: list[int]) -> tuple[Tensor, ...]:
        """Split x (B, T, n Dh) into tensors (B, heads, T, Dh)."""
        return x.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2).split(heads, 1)


class Block(nn.Module):
    """Residual block: x + attention(mix(norm(x))), then x + mlp(norm(x)); mix: the scheme's hook."""

    def __init__(self, attention: SelfAttention, form: BlockForm) -> None:
        super().__init__()
        embed_dim = attention.shape.embed_dim
        self.attention_norm = form.norm(embed_dim)
        self.attention = attention
        self.mlp_norm = form.norm(embed_dim)
        self.mlp = form.mlp(embed_dim)
        self.dropout = nn.Dropout(form.dropout)

    def forward(self, x: Tensor, layer: SchemeLayer, target_mask: TargetMask | None = None) -> Tensor:
        """Map x (B, T, D) to (B, T, D), or with a target mask to (n, D) of the targets."""
        attended = self.attention(layer.mix(self.attention_norm(x)), layer, target_mask)
        x = (x if target_mask is None else target_mask.select(x)) + attended
        return x + self.dropout(self.mlp(self.mlp_norm(x)))
