"""Minimal decoders as baselines: with learned absolute positions, after nanoGPT; with rotary ones, after Llama."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.entrants import Size


class BareGPT(nn.Module):
    """Decoder of token and position embeddings, blocks, and a head that shares the token embedding's weights."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.tokens = nn.Embedding(size.vocabulary, size.embed)
        self.blocks = nn.ModuleList(_BareBlock(size.embed, size.heads) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.embed)
        self.positions = nn.Embedding(size.length, size.embed)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of tokens and targets (B, T)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))  # (B, T, D)
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class BareModernGPT(nn.Module):
    """Decoder of RMSNorm, SwiGLU, normalised and rotated queries and keys, without biases, its head by itself."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.tokens = nn.Embedding(size.vocabulary, size.embed)
        self.blocks = nn.ModuleList(_BareModernBlock(size.embed, size.heads) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.embed, eps=1e-6)
        self.head = nn.Linear(size.embed, size.vocabulary, bias=False)
        head_dim = size.embed // size.heads
        frequencies = 10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = (torch.arange(size.length)[:, None] * frequencies).tile(1, 2)  # (T, Dh)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())
        nn.init.normal_(self.tokens.weight, std=0.02)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of tokens and targets (B, T)."""
        x = self.tokens(tokens)  # (B, T, D)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class _BareModernBlock(nn.Module):
    def __init__(self, embed: int, heads: int) -> None:
        super().__init__()
        self.heads, hidden = heads, 8 * round(embed / 3)
        self.attention_norm, self.mlp_norm = nn.RMSNorm(embed, eps=1e-6), nn.RMSNorm(embed, eps=1e-6)
        self.query_norm, self.key_norm = nn.RMSNorm(embed // heads, eps=1e-6), nn.RMSNorm(embed // heads, eps=1e-6)
        self.query_key_value = nn.Linear(embed, 3 * embed, bias=False)
        self.project = nn.Linear(embed, embed, bias=False)
        self.expand = nn.Linear(embed, 2 * hidden, bias=False)
        self.contract = nn.Linear(hidden, embed, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        """Return the block's output: x (B, T, D) -> (B, T, D)."""
        parts = self.query_key_value(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)

        def rotated(heads: Tensor) -> Tensor:
            first, second = heads.chunk(2, -1)
            return heads * cosines + torch.cat([-second, first], -1) * sines

        q, k = rotated(self.query_norm(q)), rotated(self.key_norm(k))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        gate, up = self.expand(self.mlp_norm(x)).chunk(2, -1)
        return x + self.contract(F.silu(gate) * up)


class _BareBlock(nn.Module):
    def __init__(self, embed: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(embed)
        self.query_key_value, self.project = nn.Linear(embed, 3 * embed), nn.Linear(embed, embed)
        self.mlp_norm = nn.LayerNorm(embed)
        self.mlp = nn.Sequential(nn.Linear(embed, 4 * embed), nn.GELU("tanh"), nn.Linear(4 * embed, embed))

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output: x (B, T, D) -> (B, T, D)."""
        parts = self.query_key_value(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))
