"""Verdicts on registered contrasts: whether each was shown, and how sure that is.

Tests are exact and over seeds; runs of one seed see the same examples, so two schemes are paired by seed. Margins are
tested: by how much a seed exceeds the claim (its difference less `by`, its figure less `at_least`). Were the claim only
just untrue, each margin could as well have the other sign, so p is the proportion of all 2^n sign choices with a mean
as high (Fisher 1935, section 21). n seeds that all agree give p = 1 / 2^n, and no less. A claim about all schemes is as
sure as it is for the scheme for which it is least sure (Berger 1982).

All contrasts that a sweep registered are one family, apart from that of the page: they were chosen before there were
runs to choose by. By Holm's correction for their number, the chance that any of them is shown though it is false is at
most 1 - CONFIDENCE. The same holds separately for the opposites (the other scheme is better; the figure is on the other
side of its limit). Nothing is tested while planned seeds are missing (see `poslab.statistics.outcomes`); a
diverged seed counts against its scheme, and signs are then flipped on ranks.
Adding seeds where there were too few to show anything does not weaken this; adding seeds until a contrast is shown
does.

A published figure agrees if it is shown that ours is above its lower margin and below its upper one, two one-sided
tests (Schuirmann 1987), and differs if it is shown to be outside. Where the source has a figure of each seed, both are
drawn from seeds: p is the proportion of all ways to choose ours among them, as theirs are moved to the margin
(`label_test`), which also holds where all are 1. A single number is taken as known. Of five seeds each that differ by
the margin, 6 % agree, and 7 % where one spread is five times the other.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import fmean

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group, SeedPlan
from poslab.config.contrasts import ALL, Contrast, Registration, named, runs_finished
from poslab.metric import LOSS
from poslab.report.blocks import Block, Bullets, Table
from poslab.statistics.families import holm
from poslab.statistics.findings import missing_seeds, p_text
from poslab.statistics.intervals import CONFIDENCE, Estimate, estimate
from poslab.statistics.outcomes import outcomes_of
from poslab.statistics.permutation import label_test, seeds_to_claim, sign_flip_test, signed_ranks
from poslab.statistics.remarks import fixed
from poslab.statistics.table import LAST_VALIDATION_LOSS, TEST_LOSS

_Figure = tuple[str, Sequence[int | None]]  # metric, and the lengths over which it is averaged
SHOWN, NOT_SHOWN, OPPOSITE, NOT_TESTED = "shown", "not shown", "the opposite shown", "not tested"
_OF_SOURCE = {SHOWN: "agrees", NOT_SHOWN: "undecided", OPPOSITE: "differs", NOT_TESTED: "not comparable"}


@dataclass(frozen=True)
class Part:
    """Test of one scheme, or of two, within a contrast.

    figures: by label and seed, without diverged seeds. margins: by seed, above 0 where the claim holds, infinite where
    a run diverged. opposite: likewise for the opposite claim. diverged: how many seeds of which schemes diverged, in
    words. published: how far each seed of a source exceeds their mean, in the direction of the claim.
    """

    figures: Mapping[str, Mapping[int, float]]
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
    """Result of a contrast.

    parts: the tests of its schemes. problem: why it can't be tested, if so; then there are none. p, p_opposite: of the
    claim and of its opposite, corrected for the `family` of contrasts. late: after how many finished runs it was
    registered. here: our figure, if another one was published.
    """

    contrast: Contrast
    parts: Sequence[Part] = ()
    problem: str = ""
    p: float = 1.0
    p_opposite: float = 1.0
    late: int = 0
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
        """Return the p-value of the opposite claim; for a claim about all schemes it is corrected for their number."""
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
        return _OF_SOURCE[self.result] if self.contrast.source else self.result

    @property
    def remarks(self) -> list[str]:
        """Return remarks that the p-values do not cover."""
        late = [f"registered after {runs_finished(self.late)}"] if self.late and not self.contrast.source else []
        why = self.problem or (self._outlook() if self.result == NOT_SHOWN else "")
        diverged = self.weakest.diverged if self.parts else ""
        return [*filter(None, (why, diverged)), *late]

    @property
    def sentence(self) -> str:
        claim = f"{self.said}: {self.contrast}"
        if self.result == NOT_TESTED:
            return "; ".join([claim, *self.remarks])
        part = self.weakest
        least = "least sure of " if len(self.parts) > 1 else ""
        means = ", ".join(
            f"{label}{':' if ' ' in label else ''} {fixed(fmean(of_seeds.values()), 3)}"
            for label, of_seeds in part.figures.items()
        )
        alone, p = (self.p_opposite_alone, self.p_opposite) if self.result == OPPOSITE else (self.p_alone, self.p)
        test = f"p = {p_text(alone)}" + (f", corrected {p_text(p)}" if self.family > 1 else "")
        return "; ".join([f"{claim} ({least}{means}; n = {len(part.margins)}, {test})", *self.remarks])

    @property
    def row(self) -> list[str]:
        """Return the row of `verdict_table`."""
        if self.result == NOT_TESTED:
            return [str(self.contrast), self.said, *[""] * 5, "; ".join(self.remarks)]
        part = self.weakest
        seeds = [
            f"{label}: {', '.join(fixed(x, 3) for x in of_seeds.values())}" for label, of_seeds in part.figures.items()
        ]
        numbers = [str(len(part.margins)), fixed(part.mean, 3, "+"), p_text(self.p), p_text(self.p_opposite)]
        return [str(self.contrast), self.said, *numbers, "; ".join(seeds), "; ".join(self.remarks)]

    @property
    def published_row(self) -> list[str]:
        """Return the row of the table in `published`."""
        given, here, ours = self.contrast, self.here, ["", "", "0"]
        if here:
            ends = " to ".join(fixed(end, 4) for end in here.interval or ())
            ours = [fixed(here.mean, 4), ends or ("seeds are alike" if here.n > 1 else ""), str(here.n)]
        margin = {SHOWN: f" within {given.within}", OPPOSITE: f" by more than {given.within}"}.get(self.result, "")
        remarks = "; ".join(self.remarks)
        return [f"{given.scheme} {given.where}", f"{fmean(given.values):.4g}", *ours, self.said + margin, remarks]

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
        among = f" of {self.family} contrasts" if self.family > 1 else ""
        which = "agree" if agree == n else "say the opposite"
        return f"all {n} seeds {which}, but {n} can't show one{among}, {needed} can: go on with seed={seeds}"


def verdict_table(found: Sequence[Verdict]) -> Table:
    columns = [
        "contrast",
        "verdict",
        "n",
        "beyond the claim",
        "p (Holm)",
        "of the opposite",
        "figures of the seeds",
        "",
    ]
    remark = (
        f"p: of an exact test over seeds, which flips signs, or exchanges seeds with published ones, by Holm's method "
        f"corrected for the {found[0].family} contrasts. They are a family of their own, as they were registered "
        "before the runs; shown is what is below 0.05. Everything else on this page is description."
    )
    return Table("Seed by seed", columns, [verdict.row for verdict in found], remark, words=[1, 6, 7])


def published(found: Sequence[Verdict]) -> list[Block]:
    """Return what was published where, and a table of its figures beside ours, where there are any."""
    sources = dict.fromkeys(verdict.contrast.source for verdict in found if verdict.contrast.source)
    rows = [verdict.published_row for verdict in found if verdict.contrast.values]
    columns = ["figure", "published", "here", "95 % interval", "n", "verdict", ""]
    table = Table("Beside what was published", columns, rows, words=[5, 6])
    return [Bullets([f"published: {source}" for source in sources]), *([table] if rows else [])]


def verdicts(registered: Sequence[Registration], comparisons: Mapping[str, Comparison]) -> list[Verdict]:
    """Return a verdict on every registered contrast, in their order. comparisons: by the title of their data."""
    late = [(contrast, one.finished_runs) for one in registered for contrast in one.contrasts]
    family = sum(contrast.tested for contrast, _ in late)
    tested = [replace(_tested(contrast, comparisons), late=after, family=family) for contrast, after in late]
    claims = {place: one for place, one in enumerate(tested) if one.contrast.tested}
    p = holm({place: one.p_alone for place, one in claims.items()})
    opposite = holm({place: one.p_opposite_alone for place, one in claims.items()})
    return [replace(one, p=p.get(place, 1.0), p_opposite=opposite.get(place, 1.0)) for place, one in enumerate(tested)]


def _test(margins: Sequence[float], published: Sequence[float]) -> float:
    if published and all(map(math.isfinite, margins)):
        return label_test(margins, published, "greater")
    return sign_flip_test(signed_ranks(margins) if any(map(math.isinf, margins)) else margins, "greater")


def _tested(contrast: Contrast, comparisons: Mapping[str, Comparison]) -> Verdict:
    of_data = [title for title in comparisons if contrast.data in (None, title, title.partition(" ")[0])]
    if len(of_data) != 1:
        problem = "the runs on these data are of several kinds" if of_data else f"no finished run on {contrast.data}"
        return Verdict(contrast, problem=problem)
    (title,) = of_data
    comparison = comparisons[title]
    known = dict.fromkeys(figure for group in comparison.groups for figure in group.known)
    metric = contrast.metric or next(iter(known))[0]
    if metric == LOSS:
        metric = next((name for name in (TEST_LOSS, LAST_VALIDATION_LOSS) if (name, None) in known), LOSS)
    lengths = [length for name, length in known if name == metric]
    said = LOSS if metric in (TEST_LOSS, LAST_VALIDATION_LOSS) else metric
    contrast = replace(contrast, metric=said, data=contrast.data or title)
    if not lengths:
        return Verdict(contrast, problem=f"the runs have no {metric}")
    figure = metric, lengths[:1] if contrast.length is None else [n for n in lengths if contrast.is_of(n)]
    here = None
    try:
        if contrast.scheme and contrast.values:
            here = _estimate(figure, _group(contrast.scheme, comparison.groups))
            if not contrast.tested:
                why = "settings are scaled" if contrast.source else "it has no margin, within"
                return Verdict(contrast, problem=why, here=here)
        return Verdict(contrast, _parts(contrast, figure, comparison.groups, comparison.planned), here=here)
    except LookupError as error:
        return Verdict(contrast, problem=str(error.args[0]), here=here)


def _parts(contrast: Contrast, figure: _Figure, groups: Sequence[Group], planned: SeedPlan) -> list[Part]:
    """Return the tests of a contrast on a figure. Raises LookupError, with the reason, if runs are missing."""
    sign = 1 if figure[0] in groups[0].lower_is_better else -1
    if contrast.scheme is None:
        better, than = (_group(name, groups) for name in contrast.schemes)
        figures = {group.label: _figures(figure, group, sign * math.inf) for group in (better, than)}
        _require_seeds(figures, planned.of_pair(better.label, than.label))
        both = outcomes_of(figures[than.label], figures[better.label], ())
        seeds = sorted(figures[better.label].keys() & figures[than.label].keys())
        gain = {seed: sign * x for seed, x in zip(seeds, both.differences, strict=True)}
        opposite = {seed: -x for seed, x in gain.items()}
        return [_part(figures, {seed: x - contrast.by for seed, x in gain.items()}, opposite)]
    if contrast.scheme == ALL and planned.lost:
        raise LookupError(f"no finished run of {', '.join(planned.lost)}")
    mean, within = fmean(contrast.values or [0.0]), contrast.within
    limits = [(1, contrast.at_least), (-1, contrast.at_most)]
    limits += [(1, mean - within), (-1, mean + within)] if within else []
    members = groups if contrast.scheme == ALL else [_group(contrast.scheme, groups)]
    parts = []
    for group, (side, limit) in product(members, limits):
        if limit is None:
            continue
        of_seeds = _figures(figure, group, -side * math.inf)
        _require_seeds({group.label: of_seeds}, planned.seeds[group.label])
        margins = {seed: side * (x - limit) for seed, x in of_seeds.items()}
        # A run that diverged shows neither the claim nor its opposite.
        opposite = {seed: -x if math.isfinite(x) else x for seed, x in margins.items()}
        beside = [side * (x - mean) for x in contrast.values if len(contrast.values) > 1]
        parts.append(replace(_part({group.label: of_seeds}, margins, opposite), published=beside))
    return parts


def _require_seeds(figures: Mapping[str, Mapping[int, float]], planned: Collection[int]) -> None:
    """Check that all planned seeds have a figure. Raises LookupError otherwise."""
    missing = sorted(seed for seed in planned if any(seed not in of_seeds for of_seeds in figures.values()))
    if missing and len(planned) > 1:
        raise LookupError(missing_seeds(missing, f"{len(planned)} seeds of {' and '.join(figures)}"))


def _part(figures: Mapping[str, Mapping[int, float]], margins: dict[int, float], opposite: dict[int, float]) -> Part:
    whose = " and ".join(figures)
    if len(margins) < 2:
        raise LookupError(f"one seed of {whose} says nothing about chance" if margins else f"no figures of {whose}")
    finite = {label: {seed: of[seed] for seed in margins if math.isfinite(of[seed])} for label, of in figures.items()}
    if not all(finite.values()) or not any(map(math.isfinite, margins.values())):
        gone = [label for label, of_seeds in finite.items() if not of_seeds]
        raise LookupError(f"every seed of {' and '.join(gone) or f'{whose}, one or the other,'} diverged")
    diverged = [
        f"{len(margins) - len(of_seeds)} of {len(margins)} seeds of {label} diverged"
        for label, of_seeds in finite.items()
        if len(of_seeds) < len(margins)
    ]
    return Part(finite, margins, opposite, "; ".join(diverged))


def _figures(figure: _Figure, group: Group, worst: float) -> dict[int, float]:
    """Return the group's figures by seed, means over lengths; `worst` for those that diverged."""
    name, lengths = figure
    of_lengths = [group.figures(name, length) for length in lengths]
    seeds = set.intersection(*map(set, of_lengths)) if of_lengths else set()
    found = {seed: fmean(of_seeds[seed] for of_seeds in of_lengths) for seed in sorted(seeds)}
    return found | dict.fromkeys(group.diverged, worst)


def _estimate(figure: _Figure, group: Group) -> Estimate | None:
    """Return the mean of the group's finished seeds with its interval."""
    values = [x for x in _figures(figure, group, math.inf).values() if math.isfinite(x)]
    proportion = figure[0] not in group.lower_is_better and all(0 <= x <= 1 for x in values)
    return estimate(values, proportion=proportion) if values else None


def _group(name: str, groups: Sequence[Group]) -> Group:
    found = [group for group in groups if named(name, group.scheme, group.settings)]
    if len(found) != 1:
        raise LookupError(f"{name} is several schemes here" if found else f"no finished run of {name}")
    return found[0]
