"""Table of which seeds solve a task, after how many steps, and what those that do reach beyond its training.

A seed solves a task or doesn't, so how many of further seeds would is the exact interval of a proportion.
"""

from statistics import fmean

from seedstats.comparison import Comparison
from seedstats.groups import BySeed, Group
from seedstats.metric import per_cent
from seedstats.page.blocks import Table
from seedstats.statistics.proportions import proportion

_MOST_LENGTHS = 3  # of columns
_NOTE = (
    "A seed solves the range if a validation got 99 % of the examples within the lengths of training right. In "
    "brackets: of how many further seeds that holds, Clopper and Pearson's exact 95 % interval of each scheme alone. "
    "A run that diverged never solved it. Where few seeds solved it, the metrics of those alone are a scheme's better "
    "half: they say what it can do, those of all seeds what to expect of it."
)


def solved_table(comparison: Comparison) -> Table | None:
    """Return the table of which seeds solve a task, and what they reach; None if that isn't known of all."""
    groups, metric = comparison.groups, comparison.metric
    for group in groups:
        if not group.values.keys() <= group.of("solved").keys() & group.of("steps_to_solve").keys():
            return None
    measured = sorted(
        {length for group in groups for name, length in group.measurements if name == metric.name and length}
    )
    lengths = [length for length in measured if length >= (metric.length or 0)][:_MOST_LENGTHS]
    columns = ["", "solved", "steps until then"]
    for length in lengths:
        columns += [f"{metric.name} at {length}, all seeds", "those that solved"]
    rows = []
    for group in groups:
        row = [group.label, *_solved(group)]
        for length in lengths:
            values = group.of(metric.name, length)
            solved = {seed: values[seed] for seed in values if group.of("solved").get(seed)}
            gone = f" ({len(group.diverged)} diverged)" if group.diverged else ""
            row += [f"{_mean(values)}{gone}", f"{_mean(solved)} (n = {len(solved)})" if solved else "n/a"]
        rows.append(row)
    return Table("Who solves the range", columns, rows, _NOTE, highlight=comparison.baseline, sortable=True)


def _solved(group: Group) -> list[str]:
    """Return the cells on how many seeds solved the task, "2 of 3 [9 % to 99 %]", and after how many steps each."""
    steps = sorted(step for seed, step in group.of("steps_to_solve").items() if group.of("solved").get(seed))
    seeds = len({*group.values, *group.diverged})
    share = proportion(len(steps), seeds)
    never = [f"never: {seeds - len(steps)}"] if len(steps) < seeds else []
    interval = f"[{per_cent(share.low)} to {per_cent(share.high)}]"
    return [f"{share.count} of {share.n} {interval}", ", ".join([*(f"{step:,.0f}" for step in steps), *never])]


def _mean(values: BySeed) -> str:
    return f"{fmean(values.values()):.3f}" if values else "n/a"
