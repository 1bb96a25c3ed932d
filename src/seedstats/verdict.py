"""Verdicts on claims: whether each was shown, and how sure that is.

Tests are exact and over seeds; runs of one seed see the same examples, so two groups are paired by seed. Margins are
tested: by how much a seed exceeds the claim (its difference less `by`, its value less `at_least`). Were the claim only
just untrue, each margin could as well have the other sign, so p is the proportion of all 2^n sign choices with a mean
as high (Fisher 1935, section 21). n seeds that all agree give p = 1 / 2^n, and no less. A claim about all groups is as
sure as it is for the group for which it is least sure (Berger 1982).

All claims of a file are one family, apart from that of the page, as they are chosen before there are runs to choose by.
By Holm's correction for their number, the chance that any of them is shown though it is false is at most
1 - CONFIDENCE. The same holds separately for the opposites (the other group is better; the value is on the other side
of its limit). Nothing is tested while planned seeds are missing (see `seedstats.statistics.outcomes`); a diverged seed
counts against its group, of an equality or an interaction against the claim and its opposite, and signs are then
flipped on ranks. Adding seeds where there were too few to show anything does not weaken this; adding seeds until a
claim is shown does.

An interaction is a difference of differences: each seed gives one, from the four runs that it has. Its interval is a t
interval, by Bonferroni's method corrected for the number of claims.

A published value agrees if it is shown that ours is above its lower margin and below its upper one, two one-sided
tests (Schuirmann 1987), and differs if it is shown to be outside. Where the source has a value of each seed, both are
drawn from seeds: p is the proportion of all ways to choose ours among them, as theirs are moved to the margin
(`label_test`), which also holds where all are 1. A single number is taken as known. Of five seeds each that differ by
the margin, 6 % agree, and 7 % where one spread is five times the other.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from seedstats.claims import ALL, Claim
from seedstats.comparison import Comparison
from seedstats.errors import BadSetting, suggestion
from seedstats.finding import missing_seeds, p_text
from seedstats.groups import Group
from seedstats.metric import fixed
from seedstats.page.blocks import Block, Bullets, Table
from seedstats.statistics.families import holm
from seedstats.statistics.intervals import CONFIDENCE, Estimate, StudentT, estimate
from seedstats.statistics.outcomes import outcomes_of
from seedstats.statistics.permutation import label_test, seeds_to_claim, sign_flip_test, signed_ranks

_Meant = tuple[str, Sequence[int | None]]  # metric, and the lengths over which it is averaged
SHOWN, NOT_SHOWN, OPPOSITE, NOT_TESTED = "shown", "not shown", "the opposite shown", "not tested"
_OF_SOURCE = {SHOWN: "agrees", NOT_SHOWN: "undecided", OPPOSITE: "differs", NOT_TESTED: "not comparable"}


@dataclass(frozen=True)
class Part:
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
        return _test(list(self.margins.values()), self.published)

    @property
    def p_opposite(self) -> float:
        return _test(list(self.opposite.values()), [-x for x in self.published])

    @property
    def mean(self) -> float:
        """Return the mean of the finite margins."""
        return fmean(margin for margin in self.margins.values() if math.isfinite(margin))


@dataclass(frozen=True)
class Verdict:
    """Result of a claim.

    parts: the tests of its groups. problem: why it can't be tested, if so; then there are none. p, p_opposite: of the
    claim and of its opposite, corrected for the `family` of claims. here: our value, if another one was published.
    """

    claim: Claim
    parts: Sequence[Part] = ()
    problem: str = ""
    p: float = 1.0
    p_opposite: float = 1.0
    family: int = 1
    here: Estimate | None = None

    @property
    def weakest(self) -> Part:
        """Return the part for which the claim is least sure."""
        return max(self.parts, key=lambda part: (part.p, -part.mean))

    @property
    def p_alone(self) -> float:
        return max((part.p for part in self.parts), default=1.0)

    @property
    def p_opposite_alone(self) -> float:
        """Return the p-value of the opposite claim; for a claim about all groups it is corrected for their number."""
        return min(1.0, len(self.parts) * min((part.p_opposite for part in self.parts), default=1.0))

    @property
    def result(self) -> str:
        if self.problem:
            return NOT_TESTED
        alpha = 1 - CONFIDENCE
        return SHOWN if self.p < alpha else OPPOSITE if self.p_opposite < alpha else NOT_SHOWN

    @property
    def said(self) -> str:
        """Return the result in words, other ones of what a source published."""
        return _OF_SOURCE[self.result] if self.claim.source else self.result

    @property
    def remarks(self) -> list[str]:
        """Return remarks that the p-values do not cover."""
        why = self.problem or (self._outlook() if self.result == NOT_SHOWN else "")
        return [*filter(None, (why, self.weakest.diverged if self.parts else ""))]

    @property
    def difference(self) -> str:
        """Return of an interaction its mean and interval, a sentence, else nothing."""
        margins = [*self.weakest.margins.values()]
        if not self.claim.between or not all(map(math.isfinite, margins)):
            return ""
        found = estimate([margin + self.claim.by for margin in margins])
        if not found.sd:  # as where all seeds solve a task or fail: the next need not
            return f"The difference is {fixed(found.mean, 3, '+')} in all seeds"
        method = StudentT(found.sd / math.sqrt(found.n), found.n - 1)
        ends = method.interval(found.mean, 1 - (1 - CONFIDENCE) / self.family)
        return f"The difference is {fixed(found.mean, 3, '+')} [{', '.join(fixed(end, 3, '+') for end in ends)}]"

    @property
    def sentence(self) -> str:
        """Return the verdict, its numbers, and remarks, a sentence each."""
        said = f"{self.said[0].upper()}{self.said[1:]}: {self.claim}"
        remarks = [f"{remark[0].upper()}{remark[1:]}" for remark in self.remarks]
        if self.result == NOT_TESTED:
            return f"{'. '.join([said, *remarks])}."
        part = self.weakest
        means = "Least sure: " * (len(self.parts) > 1 and len(part.values) == 1)
        means += ", ".join(f"{label} has {fixed(fmean(values.values()), 3)}" for label, values in part.values.items())
        alone, p = (self.p_opposite_alone, self.p_opposite) if self.result == OPPOSITE else (self.p_alone, self.p)
        test = f"p = {p_text(p)} from {len(part.margins)} seeds"
        test += f", uncorrected {p_text(alone)}" if self.family > 1 else ""
        return f"{'. '.join(filter(None, [said, means, self.difference, test, *remarks]))}."

    @property
    def row(self) -> list[str]:
        """Return the row of `verdict_table`."""
        if self.result == NOT_TESTED:
            return [str(self.claim), self.said, *[""] * 5, "; ".join(self.remarks)]
        part = self.weakest
        seeds = [
            f"{label}: {', '.join(fixed(x, 3) for x in of_seeds.values())}" for label, of_seeds in part.values.items()
        ]
        numbers = [str(len(part.margins)), fixed(part.mean, 3, "+"), p_text(self.p), p_text(self.p_opposite)]
        return [str(self.claim), self.said, *numbers, "; ".join(seeds), "; ".join(self.remarks)]

    @property
    def published_row(self) -> list[str]:
        """Return the row of the table in `published`."""
        given, here, ours = self.claim, self.here, ["", "", "0"]
        if here:
            ends = " to ".join(fixed(end, 4) for end in here.interval or ())
            ours = [fixed(here.mean, 4), ends or ("seeds are alike" if here.n > 1 else ""), str(here.n)]
        margin = {SHOWN: f" within {given.within}", OPPOSITE: f" by more than {given.within}"}.get(self.result, "")
        remarks = "; ".join(self.remarks)
        return [f"{given.name} {given.where}", f"{fmean(given.values):.4g}", *ours, self.said + margin, remarks]

    def _outlook(self) -> str:
        part = self.weakest
        n = len(part.margins)
        agree, against = (sum(x > 0 for x in margins.values()) for margins in (part.margins, part.opposite))
        tests = self.family * (1 if agree == n else len(self.parts))
        needed = seeds_to_claim(tests, sides=1, others=len(part.published))
        if n >= needed or n > max(agree, against):
            return f"{agree} of {n} seeds agree"
        more = [seed for seed in range(1, max(part.margins) + needed + 1) if seed not in part.margins]
        seeds = ",".join(map(str, sorted([*part.margins, *more[: needed - n]])))
        among = f"one of {self.family} claims" if self.family > 1 else "to show it"
        which = "agree" if agree == n else "say the opposite"
        return f"all {n} seeds {which}, but {among} takes {needed}: go on with seed={seeds}"


def verdict_table(found: Sequence[Verdict]) -> Table:
    columns = ["claim", "verdict", "n", "beyond the claim", "p (Holm)", "p of the opposite", "values of the seeds", ""]
    remark = (
        "p is of an exact test over seeds, which flips signs or exchanges seeds with published ones. It is corrected "
        f"by Holm's method for {found[0].family} claims, which are a family of their own because they were written "
        "before the runs. A claim is shown if p is below 0.05."
    )
    return Table("Seed by seed", columns, [verdict.row for verdict in found], remark, words=[1, 6, 7])


def published(found: Sequence[Verdict]) -> list[Block]:
    """Return what was published where, and a table of its values beside ours, where there are any."""
    sources = dict.fromkeys(verdict.claim.source for verdict in found if verdict.claim.source)
    rows = [verdict.published_row for verdict in found if verdict.claim.values]
    columns = ["value", "published", "here", "95 % interval", "n", "verdict", ""]
    table = Table("Beside what was published", columns, rows, words=[5, 6])
    return [Bullets([f"published: {source}" for source in sources]), *([table] if rows else [])]


def verdicts(claims: Sequence[Claim], comparisons: Mapping[str, Comparison]) -> list[Verdict]:
    """Return a verdict on every claim, in their order. comparisons: by the title of their data.

    Raises BadSetting for the first claim that names data, a metric, a length or a group that there isn't.
    """
    family = sum(claim.tested for claim in claims)
    tested = []
    for number, claim in enumerate(claims):
        try:
            tested.append(replace(_tested(claim, comparisons), family=family))
        except BadSetting as error:
            raise BadSetting(f"claims[{number}].{error.option}".rstrip("."), error.value, error.problem) from None
    of_claims = {place: one for place, one in enumerate(tested) if one.claim.tested}
    p = holm({place: one.p_alone for place, one in of_claims.items()})
    opposite = holm({place: one.p_opposite_alone for place, one in of_claims.items()})
    return [replace(one, p=p.get(place, 1.0), p_opposite=opposite.get(place, 1.0)) for place, one in enumerate(tested)]


def _test(margins: Sequence[float], published: Sequence[float]) -> float:
    if published and all(map(math.isfinite, margins)):
        return label_test(margins, published, "greater")
    return sign_flip_test(signed_ranks(margins) if any(map(math.isinf, margins)) else margins, "greater")


def _tested(claim: Claim, comparisons: Mapping[str, Comparison]) -> Verdict:
    title = _title(claim, list(comparisons))
    comparison = comparisons[title]
    claim, meant = _with_values(replace(claim, data=claim.data or title), comparison.groups)
    here = None
    try:
        if claim.name and claim.values:
            here = _estimate(meant, _group(claim.name, "name", comparison))
            if not claim.tested:
                why = "settings are scaled" if claim.source else "it has no margin, within"
                return Verdict(claim, problem=why, here=here)
        parts = _of_two(claim, meant, comparison) if claim.pair else _of_one(claim, meant, comparison)
        return Verdict(claim, parts, here=here)
    except LookupError as error:
        return Verdict(claim, problem=str(error.args[0]), here=here)


def _title(claim: Claim, titles: Sequence[str]) -> str:
    """Return the title of the claim's data. Raises BadSetting if there are none, or several."""
    found = [title for title in titles if claim.data in (None, title, title.partition(" ")[0])]
    if claim.data is not None and not found:
        raise BadSetting("data", claim.data, f"there are no such data here; {suggestion(claim.data, titles)}")
    if len(found) > 1:
        raise BadSetting("data", claim.data, f"is one of several here; say which: {', '.join(found)}")
    return found[0]


def _with_values(claim: Claim, groups: Sequence[Group]) -> tuple[Claim, _Meant]:
    """Return the claim with the name of its metric, and its value. Raises BadSetting if no group has that."""
    known = dict.fromkeys(value for group in groups for value in group.known)
    names = dict.fromkeys(name for name, _ in known)
    metric = claim.metric or next(iter(names))
    if metric not in names:
        raise BadSetting("metric", claim.metric, f"there is no such value here; {suggestion(metric, names)}")
    lengths = [length for name, length in known if name == metric]
    of_claim = lengths if claim.length is None else [length for length in lengths if claim.is_of(length)]
    if not of_claim or (claim.length is None and len(lengths) > 1):
        at = ", ".join(str(length) for length in sorted(filter(None, lengths)))
        raise BadSetting("length", claim.length, f"{metric} is known {f'at {at}' if at else 'at no length'}")
    return replace(claim, metric=metric), (metric, of_claim)


def _of_two(claim: Claim, meant: _Meant, comparison: Comparison) -> list[Part]:
    """Return the tests of a claim on two groups. Raises LookupError, with the reason, if runs are missing."""
    signs = comparison.groups[0].signs
    if meant[0] not in signs and not claim.equal:
        raise BadSetting("metric", meant[0], "the table doesn't say which is better, lower or higher")
    sign = signs.get(meant[0], 1)
    option = "better" if claim.better else "equal" if claim.equal else "of"
    names = [f"{name} {level}".strip() for level in claim.between or [""] for name in claim.pair]
    members = [_group(name, option, comparison) for name in names]
    values = {group.label: _values(meant, group, sign * math.inf) for group in members}
    _require_seeds(values, frozenset.intersection(*(comparison.planned.seeds[label] for label in values)))
    if claim.better:
        seeds = sorted(set.intersection(*map(set, values.values())))
        better, than = values.values()
        differences = outcomes_of(than, better, ()).differences
        gains = {seed: sign * x for seed, x in zip(seeds, differences, strict=True)}
        opposite = {seed: -x for seed, x in gains.items()}
        return [_part(values, {seed: x - claim.by for seed, x in gains.items()}, opposite)]
    effects = _effects(list(values.values()), sign)
    within = claim.within or 0.0
    # Each test has margins, side * effect + shift, that are above 0 where the claim holds, and others for the opposite.
    tests = [((1, -claim.by), (-1, 0.0))]
    if claim.equal:
        tests = [((-1, within), (1, -within)), ((1, within), (-1, -within))]
    return [_part(values, *(_margins(effects, side, shift) for side, shift in both)) for both in tests]


def _effects(values: Sequence[Mapping[int, float]], sign: int) -> dict[int, float]:
    """Return by seed how much better the first group is than the second; of four, less how much better the third is
    than the fourth; infinite where a run diverged."""
    found = {}
    for seed in sorted(set.intersection(*map(set, values))):
        first, second, *others = (sign * of_seeds[seed] for of_seeds in values)
        third, fourth = others or (0.0, 0.0)
        finite = all(math.isfinite(of_seeds[seed]) for of_seeds in values)
        found[seed] = (second - first) - (fourth - third) if finite else math.inf
    return found


def _margins(effects: Mapping[int, float], side: int, shift: float) -> dict[int, float]:
    # A run that diverged shows neither the claim nor its opposite.
    return {seed: side * x + shift if math.isfinite(x) else -math.inf for seed, x in effects.items()}


def _of_one(claim: Claim, meant: _Meant, comparison: Comparison) -> list[Part]:
    """Return the tests of a claim on one group or all. Raises LookupError, with the reason, if runs are missing."""
    if claim.name == ALL and comparison.planned.lost:
        raise LookupError(f"no finished run of {', '.join(comparison.planned.lost)}")
    mean, within = fmean(claim.values or [0.0]), claim.within
    limits = [(1, claim.at_least), (-1, claim.at_most)]
    limits += [(1, mean - within), (-1, mean + within)] if within else []
    members = comparison.groups if claim.name == ALL else [_group(str(claim.name), "name", comparison)]
    parts = []
    for group, (side, limit) in product(members, limits):
        if limit is None:
            continue
        of_seeds = _values(meant, group, -side * math.inf)
        _require_seeds({group.label: of_seeds}, comparison.planned.seeds[group.label])
        margins = {seed: side * (x - limit) for seed, x in of_seeds.items()}
        # A run that diverged shows neither the claim nor its opposite.
        opposite = {seed: -x if math.isfinite(x) else x for seed, x in margins.items()}
        beside = [side * (x - mean) for x in claim.values if len(claim.values) > 1]
        parts.append(replace(_part({group.label: of_seeds}, margins, opposite), published=beside))
    return parts


def _require_seeds(values: Mapping[str, Mapping[int, float]], planned: Collection[int]) -> None:
    """Check that all planned seeds have a value. Raises LookupError otherwise."""
    missing = sorted(seed for seed in planned if any(seed not in of_seeds for of_seeds in values.values()))
    if missing and len(planned) > 1:
        raise LookupError(missing_seeds(missing, f"{len(planned)} seeds of {' and '.join(values)}"))


def _part(values: Mapping[str, Mapping[int, float]], margins: dict[int, float], opposite: dict[int, float]) -> Part:
    whose = " and ".join(values)
    if len(margins) < 2:
        raise LookupError(f"one seed of {whose} says nothing about chance" if margins else f"no values of {whose}")
    finite = {label: {seed: of[seed] for seed in margins if math.isfinite(of[seed])} for label, of in values.items()}
    if not all(finite.values()) or not any(map(math.isfinite, margins.values())):
        gone = [label for label, of_seeds in finite.items() if not of_seeds]
        raise LookupError(f"every seed of {' and '.join(gone) or f'{whose}, one or the other,'} diverged")
    diverged = [
        f"{len(margins) - len(of_seeds)} of {len(margins)} seeds of {label} diverged"
        for label, of_seeds in finite.items()
        if len(of_seeds) < len(margins)
    ]
    return Part(finite, margins, opposite, "; ".join(diverged))


def _values(meant: _Meant, group: Group, worst: float) -> dict[int, float]:
    """Return the group's values by seed, means over lengths; `worst` for those that diverged."""
    name, lengths = meant
    of_lengths = [group.of(name, length) for length in lengths]
    seeds = set.intersection(*map(set, of_lengths)) if of_lengths else set()
    found = {seed: fmean(of_seeds[seed] for of_seeds in of_lengths) for seed in sorted(seeds)}
    return found | dict.fromkeys(group.diverged, worst)


def _estimate(meant: _Meant, group: Group) -> Estimate | None:
    """Return the mean of the group's finished seeds with its interval."""
    values = [x for x in _values(meant, group, math.inf).values() if math.isfinite(x)]
    proportion = group.signs.get(meant[0]) != 1 and all(0 <= x <= 1 for x in values)
    return estimate(values, proportion=proportion) if values else None


def _group(name: str, option: str, comparison: Comparison) -> Group:
    """Return the group of that name. Raises LookupError if it has no finished run, and BadSetting if there is none,
    or several."""
    found = [group for group in comparison.groups if group.is_named(name)]
    if len(found) == 1:
        return found[0]
    if found:
        which = ", ".join(group.label for group in found)
        raise BadSetting(option, name, f"is several groups here; say which: {which}")
    if any(label == name or label.startswith(f"{name} ") for label in comparison.planned.lost):
        raise LookupError(f"no finished run of {name}")
    labels = [group.label for group in comparison.groups]
    raise BadSetting(option, name, f"there is no such group on these data; {suggestion(name, labels)}")
