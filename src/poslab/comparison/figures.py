"""Figures of a comparison, over groups of runs; a group has the same look in all of them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from poslab.comparison.compare import Comparison
from poslab.comparison.curves import Curve
from poslab.report import blocks
from poslab.report.looks import looks, wrapped
from poslab.runs.evaluation import Evaluation
from poslab.statistics.intervals import Interval
from poslab.statistics.paired import Difference, estimate

Styles = Mapping[str, dict[str, Any]]  # by label, for matplotlib's plot
Lines = Mapping[str, Sequence[Sequence[tuple[float, float]]]]  # by label, for each seed (place, loss) pairs

_LENGTH = "length of the window (log scale)"
_MOST_BANDS = 6  # groups whose bands can still be told apart


def styles_of(labels: Iterable[str], baseline: str | None = None) -> Styles:
    """Return a line style for each label, in alphabetical order; the baseline's label says so and its style stands
    out."""
    styles = {label: look | {"label": wrapped(label)} for label, look in zip(sorted(labels), looks(), strict=False)}
    if baseline is not None:
        marked = {"label": wrapped(f"{baseline} (baseline)"), "color": "black", "linestyle": "-", "linewidth": 2.5}
        styles[baseline] |= marked
    return styles


_BY_RUN = (
    "Left, each dot is a run; below them the mean over seeds and its 95 % interval. Right, the difference from the "
    "baseline, seed by seed, and its 95 % interval."
)
_OVER_TEXT = (
    " The broad, pale bar is the interval over seeds and text at once: where it reaches 0, other text may say else."
)


def scores_panel(
    comparison: Comparison,
    styles: Styles,
    references: Mapping[str, float] | None = None,
    over_text: Mapping[str, Difference] | None = None,
) -> blocks.Figure:
    """Return `scores_figure` with its title and caption."""
    name, title = "losses" if comparison.score.is_loss else "scores", comparison.score.title.capitalize()
    caption = _BY_RUN + (_OVER_TEXT if over_text else "")
    return blocks.Figure(name, title, caption, scores_figure(comparison, styles, references or {}, over_text))


def scores_figure(
    comparison: Comparison,
    styles: Styles,
    references: Mapping[str, float],
    over_text: Mapping[str, Difference] | None = None,
) -> Figure:
    """Draw each run as a dot, each group's mean with its 95 % interval, and its difference from the baseline.

    references: losses of untrained models by name, drawn if within the axes. over_text: differences over seeds and text
    by label, as pale bars.
    """
    groups = comparison.groups[::-1]
    failed = {group.label: f"\n{len(group.diverged)} diverged" if group.diverged else "" for group in groups}
    names = [styles[group.label]["label"] + failed[group.label] for group in groups]
    several = len(groups) > 1
    height = 0.32 + 0.16 * max(name.count("\n") for name in names)  # inches of a row
    figure = Figure(figsize=(12 if several else 7, 1 + height * len(groups)), layout="constrained")
    left, *right = figure.subplots(1, 1 + several, sharey=True, squeeze=False)[0]
    left.set(yticks=range(len(groups)), yticklabels=names, xlabel=comparison.score.label)
    for row, group in enumerate(groups):
        look = {name: styles[group.label][name] for name in ("marker", "color")}
        values = list(group.values.values())
        left.plot(values, [row + 0.2] * len(values), linestyle="", alpha=0.5, markersize=5, **look)
        found, difference = group.estimate, comparison.differences.get(group.label)
        _interval(left, row - 0.1, found.mean, found.interval, look)
        if (broad := (over_text or {}).get(group.label)) and broad.interval:
            bar = {"color": look["color"], "alpha": 0.25, "linewidth": 7, "solid_capstyle": "butt"}
            right[0].plot(broad.interval, [row] * 2, **bar)
        if difference and difference.mean is not None:
            _interval(right[0], row, difference.mean, difference.interval, look)
    _references(left, references, upright=True)
    if comparison.score.metric.is_proportion:  # at their own scale, seeds that are alike would look far apart
        left.set_xlim(-0.03, 1.03)
    for axes in right:
        axes.axvline(0, color="black", linewidth=1)
        axes.set_xlabel(f"difference from {wrapped(comparison.baseline)}, {comparison.score.unit}")
    for axes in (left, *right):
        axes.set_ylim(-0.6, len(groups) - 0.4)
        axes.grid(axis="x", alpha=0.3)
    return figure


def curves_figure(
    curves: Mapping[str, Sequence[Curve]],
    styles: Styles,
    baseline: str,
    unit: str = "nats per token",
    references: Mapping[str, float] | None = None,
) -> Figure:
    """Draw validation and training loss over steps: mean over seeds, with a band of one standard deviation.

    references: losses of untrained models by name, drawn if within the axes.
    """
    validation = {label: [curve.validation for curve in of_seeds] for label, of_seeds in curves.items()}
    training = {label: [curve.train for curve in of_seeds] for label, of_seeds in curves.items()}
    panels = {"Validation loss": validation, "Training loss": training} | _beside(baseline, validation)
    figure = _drawn(panels, styles, "step", unit=unit)
    for axes in figure.axes[:2]:
        _references(axes, references or {})
    return figure


def by_position_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles, baseline: str) -> Figure:
    """Draw loss by position in a window of the training length, in widening bins."""
    lines = {}
    for label, of_seeds in evaluations.items():
        results = [(e.context_length, result) for e in of_seeds for result in e.lengths]
        by_seed = [r.by_position for trained, r in results if r.length == trained and r.by_position]
        length = min(map(len, by_seed), default=0)
        edges = np.unique(np.geomspace(1, length + 1, 14).astype(int)) - 1  # 0, 1, 2, 4, ... length
        bins = list(pairwise(edges))
        lines[label] = [[((a + b + 1) / 2, float(np.mean(losses[a:b]))) for a, b in bins] for losses in by_seed]
    return _drawn({"Loss": lines} | _beside(baseline, lines), styles, "tokens seen in the window (log scale)", log=True)


def by_length_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Draw loss by window length, with the training length marked."""

    panels = {
        "Windows that follow each other": _lines_of(evaluations, lambda e: ((r.length, r.loss) for r in e.lengths)),
        "Sliding windows": _lines_of(evaluations, lambda e: ((r.length, r.sliding_loss) for r in e.lengths)),
    }
    return _drawn(panels, styles, _LENGTH, log=True, marks=_trained(evaluations))


def last_figure(evaluations: Mapping[str, Sequence[Evaluation]], styles: Styles) -> Figure:
    """Draw the last loss by window length, and its gain beyond the training length."""
    panels = {
        "Loss of the last tokens": _lines_of(evaluations, lambda e: e.last_losses.items()),
        "Gain from more context than in training": _lines_of(evaluations, lambda e: e.context_gains.items()),
    }
    return _drawn(panels, styles, _LENGTH, log=True, marks=_trained(evaluations), intervals=True)


def _lines_of(
    evaluations: Mapping[str, Sequence[Evaluation]], of: Callable[[Evaluation], Iterable[tuple[float, float | None]]]
) -> Lines:
    return {
        label: [[(place, loss) for place, loss in of(evaluation) if loss is not None] for evaluation in of_seeds]
        for label, of_seeds in evaluations.items()
    }


def _trained(evaluations: Mapping[str, Sequence[Evaluation]]) -> dict[str, int]:
    """Return the training lengths, by the text of their mark."""
    lengths = sorted({e.context_length for of_seeds in evaluations.values() for e in of_seeds})
    return {f"trained to {length:,}": length for length in lengths}


def _beside(baseline: str, lines: Lines) -> dict[str, Lines]:
    """Return a panel of the same lines, as means over seeds, less those of the baseline; none if it is alone or
    missing."""
    means = {
        label: dict(zip(places, losses.mean(0), strict=True)) for label, (places, losses) in _aligned(lines).items()
    }
    if len(means) < 2 or baseline not in means:
        return {}
    course = means[baseline]
    differences = {
        label: [[(place, loss - course[place]) for place, loss in mean.items() if place in course]]
        for label, mean in means.items()
    }
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

    marks: dotted vertical lines by name. intervals: whether each mean has its 95 % interval, and no band.
    """
    names = [*(styles[label]["label"] for label in next(iter(panels.values()))), *(marks or ())]
    widest = max((len(line) for name in names for line in name.split("\n")), default=0)
    legend = 0.19 * sum(name.count("\n") + 1 for name in names) + 0.4
    figure = Figure(figsize=(4 * len(panels) + 0.7 + 0.075 * widest, max(3.8, legend)), layout="constrained")
    for axes, (title, lines) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        for label, (places, losses) in _aligned(lines).items():
            _line(axes, places, losses, styles[label], band=len(styles) <= _MOST_BANDS and not intervals)
            for place, of_seeds in zip(places, losses.T, strict=True) if intervals else ():
                found = estimate(of_seeds.tolist()) if np.isfinite(of_seeds).all() else None
                if found and found.interval:
                    axes.vlines(place, *found.interval, color=styles[label]["color"])
        for name, place in (marks or {}).items():
            axes.axvline(place, color="#555555", linestyle=":", linewidth=1, label=name)
        axes.set(title=title, xlabel=x_label, ylabel=unit)
        if log:
            _log_axis(axes)
        axes.grid(alpha=0.3)
    add_legend(figure)
    return figure


def add_legend(figure: Figure, names: Sequence[str] = ()) -> None:
    """Add one legend beside all panels: lines in the order of `names`, then others in the order drawn."""
    handles = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    order = sorted(handles, key=lambda name: names.index(name) if name in names else len(names))
    if order:
        figure.legend([handles[name] for name in order], order, loc="outside right upper", fontsize="small")


def _line(axes: Axes, places: Any, losses: Any, look: dict[str, Any], *, band: bool) -> None:
    """Draw the mean of losses (seeds, positions), and a band of one standard deviation; a gap where one is not
    finite."""
    mean = losses.mean(0)
    axes.plot(places, mean, markersize=4, markevery=max(1, len(places) // 20), **look)
    if band and len(losses) > 1:
        sd = losses.std(0, ddof=1)
        axes.fill_between(places, mean - sd, mean + sd, color=look["color"], alpha=0.15, linewidth=0)


def _aligned(lines: Lines) -> dict[str, tuple[Any, Any]]:
    """Return (positions that all seeds have, losses (seeds, positions), NaN if not finite), of groups that have any."""
    aligned = {}
    for label, of_seeds in lines.items():
        by_seed = [dict(points) for points in of_seeds]
        places = sorted(set.intersection(*map(set, by_seed))) if by_seed else []
        if places:
            losses = np.array([[of_seed[place] for place in places] for of_seed in by_seed])
            aligned[label] = np.array(places), np.where(np.isfinite(losses), losses, np.nan)
    return aligned


def _interval(axes: Axes, row: float, mean: float, interval: Interval | None, look: dict[str, Any]) -> None:
    """Draw a mean with its interval, if known."""
    ends = [[mean - interval.low], [interval.high - mean]] if interval else None
    axes.errorbar(mean, row, xerr=ends, linestyle="", capsize=3, markersize=7, **look)


def _references(axes: Axes, losses: Mapping[str, float], *, upright: bool = False) -> None:
    """Draw a named line at each loss within the axes, without changing their limits."""
    low, high = axes.get_xlim() if upright else axes.get_ylim()
    look: dict[str, Any] = {"color": "#555555", "linestyle": ":", "linewidth": 1}
    for name, loss in losses.items():
        if low <= loss <= high and upright:
            axes.axvline(loss, **look)
            axes.annotate(
                name, (loss, 1), xycoords=("data", "axes fraction"), fontsize="small", ha="center", va="bottom"
            )
        elif low <= loss <= high:
            axes.axhline(loss, **look)
            axes.annotate(name, (1, loss), xycoords=("axes fraction", "data"), size="small", ha="right", va="bottom")


def _log_axis(axes: Axes) -> None:
    """Make x logarithmic, with ticks labelled 1, 2, 4, ... rather than by powers of 2."""
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    exponents = range(math.ceil(math.log2(max(low, 1e-9))), math.floor(math.log2(high)) + 1)
    axes.xaxis.set_major_locator(FixedLocator([2.0**n for n in exponents]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
