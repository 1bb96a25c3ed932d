"""Where a model looks: its attention weights on a text."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from poslab.attention.reference import attention_weights
from poslab.model import GPT, Attention


@torch.no_grad()
def attention_maps(model: GPT, tokens: Tensor) -> Tensor:
    """tokens (T,) -> (L, H, T, T): each layer's and head's weights of query (row) on key (column)."""
    maps: list[Tensor] = []

    def record(attention: nn.Module, inputs: tuple) -> None:  # type: ignore[type-arg]
        assert isinstance(attention, Attention)
        x, rotate, terms, _ = inputs
        q, k, _ = attention.queries_keys_values(x, rotate)
        scale = attention.shape.head_dim**-0.5
        weights = attention_weights(q, k, terms, causal=attention.shape.causal, offset=0, scale=scale)
        maps.append(weights[0].float().cpu())  # (1, H, T, T) -> (H, T, T)

    hooks = [part.register_forward_pre_hook(record) for part in model.modules() if isinstance(part, Attention)]
    was_training = model.training
    model.eval()
    try:
        model.hidden(tokens[None].to(model.token_embedding.weight.device))
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return torch.stack(maps)


def attention_figure(maps: Mapping[str, Tensor], words: Sequence[str]) -> Figure:
    """The mean over layers and heads of each group's attention weights (L, H, T, T) on the same words."""
    columns = min(3, len(maps))
    rows = math.ceil(len(maps) / columns)
    figure = Figure(figsize=(4.2 * columns, 4.2 * rows), layout="constrained")
    grid = np.atleast_1d(figure.subplots(rows, columns)).flatten()
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    # The first word gets most of the weight in most models; a root shows what the others get.
    means = {label: weights.mean((0, 1)).sqrt() for label, weights in maps.items()}
    highest = max(float(mean.max()) for mean in means.values())
    for axes, (label, mean) in zip(grid, means.items(), strict=False):
        image = axes.imshow(mean.numpy(), cmap="cividis", vmin=0, vmax=highest, interpolation="nearest")
        ticks = range(len(words))
        axes.set_xticks(ticks, [printable(w) for w in words], rotation=90, fontsize=7)
        axes.set_yticks(ticks, [printable(w) for w in words], fontsize=7)
        axes.set(title=wrapped(label), xlabel="key", ylabel="query")
    bar = figure.colorbar(image, ax=list(grid), shrink=0.6, label="attention weight (root scale)")
    bar.set_ticks([tick for tick in bar.get_ticks() if tick <= highest])
    bar.set_ticklabels([f"{tick**2:.2f}" for tick in bar.get_ticks()])
    return figure


def wrapped(label: str) -> str:
    return "\n".join(printable(line) for line in textwrap.wrap(label, 36))


def printable(word: str) -> str:
    """A dollar sign would begin a formula, and an SVG must not hold control characters."""
    visible = (c if c.isprintable() else "␣" if c.isspace() else "�" for c in word.replace("\n", "↵"))
    return "".join(visible).strip().replace("$", r"\$") or "␣"
