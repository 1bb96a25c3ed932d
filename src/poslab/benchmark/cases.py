"""What every case of the attention benchmark is made of: inputs, a scheme's tables, a forward and backward pass."""

from collections.abc import Callable

import torch
from torch import Tensor

from poslab.positions import ModelShape, PositionScheme, RelativeTerms

Shape = tuple[int, int, int, int]  # (B, H, T, Dh)
Run = Callable[[], None]


def inputs(shape: Shape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values, and the gradient of the output, each (B, H, T, Dh)."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, grad = (torch.randn(shape, generator=generator) for _ in range(4))
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_(), grad


def scheme_terms(scheme: PositionScheme, shape: Shape) -> tuple[dict[str, Tensor], Callable[[], RelativeTerms | None]]:
    """A scheme's tables, and what it makes of them in one layer."""
    _, heads, length, head_dim = shape
    model = ModelShape(length, heads * head_dim, 1, heads)
    tables = {name: table.requires_grad_() for name, table in scheme.tables(model).items()}
    return tables, lambda: scheme.relative(tables, model, 0, range(length))


def case(forward: Callable[[], Tensor], leaves: list[Tensor], grad: Tensor) -> Run:
    def run() -> None:
        torch.autograd.grad(forward(), leaves, grad)

    return run
