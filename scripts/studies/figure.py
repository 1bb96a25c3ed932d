"""Main figure of the study: what each scheme reaches by the default and by its own recipe, from the tables alone."""

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from poslab.metric import LAST_TOKENS_LOSS
from studies.hypotheses import Cells
from studies.tables import BEYOND, CONTROL, SCHEMES, TEXTS, TWIN

FILE = "figure.png"
RECIPES = {"default": "white", "chosen": "#0072B2"}  # and what fills their dots
_NAMES = [*SCHEMES, TWIN]


def write_figure(table: pd.DataFrame, folder: Path) -> Path:
    """Draw the figure beside the table of the second stage, and return its file."""
    draw(table).savefig(folder / FILE, dpi=110, metadata={"Software": None})
    return folder / FILE


def draw(table: pd.DataFrame) -> Figure:
    """Draw a panel for each task and text: the means by both recipes, and each seed as a stroke."""
    cells = Cells(table)
    figure = Figure(figsize=(12.8, 6.2), layout="constrained")
    grid = figure.subplots(2, 4, sharey=True).flatten()
    for axes, (title, data, metric, length) in zip(grid, _panels(), strict=True):
        _draw_panel(axes, _by_recipe(cells, data, metric, length))
        if metric == "exact":
            axes.set_xlim(-0.04, 1.04)
        axes.set_title(title, fontsize=9)
    grid[0].set_yticks(range(len(_NAMES)), _NAMES)
    grid[0].invert_yaxis()
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8)
    return figure


def _panels() -> list[tuple[str, str, str, int]]:
    """Return title, task or text, metric and length of each panel."""
    tasks = [(f"{data}, 2 x: examples right", data, "exact", BEYOND[data]) for data in BEYOND if data != CONTROL]
    texts = [
        (f"{option.split('_')[0]}, {where}: loss", data, LAST_TOKENS_LOSS, length)
        for data, option in TEXTS.items()
        for where, length in (("in range", 64), ("8 x", 512))
    ]
    return tasks + texts


def _by_recipe(cells: Cells, data: str, metric: str, length: int) -> dict[str, list[list[float]]]:
    """Return by recipe the figures of each scheme's seeds; a run that diverged has solved nothing, and has no loss."""
    lost = 0.0 if metric == "exact" else math.nan
    return {
        recipe: [
            [*filter(math.isfinite, cells.seeds((data, scheme, recipe), metric, length, lost=lost).values())]
            for scheme in _NAMES
        ]
        for recipe in RECIPES
    }


def _draw_panel(axes: Axes, figures: Mapping[str, list[list[float]]]) -> None:
    means = {recipe: [fmean(seeds) if seeds else math.nan for seeds in of] for recipe, of in figures.items()}
    for place, ends in enumerate(zip(*means.values(), strict=True)):
        axes.plot(ends, [place, place], color="0.7", linewidth=1.5, zorder=1)
    for recipe, fill in RECIPES.items():
        for place, seeds in enumerate(figures[recipe]):
            below = 0.18 if recipe == "default" else -0.18
            axes.plot(seeds, [place + below] * len(seeds), "|", color=fill if fill != "white" else "0.5", markersize=4)
        axes.plot(means[recipe], range(len(means[recipe])), "o", color="#0072B2", markerfacecolor=fill, label=recipe)
    axes.grid(axis="x", alpha=0.3)
    axes.tick_params(labelsize=8)
