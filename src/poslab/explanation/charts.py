"""Figures of a page about models: panels as inline SVG, with data for its script to point at a distance, and tables of
colours."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator, ScalarFormatter
from torch import Tensor

from poslab.evaluation.pictures import FEW, MOST_PANELS, SMALL, WHOLE, draw_panels
from poslab.explanation.measures import MASS, Ablation, AttentionMeasures
from poslab.positions import Curves, Matrix, OnText, Picture, Strip
from seedstats.page.looks import INK, SOFT, looks_of, new_panel, printable, styled, two_shades
from seedstats.page.svg import inline, svg

Limits = tuple[float, float]
_LEAST = 0.2  # nats, or proportion of right answers: the least that an axis shows
_ROW = 4  # panels beside each other and a text
_MOST_HEADS = 24  # rows of a table
_MOST_NUMBERS = 8  # columns of a table with room for a number in each cell
_SOLID = {"linestyle": "-"}  # as dashes have a meaning on this page
_MANY = "A row is a head; across: distance. Orange: more than if all keys were alike; blue: less."


@dataclass(frozen=True)
class Panel:
    """One picture. data: points of the x axis in the units of the SVG, and the values of each line there."""

    title: str
    svg: Markup
    data: dict[str, Any] | None = None
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """Panels with the same axes. axes: in words, where the panels are too small to name them. key: what the lines are,
    by their class in page.css. small: whether many panels stand in a row; across: how many, where there is room."""

    title: str
    caption: str
    panels: list[Panel]
    axes: str = ""
    key: dict[str, str] = field(default_factory=dict)
    across: int = 0
    small: bool = False

    @property
    def tall(self) -> bool:
        """Return whether the panels need the whole width of the page."""
        return self.across > _ROW


@dataclass(frozen=True)
class Heat:
    """Table of colours. columns: in groups (name, count). rows: (name, (value, shade from 0 to 1) by column)."""

    title: str
    caption: str
    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[tuple[str, list[tuple[str, str]]]]
    highest: str

    @property
    def numbers(self) -> bool:
        """Return whether cells have room for their numbers."""
        return len(self.columns) <= _MOST_NUMBERS


@dataclass(frozen=True)
class Chips:
    """Strip of distances: (row, first distance, last distance)."""

    title: str
    caption: str
    unit: str
    chips: list[tuple[int, int, int]]


def picture_chart(picture: Picture, colour: str, as_rows: bool = False) -> Chart:
    """Draw a picture of the scheme; curves over distances can be pointed at."""
    drawn = draw_panels(picture, colour, as_rows)
    by_distance = isinstance(picture, Curves) and picture.x_label == "distance"
    panels = []
    for name, figure in drawn.items():
        if not by_distance or isinstance(picture, Matrix) or (as_rows and len(picture.lines) > FEW):
            panels.append(Panel(name, inline(svg(figure), picture.title)))
            continue
        lines = {"": picture.lines[name]} if name else dict(picture.lines)
        if len(picture.lines) == 1:
            lines = {"": next(iter(picture.lines.values()))}
        panels.append(_panel(name, figure, picture.x, lines))
    several = len(panels) > 1
    words = f"across: {picture.x_label}, up: {picture.y_label}" if several else ""
    return Chart(picture.title, picture.caption, panels, words, small=several)


@styled()
def attention_chart(title: str, measured: AttentionMeasures, colour: str, limits: Limits) -> Chart:
    """Draw attention by distance, beside what position alone decides: a panel for each head, or where these are many
    for each layer."""
    layers, heads, length = measured.by_distance.shape
    at = spread_distances(length)
    if layers * heads > MOST_PANELS:
        return Chart(title, "", [_heads(measured, layer, at) for layer in range(layers)], _MANY)
    panels = []
    for layer in range(layers):
        for head in range(heads):
            figure, axes = new_panel(*SMALL)
            text = measured.by_distance[layer, head, at].clamp(min=1e-5)
            alone = measured.alone[layer, head, at].clamp(min=1e-5)
            axes.plot(at, measured.even[at].numpy(), ":", color=SOFT[0], linewidth=1)
            axes.plot(at, alone.numpy(), "--", color=INK[0], linewidth=1)
            axes.plot(at, text.numpy(), color=colour, linewidth=1.8)
            axes.set(yscale="log", ylim=limits)
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter() if limits[1] > 20 * limits[0] else "{x:.1g}")
            panel = _panel(f"layer {layer}, head {head}", figure, at, {"text": text, "position alone": alone})
            panels.append(replace(panel, note=f"{MASS:.0%} within {int(measured.reach[layer, head])}"))
    key = {"solid": "with text", "dashed": "position alone", "dotted": "all keys alike"}
    return Chart(title, "", panels, "across: distance, up: weight, log axes", key, heads, small=True)


def limits_of_weights(measured: Sequence[AttentionMeasures]) -> Limits:
    """Return limits of a y axis on which the attention of all heads can be compared."""
    shown = torch.cat([weights.flatten() for head in measured for weights in (head.by_distance, head.alone)])
    return float(shown.min().clamp(min=1e-5)) / 1.3, min(1.3 * float(shown.max()), 1.3)


def _heads(measured: AttentionMeasures, layer: int, at: list[int]) -> Panel:
    """Draw a layer of many heads as rows: how many times as much as if all keys were alike, as colours."""
    weights = measured.by_distance[layer][:, at].clamp(min=1e-6)
    times = (weights / measured.even[at]).log2()
    figure, axes = new_panel(WHOLE[0], 1 + 0.16 * len(times))
    axes.imshow(times.numpy(), cmap=two_shades(), vmin=-5, vmax=5, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(times)))
    axes.grid(visible=False)
    shown = [n for n, distance in enumerate(at) if distance & (distance - 1) == 0 and distance not in (1, 2)]
    axes.set_xticks(shown, [str(at[n]) for n in shown])
    low, high = (int(reach) for reach in measured.reach[layer].aminmax())
    name = f"layer {layer}"
    lines = {f"head {head}": row for head, row in enumerate(weights)}
    text = inline(svg(figure), name)  # which lays the figure out
    return Panel(name, text, _pointed(figure, at, range(len(at)), lines), f"{MASS:.0%} within {low} to {high}")


@styled()
def ablation_chart(title: str, caption: str, x_label: str, ablations: Mapping[str, Ablation], limits: Limits) -> Chart:
    """Draw one ablation of each model, with twice the standard error of its difference from the unchanged text."""
    figure, axes = new_panel(*WHOLE)
    looks = looks_of(ablations)
    for label, ablation in ablations.items():
        bars = 2 * ablation.errors
        axes.errorbar(
            ablation.sizes,
            ablation.values,
            bars,
            label=printable(label),
            capsize=2,
            markersize=4,
            **looks[label] | _SOLID,
        )
    exact = next(iter(ablations.values())).exact
    axes.set(xlabel=x_label, ylabel="share of right answers" if exact else "loss, nats per token", ylim=limits)
    if len(ablations) > 1:
        axes.legend()
    _spread(axes, [size for ablation in ablations.values() for size in ablation.sizes])
    return Chart(title, caption, [Panel("", inline(svg(figure), title))])


@styled()
def position_chart(title: str, caption: str, errors: Mapping[str, Tensor], middle: float) -> Chart:
    """Draw how far off a probe of each model's hidden states (L + 1,) is, beside guessing the middle of the text."""
    figure, axes = new_panel(*WHOLE)
    looks = looks_of(errors)
    for label, layer_errors in errors.items():
        axes.plot(range(len(layer_errors)), layer_errors.numpy(), label=printable(label), **looks[label] | _SOLID)
    axes.axhline(middle, color=SOFT[0], linestyle=":", label="guessing the middle")
    highest = max(middle, *(float(layer_errors.max()) for layer_errors in errors.values()))
    axes.set(xlabel="blocks passed", ylabel="error in tokens", ylim=(0, 1.25 * highest))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend()
    return Chart(title, caption, [Panel("", inline(svg(figure), title))])


def limits_of(ablations: Sequence[Ablation]) -> Limits:
    """Return limits of a y axis on which all ablations can be compared, and noise looks small."""
    low = min(float((ablation.values - 2 * ablation.errors).min()) for ablation in ablations)
    high = max(float((ablation.values + 2 * ablation.errors).max()) for ablation in ablations)
    space = max(0.05 * (high - low), (_LEAST - (high - low)) / 2)
    return low - space, high + space


def spread_distances(count: int) -> list[int]:
    """Return distances below `count`: the near ones all, far ones ever more sparsely."""
    far = np.geomspace(32, max(33, count - 1), 32).round().astype(int).tolist()
    return [d for d in sorted({*range(33), *far}) if d < count]


def on_text(picture: OnText, words: Sequence[str]) -> Heat:
    """Return a table of the numbers at the tokens of a text, a row for each head or, where these are many, layer."""
    values = picture.values.float()
    layers, heads, _ = values.shape
    if layers * heads > _MOST_HEADS:
        values, heads = values.mean(1, keepdim=True), 1
    names = [f"layer {n // heads}, {f'head {n % heads}' if heads > 1 else 'mean'}" for n in range(layers * heads)]
    rows = dict(zip(names, values.flatten(0, 1).tolist(), strict=True))
    return heat(picture.title, picture.caption, [("", len(words))], words, rows, picture.highest)


def head_table(title: str, caption: str, shares: Mapping[str, Tensor]) -> Heat:
    """Return a table of shares of attention (L, H) by kind: a row for each head or, of many, for the highest of each
    layer."""
    layers, heads = next(iter(shares.values())).shape
    if layers * heads <= _MOST_HEADS:
        names = [f"layer {layer}, head {head}" for layer in range(layers) for head in range(heads)]
        rows = torch.stack([kind_shares.flatten() for kind_shares in shares.values()], -1)
    else:
        names = [f"layer {layer}, highest" for layer in range(layers)]
        rows = torch.stack([kind_shares.amax(-1) for kind_shares in shares.values()], -1)
    kinds = [kind.removesuffix("_token") for kind in shares]
    by_name = dict(zip(names, rows.tolist(), strict=True))
    return heat(title, caption, [("", len(kinds))], kinds, by_name, 1.0, share=True)


def heat(
    title: str,
    caption: str,
    groups: Sequence[tuple[str, int]],
    columns: Sequence[str],
    rows: Mapping[str, Sequence[float]],
    highest: float | None = None,
    share: bool = False,
) -> Heat:
    """Return a table of numbers as colours. highest: the number of the darkest; None: the highest of them."""
    highest = highest or max(max(row) for row in rows.values()) or 1.0
    cells = {
        name: [(f"{v:.0%}" if share else f"{v:.3g}", f"{min(max(v / highest, 0), 1):.2f}") for v in row]
        for name, row in rows.items()
    }
    return Heat(
        title, caption, [*groups], [*columns], [*cells.items()], f"{highest:.0%}" if share else f"{highest:.3g}"
    )


def chips(strip: Strip) -> Chips:
    """Return the strip as ranges of distances that share a row."""
    by_row = groupby(zip(strip.rows, strip.distances, strict=True), key=itemgetter(0))
    ranges = [(row, [distance for _, distance in pairs]) for row, pairs in by_row]
    return Chips(strip.title, strip.caption, strip.unit, [(row, shared[0], shared[-1]) for row, shared in ranges])


def _panel(title: str, figure: Figure, x: Sequence[int], lines: Mapping[str, Tensor]) -> Panel:
    """Return a panel of lines over x; with lines by distance its reader can point at one."""
    axes = figure.axes[0]
    if not lines:
        return Panel(title, inline(svg(figure), title))
    if x[0] >= 0:
        _spread(axes, x)
    text = inline(svg(figure), title)  # which lays the figure out
    shown = set(x if x[0] < 0 else spread_distances(x[-1] + 1))
    kept = [n for n, distance in enumerate(x) if distance in shown]
    at = [x[n] for n in kept]
    return Panel(title, text, _pointed(figure, at, at, {name: line[kept] for name, line in lines.items()}))


def _pointed(figure: Figure, at: Sequence[int], x: Sequence[int], lines: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what a page's script needs to point at a distance. at: distances; x: where the axis has them."""
    axes, unit = figure.axes[0], 72 / figure.dpi
    box, height = axes.get_window_extent(), figure.bbox.height * unit
    pixels = axes.transData.transform([(place, axes.get_ylim()[0]) for place in x])[:, 0]
    return {
        "at": list(at),
        "x": [round(float(p) * unit, 1) for p in pixels],
        "y": [round(height - box.y1 * unit, 1), round(height - box.y0 * unit, 1)],
        "lines": [(name, [float(f"{v:.3g}") for v in line.tolist()]) for name, line in lines.items()],
    }


def _spread(axes: Axes, x: Sequence[int]) -> None:
    """Give near distances room: 0, 1, 2, 4, ... at equal steps."""
    axes.set_xscale("symlog", base=2, linthresh=1)
    ticks = [tick for tick in (0, *(2**n for n in range(32))) if min(x) <= tick <= max(x)]
    most = 5 if axes.figure.get_figwidth() < WHOLE[0] else 10  # type: ignore[union-attr]
    axes.set_xticks(ticks[:: -(-len(ticks) // most)])
    axes.set_xlim(min(x) - 0.3, max(x) * 1.15 + 0.3)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())
