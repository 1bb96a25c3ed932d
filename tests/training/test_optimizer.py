"""Optimizer: groups of parameters, the schedule, and clipping."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from common import SCHEMES, compose_config, make_scheme

from poslab import GPT
from poslab.training.optimizer import clip_gradients, learning_rate_factor, make_optimizer, parameter_groups


def test_learning_rate() -> None:
    factors = [learning_rate_factor(step, 100, warmup_share=0.1, final_share=0.2) for step in range(101)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9] == factors[10] == 1
    assert factors[55] == pytest.approx(0.6)
    assert factors[100] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(factors[9:]))


@pytest.mark.parametrize("name", SCHEMES)
def test_only_the_matrices_of_the_trunk_decay(name: str) -> None:
    model = GPT(make_scheme(name), vocab_size=97, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    decays, others = (group["params"] for group in parameter_groups(model, compose_config().optim))
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    assert {names[id(p)] for p in others} == {
        key for key in names.values() if key.endswith("bias") or "norm" in key or key.startswith("position_tables.")
    }
    assert len(decays) + len(others) == len(names)


def test_what_a_scheme_learns_has_a_factor_of_its_own() -> None:
    model = GPT(make_scheme("t5"), vocab_size=97, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optim = compose_config("optim.position_learning_rate_factor=8").optim
    optimizer = make_optimizer(model, replace(optim, weight_decay=0.0), fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moved = {name: float((p - before[name]).detach().abs().max()) for name, p in model.named_parameters()}
    of_positions = [moved.pop(name) for name in list(moved) if name.startswith("position_tables.")]
    assert of_positions == pytest.approx([8e-3], rel=1e-3)  # Adam's first step is the learning rate
    assert list(moved.values()) == pytest.approx([1e-3] * len(moved), rel=1e-3)
    assert parameter_groups(model, optim)[2]["weight_decay"] == 0


@pytest.mark.parametrize("limit", [1e-9, 1.0, 4.9999, 5.0, 1e9, math.inf])
@pytest.mark.parametrize("spoiled", [None, math.inf, math.nan])
def test_clipping_is_torch_s_to_the_bit(limit: float, spoiled: float | None) -> None:
    ours, torch_s = ([torch.nn.Parameter(torch.zeros(2)) for _ in range(3)] for _ in range(2))
    for one, other in zip(ours[:2], torch_s[:2], strict=True):  # the third has no gradient
        one.grad = torch.tensor([1.5, -(6.25**0.5) if spoiled is None else spoiled])
        other.grad = one.grad.clone()
    norm, expected = clip_gradients(ours, limit), torch.nn.utils.clip_grad_norm_(torch_s, limit)
    assert torch.equal(norm.nan_to_num(), expected.nan_to_num())
    if spoiled is None or limit < math.inf:  # torch divides infinity by itself
        for one, other in zip(ours[:2], torch_s[:2], strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=0, atol=0, equal_nan=True)
