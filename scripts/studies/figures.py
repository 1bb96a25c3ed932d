"""Figures made from the table of the second stage alone."""

from itertools import product

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poslab.metric import LAST_TOKENS_LOSS
from seedstats.page.looks import looks_of
from seedstats.statistics.intervals import estimate
from studies.tables import BEYOND, SCHEMES, TEXTS, TWIN, by_seed

RECIPES = {"default": ("white", "0.5", 0.18), "chosen": ("#0072B2", "#0072B2", -0.18)}  # dots, strokes, where they are
_NAMES = [*SCHEMES, TWIN]
PANELS = [(data, "exact", length, f"{data}, 2 x: examples right") for data, length in BEYOND.items()]
PANELS += [
    (data, LAST_TOKENS_LOSS, length, f"{data}, {where}: loss")
    for data, (length, where) in product(TEXTS, ((64, "in range"), (512, "8 x")))
]
LENGTHS = (64, 128, 256, 512)
# From the lowest loss at the last length to the highest, in the colours that the names have in reports.
_DRAWN = ("kerple", "alibi", "shaw", "fire", "rope", "nope", "t5")
COLOURS = {name: str(looks_of(_DRAWN)[name]["color"]) for name in _DRAWN}


def recipes(table: pd.DataFrame) -> Figure:
    """Draw the study's main figure, a panel for each task and text: the means with both recipes, each seed a stroke."""
    figure = Figure(figsize=(12.8, 6.2), layout="constrained")
    grid, places = figure.subplots(2, 4, sharey=True).flatten(), np.arange(len(_NAMES))
    for axes, (data, metric, length, title) in zip(grid, PANELS, strict=True):
        seeds = [by_seed(table, data, recipe, metric, length).reindex(_NAMES) for recipe in RECIPES]
        first, second = means = [of.mean(axis=1) for of in seeds]
        axes.hlines(places, first, second, color="0.7", linewidth=1.5, zorder=1)
        for (recipe, (fill, colour, below)), of, mean in zip(RECIPES.items(), seeds, means, strict=True):
            axes.plot(of.to_numpy(), places + below, "|", color=colour, markersize=4)
            axes.plot(mean, places, "o", color="#0072B2", markerfacecolor=fill, label=recipe)
        if metric == "exact":
            axes.set_xlim(-0.04, 1.04)
        axes.grid(axis="x", alpha=0.3)
        axes.set_title(title, fontsize=9)
    grid[0].set_yticks(places, _NAMES)
    grid[0].invert_yaxis()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def lengths(table: pd.DataFrame) -> Figure:
    """Draw the figure of the front page: characters of Shakespeare, default recipe, mean loss with 95 % interval."""
    figure = Figure(figsize=(8.6, 4.3), layout="constrained")
    axes = figure.subplots()
    of = [by_seed(table, TEXTS[0], "default", LAST_TOKENS_LOSS, length) for length in LENGTHS]
    for scheme, colour in COLOURS.items():
        found = [estimate(of_length.loc[scheme]) for of_length in of]
        halves = [one.interval.high - one.mean for one in found if one.interval]
        axes.errorbar([*map(str, LENGTHS)], [one.mean for one in found], halves, color=colour, lw=2, capsize=3)
    name_ends(axes, len(LENGTHS) - 0.9, of[-1].mean(axis=1), 1)
    axes.set_xlabel("length of the window, characters (in training 64)", fontsize=11)
    axes.set_ylabel("loss of the last characters, nats", fontsize=11)
    return figure


def name_ends(axes: Axes, x: float, ends: pd.Series, height: float) -> None:
    """Write each scheme's name at the end of its line, so that none overlaps in a panel of that height."""
    place = -np.inf
    for scheme, end in ends.reindex(list(COLOURS)).dropna().sort_values().items():
        place = max(end, place + height / 18)
        axes.text(x, place, str(scheme), color=COLOURS[str(scheme)], fontsize=12, va="center")
    axes.spines[["top", "right"]].set_visible(False)
