"""Verdicts on claims, in words: whether each was shown, and how sure that is. `claim_tests` has the tests.

All claims of a file are one family, apart from that of the page, as they are chosen before there are runs to choose by.
By Holm's correction for their number, the chance that any of them is shown though it is false is at most
1 - CONFIDENCE. The same holds separately for the opposites (the other group is better; the value is on the other side
of its limit). What a claim is exceeded by has a t interval, corrected for the number of claims by Bonferroni's method.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from seedstats.claim_tests import TestedClaim, tested_claim
from seedstats.claims import Claim
from seedstats.comparison import Comparison
from seedstats.errors import BadSetting
from seedstats.finding import capital, p_text
from seedstats.metric import fixed
from seedstats.page.blocks import Block, Bullets, Table
from seedstats.statistics.families import holm
from seedstats.statistics.intervals import CONFIDENCE, StudentT, estimate
from seedstats.statistics.permutation import seeds_to_claim

SHOWN, NOT_SHOWN, OPPOSITE, NOT_TESTED = "shown", "not shown", "the opposite shown", "not tested"
_OF_SOURCE = {SHOWN: "agrees", NOT_SHOWN: "undecided", OPPOSITE: "differs", NOT_TESTED: "not comparable"}


@dataclass(frozen=True)
class Verdict(TestedClaim):
    """Result of a claim. p, p_opposite: of the claim and of its opposite, corrected for the `family` of claims."""

    p: float = 1.0
    p_opposite: float = 1.0
    family: int = 1

    @property
    def result(self) -> str:
        if self.problem:
            return NOT_TESTED
        alpha = 1 - CONFIDENCE
        if self.p < alpha:
            return SHOWN
        return OPPOSITE if self.p_opposite < alpha else NOT_SHOWN

    @property
    def said(self) -> str:
        """Return the result in words, other ones of what a source published."""
        return _OF_SOURCE[self.result] if self.claim.source else self.result

    @property
    def remarks(self) -> list[str]:
        """Return remarks that the p-values do not cover."""
        why = self.problem or (self._outlook() if self.result == NOT_SHOWN else "")
        return [*filter(None, (why, self.weakest.diverged if self.margin_tests else ""))]

    @property
    def difference(self) -> str:
        """Return of an interaction its mean and interval, of claims with several tests those of the least sure
        one's margins, a sentence, else nothing."""
        has_margins = bool(self.claim.within or self.claim.all_of)
        if not (self.claim.between or has_margins) or not all(map(math.isfinite, self.weakest.margins.values())):
            return ""
        mean = fixed(self.weakest.mean + self.claim.by, 3, "+")
        what = "Beyond the claim, in its least sure part: " if has_margins else "The difference is "
        return f"{what}{mean} {self._limits(self.claim.by) or 'in all seeds'}"

    def _limits(self, shift: float = 0.0) -> str:
        """Return the interval of the weakest part's mean margin, moved by `shift`, "[+0.120, +0.310]".

        Seeds that are alike have none, as where all solve a task or fail, because the next need not; nor has a part
        with a diverged seed.
        """
        margins = [*self.weakest.margins.values()]
        mean_margin = estimate([margin + shift for margin in margins]) if all(map(math.isfinite, margins)) else None
        if not mean_margin or not mean_margin.sd:
            return ""
        method = StudentT(mean_margin.sd / math.sqrt(mean_margin.n), mean_margin.n - 1)
        ends = method.interval(mean_margin.mean, 1 - (1 - CONFIDENCE) / self.family)
        return f"[{', '.join(fixed(end, 3, '+') for end in ends)}]"

    @property
    def sentence(self) -> str:
        """Return the verdict, its numbers, and remarks, a sentence each."""
        sentences = [capital(f"{self.said}: {self.claim}")]
        if self.result != NOT_TESTED:
            part = self.weakest
            means = ", ".join(f"{label} has {fixed(fmean(of.values()), 3)}" for label, of in part.values.items())
            sentences.append("Least sure: " * (len(self.margin_tests) > 1 and len(part.values) == 1) + means)
            against = self.result == OPPOSITE
            alone, p = (self.p_opposite_alone, self.p_opposite) if against else (self.p_alone, self.p)
            uncorrected = f", uncorrected {p_text(alone)}" if self.family > 1 else ""
            sentences += [self.difference, f"p = {p_text(p)} from {len(part.margins)} seeds{uncorrected}"]
        return f"{'. '.join(filter(None, [*sentences, *map(capital, self.remarks)]))}."

    @property
    def row(self) -> list[str]:
        """Return the row of `verdict_table`."""
        if self.result == NOT_TESTED:
            return [str(self.claim), self.said, *[""] * 5, "; ".join(self.remarks)]
        part = self.weakest
        seeds = [f"{label}: {', '.join(fixed(x, 3) for x in of.values())}" for label, of in part.values.items()]
        beyond = f"{fixed(part.mean, 3, '+')} {self._limits()}".strip()
        numbers = [str(len(part.margins)), beyond, p_text(self.p), p_text(self.p_opposite)]
        return [str(self.claim), self.said, *numbers, "; ".join(seeds), "; ".join(self.remarks)]

    @property
    def published_row(self) -> list[str]:
        """Return the row of the table in `published`."""
        claim, here, ours = self.claim, self.here, ["", "", "0"]
        if here:
            ends = " to ".join(fixed(end, 4) for end in here.interval or ())
            ours = [fixed(here.mean, 4), ends or ("seeds are alike" if here.n > 1 else ""), str(here.n)]
        margin = {SHOWN: f" within {claim.within}", OPPOSITE: f" by more than {claim.within}"}.get(self.result, "")
        remarks = "; ".join(self.remarks)
        return [f"{claim.name} {claim.where}", f"{fmean(claim.values):.4g}", *ours, self.said + margin, remarks]

    def _outlook(self) -> str:
        part = self.weakest
        n = len(part.margins)
        agree, against = (sum(x > 0 for x in margins.values()) for margins in (part.margins, part.opposite))
        tests = self.family * (1 if agree == n else len(self.margin_tests))
        needed = seeds_to_claim(tests, sides=1, others=len(part.published))
        if n >= needed or n > max(agree, against):
            return f"{agree} of {n} seeds agree"
        first = min(part.margins)  # because lower seeds may have chosen hyperparameters
        more = [seed for seed in range(first, first + needed) if seed not in part.margins]
        seeds = ",".join(map(str, sorted([*part.margins, *more[: needed - n]])))
        among = f"to show one of {self.family} claims" if self.family > 1 else "to show it"
        which = "agree" if agree == n else "say the opposite"
        return f"all {n} seeds {which}, but {among} takes {needed} seeds: go on with seed={seeds}"


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    columns = ["claim", "verdict", "n", "beyond the claim", "p (Holm)", "p of the opposite", "values of the seeds", ""]
    remark = (
        "p is of an exact test over seeds, which flips signs or exchanges seeds with published ones. It is corrected "
        f"by Holm's method for {verdicts[0].family} claims, which are a family of their own because they were written "
        "before the runs. A claim is shown if p is below 0.05. Beyond the claim: by how much the mean exceeds the "
        "claim, with the interval that holds for all claims together; of several groups, where it is least sure."
    )
    return Table("Seed by seed", columns, [verdict.row for verdict in verdicts], remark, words=[1, 6, 7])


def published(verdicts: Sequence[Verdict]) -> list[Block]:
    """Return what was published where, and a table of its values beside ours, where there are any."""
    sources = dict.fromkeys(verdict.claim.source for verdict in verdicts if verdict.claim.source)
    rows = [verdict.published_row for verdict in verdicts if verdict.claim.values]
    columns = ["value", "published", "here", "95 % interval", "n", "verdict", ""]
    table = Table("Beside what was published", columns, rows, words=[5, 6])
    return [Bullets([f"published: {source}" for source in sources]), *([table] if rows else [])]


def verdicts(claims: Sequence[Claim], comparisons: Mapping[str, Comparison]) -> list[Verdict]:
    """Return a verdict on every claim, in their order. comparisons: by the title of their data.

    Raises BadSetting for the first claim that names data, a metric, a length or a group that there isn't.
    """
    tested = []
    for number, claim in enumerate(claims):
        try:
            tested.append(tested_claim(claim, comparisons))
        except BadSetting as error:
            raise BadSetting(f"claims[{number}].{error.option}".rstrip("."), error.value, error.problem) from None
    family = {place: claim_test for place, claim_test in enumerate(tested) if claim_test.claim.tested}
    p = holm({place: claim_test.p_alone for place, claim_test in family.items()})
    opposite = holm({place: claim_test.p_opposite_alone for place, claim_test in family.items()})
    return [
        Verdict(**vars(claim_test), p=p.get(place, 1.0), p_opposite=opposite.get(place, 1.0), family=len(family))
        for place, claim_test in enumerate(tested)
    ]
