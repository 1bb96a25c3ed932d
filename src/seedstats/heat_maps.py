"""Heat maps of metrics that have numbered parts, such as the answers found by their depth in a text, over lengths."""

import re
from collections import defaultdict
from collections.abc import Mapping

import pandas as pd
from matplotlib.figure import Figure

from seedstats.comparison import Comparison
from seedstats.figures import panel_grid
from seedstats.page import blocks
from seedstats.page.looks import printable, wrapped

_COLUMNS, _FEWEST = 5, 3  # panels side by side, and parts that make a map
_CAPTION = (
    "Means over seeds. Rows are the parts of the metric, columns the lengths of the tests. All panels have the same "
    "colours. What is not known is white."
)


def heat_maps(titled: Mapping[str, Comparison]) -> list[blocks.Figure]:
    """Return a figure for each metric NAME that is known as NAME_1, NAME_2, NAME_3, ... at several lengths.

    titled: comparisons by the title of their data. A figure has a panel for each group.
    """
    figures = []
    for title, one in titled.items():
        of_data = f", {title}" if len(titled) > 1 else ""
        for name, panels in _means(one).items():
            heading = f"{name[0].upper()}{name[1:]} by length{of_data}"
            figures.append(blocks.Figure(f"{name}_by_length", heading, _CAPTION, _figure(name, panels)))
    return figures


def _means(one: Comparison) -> dict[str, dict[str, pd.DataFrame]]:
    """Return means over seeds (part, length) by the name of the metric and the label of the group."""
    means: dict[str, dict[str, pd.DataFrame]] = defaultdict(dict)
    for group in one.groups:
        rows = [
            (part[1], int(part[2]), length, mean)
            for name, length in group.known
            for part in [re.fullmatch(r"(.+)_(\d+)", name)]
            if part and length and (mean := group.mean(name, length)) is not None
        ]
        table = pd.DataFrame(rows, columns=["metric", "part", "length", "value"])
        for name, of_metric in table.groupby("metric"):
            shown = of_metric.pivot_table(index="part", columns="length", values="value")
            if len(shown) >= _FEWEST and shown.shape[1] > 1:
                means[str(name)][group.label] = shown
    return means


def _figure(name: str, panels: Mapping[str, pd.DataFrame]) -> Figure:
    lowest = min(shown.min(axis=None) for shown in panels.values())
    highest = max(shown.max(axis=None) for shown in panels.values())
    columns = min(_COLUMNS, len(panels))
    figure, grid = panel_grid(len(panels), columns, (2.3, 2.6))
    for number, (axes, (label, shown)) in enumerate(zip(grid, sorted(panels.items()), strict=True)):
        image = axes.imshow(shown, vmin=lowest, vmax=highest, cmap="viridis", aspect="auto")
        axes.set_xticks(range(shown.shape[1]), [f"{length:g}" for length in shown.columns])
        axes.set_yticks(range(len(shown)), list(map(str, shown.index)))
        axes.set_title(wrapped(label, 26), fontsize="small")
        if number % columns == 0:
            axes.set_ylabel(printable(name))
    figure.supxlabel("length of the tests", fontsize="medium")
    figure.colorbar(image, ax=grid, aspect=30)
    return figure
