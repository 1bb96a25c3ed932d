"""Rotations of queries and keys by their position: the angles, once per forward pass, and the turning.

Axes: B batch, H heads, T sequence, Dh head dimension, n pairs of channels that turn: the first 2 n channels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from poslab.processors import in_transform

Made = TypeVar("Made")

# What has been computed of the positions of a pass, as long as that tensor lives: (its version, results by key).
_computed = WeakTensorKeyDictionary()


def once_per_pass(positions: Tensor, key: Hashable, compute: Callable[[], Made]) -> Made:
    """Return the result of `compute`, computed once for each `key` while the tensor `positions` lives unchanged.

    In a forward pass every layer gets the very same tensor of positions, for its queries and for its keys.
    """
    # A compiler finds by itself what is computed twice, and a tensor of inference mode doesn't tell of its changes.
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or positions.is_inference():
        return compute()
    version, results = _computed.get(positions, (None, {}))
    if version != positions._version:
        results = {}
        _computed[positions] = (positions._version, results)
    if key not in results:
        results[key] = compute()
    made: Made = results[key]
    return made


def angles(positions: Tensor, frequencies: Sequence[float]) -> Tensor:
    """Multiply positions (T,) by n frequencies, (T, n) radians, in float64 where the device has it."""
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    return positions.to(dtype)[:, None] * torch.tensor(frequencies, dtype=dtype, device=positions.device)


@dataclass(frozen=True, eq=False)
class Rotation:
    """Rotation of queries or keys of Dh channels, at each of T positions.

    Each pair of channels (a, b) becomes (a cos - b sin, b cos + a sin). The pairs are channels (d, d + n), or
    (2 d, 2 d + 1) where they are interleaved; channels from 2 n on stay.
    """

    cos: Tensor  # (T, Dh): that of each channel's pair; 1 for channels that stay
    sin: Tensor  # (T, n)
    interleaved: bool

    @classmethod
    def by(cls, angle: Tensor, like: Tensor, *, interleaved: bool, growth: Tensor | float = 1.0) -> Rotation:
        """Make the rotation of queries or keys like these, (..., Dh); angle (T, n), growth (T, n) by pair or of all.

        In float32 or better: half precision would leave noise of the angles.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        cos, sin = (angle.cos() * growth).to(dtype), (angle.sin() * growth).to(dtype)
        cos = cos.repeat_interleave(2, dim=-1) if interleaved else cos.repeat(1, 2)  # (T, 2 n)
        return cls(F.pad(cos, (0, like.shape[-1] - cos.shape[-1]), value=1.0), sin, interleaved)

    def turn(self, x: Tensor) -> Tensor:
        """Rotate x (B, H, T, Dh), (B, H, T, Dh) of x's type."""
        apply: Any = _turned if in_transform() else _Turn.apply
        turned: Tensor = apply(x.to(self.cos.dtype), self.cos, self.sin, self.interleaved)
        return turned.to(x.dtype)


class _Turn(torch.autograd.Function):
    """Rotation in few passes over memory, forward and backward: the gradient is turned back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _turned(x, cos, sin, interleaved)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        turned_back = _Turn.apply(gradient, cos, -sin, ctx.interleaved)
        return turned_back, None, None, None


def _turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    turned = x * cos
    (a, b), (out_a, out_b) = (_pairs(y[..., : 2 * sin.shape[-1]], interleaved) for y in (x, turned))
    out_a.addcmul_(b, sin, value=-1)
    out_b.addcmul_(a, sin)
    return turned


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, ...]:
    """Split x (..., 2 n) into the first and the second channel of each pair, (..., n) each, as views."""
    n = x.shape[-1] // 2  # by slices, as a chunk can't be changed in place where gradients are recorded
    return (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :n], x[..., n:])
