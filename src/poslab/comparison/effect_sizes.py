"""Effect sizes of loss differences: perplexity, steps and time to the same loss, and the cost of a scheme.

Steps to the same loss: until the mean validation loss over seeds first reaches the baseline's final one, of those until
the baseline's first does, linear between validations. A training planned to be shorter may get there earlier.
"""

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from poslab.comparison.compare import Comparison
from poslab.comparison.curves import Curve, over_seeds
from poslab.comparison.groups import Group
from poslab.report.blocks import Table


def steps_to(level: float, losses: pd.Series) -> float | None:
    """Return the first step at which losses by step are at or below a level, or None if they never are."""
    below = np.flatnonzero(losses <= level)
    if not below.size:
        return None
    between = losses.iloc[max(0, below[0] - 1) : below[0] + 1]
    return float(np.interp(-level, -between, between.index))  # which takes rising numbers


def training_minutes(group: Group) -> float | None:
    """Return the mean training time over runs, without validations, or None if unknown."""
    summaries = [run.summary for run in group.runs]
    known = [s.tokens / s.tokens_per_s / 60 for s in summaries if s.tokens_per_s > 0]
    return float(np.mean(known)) if len(known) == len(summaries) else None


def effect_size_table(comparison: Comparison, curves: Mapping[str, Mapping[int, Curve]]) -> Table | None:
    """Return the table of effect sizes by scheme, or None unless losses of several groups are compared.

    curves: by label and seed.
    """
    if not comparison.score.is_loss or len(comparison.groups) < 2:
        return None
    base = comparison.base
    columns = ["scheme", "perplexity", "times the baseline's", "simultaneous interval"]
    columns += ["steps to the baseline's last loss", "time to it", "training, minutes"]
    rows = [_row(group, base, comparison, curves) for group in comparison.groups]
    remark = (
        f"The baseline is {base.label}. Perplexity is exp(loss). Steps and time: until the mean validation loss first "
        "comes down to the one that the baseline ends with, as shares of what the baseline takes to it. Between "
        "validations it is taken to fall evenly; the learning rate is that of the whole schedule. Training is without "
        "validations."
    )
    if any(group.diverged for group in comparison.groups):
        remark += " Seeds that diverged are in none of these figures."
    return Table("What the differences are worth", columns, rows, remark, sortable=True, highlight=base.label)


def _row(group: Group, base: Group, comparison: Comparison, curves: Mapping[str, Mapping[int, Curve]]) -> list[str]:
    minutes, of_base = training_minutes(group), training_minutes(base)
    worth = ["1", "", "", ""]
    if group is not base:
        d = comparison.differences[group.label]
        interval = " to ".join(_exp(end, ".3f") for end in d.interval) if d.interval else "n/a"
        steps = _share_of_steps(curves.get(group.label, {}), curves.get(base.label, {}))
        time = None
        if steps is not None and minutes and of_base:
            time = steps * (minutes / (group.mean("steps") or 1)) / (of_base / (base.mean("steps") or 1))
        worth = [_exp(d.mean, ".3f"), interval, _percent(steps), _percent(time)]
    return [group.label, _exp(group.estimate.mean, ",.1f"), *worth, "n/a" if minutes is None else f"{minutes:,.2f}"]


def _share_of_steps(group: Mapping[int, Curve], base: Mapping[int, Curve]) -> float | None:
    """Return the proportion of the baseline's steps to its final loss, over the seeds of both; infinite if never
    reached."""
    seeds = sorted(group.keys() & base.keys())
    both = (over_seeds([of[seed].validation for seed in seeds]) for of in (group, base))
    own, others = (losses.mean(axis=1, skipna=False).dropna() for losses in both)
    if own.empty or others.empty:
        return None
    level = others.iloc[-1]
    steps, of_base = steps_to(level, own), steps_to(level, others)
    return math.inf if steps is None else None if not of_base else steps / of_base


def _percent(share: float | None) -> str:
    return "n/a" if share is None else "never" if math.isinf(share) else f"{100 * share:.0f} %"


def _exp(value: float | None, form: str) -> str:
    if value is None:
        return "n/a"
    return f"{math.exp(value):{form}}" if value < 100 else "inf"
