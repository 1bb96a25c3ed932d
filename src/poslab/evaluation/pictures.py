"""Pictures of one model: learned tables of its scheme, and attention weights, layer by layer.

Figures are made without pyplot, whose global state would keep them.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from poslab.attention import SchemeLayer
from poslab.model.block import SelfAttention
from poslab.model.decoder import GPT
from poslab.positions import Curves, Matrix, Picture, ScoreTile
from seedstats.page.looks import looks, printable, wrapped

LEGIBLE = 20  # tokens: of more, a picture can't show the words


@torch.no_grad()
def attention_maps(model: GPT, tokens: Tensor, positions: Tensor | None = None) -> Tensor:
    """Return the attention weights (L, H, T, T) of a text of tokens (T,): each layer's and head's weights of query
    (row) on key (column), without dropout.

    positions (T,): where the tokens stand, if not at 0, 1, 2, ...
    """
    return torch.stack([layer.weights(*read)[0].float().cpu() for layer, read in _layers(model, tokens, positions)])


@torch.no_grad()
def sample_pairs(model: GPT, tokens: Tensor) -> list[ScoreTile]:
    """Return all pairs of a text (T,) in each layer, for `PositionScheme.explain`."""
    return [layer.score_tile(*read) for layer, read in _layers(model, tokens, None)]


def _layers(model: GPT, tokens: Tensor, positions: Tensor | None) -> list[tuple[SchemeLayer, tuple[Any, ...]]]:
    """Return each layer of a text, with its queries, keys and token state, (1, H, T, ...)."""
    found: list[tuple[SchemeLayer, tuple[Any, ...]]] = []

    def record(attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(attention, SelfAttention)
        x, layer, *_ = inputs
        q, k, _ = attention.queries_keys_values(x)
        found.append((layer, layer.apply_hooks(q, k, x)))

    row = tokens[None].to(model.token_embedding.weight.device)
    with ExitStack() as hooks, model.evaluating(), model.drawing(0):
        for part in model.modules():
            if isinstance(part, SelfAttention):
                hooks.enter_context(part.register_forward_pre_hook(record))
        model.hidden(row, positions=None if positions is None else positions[None])
    return found


def draw(picture: Picture, caption: bool = False) -> Figure:
    """Draw the picture that a scheme describes. caption: whether it stands below."""
    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.set(title=picture.title, xlabel=picture.x_label, ylabel=picture.y_label)
    if isinstance(picture, Matrix):
        values = picture.values.detach().cpu().numpy()
        image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
        figure.colorbar(image, ax=axes, location="right", shrink=0.8)
    else:
        if picture.logarithmic:
            axes.set_yscale("log")
        _draw_curves(axes, picture)
    if caption:
        figure.supxlabel(textwrap.fill(picture.caption, 110), fontsize=7, x=0.02, ha="left")
    return figure


def attention_figure(maps: Mapping[str, Tensor], words: Sequence[str]) -> Figure:
    """Draw the attention weights (L, H, T, T) of several models on the same words, as means over layers and heads."""
    columns = 3 if len(maps) <= 6 else 5
    rows, side = math.ceil(len(maps) / columns), 12.6 / columns
    figure = Figure(figsize=(side * min(columns, len(maps)) + 0.9, side * rows + 1.2), layout="constrained")
    grid = figure.subplots(rows, min(columns, len(maps)), squeeze=False).flatten()
    # The first word gets most of the weight in most models; a root shows what the others get.
    means = {label: weights.mean((0, 1)).sqrt() for label, weights in maps.items()}
    highest = max(float(mean.max()) for mean in means.values())
    names = [printable(word) for word in words]
    size = 9 if columns == 3 else 6  # points, because with more columns each map is smaller
    figure.suptitle("attention, mean over layers and heads")
    for number, (axes, (label, mean)) in enumerate(zip(grid, means.items(), strict=False)):
        image = axes.imshow(mean.numpy(), cmap="cividis", vmin=0, vmax=highest, interpolation="nearest")
        axes.set_title(wrapped(label), fontsize="medium")
        axes.set_xticks([])
        axes.set_yticks([])
        if number % columns == 0:
            axes.set_yticks(range(len(names)), names, fontsize=size)
            axes.set_ylabel("query")
        if number // columns == rows - 1:
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=size)
            axes.set_xlabel("key")
    for axes in grid[len(maps) :]:
        axes.set_axis_off()
    bar = figure.colorbar(image, ax=list(grid), shrink=min(1, 0.6 * 2 / rows), label="attention weight (root scale)")
    bar.set_ticks([tick for tick in bar.get_ticks() if tick <= highest])
    bar.set_ticklabels([f"{tick**2:.2f}" for tick in bar.get_ticks()])
    return figure


def _draw_curves(axes: Axes, picture: Curves) -> None:
    every = max(1, len(picture.x) // 20)  # markers, which would hide a line of hundreds of points
    for (name, line), look in zip(picture.lines.items(), looks(), strict=False):
        axes.plot(picture.x, line.detach().cpu().numpy(), label=name, markersize=4, markevery=every, **look)
    axes.grid(alpha=0.3)
    if len(picture.lines) > 1:
        axes.legend(fontsize="small", ncols=1 + len(picture.lines) // 7)
