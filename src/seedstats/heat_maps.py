"""Heat maps of metrics that have numbered parts, such as the answers found by their depth in a text, over lengths."""

import re
from collections import defaultdict
from collections.abc import Mapping

import pandas as pd
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from seedstats.comparison import Comparison
from seedstats.page import blocks
from seedstats.page.looks import new_panel, printable, shades, styled, wrapped

_FEWEST = 3  # parts that make a map
_CAPTION = (
    "Means over seeds. Rows are the parts of the metric, columns the lengths of the tests. All panels have the same "
    "colours, the highest value the darkest. What is not known is left out."
)


@styled()
def heat_maps(titled: Mapping[str, Comparison]) -> list[blocks.Figure]:
    """Return a figure for each metric NAME that is known as NAME_1, NAME_2, NAME_3, ... at several lengths.

    titled: comparisons by the title of their data. A figure has a panel for each group.
    """
    figures = []
    for title, comparison in titled.items():
        on_data = f", {title}" if len(titled) > 1 else ""
        for name, means in _means(comparison).items():
            heading = f"{name[0].upper()}{name[1:]} by length{on_data}"
            figures.append(blocks.Figure(f"{name}_by_length", heading, _CAPTION, _panels(name, means)))
    return figures


def _means(comparison: Comparison) -> dict[str, dict[str, pd.DataFrame]]:
    """Return means over seeds (part, length) by the name of the metric and the label of the group."""
    means: dict[str, dict[str, pd.DataFrame]] = defaultdict(dict)
    for group in comparison.groups:
        rows = [
            (part[1], int(part[2]), length, mean)
            for name, length in group.measurements
            for part in [re.fullmatch(r"(.+)_(\d+)", name)]
            if part and length and (mean := group.mean(name, length)) is not None
        ]
        table = pd.DataFrame(rows, columns=["metric", "part", "length", "value"])
        for name, metric_rows in table.groupby("metric"):
            shown = metric_rows.pivot_table(index="part", columns="length", values="value")
            if len(shown) >= _FEWEST and shown.shape[1] > 1:
                means[str(name)][group.label] = shown
    return means


def _panels(name: str, means: Mapping[str, pd.DataFrame]) -> list[Figure]:
    """Return a map for each group, and the colours that all of them share."""
    lowest = min(shown.min(axis=None) for shown in means.values())
    highest = max(shown.max(axis=None) for shown in means.values())
    scale = Normalize(lowest, highest)
    panels = []
    for label, shown in sorted(means.items()):
        figure, axes = new_panel(2.6, 2.5)
        axes.imshow(shown, norm=scale, cmap=shades(), aspect="auto")
        axes.grid(visible=False)
        axes.set_xticks(range(shown.shape[1]), [f"{length:g}" for length in shown.columns])
        axes.set_yticks(range(len(shown)), [printable(str(part)) for part in shown.index])
        axes.set_title(wrapped(label, 26), fontsize="small")
        axes.set(xlabel="length of the tests", ylabel=printable(name))
        panels.append(figure)
    colours = Figure(figsize=(2.6, 0.7), layout="constrained")
    bar = colours.colorbar(ScalarMappable(scale, shades()), cax=colours.subplots(), orientation="horizontal")
    bar.set_label(printable(name), size="small")
    return [*panels, colours]
