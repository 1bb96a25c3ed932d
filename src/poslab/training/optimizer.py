"""Optimizer: AdamW over parameter groups, its schedule, and the clipping of gradients."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim.lr_scheduler import LambdaLR

from poslab.config.schema import OptimConfig
from poslab.model.decoder import GPT


def make_optimizer(model: GPT, config: OptimConfig, fused: bool) -> torch.optim.AdamW:
    """Make AdamW over the parameter groups."""
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(parameter_groups(model, config), lr=config.learning_rate, betas=betas, fused=fused)


def parameter_groups(model: GPT, config: OptimConfig) -> list[dict[str, Any]]:
    """Group the parameters by weight decay and learning rate.

    Matrices of the trunk decay. Biases, norms and all position tables don't: decay would pull what is known of position
    towards nothing, and harder for the schemes that express it in larger numbers. The tables are a third group where
    their learning rate is another one; else they are in the second.
    """
    tables = {id(p) for p in model.position_tables.parameters()}
    apart = tables if config.position_learning_rate_factor != 1 else set()
    decays = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in tables]
    others = [p for p in model.parameters() if (p.dim() < 2 or id(p) in tables) and id(p) not in apart]
    groups = [{"params": decays, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    if apart:
        rate = config.learning_rate * config.position_learning_rate_factor
        groups.append({"params": list(model.position_tables.parameters()), "weight_decay": 0.0, "lr": rate})
    return groups


def make_schedule(optimizer: torch.optim.Optimizer, config: OptimConfig, total_steps: int) -> LambdaLR:
    """Make the schedule of the learning rate, to be advanced at every optimizer step."""

    def factor(step: int) -> float:
        return learning_rate_factor(step, total_steps, config.warmup_share, config.final_share)

    return LambdaLR(optimizer, factor)


def learning_rate_factor(step: int, total_steps: int, warmup_share: float, final_share: float) -> float:
    """Return the share of the peak: up in a line over the first steps, down in a cosine to the final share."""
    warmup = max(1, round(warmup_share * total_steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress))


def clip_gradients(parameters: Sequence[Tensor], limit: float) -> Tensor:
    """Scale all gradients together down to a norm of `limit`, and return the norm that they had.

    Equal to the bit to torch's clip_grad_norm_, which multiplies by 1 where they are small enough: a pass over all.
    """
    norm = get_total_norm([p.grad for p in parameters if p.grad is not None])
    # The value is looked at on a CPU only, because a GPU would be waited for.
    if limit < math.inf and not (norm.device.type == "cpu" and norm + 1e-6 <= limit):
        clip_grads_with_norm_(parameters, limit, norm)
    return norm
