"""Lengths that change: one exported program, and few compiled graphs, for texts of any length."""

from typing import Any

import pytest
import torch
from common import SOUND, make_scheme, moved
from torch import Tensor

from poslab.nn import Attention, Position, Rotary

H, DH, LONGEST = 4, 8, 300
every_scheme = pytest.mark.parametrize("name", SOUND)


@pytest.fixture(autouse=True)
def compiled_alone() -> None:
    torch._dynamo.reset()  # because graphs of other schemes count towards its limit of recompiling
    torch._dynamo.utils.counters.clear()


def make_position(name: str, **sizes: Any) -> Position:
    position = Position(make_scheme(name), heads=H, head_dim=DH, context_length=LONGEST, **sizes)
    return moved(position.double(), 0.3).eval()


def some_tensors(length: int) -> tuple[Tensor, ...]:
    q, k, v = torch.randn(3, 2, H, length, DH, dtype=torch.float64).unbind()
    return q, k, v, torch.randn(2, length, H * DH, dtype=torch.float64)


@every_scheme
@pytest.mark.parametrize("causal", [True, False])
def test_an_exported_program_takes_other_lengths(name: str, causal: bool) -> None:
    position = make_position(name, causal=causal)
    attention, length = Attention(position).eval(), torch.export.Dim("length", min=2, max=LONGEST)
    *qkv, x = some_tensors(24)
    shapes = {"q": {2: length}, "k": {2: length}, "v": {2: length}, "x": {1: length}}
    program = torch.export.export(attention, tuple(qkv), {"x": x}, dynamic_shapes=shapes).module()
    for other in (2, 25, LONGEST):  # the last beyond what dense attention is chosen for
        *qkv, x = some_tensors(other)
        torch.testing.assert_close(program(*qkv, x=x), attention(*qkv, x=x))
    if "position(Tq, Tk)" in position.needs:
        as_mask = torch.export.export(_Bias(position), some_tensors(24)[:1], dynamic_shapes=({2: length},)).module()
        torch.testing.assert_close(as_mask(qkv[0]), position(LONGEST))


class _Bias(torch.nn.Module):
    """Bias of a text of queries (B, H, T, Dh)."""

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position

    def forward(self, q: Tensor) -> Tensor:
        return self.position(q.shape[2])


@pytest.mark.parametrize("lengths", [range(2, 30, 3), pytest.param(range(2, 102, 2), marks=pytest.mark.slow)], ids=len)
@every_scheme
def test_few_compiled_graphs_serve_all_lengths(name: str, lengths: range) -> None:
    """More lengths than torch compiles one code for."""
    position = make_position(name)
    attention = Attention(position)
    compiled = torch.compile(attention, fullgraph=True, backend="eager")
    bias = torch.compile(position, fullgraph=True, backend="eager")
    for length in lengths:
        *qkv, x = some_tensors(length)
        torch.testing.assert_close(compiled(*qkv, x=x), attention(*qkv, x=x))
        if "position(Tq, Tk)" in position.needs:
            torch.testing.assert_close(bias(length), position(length))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 6


def test_few_compiled_graphs_of_rotations() -> None:
    rotary = Rotary(DH)
    compiled = torch.compile(rotary, fullgraph=True, backend="eager")
    for length in range(2, 30):
        q, k, *_ = some_tensors(length)
        torch.testing.assert_close(compiled(q, k), rotary(q, k))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
