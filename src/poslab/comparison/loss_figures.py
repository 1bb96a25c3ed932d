"""Figures of losses over steps, positions and lengths, with the captions that say how to read them.

Each begins with the means of all schemes in one panel, without bands, which would hide each other. Panels of their own
then show how each scheme differs from the baseline, with its interval.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from poslab.comparison.costs import cost_figure
from poslab.comparison.curves import Curve, Points, over_seeds
from poslab.config.fields import MOST_TOKENS
from poslab.runs.evaluation import STRETCH, Evaluation
from seedstats import figures
from seedstats.comparison import Comparison
from seedstats.figures import Styles
from seedstats.page import blocks
from seedstats.page.looks import INK, new_panel, printable, styled, wrapped
from seedstats.statistics.intervals import estimate

Lines = Mapping[str, pd.DataFrame]  # by label, as `over_seeds` returns them
Curves = Mapping[str, Mapping[int, Curve]]  # by label and seed
Evaluations = Mapping[str, Mapping[int, Evaluation]]

_LENGTH = "length of the window (log scale)"
_MOST_DIFFERENCES = 12  # groups that have a panel each

_DIFFERENCES = (
    " Small panels: the loss of each scheme minus that of {baseline}, paired by seed, with the 95 % interval of each "
    "point alone. Below 0 is better."
)
_CURVES = "Means over seeds."
_BY_POSITION = (
    "Mean loss at each position of a window of the training length: how much more context helps. A short text has "
    "few such windows; peaks that all schemes share come from the text. "
    f"Of a text of more than {MOST_TOKENS:,} tokens about so many count, in stretches of {STRETCH:,} spread evenly "
    "over it."
)
_BY_LENGTH = (
    f"The same tokens at every length: all, or of a text of more than {MOST_TOKENS:,} tokens about so many, in "
    f"stretches of {STRETCH:,} spread evenly over it. Where windows follow each other, short ones suffer from their "
    "starts; sliding windows move by half their length, and only what is new counts. A scheme that ends at the "
    "training length knows no positions beyond. Differences are those of sliding windows."
)
_LAST = (
    "The same tokens at every length, the last ones of windows that end at the same positions: only the context "
    "before them grows. Means over seeds, with the 95 % interval of each alone. The gain is by how much the loss is "
    "lower than at the training length: above zero, a scheme uses context that it was not trained to; below, that "
    "breaks it."
)


def loss_panels(
    comparison: Comparison, evaluations: Evaluations, curves: Curves, unit: str
) -> tuple[list[blocks.Figure], list[str]]:
    """Return (figures of costs, and of losses by step, position and length, notes on what has no curve).

    evaluations: of groups that have them. unit: of the curves.
    """
    baseline = comparison.baseline
    styles = figures.styles_of((group.label for group in comparison.groups), baseline)
    costs = cost_figure(comparison, styles)
    drawn = [costs] if costs else []
    notes = []
    with_curve = {
        label: {seed: curve for seed, curve in by_seed.items() if curve.validation} for label, by_seed in curves.items()
    }
    if any(len(curve.validation) > 1 for by_seed in with_curve.values() for curve in by_seed.values()):
        drawn.append(curves_figure(with_curve, styles, baseline, unit, comparison.references))
    elif any(with_curve.values()):
        notes.append("no loss curves, as the runs have one validation each")
    if evaluations:
        drawn.append(by_position_figure(evaluations, styles, baseline))
        drawn.append(by_length_figure(evaluations, styles, baseline))
    if any(evaluation.last_losses for by_seed in evaluations.values() for evaluation in by_seed.values()):
        drawn.append(last_figure(evaluations, styles))
    empty = [
        f"{label} seed {seed}"
        for label, by_seed in curves.items()
        for seed, curve in by_seed.items()
        if not curve.validation
    ]
    notes += [f"no loss curve of {', '.join(empty)}"] if empty else []
    return drawn, notes


@styled()
def curves_figure(
    curves: Curves,
    styles: Styles,
    baseline: str,
    unit: str = "nats per token",
    references: Mapping[str, float] | None = None,
) -> blocks.Figure:
    """Draw validation and training loss over steps. references: losses of models without training by name, drawn if
    within the axes."""
    validation = _lines({label: _points(by_seed, lambda curve: curve.validation) for label, by_seed in curves.items()})
    training = _lines({label: _points(by_seed, lambda curve: curve.train) for label, by_seed in curves.items()})
    panels = []
    for title, lines in (("Validation loss", validation), ("Training loss", training)):
        panel = _overview(title, lines, styles, "step", unit)
        figures.draw_references(panel.axes[0], references or {})
        panels.append(panel)
    differences = _differences(validation, styles, baseline, "step")
    return _figure("curves", "Loss curves", _CURVES, panels, differences, styles, baseline)


@styled()
def by_position_figure(evaluations: Evaluations, styles: Styles, baseline: str) -> blocks.Figure:
    """Draw loss by position in a window of the training length, in widening bins."""
    lines = {}
    for label, by_seed in evaluations.items():
        losses = {
            seed: result.by_position
            for seed, evaluation in by_seed.items()
            for result in evaluation.lengths
            if result.length == evaluation.context_length and result.by_position
        }
        length = min(map(len, losses.values()), default=0)
        edges = np.unique(np.geomspace(1, length + 1, 14).astype(int)) - 1  # 0, 1, 2, 4, ... length
        middles = (edges[:-1] + edges[1:] + 1) / 2
        binned = {seed: np.add.reduceat(of[:length], edges[:-1]) / np.diff(edges) for seed, of in losses.items()}
        lines[label] = {seed: list(zip(middles, of, strict=True)) for seed, of in binned.items()}
    x_label, means = "tokens seen in the window (log scale)", _lines(lines)
    panels = [_overview("Loss", means, styles, x_label, log=True)]
    differences = _differences(means, styles, baseline, "tokens seen", log=True)
    return _figure("by_position", "Loss by position", _BY_POSITION, panels, differences, styles, baseline)


@styled()
def by_length_figure(evaluations: Evaluations, styles: Styles, baseline: str) -> blocks.Figure:
    """Draw loss by window length, with the training length marked."""
    contiguous = _lines_by_length(evaluations, lambda e: ((r.length, r.loss) for r in e.lengths))
    sliding = _lines_by_length(evaluations, lambda e: ((r.length, r.sliding_loss) for r in e.lengths))
    marks = _trained(evaluations)
    panels = [
        _overview("Windows that follow each other", contiguous, styles, _LENGTH, log=True, marks=marks),
        _overview("Sliding windows", sliding, styles, _LENGTH, log=True, marks=marks),
    ]
    differences = _differences(sliding, styles, baseline, "length", log=True)
    return _figure("by_length", "Loss by length", _BY_LENGTH, panels, differences, styles, baseline)


@styled()
def last_figure(evaluations: Evaluations, styles: Styles) -> blocks.Figure:
    """Draw the last loss by window length, and its gain beyond the training length."""
    losses = _lines_by_length(evaluations, lambda e: e.last_losses.items())
    gains = _lines_by_length(evaluations, lambda e: e.context_gains.items())
    marks = _trained(evaluations)
    gained = "Gain from more context than in training"
    panels = [
        _overview("Loss of the last tokens", losses, styles, _LENGTH, log=True, marks=marks, intervals=True),
        _overview(gained, gains, styles, _LENGTH, log=True, intervals=True),
    ]
    return _figure("last", "Does more context help?", _LAST, panels, [], styles, "")


def _figure(
    name: str,
    title: str,
    caption: str,
    panels: list[Figure],
    differences: list[Figure],
    styles: Styles,
    baseline: str,
) -> blocks.Figure:
    if differences:
        caption += _DIFFERENCES.format(baseline=baseline)
    if figures.need_legend(styles):
        panels = [*panels, figures.legend(styles)]
    return blocks.Figure(name, title, caption, [*panels, *differences])


def _points(by_seed: Mapping[int, Curve], of: Callable[[Curve], Points]) -> dict[int, Points]:
    return {seed: of(curve) for seed, curve in by_seed.items()}


def _lines(points: Mapping[str, Mapping[int, Points]]) -> Lines:
    return {label: over_seeds(by_seed) for label, by_seed in points.items()}


def _lines_by_length(
    evaluations: Evaluations, of: Callable[[Evaluation], Iterable[tuple[float, float | None]]]
) -> Lines:
    return _lines(
        {
            label: {seed: [(x, loss) for x, loss in of(e) if loss is not None] for seed, e in by_seed.items()}
            for label, by_seed in evaluations.items()
        }
    )


def _trained(evaluations: Evaluations) -> dict[str, int]:
    """Return the training lengths, by the text of their mark."""
    lengths = sorted({e.context_length for by_seed in evaluations.values() for e in by_seed.values()})
    return {f"trained to {length:,}": length for length in lengths}


def _overview(
    title: str,
    lines: Lines,
    styles: Styles,
    x_label: str,
    unit: str = "nats per token",
    *,
    log: bool = False,
    marks: Mapping[str, int] | None = None,
    intervals: bool = False,
) -> Figure:
    """Draw the means over seeds of all groups; losses that are not finite leave a gap.

    marks: dotted vertical lines by name. intervals: whether each mean has its 95 % interval.
    """
    figure, axes = new_panel(4.6, 3.3)
    for label, losses in lines.items():
        if losses.empty:
            continue
        mean = losses.mean(axis=1, skipna=False)
        axes.plot(mean.index, mean, markersize=4, markevery=max(1, len(mean) // 20), **styles[label])
        if intervals:
            for x, seed_losses in losses.dropna().iterrows():
                if ends := estimate(seed_losses).interval:
                    axes.vlines(x, *ends, color=styles[label]["color"])
    for name, x in (marks or {}).items():
        axes.axvline(x, label=name, **figures.DOTTED)
        axes.text(x, 1.0, name, transform=axes.get_xaxis_transform(), size="small", ha="center", va="bottom")
    axes.set_title(title, pad=18 if marks else None)
    axes.set(xlabel=x_label, ylabel=printable(unit))
    _steps(axes, [x for losses in lines.values() for x in losses.index], log)
    figures.name_lines(axes, styles)
    return figure


def _differences(lines: Lines, styles: Styles, baseline: str, x_label: str, *, log: bool = False) -> list[Figure]:
    """Draw how each group differs from the baseline, paired by seed, in a panel each, on one scale; none if the
    baseline is alone or has no line."""
    base = lines.get(baseline, pd.DataFrame())
    paired = {label: (losses - base).dropna(axis=1, how="all") for label, losses in lines.items() if label != baseline}
    drawable = {label: of for label, of in paired.items() if not of.dropna().empty}
    shown = {label: drawable[label].dropna() for label in list(drawable)[:_MOST_DIFFERENCES]}
    if base.empty or not shown:
        return []
    panels = []
    ends = [0.0]
    # An interval from two seeds may be a dozen times as wide as the differences, which it must not flatten.
    most = 4 * max(float(of.mean(axis=1).abs().max()) for of in shown.values())
    for label, differences in shown.items():
        figure, axes = new_panel(2.3, 1.9)
        mean, colour = differences.mean(axis=1), styles[label]["color"]
        axes.axhline(0, color=INK[0], linewidth=0.8)
        axes.plot(mean.index, mean, color=colour, linewidth=1.8, marker="o" if len(mean) == 1 else "", label=label)
        intervals = [estimate(seed_differences).interval for _, seed_differences in differences.iterrows()]
        low = np.array([interval.low if interval else np.nan for interval in intervals])
        high = np.array([interval.high if interval else np.nan for interval in intervals])
        axes.fill_between(mean.index, low, high, color=colour, alpha=0.2, linewidth=0)
        finite = np.concatenate([mean, low[np.isfinite(low)], high[np.isfinite(high)]])
        ends += [max(float(finite.min()), -most), min(float(finite.max()), most)]
        axes.set_title(wrapped(label, 24), fontsize="small", color=colour)
        axes.set_xlabel(x_label, fontsize="small")
        _steps(axes, mean.index, log)
        axes.yaxis.set_major_locator(MaxNLocator(4))
        panels.append(figure)
    space = 0.06 * (max(ends) - min(ends)) or 0.01
    for panel in panels:
        panel.axes[0].set_ylim(min(ends) - space, max(ends) + space)
    return panels


def _steps(axes: Axes, x: Iterable[float], log: bool) -> None:
    """Give the x axis ticks that don't touch: on a log scale at the values, or of many at 1, 2, 4, ..."""
    if not log:
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        return
    axes.set_xscale("log", base=2)
    values = sorted(set(x))
    if 0 < len(values) <= 6 and all(2 * low <= high for low, high in pairwise(values)):
        axes.set_xticks(values)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
