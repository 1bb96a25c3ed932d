"""Pictures of one model: learned tables of its scheme, and attention weights, layer by layer.

Figures are made without pyplot, whose global state would keep them.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from poslab.attention import SchemeLayer
from poslab.model.block import SelfAttention
from poslab.model.decoder import GPT
from poslab.positions import Curves, Matrix, Picture, ScoreTile
from seedstats.page.looks import (
    COLOURS,
    INK,
    LINE,
    SOFT,
    looks,
    new_panel,
    printable,
    shades,
    styled,
    two_shades,
    wrapped,
)

LEGIBLE = 20  # tokens: of more, a picture can't show the words
WHOLE = (4.2, 2.9)  # inches of a panel: as wide as a phone's screen at the size at which text is set
SMALL = (2.1, 1.65)  # inches: two of them beside each other
FEW = 3  # lines that can be told apart in one panel
MOST_PANELS = 24  # lines that have a panel each


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
    layers: list[tuple[SchemeLayer, tuple[Any, ...]]] = []

    def record(attention: nn.Module, inputs: tuple[Any, ...]) -> None:
        assert isinstance(attention, SelfAttention)
        x, layer, *_ = inputs
        q, k, _ = attention.queries_keys_values(x)
        layers.append((layer, layer.apply_hooks(q, k, x)))

    row = tokens[None].to(model.token_embedding.weight.device)
    with ExitStack() as hooks, model.evaluating(), model.position.drawing(0):
        for part in model.modules():
            if isinstance(part, SelfAttention):
                hooks.enter_context(part.register_forward_pre_hook(record))
        model.hidden(row, positions=None if positions is None else positions[None])
    return layers


@styled()
def draw(picture: Picture, caption: bool = False) -> Figure:
    """Draw the picture that a scheme describes, as one figure. caption: whether it stands below."""
    figure, axes = new_panel(6, 4)
    figure.set_dpi(100)
    if isinstance(picture, Matrix):
        _draw_matrix(figure, axes, picture)
    else:
        marker_period = max(1, len(picture.x) // 20)  # markers, which would hide a line of hundreds of points
        for (name, line), look in zip(picture.lines.items(), looks(), strict=False):
            axes.plot(picture.x, line.detach().cpu().numpy(), label=name, markersize=4, markevery=marker_period, **look)
        if len(picture.lines) > 1:
            axes.legend(ncols=1 + len(picture.lines) // 7)
        axes.set_yscale("log" if picture.logarithmic else "linear")
    axes.set(title=picture.title, xlabel=picture.x_label, ylabel=picture.y_label)
    if caption:
        figure.supxlabel(textwrap.fill(picture.caption, 110), fontsize=7, x=0.02, ha="left")
    return figure


@styled()
def draw_panels(picture: Picture, colour: str, as_rows: bool = False) -> dict[str, Figure]:
    """Draw a picture in panels of a page, by their names: many curves in a small one each, so that none hides another,
    or as the rows of a heat map; a few in one, whose name is empty."""
    if isinstance(picture, Matrix):
        figure, axes = new_panel(4.0, 3.3)
        _draw_matrix(figure, axes, picture)
        axes.set(xlabel=picture.x_label, ylabel=picture.y_label)
        return {"": figure}
    lines = {name: line.detach().float().cpu() for name, line in picture.lines.items()}
    if len(lines) <= FEW:
        return {"": _draw_few(picture, lines, colour)}
    if as_rows:
        return {"": _draw_rows(picture, lines)}
    values = torch.stack([*lines.values()])
    space = 0.08 * float(values.max() - values.min()) or 0.1
    panels = {}
    for name, line in lines.items():
        panels[name], axes = new_panel(*SMALL)
        axes.plot(picture.x, values.T.numpy(), color=LINE[0], linewidth=1)  # all of them behind, for comparison
        axes.plot(picture.x, line.numpy(), color=colour, linewidth=1.6, **_dots(picture.x))
        if picture.logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(float(values.min()) - space, float(values.max()) + space)
            axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return panels


def needs_rows(pictures: Iterable[Picture]) -> bool:
    """Return whether the curves of a scheme are too many for a panel each."""
    return sum(len(picture.lines) for picture in pictures if isinstance(picture, Curves)) > MOST_PANELS


def _draw_few(picture: Curves, lines: Mapping[str, Tensor], colour: str) -> Figure:
    figure, axes = new_panel(*WHOLE)
    marks = _dots(picture.x) if len(lines) == 1 else {}  # which would hide dashes
    line_looks: list[dict[str, Any]] = [{"color": colour}, {"color": INK[0], "linestyle": "--"}]
    line_looks.append({"color": SOFT[0], "linestyle": ":"})
    for (name, line), look in zip(lines.items(), line_looks, strict=False):
        axes.plot(picture.x, line.numpy(), label=name, **look, **marks)
    axes.set(xlabel=picture.x_label, ylabel=picture.y_label, yscale="log" if picture.logarithmic else "linear")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    if len(lines) > 1:
        axes.legend()
    return figure


def _dots(x: Sequence[int]) -> dict[str, Any]:
    """Return markers for few points, of which each counts."""
    return {"marker": "o", "markersize": 3} if len(x) <= 40 else {}


def _draw_rows(picture: Curves, lines: Mapping[str, Tensor]) -> Figure:
    """Draw many curves as rows of colours."""
    values = torch.stack([*lines.values()])
    values = values.clamp(min=1e-9).log10() if picture.logarithmic else values
    figure, axes = new_panel(WHOLE[0], 1 + 0.16 * len(values))
    low, high = (float(value) for value in values.aminmax())
    both = low < 0 < high and not picture.logarithmic
    if both:
        low, high = -max(-low, high), max(-low, high)
    image = axes.imshow(
        values.numpy(),
        cmap=two_shades() if both else shades(),
        vmin=low,
        vmax=high,
        aspect="auto",
        interpolation="nearest",
        extent=(picture.x[0] - 0.5, picture.x[-1] + 0.5, len(values) - 0.5, -0.5),
    )
    axes.grid(visible=False)
    axes.set(xlabel=picture.x_label, ylabel=next(iter(lines)).rpartition(" ")[0])
    figure.colorbar(image, ax=axes, label=f"{picture.y_label}{', log10' * picture.logarithmic}")
    return figure


def _draw_matrix(figure: Figure, axes: Axes, picture: Matrix) -> None:
    values = picture.values.detach().float().cpu().numpy()
    image = axes.imshow(values, cmap=two_shades(), vmin=-1, vmax=1, interpolation="nearest")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    figure.colorbar(image, ax=axes, shrink=0.8)


@styled()
def attention_figure(maps: Mapping[str, Tensor], words: Sequence[str]) -> Figure:
    """Draw the attention weights (L, H, T, T) of a few models on the same words, as means over layers and heads."""
    figure = Figure(figsize=(4.2 * len(maps) + 0.9, 5.4), layout="constrained")
    means, highest = _means(maps)
    grid = figure.subplots(1, len(maps), squeeze=False)[0]
    figure.suptitle("attention, mean over layers and heads")
    for axes, (label, mean) in zip(grid, means.items(), strict=True):
        image = _draw_map(axes, label, mean, words, highest, COLOURS[0][0])
    bar = figure.colorbar(image, ax=[*grid], shrink=0.6, label="attention weight (root scale)")
    bar.set_ticks([tick for tick in bar.get_ticks() if tick <= highest])
    bar.set_ticklabels([f"{tick**2:.2f}" for tick in bar.get_ticks()])
    return figure


@styled()
def attention_panels(
    maps: Mapping[str, Tensor], words: Sequence[str], colours: Mapping[str, str]
) -> tuple[list[Figure], float]:
    """Return (a panel for each model as in `attention_figure`, in the model's colour, the darkest weight in all)."""
    means, highest = _means(maps)
    panels = []
    for label, mean in means.items():
        figure, axes = new_panel(4.2, 4.4)
        _draw_map(axes, label, mean, words, highest, colours[label])
        panels.append(figure)
    return panels, highest**2


def _means(maps: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], float]:
    """Return the roots of mean weights, and the highest: the first word gets most of the weight in most models, and a
    root shows what the others get. The first query doesn't count, as there is but one key for it."""
    means = {label: weights.mean((0, 1)).sqrt() for label, weights in maps.items()}
    return means, max(float(mean[min(1, len(mean) - 1) :].max()) for mean in means.values())


def _draw_map(axes: Axes, label: str, mean: Tensor, words: Sequence[str], highest: float, colour: str) -> AxesImage:
    image = axes.imshow(mean.numpy(), cmap=shades(colour), vmin=0, vmax=highest, interpolation="nearest")
    names = [printable(word) for word in words]
    axes.grid(visible=False)
    axes.set_title(wrapped(label), fontsize="medium")
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9)
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.set(xlabel="key", ylabel="query")
    return image
