"""Table of how often and how soon each scheme's seeds solve a task, and what those that do reach beyond its training.

A seed solves a task or doesn't, so each is one trial: how many of further seeds would is an exact interval, the time is
that of a survival analysis, in which a run that ended unsolved has only been watched for so long.
"""

import math
from statistics import fmean

from poslab.comparison.survival import log_rank, time_to_solve
from seedstats.comparison import Comparison
from seedstats.finding import p_text
from seedstats.groups import BySeed, Group
from seedstats.metric import per_cent
from seedstats.page.blocks import Table
from seedstats.statistics.families import holm
from seedstats.statistics.proportions import proportion

_MOST_LENGTHS = 3  # of columns
_NOTE = (
    "Solved: a validation got 99 % of the examples within the lengths of training right. In brackets is of how many "
    "further seeds that holds, by Clopper and Pearson's exact 95 % interval, and the 95 % interval of the median, that "
    "counts runs that ended before they solved it as longer than that (Kaplan and Meier). A run that diverged never "
    "solved it. p: of a permuted log-rank test against the baseline, corrected by Holm's method for this table. Where "
    "few seeds solved it, the metrics of those alone are a scheme's better half: they say what it can do, those of all "
    "seeds what to expect of it."
)


def solved_table(comparison: Comparison) -> Table | None:
    """Return the table of which seeds solve a task, when, and what they reach; None if that isn't known of all."""
    groups, metric = comparison.groups, comparison.metric
    known = [group.of("solved").keys() & group.of("steps_to_solve").keys() for group in groups]
    if not all(seeds >= group.values.keys() for seeds, group in zip(known, groups, strict=True)):
        return None
    measured = sorted({length for group in groups for name, length in group.known if name == metric.name and length})
    lengths = [length for length in measured if length >= (metric.length or 0)][:_MOST_LENGTHS]
    columns = ["", "solved", "steps until then", "their median", f"p, {comparison.baseline}"]
    for length in lengths:
        columns += [f"{metric.name} at {length}, all seeds", "those that solved"]
    end = max(step for group in groups for step in group.of("steps_to_solve").values())
    times = {group.label: _times(group, end) for group in groups}
    of_base = times[comparison.baseline]
    p_values = {
        label: log_rank(of_group, of_base)
        for label, of_group in times.items()
        if label != comparison.baseline and min(len(of_group[0]), len(of_base[0])) > 1
    }
    corrected = holm(p_values)
    rows = []
    for group in groups:
        p = p_text(corrected[group.label]) if group.label in corrected else ""
        row = [group.label, *_solved(*times[group.label]), p]
        for length in lengths:
            values = group.of(metric.name, length)
            solved = {seed: values[seed] for seed in values if group.of("solved").get(seed)}
            gone = f" ({len(group.diverged)} diverged)" if group.diverged else ""
            row += [f"{_mean(values)}{gone}", f"{_mean(solved)} (n = {len(solved)})" if solved else "n/a"]
        rows.append(row)
    return Table("Who solves the range", columns, rows, _NOTE, highlight=comparison.baseline, sortable=True)


def _times(group: Group, end: float) -> tuple[list[float], list[bool]]:
    """Return the step at which each seed solved the task or ended, and whether it solved it. A seed that diverged would
    not have solved it up to `end`."""
    steps = dict.fromkeys(group.diverged, end) | group.of("steps_to_solve")
    seeds = sorted({*group.values, *group.diverged})
    return [steps[seed] for seed in seeds], [bool(group.of("solved").get(seed)) for seed in seeds]


def _solved(times: list[float], solved: list[bool]) -> list[str]:
    """Return the cells on how many seeds solved the task, after how many steps, and their median."""
    found, median = proportion(sum(solved), len(solved)), time_to_solve(times, solved)
    steps = [f"{time:,.0f}" for time, done in sorted(zip(times, solved, strict=True)) if done]
    never = [f"never: {len(solved) - found.count}"] if found.count < len(solved) else []
    share = f"{found.count} of {found.n} [{per_cent(found.low)} to {per_cent(found.high)}]"
    limits = "" if (median.low, median.high) == (0, math.inf) else f" [{_step(median.low)} to {_step(median.high)}]"
    return [share, ", ".join(steps + never), _step(median.median) + limits]


def _step(step: float) -> str:
    return "never" if math.isinf(step) else f"{step:,.0f}"


def _mean(values: BySeed) -> str:
    return f"{fmean(values.values()):.3f}" if values else "n/a"
