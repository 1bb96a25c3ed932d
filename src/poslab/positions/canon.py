"""Canon layers: each token takes something of the few before it, channel by channel (Allen-Zhu 2025, "Physics of
Language Models: Part 4.1, Architecture Design and the Magic of Canon Layers", section 3).

    x'_i = x_i + sum_{a = 0 .. K - 1} c_a * x_{i - a}          x_i: what enters attention, zeros before a text

c_a is a vector of D numbers in each layer and K = `tokens`, 4 in the paper. It is position by order: what stands before
a token is told apart by its place there, and with no other scheme (`of=nope`, so that this alone is compared) a model
knows the order of its text, as far as the K - 1 tokens of each of its layers reach.

Of the paper's four places this is Canon-A, before attention and after its norm: the one where position schemes enter,
as queries, keys and values are made of it. B mixes these three, C what enters the MLP, D what is within it. As in the
authors' code (facebookresearch/PhysicsLM4, canon_helper.py) x_i itself is added, there is no bias, no activation, and
c begins uniform within 1 / sqrt(K), as torch begins a Conv1d of one channel at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from poslab.errors import require_at_least
from poslab.positions.base import ModelShape, Picture, Tables
from poslab.positions.combined import Wrapper
from poslab.positions.nope import NoPE
from poslab.positions.pictures import curves_of

_SHARES = (
    "How much of the token so many places back is added to each, beside the token itself: the root of the mean square "
    "over channels. All begin alike. A line that falls keeps to the nearest; a peak at 1 brings the token before, half "
    "of an induction head. Surprising: lines that have stayed level, after which every place counts the same."
)


@dataclass(frozen=True)
class Canon(Wrapper):
    """Canon-A beside a scheme `of`; tokens: how many each is made of, itself included."""

    tokens: int = 4

    _own = ("canon",)
    variants = ({"of": "rope", "tokens": 2}, {"of": "forgetting"})

    def __post_init__(self) -> None:
        require_at_least(2, tokens=self.tokens)

    @property
    def mixed_tokens(self) -> int:  # type: ignore[override]
        return super().mixed_tokens + self.tokens - 1

    def warnings(self, shape: ModelShape) -> list[str]:
        """Return those of `of`, which needn't know the order of its text."""
        return [] if isinstance(self.of, NoPE) else super().warnings(shape)

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        size, bound = (shape.num_layers, self.tokens, shape.embed_dim), self.tokens**-0.5
        return super().tables(shape) | {"canon": torch.empty(size).uniform_(-bound, bound)}

    def mix(self, tables: Tables, layer: int, x: Tensor) -> Tensor:
        shares, count = tables["canon"][layer].to(x.dtype), self.tokens  # (K, D)
        length = x.shape[1] - count + 1
        mixed = x[:, count - 1 :]  # (B, T, D)
        for back, share in enumerate(shares):
            mixed = mixed + share * x[:, count - 1 - back :][:, :length]
        return super().mix(tables, layer, mixed)

    def pictures(self, tables: Tables, shape: ModelShape) -> dict[str, Picture]:
        sizes = tables["canon"].float().square().mean(-1).sqrt()  # (L, K)
        own = curves_of("layer", "What each token takes of those before it", "tokens back", "share", sizes, _SHARES)
        return super().pictures(tables, shape) | {"canon": own}
