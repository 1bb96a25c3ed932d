"""Figures of losses over steps, positions and lengths, with the captions that say how to read them."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from poslab.comparison.costs import cost_figure
from poslab.comparison.curves import Curve, over_seeds
from poslab.config.fields import MOST_TOKENS
from poslab.runs.evaluation import STRETCH, Evaluation
from seedstats import figures
from seedstats.comparison import Comparison
from seedstats.figures import Styles
from seedstats.page import blocks
from seedstats.page.looks import wrapped
from seedstats.statistics.intervals import estimate

Lines = Mapping[str, pd.DataFrame]  # by label, as `over_seeds` returns them
Evaluations = Mapping[str, Sequence[Evaluation]]  # by label, one for each run

_LENGTH = "length of the window (log scale)"
_MOST_BANDS = 6  # groups whose bands can still be told apart

_CURVES = (
    "Means over seeds, and right less those of the baseline. Bands, where schemes are few, are one standard deviation."
)
_BY_POSITION = (
    "Mean loss at each position of a window of the training length: how much more context helps. A short text has "
    "few such windows; peaks that all schemes share come from the text. "
    f"Of a text of more than {MOST_TOKENS:,} tokens about so many count, in stretches of {STRETCH:,} spread evenly "
    "over it."
)
_BY_LENGTH = (
    f"The same tokens at every length: all, or of a text of more than {MOST_TOKENS:,} tokens about so many, in "
    f"stretches of {STRETCH:,} spread evenly over it. Left, windows are contiguous, so short ones suffer from their "
    "starts; right, windows slide by half their length and only what is new counts. A scheme that ends at the training "
    "length knows no positions beyond."
)
_LAST = (
    "The same tokens at every length, the last ones of windows that end at the same positions: only the context "
    "before them grows. Means over seeds, with 95 % intervals. Right, by how much the loss is lower than at the "
    "training length: above zero, a scheme uses context that it was not trained to; below, that breaks it."
)


def loss_panels(
    comparison: Comparison, evaluations: Evaluations, by_seed: Mapping[str, Mapping[int, Curve]], unit: str
) -> tuple[list[blocks.Figure], list[str]]:
    """Return (panels of costs, and of losses by step, position and length, labels of groups without a curve).

    evaluations: of groups that have them, by label. by_seed: the curves of all runs, by label and seed. unit: of them.
    """
    baseline = comparison.baseline
    styles = figures.styles_of((group.label for group in comparison.groups), baseline)
    costs = cost_figure(comparison, styles)
    panels = [costs] if costs else []
    curves = {label: [curve for curve in of.values() if curve.validation] for label, of in by_seed.items()}
    if any(curves.values()):
        figure = curves_figure(curves, styles, baseline, unit, comparison.references)
        panels.append(blocks.Figure("curves", "Loss curves", _CURVES, figure))
    if evaluations:
        figure = by_position_figure(evaluations, styles, baseline)
        panels.append(blocks.Figure("by_position", "Loss by position", _BY_POSITION, figure))
        figure = by_length_figure(evaluations, styles)
        panels.append(blocks.Figure("by_length", "Loss by length", _BY_LENGTH, figure))
    if any(evaluation.last_losses for of_seeds in evaluations.values() for evaluation in of_seeds):
        figure = last_figure(evaluations, styles)
        panels.append(blocks.Figure("last", "Does more context help?", _LAST, figure))
    empty = [
        f"{label} seed {seed}" for label, of in by_seed.items() for seed, curve in of.items() if not curve.validation
    ]
    listed = ", ".join(empty[:5]) + (f" and {len(empty) - 5:,} more" if len(empty) > 5 else "")
    return panels, [f"no loss curve of {listed}"] if empty else []


def curves_figure(
    curves: Mapping[str, Sequence[Curve]],
    styles: Styles,
    baseline: str,
    unit: str = "nats per token",
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Draw validation and training loss over steps: mean over seeds, with a band of one standard deviation.

    references: losses of models without training by name, drawn if within the axes.
    """
    validation = {label: over_seeds([curve.validation for curve in of_seeds]) for label, of_seeds in curves.items()}
    training = {label: over_seeds([curve.train for curve in of_seeds]) for label, of_seeds in curves.items()}
    panels = {"Validation loss": validation, "Training loss": training} | _difference(baseline, validation)
    figure = _drawn(panels, styles, "step", unit=unit)
    for axes in figure.axes[:2]:
        figures.draw_references(axes, references or {})
    return figure


def by_position_figure(evaluations: Evaluations, styles: Styles, baseline: str) -> Figure:
    """Draw loss by position in a window of the training length, in widening bins."""
    lines = {}
    for label, of_seeds in evaluations.items():
        results = [(e.context_length, result) for e in of_seeds for result in e.lengths]
        by_seed = [r.by_position for trained, r in results if r.length == trained and r.by_position]
        length = min(map(len, by_seed), default=0)
        edges = np.unique(np.geomspace(1, length + 1, 14).astype(int)) - 1  # 0, 1, 2, 4, ... length
        middles = (edges[:-1] + edges[1:] + 1) / 2
        binned = [np.add.reduceat(losses[:length], edges[:-1]) / np.diff(edges) for losses in by_seed]
        lines[label] = over_seeds([list(zip(middles, losses, strict=True)) for losses in binned])
    panels = {"Loss": lines} | _difference(baseline, lines)
    return _drawn(panels, styles, "tokens seen in the window (log scale)", log=True)


def by_length_figure(evaluations: Evaluations, styles: Styles) -> Figure:
    """Draw loss by window length, with the training length marked."""
    panels = {
        "Windows that follow each other": _lines_of(evaluations, lambda e: ((r.length, r.loss) for r in e.lengths)),
        "Sliding windows": _lines_of(evaluations, lambda e: ((r.length, r.sliding_loss) for r in e.lengths)),
    }
    return _drawn(panels, styles, _LENGTH, log=True, marks=_trained(evaluations))


def last_figure(evaluations: Evaluations, styles: Styles) -> Figure:
    """Draw the last loss by window length, and its gain beyond the training length."""
    panels = {
        "Loss of the last tokens": _lines_of(evaluations, lambda e: e.last_losses.items()),
        "Gain from more context than in training": _lines_of(evaluations, lambda e: e.context_gains.items()),
    }
    return _drawn(panels, styles, _LENGTH, log=True, marks=_trained(evaluations), intervals=True)


def _lines_of(evaluations: Evaluations, of: Callable[[Evaluation], Iterable[tuple[float, float | None]]]) -> Lines:
    return {
        label: over_seeds([[(x, loss) for x, loss in of(e) if loss is not None] for e in of_seeds])
        for label, of_seeds in evaluations.items()
    }


def _trained(evaluations: Evaluations) -> dict[str, int]:
    """Return the training lengths, by the text of their mark."""
    lengths = sorted({e.context_length for of_seeds in evaluations.values() for e in of_seeds})
    return {f"trained to {length:,}": length for length in lengths}


def _difference(baseline: str, lines: Lines) -> dict[str, Lines]:
    """Return a panel of the same lines, as means over seeds, less those of the baseline; none if it is alone or
    missing."""
    means = {label: losses.mean(axis=1, skipna=False) for label, losses in lines.items() if not losses.empty}
    if len(means) < 2 or baseline not in means:
        return {}
    both = {label: means[baseline].index.intersection(mean.index) for label, mean in means.items()}
    differences = {label: (mean - means[baseline])[both[label]].to_frame() for label, mean in means.items()}
    return {f"Difference from {wrapped(baseline)}": differences}


def _drawn(
    panels: Mapping[str, Lines],
    styles: Styles,
    x_label: str,
    *,
    log: bool = False,
    marks: Mapping[str, int] | None = None,
    unit: str = "nats per token",
    intervals: bool = False,
) -> Figure:
    """Draw lines as means over seeds, in panels side by side, with bands of one standard deviation if they are few.

    Losses that are not finite leave a gap. marks: dotted vertical lines by name. intervals: whether each mean has its
    95 % interval, and no band.
    """
    names = [*(styles[label]["label"] for label in next(iter(panels.values()))), *(marks or ())]
    figure, grid = figures.panel_grid(len(panels), len(panels), (4, 3.8), names)
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        for label, losses in lines.items():
            if losses.empty:
                continue
            mean, colour = losses.mean(axis=1, skipna=False), styles[label]["color"]
            axes.plot(mean.index, mean, markersize=4, markevery=max(1, len(mean) // 20), **styles[label])
            if intervals:
                for x, of_seeds in losses.dropna().iterrows():
                    if ends := estimate(of_seeds).interval:
                        axes.vlines(x, *ends, color=colour)
            elif len(styles) <= _MOST_BANDS and losses.shape[1] > 1:
                sd = losses.std(axis=1, skipna=False)
                axes.fill_between(mean.index, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)
        for name, x in (marks or {}).items():
            axes.axvline(x, label=name, **figures.DOTTED)
        axes.set(title=title, xlabel=x_label, ylabel=unit)
        if log:  # ticks at 1, 2, 4, ..., rather than at powers of 2
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(alpha=0.3)
    figures.add_legend(figure)
    return figure
