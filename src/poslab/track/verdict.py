"""What the figures of a track show, by seedstats; rules.yaml says by which rules.

A figure is a data set with its metric at a length. Values are by name and seed, infinitely bad where a run has none.
"""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean

import pandas as pd

from seedstats.answers import on_baseline
from seedstats.comparison import Comparison, compare
from seedstats.finding import WORSE, Finding, finding
from seedstats.metric import Metric
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import Difference, Figures, paired
from seedstats.table import checked

Figure = tuple[str, Metric]
EQUAL, NOT_SHOWN = "equal", "not shown"  # beside those of a finding, better and worse


def compared(
    figure: Figure, values: Mapping[str, Figures], control: str, margin: float
) -> tuple[Comparison, dict[str, str]]:
    """Compare all names with the control, as one family. Return the comparison, and what is shown of each name."""
    data, metric = figure
    better = "higher" if metric.higher_is_better else "lower"
    shared = {"data": data, "metric": metric.name, "length": metric.length, "unit": metric.unit, "better": better}
    rows = [{"name": name, "seed": seed, "value": x} | shared for name, of in values.items() for seed, x in of.items()]
    one = compare(checked(pd.DataFrame(rows)), baseline=control, effect=margin)[data]
    words = {name: word(found) for name, found in on_baseline(one).items()}
    return one, words | dict.fromkeys(one.planned.lost, WORSE)  # of these no seed is left to be tested


def word(found: Finding) -> str:
    """Return what a finding shows in a word."""
    if found.difference.significant:
        return found.word
    return EQUAL if found.kind == "equal" or (found.kind == "alike" and not found.difference.mean) else NOT_SHOWN


def own_verdict(
    name: str, control: str, values: Mapping[Figure, Mapping[str, Figures]], margin: float
) -> dict[Figure, dict[str, str]]:
    """Return what is shown of one name, by figure and by whom it is compared with: the control, and the best mean of
    the others, whose p counts as often as there were others to choose from."""
    alone: dict[tuple[Figure, str], Difference] = {}
    chances: dict[tuple[Figure, str], int] = {}
    for figure, of_names in values.items():
        others = {other: figure[1].sign * fmean(of.values()) for other, of in of_names.items() if other != name}
        pairs = {other: (of_names[name], of_names[other]) for other in others}
        tested = paired(pairs, proportion=figure[1].is_proportion)
        for other, number in {min(others, key=lambda other: others[other]): len(others), control: 1}.items():
            if (d := tested.get(other)) is not None:  # the control isn't compared with itself
                alone[figure, other] = replace(d, p_value=d.p_value and min(1.0, number * d.p_value))
                chances[figure, other] = number
    (family,) = one_family([alone])
    verdict: dict[Figure, dict[str, str]] = {figure: {} for figure in values}
    for (figure, other), d in family.items():
        d = d.corrected(d.p_value, d.comparisons * chances[figure, other])
        verdict[figure][other] = word(finding(name, other, d, figure[1], margin))
    return verdict
