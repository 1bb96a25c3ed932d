"""Groups against a fixed value, such as the loss that a benchmark asks for.

Where the spread of a run is known from many earlier ones, five new runs needn't tell it again: the test is a z test
with this `sd`. modded-nanogpt's optimizer track does so: a loss below 3.28 with sd .0013 and p < .001. Without `sd` it
is a t test of the group's own spread. p is one-sided and corrected for all groups of the comparison by Holm's method.
"""

import math

from scipy import special

from seedstats.comparison import Comparison
from seedstats.finding import counted, p_text
from seedstats.groups import Group
from seedstats.metric import decimals
from seedstats.page.blocks import Table
from seedstats.statistics.families import holm
from seedstats.statistics.intervals import CONFIDENCE


def against_target(comparison: Comparison, target: float, sd: float | None = None) -> tuple[list[str], Table]:
    """Return a sentence on each group, whether its mean is shown to be better than `target`, and a table of them.

    sd: the known standard deviation of a run; None: each group's own, which takes two seeds.
    """
    metric, kind = comparison.metric, "t test" if sd is None else f"z test with sd {sd:g}"
    alone = {group.label: p for group in comparison.groups if (p := _p_value(group, target, sd)) is not None}
    corrected = holm(alone)
    sentences, rows = [], []
    for group in comparison.groups:
        n, mean, p = len(group.values), group.estimate.mean, corrected.get(group.label)
        error = (group.estimate.sd or 0.0 if sd is None else sd) / math.sqrt(n)
        places = decimals(4 * error)
        margin = f"{metric.text(mean, places=places)}, {metric.text(mean - target, '+', places)} from {target:g}"
        beyond = "is" if p is not None and p < 1 - CONFIDENCE else "is not shown to be"
        p_words = "n/a" if p is None else p_text(p)
        sentences.append(
            f"{group.label} {beyond} better than {target:g}: {margin}, {counted(n)}, p = {p_words} ({kind})."
        )
        alone_words = p_text(alone[group.label]) if group.label in alone else "n/a"
        rows.append([group.label, str(n), metric.text(mean, places=places), alone_words, p_words])
    note = f"p: one-sided, of a {kind}, that the mean is better than {target:g}; Holm's method for {len(rows)} groups."
    columns = ["", "n", metric.title, "p, uncorrected", "p (Holm)"]
    return sentences, Table(f"Against {target:g}", columns, rows, note)


def _p_value(group: Group, target: float, sd: float | None) -> float | None:
    """Return the one-sided p-value of a mean no better than the target; None where the spread isn't known."""
    n, spread = len(group.values), group.estimate.sd if sd is None else sd
    if group.diverged or not spread:
        return None
    score = group.metric.sign * (group.estimate.mean - target) / spread * math.sqrt(n)
    return float(special.ndtr(score) if sd is not None else special.stdtr(n - 1, score))
