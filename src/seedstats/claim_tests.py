"""Tests of claims: of each group that a claim is about, by the margins of its seeds.

Tests are exact and over seeds; runs of one seed see the same examples, so two groups are paired by seed. Margins are
tested: by how much a seed exceeds the claim (its difference less `by`, its value less `at_least`). Were the claim only
just untrue, each margin could as well have the other sign, so p is the proportion of all 2^n sign choices with a mean
as high (Fisher 1935, section 21). n seeds that all agree give p = 1 / 2^n, and no less. A claim about all groups is as
sure as it is for the group for which it is least sure (Berger 1982).

Nothing is tested while planned seeds are missing (see `seedstats.statistics.outcomes`); a diverged seed counts against
its group, of an equality or an interaction against the claim and its opposite, and signs are then flipped on ranks.
Adding seeds where there were too few to show anything does not weaken this; adding seeds until a claim is shown does.

An interaction is a difference of differences: each seed gives one, from the four runs that it has. Claims that hold
together, and pairs of more than two groups, are as sure as the least sure of them.

A published value agrees if it is shown that ours is above its lower margin and below its upper one, two one-sided
tests (Schuirmann 1987), and differs if it is shown to be outside. Where the source has a value of each seed, both are
drawn from seeds: p is the proportion of all ways to choose ours among them, as theirs are moved to the margin
(`label_test`), which also holds where all are 1. A single number is taken as known. Of five seeds each that differ by
the margin, 6 % agree, and 7 % where one spread is five times the other.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from statistics import fmean

from seedstats.claims import ALL, Claim
from seedstats.comparison import Comparison
from seedstats.errors import BadSetting, suggestion
from seedstats.finding import missing_seeds
from seedstats.groups import Group
from seedstats.statistics.intervals import Estimate, estimate
from seedstats.statistics.outcomes import outcomes_of
from seedstats.statistics.permutation import label_test, sign_flip_test, signed_ranks

_ROUNDING = 1e-12  # margins up to here, relative to the largest value, are ties
_Meant = tuple[str, Sequence[int | None], int | None]  # metric, lengths to average over, and one to take off


@dataclass(frozen=True)
class MarginTest:
    """Test of one group, of two, or of two with other settings as well, within a claim.

    values: by label and seed, without diverged seeds. margins: by seed, above 0 where the claim holds, infinite where
    a run diverged. opposite: likewise for the opposite claim. diverged: how many seeds of which groups diverged, in
    words. published: how far each seed of a source exceeds their mean, in the direction of the claim.
    """

    values: Mapping[str, Mapping[int, float]]
    margins: Mapping[int, float]
    opposite: Mapping[int, float]
    diverged: str = ""
    published: Sequence[float] = ()

    @property
    def p(self) -> float:
        return _p_value(list(self.margins.values()), self.published)

    @property
    def p_opposite(self) -> float:
        return _p_value(list(self.opposite.values()), [-x for x in self.published])

    @property
    def mean(self) -> float:
        """Return the mean of the finite margins."""
        return fmean(margin for margin in self.margins.values() if math.isfinite(margin))


def _p_value(margins: Sequence[float], published: Sequence[float]) -> float:
    if published and all(map(math.isfinite, margins)):
        return label_test(margins, published, "greater")
    return sign_flip_test(signed_ranks(margins) if any(map(math.isinf, margins)) else margins, "greater")


@dataclass(frozen=True)
class TestedClaim:
    """Claim with the tests of its groups, by themselves. problem: why it can't be tested, if so; then there are none.
    here: our value, if another one was published."""

    claim: Claim
    margin_tests: Sequence[MarginTest] = ()
    problem: str = ""
    here: Estimate | None = None

    @property
    def weakest(self) -> MarginTest:
        """Return the part for which the claim is least sure."""
        return max(self.margin_tests, key=lambda part: (part.p, -part.mean))

    @property
    def p_alone(self) -> float:
        return max((part.p for part in self.margin_tests), default=1.0)

    @property
    def p_opposite_alone(self) -> float:
        """Return the p-value of the opposite claim; for a claim about all groups it is corrected for their number."""
        return min(1.0, len(self.margin_tests) * min((part.p_opposite for part in self.margin_tests), default=1.0))


def tested_claim(claim: Claim, comparisons: Mapping[str, Comparison]) -> TestedClaim:
    """Return the claim, with the names of its data and metric, and its tests. comparisons: by the title of their data.

    Raises BadSetting for data, a metric, a length or a group that there isn't.
    """
    if claim.all_of:
        claims = [tested_claim(part, comparisons) for part in claim.all_of]
        problem = "; ".join(dict.fromkeys(part.problem for part in claims if part.problem))
        return TestedClaim(claim, [test for part in claims for test in part.margin_tests], problem)
    title = _title(claim, list(comparisons))
    comparison = comparisons[title]
    claim = replace(claim, data=claim.data or title, metric=claim.metric or comparison.metric.name)
    meant = _meant(claim, comparison.groups)
    here = None
    try:
        if claim.name and claim.values:
            here = _estimate(meant, _group(claim.name, "name", comparison))
            if not claim.tested:
                why = "settings are scaled" if claim.source else "it has no margin, within"
                return TestedClaim(claim, problem=why, here=here)
        tests: list[MarginTest] = []
        for pair in combinations(claim.compared, 2):
            tests += _tests_of_two_groups(claim, pair, meant, comparison)
        return TestedClaim(claim, tests or _tests_of_one_group(claim, meant, comparison), here=here)
    except LookupError as error:
        return TestedClaim(claim, problem=str(error.args[0]), here=here)


def _title(claim: Claim, titles: Sequence[str]) -> str:
    """Return the title of the claim's data. Raises BadSetting if there are none, or several."""
    matching = [title for title in titles if claim.data in (None, title, title.partition(" ")[0])]
    if claim.data is not None and not matching:
        raise BadSetting("data", claim.data, f"there are no such data here; {suggestion(claim.data, titles)}")
    if len(matching) > 1:
        raise BadSetting("data", claim.data, f"is one of several here; say which: {', '.join(matching)}")
    return matching[0]


def _meant(claim: Claim, groups: Sequence[Group]) -> _Meant:
    """Return which values the claim is about. Raises BadSetting if no group has those."""
    measured = dict.fromkeys(value for group in groups for value in group.measurements)
    names = dict.fromkeys(name for name, _ in measured)
    metric = str(claim.metric)
    if metric not in names:
        raise BadSetting("metric", claim.metric, f"there is no such value here; {suggestion(metric, names)}")
    lengths = [length for name, length in measured if name == metric]
    claimed_lengths = lengths if claim.length is None else [length for length in lengths if claim.is_of(length)]
    at = ", ".join(str(length) for length in sorted(filter(None, lengths)))
    if not claimed_lengths or (claim.length is None and len(lengths) > 1):
        raise BadSetting("length", claim.length, f"{metric} is known {f'at {at}' if at else 'at no length'}")
    if claim.beyond is not None and claim.beyond not in lengths:
        raise BadSetting("beyond", claim.beyond, f"{metric} is known at {at}")
    return metric, claimed_lengths, claim.beyond


def _tests_of_two_groups(claim: Claim, names: Sequence[str], meant: _Meant, comparison: Comparison) -> list[MarginTest]:
    """Return the tests of a claim on two groups. Raises LookupError, with the reason, if runs are missing."""
    signs = comparison.groups[0].signs
    if meant[0] not in signs and not claim.equal:
        raise BadSetting("metric", meant[0], "the table doesn't say which is better, lower or higher")
    sign = signs.get(meant[0], 1)
    option = "better" if claim.better else "equal" if claim.equal else "of"
    labels = [f"{name} {level}".strip() for level in claim.between or [""] for name in names]
    members = [_group(label, option, comparison) for label in labels]
    values = {group.label: _values(meant, group, sign * math.inf) for group in members}
    _require_seeds(values, frozenset.intersection(*(comparison.planned.seeds[label] for label in values)))
    seeds = sorted(set.intersection(*map(set, values.values())))
    first, second, *others = values.values()
    if claim.better:
        scaled = {seed: claim.times * x for seed, x in second.items()}
        margins = [sign * x - claim.by for x in outcomes_of(scaled, first, ()).differences]
        opposite = [-sign * x for x in outcomes_of(second, first, ()).differences]
        return [_margin_test(values, dict(zip(seeds, margins, strict=True)), dict(zip(seeds, opposite, strict=True)))]
    # How much better the first is than the second; of four, less how much better the third is than the fourth.
    third, fourth = others or ({}, {})
    effects = {seed: sign * (second[seed] - first[seed] - fourth.get(seed, 0.0) + third.get(seed, 0.0))
               for seed in seeds if all(math.isfinite(of[seed]) for of in values.values())}  # fmt: skip

    def margins_of(side: int, shift: float) -> dict[int, float]:  # a diverged run shows neither claim nor opposite
        return {seed: side * effects[seed] + shift if seed in effects else -math.inf for seed in seeds}

    # Each test has margins, side * effect + shift, that are above 0 where the claim holds, and others for the opposite.
    tests = [((1, -claim.by), (-1, 0.0))]
    if within := claim.within:
        tests = [((-1, within), (1, -within)), ((1, within), (-1, -within))]
    return [_margin_test(values, margins_of(*claimed), margins_of(*against)) for claimed, against in tests]


def _tests_of_one_group(claim: Claim, meant: _Meant, comparison: Comparison) -> list[MarginTest]:
    """Return the tests of a claim on one group or all. Raises LookupError, with the reason, if runs are missing."""
    if claim.name == ALL and comparison.planned.lost:
        raise LookupError(f"no finished run of {', '.join(comparison.planned.lost)}")
    mean, within = fmean(claim.values or [0.0]), claim.within
    limits = [(1, claim.at_least), (-1, claim.at_most)]
    limits += [(1, mean - within), (-1, mean + within)] if within else []
    members = comparison.groups if claim.name == ALL else [_group(str(claim.name), "name", comparison)]
    margin_tests = []
    for group, (side, limit) in product(members, limits):
        if limit is None:
            continue
        by_seed = _values(meant, group, -side * math.inf)
        _require_seeds({group.label: by_seed}, comparison.planned.seeds[group.label])
        margins = {seed: side * (x - limit) for seed, x in by_seed.items()}
        # A run that diverged shows neither the claim nor its opposite.
        opposite = {seed: -x if math.isfinite(x) else x for seed, x in margins.items()}
        beside = [side * (x - mean) for x in claim.values if len(claim.values) > 1]
        margin_tests.append(replace(_margin_test({group.label: by_seed}, margins, opposite), published=beside))
    return margin_tests


def _require_seeds(values: Mapping[str, Mapping[int, float]], planned: Collection[int]) -> None:
    """Check that all planned seeds have a value. Raises LookupError otherwise."""
    missing = sorted(seed for seed in planned if any(seed not in group for group in values.values()))
    if missing and len(planned) > 1:
        raise LookupError(missing_seeds(missing, f"{len(planned)} seeds of {' and '.join(values)}"))


def _margin_test(
    values: Mapping[str, Mapping[int, float]], margins: dict[int, float], opposite: dict[int, float]
) -> MarginTest:
    tiny = _ROUNDING * max((abs(x) for of in values.values() for x in of.values() if math.isfinite(x)), default=0.0)
    margins, opposite = ({seed: x if abs(x) > tiny else 0.0 for seed, x in of.items()} for of in (margins, opposite))
    whose, n = " and ".join(values), len(margins)
    if n < 2:
        raise LookupError(f"one seed of {whose} says nothing about chance" if margins else f"no values of {whose}")
    finite = {label: {seed: of[seed] for seed in margins if math.isfinite(of[seed])} for label, of in values.items()}
    if not all(finite.values()) or not any(map(math.isfinite, margins.values())):
        all_diverged = [label for label, by_seed in finite.items() if not by_seed]
        raise LookupError(f"every seed of {' and '.join(all_diverged) or f'{whose}, one or the other,'} diverged")
    diverged = [f"{n - len(of)} of {n} seeds of {label} diverged" for label, of in finite.items() if len(of) < n]
    return MarginTest(finite, margins, opposite, "; ".join(diverged))


def _values(meant: _Meant, group: Group, worst: float) -> dict[int, float]:
    """Return the group's values by seed, means over lengths; `worst` for those that diverged."""
    name, lengths, beyond = meant
    at_lengths = [group.of(name, length) for length in lengths]
    seeds = set.intersection(*map(set, at_lengths)) if at_lengths else set()
    means = {seed: fmean(by_seed[seed] for by_seed in at_lengths) for seed in sorted(seeds)}
    if beyond is not None:
        means = {seed: x - group.of(name, beyond)[seed] for seed, x in means.items() if seed in group.of(name, beyond)}
    return means | dict.fromkeys(group.diverged, worst)


def _estimate(meant: _Meant, group: Group) -> Estimate | None:
    """Return the mean of the group's finished seeds with its interval."""
    values = [x for x in _values(meant, group, math.inf).values() if math.isfinite(x)]
    proportion = group.signs.get(meant[0]) != 1 and all(0 <= x <= 1 for x in values)
    return estimate(values, proportion=proportion) if values else None


def _group(name: str, option: str, comparison: Comparison) -> Group:
    """Return the group of that name. Raises LookupError if it has no finished run, and BadSetting if there is none,
    or several."""
    named_groups = [group for group in comparison.groups if group.is_named(name)]
    if len(named_groups) == 1:
        return named_groups[0]
    if named_groups:
        which = ", ".join(group.label for group in named_groups)
        raise BadSetting(option, name, f"is several groups here; say which: {which}")
    if any(label == name or label.startswith(f"{name} ") for label in comparison.planned.lost):
        raise LookupError(f"no finished run of {name}")
    labels = [group.label for group in comparison.groups]
    raise BadSetting(option, name, f"there is no such group on these data; {suggestion(name, labels)}")
