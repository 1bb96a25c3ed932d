"""Figures of a page about one model: inline SVG, and data for its script to point at a distance in them."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

from poslab.evaluation.pictures import draw
from poslab.explanation.measures import Ablation, AttentionMeasures
from poslab.positions import Curves, OnText, Picture, Strip
from seedstats.page.looks import looks
from seedstats.page.svg import svg

Limits = tuple[float, float]
_SIZE = (4.6, 3.3)  # inches: as wide as a phone's screen at the size at which text is set
_LEAST = 0.2  # nats, or proportion of right answers: the least that an axis shows
_MOST_HEADS = 24  # columns of a table that a phone has room for


@dataclass(frozen=True)
class Chart:
    """Figure of the page. data: points of the x axis in the units of the SVG, and the values of each line there."""

    title: str
    caption: str
    svg: Markup
    data: dict[str, Any] | None = None


@dataclass(frozen=True)
class Cells:
    """Table of colours: a row per token, a column per head or, where these are many, per layer.

    rows: (word, (value, shade from 0 to 1) by column).
    """

    title: str
    caption: str
    layers: list[tuple[str, int]]  # with the number of columns
    heads: list[str]
    rows: list[tuple[str, list[tuple[str, str]]]]
    highest: str


@dataclass(frozen=True)
class Chips:
    """Strip of distances: (row, first distance, last distance)."""

    title: str
    caption: str
    unit: str
    chips: list[tuple[int, int, int]]


def of_picture(picture: Picture, salt: str) -> Chart:
    """Draw a picture of the scheme."""
    figure = draw(picture)
    figure.set_size_inches(*_SIZE)
    axes = figure.axes[0]
    axes.set_title("")
    if not isinstance(picture, Curves):
        return _chart(picture.title, picture.caption, figure, [], {}, salt)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    lines = picture.lines if picture.x_label == "distance" else {}
    return _chart(picture.title, picture.caption, figure, picture.x, lines, salt)


def of_attention(title: str, measured: AttentionMeasures, layer: int, salt: str) -> Chart:
    """Draw a layer's attention by distance, dashed where position alone decides; on one scale for all layers."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    at = spread_distances(measured.even.shape[-1])
    lines: dict[str, Tensor] = {}
    for head, look in zip(range(measured.by_distance.shape[1]), looks(), strict=False):
        for name, weights, line in (("", measured.by_distance, "-"), (" alone", measured.alone, "--")):
            of_head = lines[f"head {head}{name}"] = weights[layer, head, at].clamp(min=1e-5)
            label = f"head {head}" if line == "-" else None
            width = 1.8 if line == "-" else 1
            axes.plot(at, of_head.numpy(), line, color=look["color"], linewidth=width, label=label)
    axes.plot(at, measured.even[at].numpy(), ":", color="black", linewidth=1, label="all alike")
    axes.plot([], [], "--", color="gray", linewidth=1, label="position alone")
    shown = torch.cat([measured.by_distance[..., at], measured.alone[..., at]])
    limits = float(shown.min().clamp(min=1e-5)) / 1.3, min(1.3 * float(shown.max()), 1.3)
    axes.set(xlabel="distance", ylabel="weight", yscale="log", ylim=limits)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter() if limits[1] > 20 * limits[0] else "{x:.1g}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", ncols=2, loc="lower left")
    return _chart(title, "", figure, at, lines, salt)


def of_ablations(
    title: str, caption: str, x_label: str, ablations: Mapping[str, Ablation], limits: Limits, salt: str
) -> Chart:
    """Draw one ablation of each model, with twice the standard error of its difference from the unchanged text."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for (label, ablation), look in zip(ablations.items(), looks(), strict=False):
        bars = 2 * ablation.errors
        axes.errorbar(ablation.sizes, ablation.values, bars, label=label, capsize=2, markersize=4, **look)
    exact = next(iter(ablations.values())).exact
    axes.set(xlabel=x_label, ylabel="share of right answers" if exact else "loss, nats per token", ylim=limits)
    axes.grid(alpha=0.3)
    if len(ablations) > 1:
        axes.legend(fontsize="small")
    _spread(axes, [size for ablation in ablations.values() for size in ablation.sizes])
    return Chart(title, caption, _inline(figure, salt, title))


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


def cells(picture: OnText, words: Sequence[str]) -> Cells:
    """Return a table of the numbers at the tokens of a text."""
    values = picture.values.float()
    layers, heads, _ = values.shape
    if layers * heads > _MOST_HEADS:
        values, heads = values.mean(1, keepdim=True), 1
    highest = picture.highest or max(float(values.max()), 1e-9)
    columns = values.flatten(0, 1).T.tolist()  # (T, columns)
    rows = [
        (w, [(f"{v:.3g}", f"{min(v / highest, 1):.2f}") for v in row]) for w, row in zip(words, columns, strict=True)
    ]
    names = [str(head) if heads > 1 else "mean" for _ in range(layers) for head in range(heads)]
    spans = [(f"layer {layer}", heads) for layer in range(layers)]
    return Cells(picture.title, picture.caption, spans, names, rows, f"{highest:.3g}")


def shares(title: str, caption: str, by_row: Mapping[str, Mapping[str, float]]) -> Cells:
    """Return a table of shares by row and length, white to blue."""
    lengths = list(next(iter(by_row.values())))
    rows = [
        (name.replace("_", " "), [(f"{share:.0%}", f"{share:.2f}") for share in of_row.values()])
        for name, of_row in by_row.items()
    ]
    return Cells(title, caption, [("length", len(lengths))], lengths, rows, "1")


def chips(strip: Strip) -> Chips:
    """Return the strip as ranges of distances that share a row."""
    by_row = groupby(zip(strip.rows, strip.distances, strict=True), key=itemgetter(0))
    ranges = [(row, [distance for _, distance in pairs]) for row, pairs in by_row]
    return Chips(strip.title, strip.caption, strip.unit, [(row, shared[0], shared[-1]) for row, shared in ranges])


def _chart(title: str, caption: str, figure: Figure, x: Sequence[int], lines: Mapping[str, Tensor], salt: str) -> Chart:
    if not lines:
        return Chart(title, caption, _inline(figure, salt, title))
    axes = figure.axes[0]
    if x[0] >= 0:
        _spread(axes, x)
    text = _inline(figure, salt, title)  # which lays the figure out
    shown = set(x if x[0] < 0 else spread_distances(x[-1] + 1))
    kept = [n for n, distance in enumerate(x) if distance in shown]
    unit = 72 / figure.dpi
    height = figure.bbox.height * unit
    box = axes.get_window_extent()
    pixels = axes.transData.transform([(x[n], axes.get_ylim()[0]) for n in kept])[:, 0]
    data = {
        "at": [x[n] for n in kept],
        "x": [round(float(p) * unit, 1) for p in pixels],
        "y": [round(height - box.y1 * unit, 1), round(height - box.y0 * unit, 1)],
        "lines": {name: [float(f"{v:.3g}") for v in line[kept].tolist()] for name, line in lines.items()},
    }
    return Chart(title, caption, text, data)


def _spread(axes: Axes, x: Sequence[int]) -> None:
    """Give near distances room: 0, 1, 2, 4, ... at equal steps."""
    axes.set_xscale("symlog", base=2, linthresh=1)
    ticks = [tick for tick in (0, *(2**n for n in range(32))) if min(x) <= tick <= max(x)]
    axes.set_xticks(ticks[:: 1 if len(ticks) < 11 else 2])
    axes.set_xlim(min(x) - 0.3, max(x) * 1.15 + 0.3)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_locator(NullLocator())


def _inline(figure: Figure, salt: str, title: str) -> Markup:
    """Return the figure as an element of a page: no ids that two figures could share, as wide as there is room."""
    text = svg(figure, salt, "none")
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' width="[^"]*" height="[^"]*"', "", text, count=1)
    return Markup(text.replace("<svg ", Markup('<svg role="img" aria-label="{}" ').format(title), 1))
