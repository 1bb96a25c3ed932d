"""Optimizer over named groups of parameters, the schedule of its learning rate, and the clipping of gradients."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR

from poslab.config.checking import imported
from poslab.config.nodes import TARGET
from poslab.config.parts import Node, part, takes
from poslab.config.schema import OptimConfig
from poslab.errors import SettingError
from poslab.model.decoder import GPT


def make_optimizer(model: GPT, config: OptimConfig, node: Node, fused: bool) -> torch.optim.Optimizer:
    """Make the optimizer of a node over the parameter groups.

    fused: in one kernel, where its class has one that works and the node doesn't say. Raises SettingError where the
    class refuses its settings.
    """
    more = {"fused": fused and not _fused_fails(model, node)} if takes(node, "fused") and "fused" not in node else {}
    optimizer: torch.optim.Optimizer = part(node, "optim")(
        parameter_groups(model, config), lr=config.learning_rate, **more
    )
    _load_as_saved(optimizer)
    return optimizer


def _fused_fails(model: GPT, node: Node) -> bool:
    """Return whether the fused step leaves weights as they are: that of torch's SGD does, in 16 bits on CPUs."""
    kind = imported(node[TARGET], "optim")
    in_16_bits = any(p.dtype.itemsize < 4 and p.device.type == "cpu" for p in model.parameters())
    return in_16_bits and isinstance(kind, type) and issubclass(kind, torch.optim.SGD)


def _load_as_saved(optimizer: torch.optim.Optimizer) -> None:
    """Keep the dtypes of a state that is loaded: torch rounds all but `step` to the parameter's, also products that
    NAdam keeps in float32."""
    saved: dict[int, dict[str, Any]] = {}

    def before(_: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        saved.update(state["state"])

    def after(_: torch.optim.Optimizer) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        for number, parameter_state in saved.items():
            loaded = optimizer.state[parameters[number]]
            for name, value in parameter_state.items():
                if isinstance(value, Tensor) and value.dtype != loaded[name].dtype:
                    loaded[name] = value.to(loaded[name].device)
        saved.clear()

    optimizer.register_load_state_dict_pre_hook(before)
    optimizer.register_load_state_dict_post_hook(after)


def parameter_groups(model: GPT, config: OptimConfig) -> list[dict[str, Any]]:
    """Group the parameters by their purpose, which an optimizer may ask for by `name`; none is empty.

    matrices: of the blocks. embeddings: all other matrices, such as those of tokens and of the head. vectors: norms and
    biases. scheme: what the scheme learns, with a learning rate of its own. Matrices and embeddings decay. Position
    tables don't: decay would pull what is known of position towards nothing, and harder for the schemes that express it
    in larger numbers.
    """
    tables, blocks = ({id(p) for p in module.parameters()} for module in (model.position_tables, model.blocks))
    groups: dict[str, list[Tensor]] = {"matrices": [], "embeddings": [], "vectors": [], "scheme": []}
    for p in model.parameters():
        if id(p) in tables:
            groups["scheme"].append(p)
        elif p.dim() < 2:
            groups["vectors"].append(p)
        elif p.dim() == 2 and id(p) in blocks:
            groups["matrices"].append(p)
        else:
            groups["embeddings"].append(p)
    decay = {"matrices": config.weight_decay, "embeddings": config.weight_decay}
    rates = {"scheme": config.learning_rate * config.position_learning_rate_factor}
    return [
        {"name": name, "params": p, "weight_decay": decay.get(name, 0.0), "lr": rates.get(name, config.learning_rate)}
        for name, p in groups.items()
        if p
    ]


Factor = Callable[[int, int], float]  # of the peak learning rate, by the step and the number of steps


def make_schedule(node: Node) -> Factor:
    """Make the schedule of a node: an instance of its class, or its function with the settings given. Raises
    SettingError where it refuses them, or returns no number."""
    schedule = part(node, "schedule")
    if isinstance(imported(node[TARGET], "schedule"), type):
        schedule = schedule()
    if not callable(schedule):
        raise SettingError("schedule", node[TARGET], "must have instances that are called with (step, total_steps)")
    factor = schedule(0, 1)
    if not isinstance(factor, int | float):
        raise SettingError("schedule", node[TARGET], f"must return a factor of the learning rate, not {factor!r}")
    return schedule


def with_schedule(optimizer: torch.optim.Optimizer, schedule: Factor, total_steps: Callable[[], int]) -> LambdaLR:
    """Give the optimizer the rates of a schedule, to be advanced at every step, when `total_steps` is asked for."""
    return LambdaLR(optimizer, lambda step: schedule(step, total_steps()))


def clip_gradients(parameters: Sequence[Tensor], limit: float) -> Tensor:
    """Scale all gradients together down to a norm of `limit`, and return the norm that they had.

    Equal to the bit to torch's clip_grad_norm_, which multiplies by 1 where they are small enough: a pass over all.
    """
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    # The value is looked at on a CPU only, because a GPU would be waited for.
    if limit < math.inf and not (norm.device.type == "cpu" and norm + 1e-6 <= limit):
        clip_grads_with_norm_(parameters, limit, norm)
    return norm
