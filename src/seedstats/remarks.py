"""Sentences on all groups together, and conditions of findings on two."""

from collections.abc import Mapping, Sequence

from seedstats.finding import AllAlike, Equal, Finding, capital
from seedstats.metric import Metric
from seedstats.statistics.best import BestSet
from seedstats.statistics.paired import Difference
from seedstats.statistics.proportions import at_most
from seedstats.statistics.stretches import FEWEST_BLOCKS


def summary(findings: Mapping[str, Finding], baseline: str) -> list[str]:
    """Return one line for each kind of finding against the baseline, with the groups that it is of, by label."""
    lines: dict[str, list[str]] = {}
    for label, found in findings.items():
        d = found.difference
        said = f"no difference from {baseline} is shown"
        if d.significant:
            said = f"{found.word} than {baseline}"
        elif isinstance(found, Equal):
            said = f"equal to {baseline} within {found.effect:g} {found.metric.short_unit}".rstrip()
        elif isinstance(found, AllAlike) and found.size:
            said = f"{found.word} than {baseline} in every seed, too few to claim it"
        lines.setdefault(said, []).append(label)
    order = sorted(lines.items(), key=lambda item: (item[0].startswith("no "), "equal" in item[0]))
    texts = [f"{capital(said)} ({len(of)} of {len(findings)}): {', '.join(of)}." for said, of in order]
    incomplete = [label for label, found in findings.items() if not found.difference.outcomes.complete]
    return texts + ([f"Seeds are missing or diverged: {', '.join(incomplete)}."] if incomplete else [])


def unfailed_sentence(n: int) -> str:
    """Return what n seeds without a failure say of further ones."""
    return f"No run of {n} seeds diverged. Even so, up to {per_cent(at_most(0, n))} of further seeds may (95 % limit)."


def lost_sentence(name: str, planned: int, diverged: int) -> str:
    """Return the sentence on a group without a finished run."""
    if not planned:
        return f"{name} has no such value."
    parts = [f"{diverged} of {planned} seeds diverged"] if diverged else []
    parts += [f"{planned - diverged} of {planned} seeds are missing"] if planned > diverged else []
    return f"{name} has no finished run: {', '.join(parts)}."


def lost_count(planned: int, diverged: int) -> str:
    """Return the number of seeds of a group without a finished run, in words, "0 (2 diverged, 1 missing)"."""
    parts = [f"{count} {word}" for count, word in ((diverged, "diverged"), (planned - diverged, "missing")) if count]
    return f"0 ({', '.join(parts)})" if parts else "0"


def looks_sentence(earlier: Sequence[int]) -> str:
    """Return the caveat on seeds that were planned after comparisons of so many seeds."""
    before = ", then ".join(f"{seeds} seeds" for seeds in earlier)
    return (
        f"Further seeds were planned after a comparison of {before}. Looking again finds more differences by chance, "
        f"so p-values and intervals are corrected for {1 + len(earlier)} looks"
    )


def reference_caveats(groups: Mapping[str, float], references: Mapping[str, float], worse: Mapping[str, str],
                      metric: Metric) -> list[str]:  # fmt: skip
    """Return a caveat on groups, by the mean of each, that are worse than a reference: the best one that they miss."""
    by_value = sorted(references, key=lambda name: metric.sign * references[name], reverse=True)  # the worst first
    missed: dict[str, list[str]] = {}
    for label, mean in groups.items():
        worst = next((name for name in by_value if metric.sign * (mean - references[name]) > 0), None)
        if worst is not None:
            missed.setdefault(worst, []).append(label)
    return [
        f"{', '.join(labels)} {'are' if len(labels) > 1 else 'is'} worse than the {name} "
        f"({metric.text(references[name])}){f': {worse[name]}' if worse.get(name) else ''}"
        for name, labels in missed.items()
    ]


def without_baseline(names: Sequence[str]) -> str:
    """Return why nothing is claimed against a baseline that might have been another group."""
    be = f"be {names[0]}, which has" if len(names) == 1 else f"be {' or '.join(names)}, which have"
    return f"the baseline would {be} no finished run"


# The best


def headline_of_best(best: BestSet, others: Sequence[str]) -> str:
    """Return what is known of the best of several groups, where it is not a single one. others: those not in it."""
    members = best.members
    either = f"{', '.join(members[:-1])} or {members[-1]}"
    if not others:
        return f"No difference shown: {either} may be best."
    worse = ", ".join(others) if len(others) <= 3 else f"The {len(others)} others"
    return f"The best is {either}. {worse} {'are' if len(others) > 1 else 'is'} not the best."


# Conditions


def other_text(over_seeds: Difference, over_text: Difference) -> str:
    """Return whether a claimed difference holds for other text than that which was held out, too."""
    if over_text.significant and (over_text.mean or 0) * (over_seeds.mean or 0) > 0:
        return "It holds for new seeds and for other text of this corpus"
    return "It holds for new seeds on this text; for other text it is not shown"


OTHER_WEIGHTS = (
    "Nothing is known of other text, because the passages of this one were measured with another checkpoint than the "
    "one compared"
)
TOO_ALIKE = "Nothing is known of other text, because too few passages of this one are independent"
TOO_FEW_DOCUMENTS = (
    "Nothing is known of other text, because its held-out documents tell less than "
    f"{FEWEST_BLOCKS} of equal length would"
)


def per_cent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")
