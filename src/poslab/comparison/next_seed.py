"""One seed ahead: what a further pair of runs will show, and what comparing seed by seed was worth."""

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group
from poslab.report.blocks import Table
from poslab.statistics.paired import FEWEST_SEEDS
from poslab.statistics.prediction import next_difference, pairing
from poslab.statistics.remarks import per_cent

_NOTE = (
    "Of normal differences: the probability that the scheme is better than the baseline in one further pair of runs of "
    "the same seed, with its 95 % interval, and the 95 % prediction interval of their difference. Correlation: of the "
    "two schemes' figures over seeds, 95 % interval. Seeds saved: how many times as many seeds would tell as much "
    "without pairing; below 1, pairing cost some."
)


def next_seed_table(comparison: Comparison) -> Table | None:
    """Return the table, or None for proportions, or if no group has enough seeds, all complete, and a spread.

    Differences of proportions are not normal: where a scheme solves a task in four of five seeds, half of all triples
    of seeds have hardly any spread, and would promise the same of the next.
    """
    if comparison.score.metric.is_proportion:
        return None
    rows = [row for group in comparison.groups if (row := _row(group, comparison))]
    name = comparison.baseline
    columns = ["scheme", f"better than {name} in", "next difference", f"correlation with {name}", "seeds saved"]
    return Table("One seed ahead", columns, rows, _NOTE, sortable=True) if rows else None


def _row(group: Group, comparison: Comparison) -> list[str]:
    d, base, score = comparison.differences.get(group.label), comparison.base.values, comparison.score
    if d is None or not d.outcomes.complete or d.n < FEWEST_SEEDS:
        return []
    ahead = next_difference(d.outcomes.differences)
    if ahead is None:
        return []
    chance, low, high = ahead.probability, ahead.probability_low, ahead.probability_high
    if score.metric.higher_is_better:
        chance, low, high = 1 - chance, 1 - high, 1 - low
    row = [group.label, f"{per_cent(chance)} [{per_cent(low)}, {per_cent(high)}]"]
    row.append(score.interval((ahead.low, ahead.high), "+"))
    seeds = sorted(group.values.keys() & base.keys())
    alike = pairing([group.values[seed] for seed in seeds], [base[seed] for seed in seeds])
    if alike is None:
        return [*row, "n/a", "n/a"]
    places = 1 if alike.variance_ratio < 10 else 0
    saved = f"{alike.variance_ratio:,.{places}f} times"
    return [*row, f"{alike.correlation:.2f} [{alike.low:.2f}, {alike.high:.2f}]", saved]
