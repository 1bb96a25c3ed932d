"""Which parameters decay, and how the learning rate moves."""

import math

import torch
from torch import nn

from poslab.model import GPT
from poslab.settings.train import OptimConfig


def make_optimizer(model: GPT, config: OptimConfig, fused: bool) -> torch.optim.AdamW:
    """AdamW over the decay groups."""
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(
        decay_groups(model, config.weight_decay), lr=config.learning_rate, betas=betas, fused=fused
    )


def decay_groups(model: GPT, weight_decay: float) -> list[dict[str, list[nn.Parameter] | float]]:
    """Matrices of the trunk decay. Biases, norms and all position tables don't: decay would pull what is known of
    position towards nothing, and harder for the schemes that say it in larger numbers."""
    tables = {id(p) for p in model.position_tables.parameters()}
    decays = [p for p in model.parameters() if p.dim() >= 2 and id(p) not in tables]
    others = [p for p in model.parameters() if p.dim() < 2 or id(p) in tables]
    return [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def learning_rate_factor(step: int, total_steps: int, warmup_share: float, final_share: float) -> float:
    """Of the peak: up in a line over the first share of steps, down in a cosine to the final share."""
    warmup = max(1, round(warmup_share * total_steps))
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return final_share + (1 - final_share) * 0.5 * (1 + math.cos(math.pi * progress))
