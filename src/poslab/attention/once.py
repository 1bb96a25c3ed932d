"""Gradients that are known only once."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable as torchs_mark

Backward = Callable[..., Tensor | tuple[Tensor | None, ...]]


def once_differentiable(backward: Backward) -> Backward:
    """Mark the backward pass of an autograd.Function whose gradients have no gradients of their own.

    torch's mark refuses a second derivative only where the gradient that comes in needs one itself. Where it is a
    constant, as that of a loss is, the second derivative would lack what this function adds. Raises RuntimeError there,
    under `create_graph=True`.
    """
    marked: Backward = torchs_mark(backward)

    @wraps(backward)
    def checked(ctx: Any, *grads: Tensor) -> Tensor | tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            instead = "attention by backend=reference and cross_entropy of the model's logits have them"
            raise RuntimeError(f"second derivatives (create_graph=True) are not known here; {instead}")
        return marked(ctx, *grads)

    return checked
