"""The same tables through autorank and rliable: where they agree with the statistics here, where they don't, and why.

`python tests/seedstats/test_beside_others.py` simulates how often each errs, and prints a table in Markdown. Both
packages are installed apart, with pandas 2, because arch 7.2, which rliable uses, can't be imported with pandas 3.
"""

import contextlib
import io
from collections.abc import Callable, Collection, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

from seedstats.statistics.families import one_family
from seedstats.statistics.paired import Difference, paired

matplotlib = pytest.importorskip("matplotlib")
autorank = pytest.importorskip("autorank")
pytest.importorskip("rliable")

from autorank import _util as autorank_util  # noqa: E402
from rliable import library, metrics  # noqa: E402

matplotlib.use("Agg")
pytestmark = pytest.mark.filterwarnings("ignore")  # both divide by zero, and use what pandas and matplotlib will remove

Table = NDArray[np.float64]  # (seeds, methods)
Pairs = Collection[tuple[int, int]]

# Three methods with five seeds each, of which the second one is worse and the others are alike.
ABLATION = np.array(
    [[5.84, 5.93, 5.845], [5.81, 5.905, 5.80], [5.87, 5.951, 5.875], [5.79, 5.90, 5.785], [5.855, 5.925, 5.86]]
)
# The same differences, of methods whose results depend much more on the seed.
OF_HARD_SEEDS = ABLATION + np.array([[-2.0], [1.0], [-1.0], [2.0], [0.0]])
TWO_EQUAL = np.array([[0.41, 0.44], [0.43, 0.40], [0.38, 0.42], [0.45, 0.41], [0.40, 0.43]])
# Twelve methods, of which the last six are worse by five standard deviations of a seed; drawn twice.
TWELVE, TWELVE_AGAIN = (
    4 + 0.02 * np.random.default_rng(draw).standard_normal((5, 12)) + 0.1 * (np.arange(12) >= 6) for draw in (4, 3)
)
SOLVED = np.array([[1.0, 0.0, 1.0]] * 5)  # proportions of solved examples: all, none, all


def compared(table: Table, proportion: bool = False) -> Mapping[tuple[int, int], Difference]:
    """Return the differences of all pairs of methods as one family, as this repository gives them."""
    groups = [dict(enumerate(column)) for column in table.T.tolist()]
    pairs = {(a, b): (groups[a], groups[b]) for a, b in combinations(range(len(groups)), 2)}
    return one_family([paired(pairs, proportion=proportion)])[0]


def claims(found: Mapping[tuple[int, int], Difference]) -> set[tuple[int, int]]:
    return {pair for pair, difference in found.items() if difference.significant}


def ranked(table: Table) -> Any:
    data = pd.DataFrame(table, columns=[f"m{number:02}" for number in range(table.shape[1])])
    with contextlib.redirect_stdout(io.StringIO()):  # it prints the table of ranks
        result = autorank.autorank(data)
    matplotlib.pyplot.close("all")
    return result


def reported(result: Any) -> set[tuple[int, int]]:
    """Return the pairs of methods whose difference `autorank.create_report` calls significant."""
    if not result.pvalue < result.alpha:
        return set()
    number = {name: rank for rank, name in enumerate(result.rankdf.index)}
    order = [number[name] for name in sorted(number)]
    several = len(order) > 2
    groups = autorank_util.get_sorted_rank_groups(result, False)[2] if several else []
    pairs = combinations(range(len(order)), 2)
    return {
        (a, b)
        for a, b in pairs
        if not any(first <= order[a] <= last and first <= order[b] <= last for first, last in groups)
    }


def iqm_intervals(scores: Mapping[str, Table], repeats: int = 2000) -> dict[str, Table]:
    """Return rliable's 95 % intervals of the interquartile mean; scores (seeds, tasks)."""
    intervals = library.get_interval_estimates(scores, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=repeats)[1]
    return {name: of[:, 0] for name, of in intervals.items()}


def improvement(x: Table, y: Table, repeats: int = 2000) -> tuple[float, Table]:
    """Return rliable's probability that x is above y, and its 95 % interval; scores (seeds, tasks)."""
    probability = lambda x, y: np.array([metrics.probability_of_improvement(x, y)])  # noqa: E731
    point, interval = library.get_interval_estimates({"": [x, y]}, probability, reps=repeats)
    return float(point[""][0]), interval[""][:, 0]


@pytest.fixture(autouse=True)
def seeded_numpy() -> None:
    np.random.seed(0)


def test_two_methods_have_the_t_tests_p_value_everywhere() -> None:
    found = compared(TWO_EQUAL)[0, 1]
    assert found.p_value == pytest.approx(stats.ttest_rel(*TWO_EQUAL.T).pvalue)
    result = ranked(TWO_EQUAL)
    assert (result.omnibus, result.pvalue) == ("ttest", pytest.approx(found.p_value))
    assert not found.significant
    assert reported(result) == set()


@pytest.mark.parametrize("table", [ABLATION, OF_HARD_SEEDS, TWELVE])
def test_means_and_directions_agree(table: Table) -> None:
    rankdf = ranked(table).rankdf
    scores = {f"m{number:02}": column[:, None] for number, column in enumerate(table.T)}
    of_rliable = library.get_interval_estimates(scores, lambda x: np.array([metrics.aggregate_mean(x)]), reps=2)[0]
    for (a, b), found in compared(table).items():
        a_name, b_name = f"m{a:02}", f"m{b:02}"
        assert found.mean == pytest.approx(rankdf["mean"][a_name] - rankdf["mean"][b_name])
        assert found.mean == pytest.approx(float(of_rliable[a_name][0] - of_rliable[b_name][0]))


def test_clear_differences_are_claimed_by_all() -> None:
    assert claims(compared(ABLATION)) == reported(ranked(ABLATION)) == {(0, 1), (1, 2)}
    intervals = iqm_intervals({str(number): ABLATION[:, [number]] for number in range(3)})
    assert intervals["0"][1] < intervals["1"][0]
    assert intervals["0"][1] > intervals["2"][0]


def test_autorank_and_rliable_lose_what_seeds_have_in_common() -> None:
    # Differences seed by seed are those of ABLATION, so that the claims here are the same. autorank's ANOVA is of
    # repeated measures, and shows that some methods differ; but its post-hoc test is Tukey's of independent groups, for
    # which the spread over seeds is noise. rliable draws each method's seeds by themselves.
    result = ranked(OF_HARD_SEEDS)
    assert claims(compared(OF_HARD_SEEDS)) == {(0, 1), (1, 2)}
    assert (result.omnibus, result.posthoc, result.pvalue < 0.05) == ("anova", "tukeyhsd", True)
    assert reported(result) == set()
    probability, (low, high) = improvement(OF_HARD_SEEDS[:, [1]], OF_HARD_SEEDS[:, [0]])
    assert low < 0.5 < high
    assert probability == pytest.approx(0.6, abs=0.1)  # though the second one is above in five seeds of five


def test_autoranks_report_claims_from_half_of_tukeys_difference_on(capsys: pytest.CaptureFixture[str]) -> None:
    # Each method's interval is as wide to either side as half of Tukey's honest difference, so that two that differ by
    # it just touch. The report takes one such half as the difference itself.
    table = np.array([[5.0, 5.2, 7.0], [5.1, 5.0, 7.1], [4.9, 5.15, 6.9], [5.05, 5.05, 7.05], [4.95, 5.1, 6.95]])
    result = ranked(table)
    half = float(result.rankdf["ci_upper"].iloc[0] - result.rankdf["ci_lower"].iloc[0]) / 2
    tukey = stats.tukey_hsd(*table.T)
    interval = tukey.confidence_interval(0.95)
    assert half == pytest.approx((interval.high - interval.low)[0, 1] / 4, rel=1e-3)
    assert (0, 1) in reported(result)
    autorank.create_report(result)
    assert "all differences between the populations are significant" in capsys.readouterr().out
    assert tukey.pvalue[0, 1] > 0.05
    assert not compared(table)[0, 1].significant


def test_of_twelve_methods_autorank_claims_all_or_hardly_any_as_a_pretest_of_variances_says() -> None:
    different = {(a, b) for a in range(6) for b in range(6, 12)}
    # A pair has 4 degrees of freedom here, and Holm's correction for 66 comparisons: half of the differences are shown.
    for table in (TWELVE, TWELVE_AGAIN):
        found = claims(compared(table))
        assert found < different
        assert len(found) == 20
    # Tukey's test has 48 degrees of freedom, from all methods together, and shows all; the report adds pairs of equal
    # methods, as in the test before.
    assert ranked(TWELVE).posthoc == "tukeyhsd"
    assert reported(ranked(TWELVE)) > different
    # Bartlett's test calls equal variances unequal in one table of twenty. Nemenyi's test of ranks, which then comes,
    # asks for a distance of 7.5 ranks of 12.
    assert ranked(TWELVE_AGAIN).posthoc == "nemenyi"
    assert len(reported(ranked(TWELVE_AGAIN)) & different) == 4


def test_proportions_that_are_all_0_or_1_are_counts_here_and_certain_elsewhere() -> None:
    found = compared(SOLVED, proportion=True)
    assert claims(found) == {(0, 1), (1, 2)}
    interval = found[0, 1].interval
    assert interval is not None
    assert (interval.low < 0.5, interval.high) == (True, 1.0)  # five of five and none of five may be 4 in 5 and 1 in 5
    # autorank's t test divides by a spread of zero, so that it is certain; its Friedman test takes ranks.
    assert ranked(SOLVED[:, :2]).pvalue == 0
    assert ranked(SOLVED).omnibus == "friedman"
    assert reported(ranked(SOLVED)) == claims(found)
    # A bootstrap of seeds that are alike draws the same again: no width, from two seeds on.
    assert iqm_intervals({"": SOLVED[:2, [0]]})[""].tolist() == [1, 1]
    assert improvement(SOLVED[:2, [0]], SOLVED[:2, [1]])[1].tolist() == [1, 1]
    assert compared(SOLVED[:2], proportion=True)[0, 1].p_value is None


def test_autorank_needs_five_seeds_and_a_claim_here_three() -> None:
    with pytest.raises(ValueError, match="at least five"):
        ranked(ABLATION[:4])
    assert claims(compared(ABLATION[:3])) == {(0, 1), (1, 2)}
    assert claims(compared(ABLATION[:2])) == set()


def test_of_a_few_seeds_rliables_intervals_are_too_narrow() -> None:
    # Percentiles of a bootstrap are too narrow by sqrt((n - 1) / n), and by the normal's quantile for Student's; and a
    # resample of three seeds is one of ten.
    assert miss_rate(iqm_of_first, 0, seeds=3, tables=150) > 0.15
    assert miss_rate(paired_here, 0, seeds=3, tables=500) < 0.08


def test_beside_a_method_that_differs_autorank_claims_differences_of_equal_ones() -> None:
    rates = autorank_rates(methods=6, seeds=5, tables=25, shift=5)
    assert rates["false"] > 0.3
    assert rates["false here"] < 0.1


def miss_rate(
    interval: Callable[[Table, Table], Table], truth: float, seeds: int, tables: int, tasks: int = 1
) -> float:
    """Return how often the interval misses the truth, of two methods whose scores are from one normal distribution."""
    random = np.random.default_rng(1)
    found = [interval(*random.standard_normal((2, seeds, tasks))) for _ in range(tables)]
    return sum(not low <= truth <= high for low, high in found) / tables


def iqm_of_first(x: Table, y: Table) -> Table:
    return iqm_intervals({"": x}, repeats=300)[""]


def paired_here(x: Table, y: Table) -> Table:
    interval = compared(np.column_stack([x[:, 0], y[:, 0]]))[0, 1].interval
    assert interval is not None
    return np.array([interval.low, interval.high])


def autorank_rates(
    methods: int,
    seeds: int,
    tables: int,
    shift: float = 0,
    seed_sd: float = 0,
    draw: Callable[[np.random.Generator, tuple[int, int]], Table] = lambda random, size: random.standard_normal(size),
) -> dict[str, float]:
    """Return the shares of tables with a claim on equal methods, and of true differences that are claimed.

    All methods are equal, but the first one where there is a shift (in standard deviations of a run).
    """
    random, count = np.random.default_rng(1), dict.fromkeys(("false", "false here", "found", "found here"), 0.0)
    for _ in range(tables):
        table = draw(random, (seeds, methods)) + seed_sd * random.standard_normal((seeds, 1))
        table[:, 0] += shift
        for of, found in (("", reported(ranked(table))), (" here", claims(compared(table)))):
            true = {pair for pair in found if shift and 0 in pair}
            count[f"false{of}"] += bool(found - true)
            count[f"found{of}"] += len(true) / (methods - 1)
    return {name: number / tables for name, number in count.items()}


def main() -> None:
    def percent(*shares: float) -> str:
        return " | ".join(f"{100 * share:.1f} %" for share in shares)

    print("| 95 % intervals miss, all methods equal | 3 seeds | 5 seeds | 10 seeds |\n|---|---|---|---|")
    for title, interval, truth, tables, tasks in (
        ("rliable, IQM of one task", iqm_of_first, 0, 2000, 1),
        ("rliable, IQM of ten tasks", iqm_of_first, 0, 2000, 10),
        ("rliable, probability of improvement", lambda x, y: improvement(x, y, 300)[1], 0.5, 600, 1),
        ("here, paired difference", paired_here, 0, 5000, 1),
    ):
        shares = [miss_rate(interval, truth, seeds, tables, tasks) for seeds in (3, 5, 10)]
        print(f"| {title} |", percent(*shares), "|", flush=True)
    lognormal = lambda random, size: random.lognormal(size=size)  # noqa: E731
    print("| claims | autorank | here |\n|---|---|---|")
    for title, settings, counted in (
        ("false, 2 equal, normal, 5 seeds", {"methods": 2, "seeds": 5, "tables": 2000}, "false"),
        ("false, 2 equal, lognormal, 5 seeds", {"methods": 2, "seeds": 5, "tables": 2000, "draw": lognormal}, "false"),
        (
            "false, 2 equal, lognormal, 10 seeds",
            {"methods": 2, "seeds": 10, "tables": 2000, "draw": lognormal},
            "false",
        ),
        ("false, 3 equal, normal, 5 seeds", {"methods": 3, "seeds": 5, "tables": 800}, "false"),
        ("false, 12 equal, normal, 5 seeds", {"methods": 12, "seeds": 5, "tables": 300}, "false"),
        ("false, 2 equal and one 5 sd off", {"methods": 3, "seeds": 5, "tables": 800, "shift": 5}, "false"),
        ("false, 5 equal and one 5 sd off", {"methods": 6, "seeds": 5, "tables": 500, "shift": 5}, "false"),
        ("false, 11 equal and one 5 sd off", {"methods": 12, "seeds": 5, "tables": 300, "shift": 5}, "false"),
        ("true, one of 6 is 5 sd off", {"methods": 6, "seeds": 5, "tables": 500, "shift": 5}, "found"),
        (
            "true, one of 3 is 5 sd off, seeds have an sd of 10",
            {"methods": 3, "seeds": 5, "tables": 800, "shift": 5, "seed_sd": 10},
            "found",
        ),
    ):
        rates = autorank_rates(**settings)  # type: ignore[arg-type]
        print(f"| {title} |", percent(rates[counted], rates[f"{counted} here"]), "|", flush=True)


if __name__ == "__main__":
    main()
