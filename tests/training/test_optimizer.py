"""Optimizer: named groups of parameters, the optimizers of configs/optim, schedules, and clipping."""

import math
from dataclasses import replace

import pytest
import torch
from common import SCHEMES, compose_config, make_scheme

from poslab import GPT
from poslab.config.files import CONFIGS
from poslab.training.optimizer import clip_gradients, make_optimizer, make_schedule, parameter_groups, with_schedule


def model_of(scheme: str) -> GPT:
    return GPT(make_scheme(scheme), vocab_size=97, context_length=32, embed_dim=32, num_layers=2, num_heads=2)


# Factors at steps 0, 9, 10, 55, 90 and 100 of 100.
FACTORS = {
    "cosine": (["schedule.final_share=0.2"], [0.1, 1, 1, 0.6, 0.2 + 0.4 * (1 + math.cos(math.pi * 8 / 9)), 0.2]),
    "linear": (["schedule.final_share=0.2"], [0.1, 1, 1, 0.6, 0.2 + 0.8 / 9, 0.2]),
    "wsd": (["schedule.decay_share=0.5", "schedule.final_share=0.2"], [0.1, 1, 1, 1, 0.2 + 0.8 * 2 / 9, 0.2]),
    "constant": (["schedule.warmup_share=0.2"], [0.05, 0.5, 0.55, 1, 1, 1]),
}


@pytest.mark.parametrize("name", FACTORS)
def test_schedules(name: str) -> None:
    settings, expected = FACTORS[name]
    schedule = make_schedule(compose_config(f"schedule={name}", *settings).schedule)
    assert [schedule(step, 100) for step in (0, 9, 10, 55, 90, 100)] == pytest.approx(expected)
    optimizer = torch.optim.SGD([{"params": [torch.ones(1)], "lr": 2.0}, {"params": [torch.ones(1)], "lr": 16.0}])
    assert with_schedule(optimizer, schedule, lambda: 100).get_last_lr() == pytest.approx(
        [2 * expected[0], 16 * expected[0]]
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_groups_of_parameters(name: str) -> None:
    """Only matrices of the trunk decay."""
    model = model_of(name)
    groups = parameter_groups(model, compose_config().optim)
    names = {id(parameter): key for key, parameter in model.named_parameters()}
    found = {group["name"]: {names.pop(id(p)) for p in group["params"]} for group in groups}
    assert names == {}
    assert {group["name"] for group in groups if group["weight_decay"]} == {"matrices", "embeddings"}
    assert all(key.startswith("blocks.") for key in found["matrices"])
    assert "token_embedding.weight" in found["embeddings"]
    assert all(key.endswith("bias") or "norm" in key for key in found["vectors"])
    assert all(key.startswith("position_tables.") for key in found.get("scheme", ()))


def one_step(*settings: str, dtype: torch.dtype = torch.float32) -> tuple[GPT, dict[str, torch.Tensor]]:
    """Return a model after a step, and how far its parameters have moved."""
    torch.manual_seed(1)
    model, config = model_of("t5").to(dtype), compose_config(*settings)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = make_optimizer(model, replace(config.optim, weight_decay=0.0), config.optimizer, fused=True)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    return model, {name: (p - before[name]).detach() for name, p in model.named_parameters()}


def test_what_a_scheme_learns_has_a_factor_of_its_own() -> None:
    for position_factor in (1, 8):
        _, moved = one_step(f"optim.position_learning_rate_factor={position_factor}")
        for name, step in moved.items():
            factor = position_factor if name.startswith("position_tables.") else 1
            assert float(step.abs().max()) == pytest.approx(factor * 1e-3, rel=1e-3)  # Adam's first step is the rate


@pytest.mark.parametrize("name", sorted(yaml.stem for yaml in CONFIGS.glob("optim/*.yaml")))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_optimizer_moves_all_that_is_learned(name: str, dtype: torch.dtype) -> None:
    _, moved = one_step(f"optim={name}", "optim.learning_rate=0.1", dtype=dtype)
    for step in moved.values():
        assert step.count_nonzero() > 0.8 * step.numel()


def test_muon_moves_matrices_of_blocks_as_torch_s_and_all_others_as_adamw() -> None:
    model, by_muon = one_step("optim=muon")
    _, by_adamw = one_step("optim=adamw")
    matrices = {name for name, p in model.named_parameters() if name.startswith("blocks.") and p.dim() == 2}
    assert len(matrices) == 8
    for name, step in by_muon.items():
        assert torch.equal(step, by_adamw[name]) is (name not in matrices), name
        if name in matrices:  # as large as those of AdamW, by `match_rms_adamw`
            assert float(step.square().mean().sqrt()) == pytest.approx(0.2e-3, rel=0.3)


def test_muon_goes_on_from_a_checkpoint_to_the_bit() -> None:
    def train(model: GPT, optimizer: torch.optim.Optimizer, seeds: range) -> None:
        for seed in seeds:
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()

    config = compose_config("optim=muon", "optim.position_learning_rate_factor=8")

    def make(model: GPT) -> torch.optim.Optimizer:
        return make_optimizer(model, config.optim, config.optimizer, fused=True)

    torch.manual_seed(1)
    whole, halves = model_of("t5"), [model_of("t5"), model_of("t5")]
    halves[0].load_state_dict(whole.state_dict())
    train(whole, make(whole), range(6))
    train(halves[0], first := make(halves[0]), range(3))
    halves[1].load_state_dict(halves[0].state_dict())
    second = make(halves[1])
    second.load_state_dict(first.state_dict())
    train(halves[1], second, range(3, 6))
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, halves[1].get_parameter(name)), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_state_is_loaded_in_its_own_precision(dtype: torch.dtype) -> None:
    config = compose_config("optim=nadam")
    models = [model_of("t5").to(dtype) for _ in range(2)]
    first, second = (make_optimizer(model, config.optim, config.optimizer, fused=False) for model in models)
    for _ in range(3):
        models[0](torch.arange(32)[None]).float().logsumexp(-1).sum().backward()
        first.step()
    second.load_state_dict(first.state_dict())
    for one, other in zip(*(model.parameters() for model in models), strict=True):
        for name, value in first.state[one].items():
            assert torch.equal(value, second.state[other][name]), name
            assert value.dtype == second.state[other][name].dtype, name


@pytest.mark.parametrize(
    ("settings", "fused"),
    [(["optim=adamw"], True), (["optim=nadam"], None), (["optim=adamw", "optim.fused=false"], False)],
)
def test_fused_is_for_classes_that_take_it(settings: list[str], fused: bool | None) -> None:
    config = compose_config(*settings)
    optimizer = make_optimizer(model_of("t5"), config.optim, config.optimizer, fused=True)
    assert {group.get("fused") for group in optimizer.param_groups} == {fused}


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
