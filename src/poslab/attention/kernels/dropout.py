"""Dropout of attention weights, drawn alike by two backends, or two passes, without a stored mask."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from poslab.attention.kernels.blocks import Block


@dataclass(frozen=True)
class WeightDropout:
    """Drop each attention weight with probability p and scale the rest by 1 / (1 - p).

    The factors of a block of queries come from a generator seeded with the call's seed and the block's number, so they
    can be drawn again, and never exist for all pairs at once. The call's seed is one draw from torch's default CPU
    generator: at one seed, all schemes see the same masks.
    """

    p: float
    device: torch.device
    seed: int = field(default_factory=lambda: int(torch.randint(2**62, ())))

    def factors(self, block: Block, like: Tensor) -> Tensor:
        """Return 0 or 1 / (1 - p) for each weight of the block (..., m, n), equal at every call."""
        generator = torch.Generator(self.device).manual_seed(self.seed + block.number)
        # A uniform 32-bit number per weight, drawn in pairs: on a CPU three times as fast as bernoulli_(), and p is met
        # to 2^-32.
        pairs = torch.empty((like.numel() + 1) // 2, dtype=torch.int64, device=self.device)
        uniform = pairs.random_(-(2**63), None, generator=generator).view(torch.int32)[: like.numel()].view(like.shape)
        first_kept = min(round(self.p * 2**32), 2**32 - 1) - 2**31
        factors = torch.empty(like.shape, dtype=like.dtype, device=self.device)
        return torch.ge(uniform, first_kept, out=factors).mul_(1 / (1 - self.p))
