"""Rotations of queries and keys by their position: the angles, once per forward pass, and the turning.

It loads torch, so schemes import it within their hooks.

Axes: B batch, H heads, T sequence, Dh head dimension, n pairs of channels that turn, the first 2 n channels.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")

# What has been computed of the positions of a pass, as long as that tensor lives: (its version, results by key).
_computed = WeakTensorKeyDictionary()


def once_per_pass(positions: Tensor, key: Hashable, compute: Callable[[], Made]) -> Made:
    """The result of `compute`, computed once for each `key` while the tensor `positions` lives and isn't changed.

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
    """positions (T,) times n frequencies -> (T, n) radians, in float64 where the device has it."""
    dtype = torch.float32 if positions.device.type == "mps" else torch.float64
    return positions.to(dtype)[:, None] * torch.tensor(frequencies, dtype=dtype, device=positions.device)


@dataclass(frozen=True, eq=False)
class Rotation:
    """How each pair of channels turns, and grows, at each position: cos and sin of its angle times its growth."""

    cos: Tensor  # (T, n), both
    sin: Tensor

    @classmethod
    def by(cls, angle: Tensor, growth: Tensor | float, dtype: torch.dtype) -> Rotation:
        """For x of `dtype`: in float32 or better, as its angles would be noise in half precision."""
        dtype = torch.promote_types(dtype, torch.float32)
        return cls((angle.cos() * growth).to(dtype), (angle.sin() * growth).to(dtype))

    def turn(self, x: Tensor, interleaved: bool) -> Tensor:
        """x (B, H, T, Dh) -> (B, H, T, Dh) of x's type: with (a, b) for the two channels of each pair,

            (a, b) -> (a cos - b sin, b cos + a sin)

        The pairs are channels (d, d + n), or (2 d, 2 d + 1) where they are interleaved. Other channels stay.
        """
        x_exact = x.to(self.cos.dtype)
        turned: Tensor = _Turn.apply(x_exact, self.cos, self.sin, interleaved)  # type: ignore[no-untyped-call]
        return turned.to(x.dtype)


class _Turn(torch.autograd.Function):
    """`Rotation.turn` in as few passes over memory as it takes, forward and backward; there, angles turn back."""

    @staticmethod
    def forward(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        turned = 2 * cos.shape[-1]
        out = torch.empty_like(x)
        (a, b), (out_a, out_b) = (_pairs(y[..., :turned], interleaved) for y in (x, out))
        torch.mul(a, cos, out=out_a).addcmul_(b, sin, value=-1)
        torch.mul(b, cos, out=out_b).addcmul_(a, sin)
        out[..., turned:] = x[..., turned:]
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, bool], output: Tensor) -> None:
        _, cos, sin, ctx.interleaved = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        turned_back = _Turn.apply(gradient, cos, -sin, ctx.interleaved)  # type: ignore[no-untyped-call]
        return turned_back, None, None, None


def _pairs(x: Tensor, interleaved: bool) -> tuple[Tensor, ...]:
    """x (..., 2 n) -> the first and the second channel of each pair, (..., n) each, as views."""
    return (x[..., 0::2], x[..., 1::2]) if interleaved else x.chunk(2, dim=-1)
