"""Hyperparameter grids of schemes: the setting chosen by validation, and figures over a setting.

Trying more settings finds better ones by chance. For claims, each scheme therefore gets the same small grid, its
settings are chosen by the mean validation loss over seeds in the training range, and the reported figures are of tests,
which chose nothing: beyond that range, or of a held-out part of the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from poslab.comparison.compare import Comparison
from poslab.comparison.factors import by_scheme, by_value, is_number, usual_settings, varied_settings
from poslab.comparison.figures import add_legend, styles_of
from poslab.comparison.groups import Group
from poslab.report import blocks
from poslab.report.blocks import Table
from poslab.statistics.table import BEST_VALIDATION_LOSS, SOURCE

_CAPTION = (
    "Each line is a scheme, by the value of the setting that it was trained with: means over seeds, and bars from the "
    "worst seed to the best. The best point of a line is none that could have been chosen without having seen it; what "
    'the validation chose stands under "Default and chosen settings".'
)


@dataclass(frozen=True)
class Grid:
    """Groups of one scheme, in the order of the settings in which they differ."""

    scheme: str
    groups: list[Group]

    @property
    def varied(self) -> list[str]:
        """Return the settings of which the groups have several values."""
        return varied_settings(self.groups)

    @property
    def default(self) -> Group | None:
        """Return the group with the values of configs/pos, or None if there is none, or they are not known."""
        usual = usual_settings(self.scheme)
        as_usual = (g for g in self.groups if all(g.settings.get(key) == usual.get(key) for key in self.varied))
        return next(as_usual, None)

    @property
    def chosen(self) -> Group:
        """Return the group of the lowest mean validation loss, over the seeds that all groups have, if there are such.

        That is the loss that is compared, if one is, else that of the weights compared. Only groups with the fewest
        diverged seeds are candidates.
        """
        score = self.groups[0].score
        name = score.name if score.validation else BEST_VALIDATION_LOSS
        common = set.intersection(*(set(group.figures(name)) for group in self.groups))

        def loss(group: Group) -> tuple[int, float]:
            figures = group.figures(name)
            return len(group.diverged), fmean(figures[seed] for seed in common or figures)

        return min(self.groups, key=loss)

    def told(self, group: Group) -> str:
        """Return the group's settings as typed, "scale=32, max_distance=64"."""
        return ", ".join(f"{key}={group.settings.get(key)}" for key in self.varied)


def grids(comparison: Comparison) -> list[Grid]:
    """Return a grid for each scheme, in alphabetical order."""
    schemes = by_scheme(comparison.groups).items()
    return [Grid(name, sorted(of, key=lambda group: by_value(group.settings.values()))) for name, of in schemes]


def choices(comparison: Comparison) -> Table | None:
    """Return the table of default and chosen settings of each scheme, or None if none was trained with several.

    A scheme whose code was edited between runs is left out: its versions are no settings that one could choose.
    """
    found = [grid for grid in grids(comparison) if SOURCE not in grid.varied]
    score = comparison.score
    if all(len(grid.groups) == 1 for grid in found) or not all(
        group.figures(score.name if score.validation else BEST_VALIDATION_LOSS)
        for grid in found
        for group in grid.groups
    ):
        return None
    known = sorted(n for name, n in comparison.groups[0].known if name == score.name and n is not None)
    lengths: list[int | None] = [*(n for n in known if n >= (score.length or 0))] or [score.length]
    # A table of results may have columns of its own, which no configuration knows.
    shown = ["default", "chosen"] if any(grid.default for grid in found) else ["chosen"]
    columns = ["scheme", "settings tried", *shown]
    for length in lengths:
        columns += [f"{replace(score, length=length)}, {which}" for which in shown]
    rows = []
    for grid in found:
        groups = [getattr(grid, which) for which in shown]
        row = [grid.scheme, str(len(grid.groups)), *("not tried" if g is None else grid.told(g) or "" for g in groups)]
        for length in lengths:
            means = [None if group is None else group.mean(score.name, length) for group in groups]
            row += [score.text(mean) for mean in means]
        rows.append(row)
    remark = "Chosen: the settings of the lowest mean validation loss over seeds, in the range of training."
    if score.validation:
        remark += " No part of the text was held out: what is shown has also chosen, and is too good by that."
    if len({len(grid.groups) for grid in found}) > 1:
        remark += " Not all schemes were tried with as many settings; who had more had more chances."
    return Table(
        " and ".join(shown).capitalize() + " settings", columns, rows, remark, words=[*range(2, 2 + len(shown))]
    )


# Figures over a setting

Curves = dict[str, dict[float, list[float]]]  # by label and the value of the setting: the figure of each seed


def setting_panels(titled: Mapping[str, Comparison]) -> list[blocks.Figure]:
    """Return a figure for each numeric setting that varies within a scheme, with a panel for each task or text."""
    names = dict.fromkeys(name for one in titled.values() for grid in grids(one) for name in _numbers(grid))
    panels = []
    for name in names:
        curves = {title: _curves(comparison, name) for title, comparison in titled.items()}
        having = {title: of for title, of in curves.items() if of}
        figure = _figure(name, having, titled)
        panels.append(blocks.Figure(f"over_{name}", f"By {name}", _CAPTION, figure))
    return panels


def _numbers(grid: Grid) -> list[str]:
    return [name for name in grid.varied if all(is_number(group.settings.get(name)) for group in grid.groups)]


def _curves(comparison: Comparison, name: str) -> Curves:
    """Return a curve for each scheme whose groups differ in the setting, and each combination of the others that
    differ."""
    curves: Curves = {}
    for grid in grids(comparison):
        if name in _numbers(grid):
            others = [key for key in grid.varied if key != name]
            for group in grid.groups:
                label = " ".join([grid.scheme, *(f"{key}={group.settings.get(key)}" for key in others)])
                curves.setdefault(label, {})[float(group.settings[name])] = list(group.values.values())
    return {label: dict(sorted(points.items())) for label, points in curves.items()}


def _figure(name: str, curves: Mapping[str, Curves], titled: Mapping[str, Comparison]) -> Figure:
    styles = styles_of({label for of_data in curves.values() for label in of_data})
    values = sorted({value for of_data in curves.values() for points in of_data.values() for value in points})
    figure = Figure(figsize=(3.9 * len(curves) + 1.6, 3.9), layout="constrained")
    for (title, of_data), axes in zip(curves.items(), figure.subplots(1, len(curves), squeeze=False)[0], strict=True):
        for label, points in of_data.items():
            look: dict[str, Any] = {"markersize": 5} | styles[label]
            axes.plot(list(points), [fmean(figures) for figures in points.values()], **look)
            worst, best = ([of(figures) for figures in points.values()] for of in (min, max))
            axes.vlines(list(points), worst, best, color=look["color"], linewidth=1.1, alpha=0.6)
        score = titled[title].score
        axes.set(title=title, xlabel=f"{name}{' (log scale)' if geometric(values) else ''}", ylabel=score.label)
        if score.metric.is_proportion:
            axes.set_ylim(-0.04, 1.04)
        if geometric(values):
            axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(values))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.grid(alpha=0.3)
    add_legend(figure)
    return figure


def geometric(values: Sequence[float]) -> bool:
    """Return whether rising values grow by factors rather than by differences."""
    if len(values) < 2 or values[0] <= 0:
        return False
    steps = np.diff(values)
    widening = (np.diff(steps) >= 0).all() and (len(steps) == 1 or steps[-1] > steps[0])
    return bool(values[-1] >= 4 * values[0] and widening)
