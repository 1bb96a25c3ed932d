"""The answers that a page begins with: one line, at most five findings, and what weakens them.

`finding` has the words for two groups; those on all groups are here.
"""

from collections.abc import Mapping, Sequence

from seedstats.comparison import Comparison
from seedstats.effects import confounded, effects_in_words
from seedstats.finding import Finding, capital, counted, ended, finding, missing_seeds
from seedstats.groups import Group
from seedstats.interactions import interactions_in_words
from seedstats.metric import Metric, decimals, per_cent
from seedstats.statistics.best import BestSet
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.proportions import at_most

FEW = 5  # findings that stand on a page one by one
MOST_NAMED, MOST_LISTED = 8, 30  # groups that a sentence names, and a list


# The first line


def headline(comparison: Comparison) -> str:
    """Return the answer in one line: which group is best, by how much, how sure that is; or why that isn't known."""
    judged = comparison.judged
    if len(judged) + len(comparison.planned.lost) < 2:
        seeds = counted(len(judged[0].values))
        return f"Only {judged[0].label} is here ({seeds}): there is nothing to compare it with."
    if comparison.best is None:
        return f"No answer yet: {ended(_why_unknown(comparison))}"
    answer = (
        _single_best(comparison, comparison.best)
        if len(comparison.best.members) == 1
        else _several_best(comparison, comparison.best)
    )
    at_best = f"Each name is at its best setting by {comparison.chosen_by}." if comparison.in_grids else ""
    return " ".join(filter(None, [*_failed(comparison), answer, at_best, *_left_out(comparison), _missing(comparison)]))


def _failed(comparison: Comparison) -> list[str]:
    """Return sentences on groups whose means mislead, as some of their runs failed."""
    sentences = []
    for group in comparison.judged:
        if seeds := comparison.failed.get(group.label):
            interval = group.estimate.interval
            places = decimals(interval.high - interval.low) if interval else 4
            median, mean = (f"{value:.{places}f}" for value in (group.median, group.estimate.mean))
            sentences.append(
                f"{len(seeds)} of {counted(len(group.values))} of {group.label} failed, so its mean {mean} misleads: "
                f"its median is {median}."
            )
    return sentences[:FEW]


def _single_best(comparison: Comparison, best: BestSet) -> str:
    first, second = best.members[0], comparison.baseline
    if second not in best.left_out:  # the next best takes its place, as it is best itself, or seeds of it diverged
        second = best.left_out[0]
    between = _between(comparison, first, second)
    if between is None or between.kind != "shown":  # of others than the baseline, which the page does not test
        return f"{first} is best."
    matters = f"{between.effect or 0:g} {comparison.metric.short_unit}".rstrip()
    small = f", but by less than the {matters} that matters" if between.is_small else ""
    return f"{first} is best{small}: {between.compared}."


def _several_best(comparison: Comparison, best: BestSet) -> str:
    members, others = best.members, best.left_out
    if len(comparison.judged) == 2:
        between = _between(comparison, *sorted(members, key=lambda label: label == comparison.baseline))
        if between is not None and between.kind == "equal":
            return str(between)
    either = _listed(members, "or")
    if not others:
        return f"No difference shown: {either} may be best."
    worse = ", ".join(others) if len(others) <= 3 else f"The {len(others)} others"
    return f"The best is {either}. {worse} {'are' if len(others) > 1 else 'is'} not the best."


def _listed(labels: Sequence[str], word: str) -> str:
    """Return labels in a sentence, "a, b or c"; of many the first ones and the number of others."""
    if len(labels) > MOST_NAMED:
        others = "one of " * (word == "or") + f"{len(labels) - FEW} others"
        return f"{', '.join(labels[:FEW])} {word} {others}"
    return f"{', '.join(labels[:-1])} {word} {labels[-1]}" if len(labels) > 1 else labels[0]


def _some(labels: Sequence[str]) -> str:
    """Return labels as a list; of very many the first ones and the number of others."""
    return ", ".join(labels) if len(labels) <= MOST_LISTED else _listed(labels, "and")


def _left_out(comparison: Comparison) -> list[str]:
    """Return a sentence for each reason for which groups have no part in the answer."""
    judged = [group for group in comparison.judged if not group.diverged]
    reasons = {
        "seeds diverged": [group.label for group in comparison.judged if group.diverged],
        f"they have fewer than {FEWEST_SEEDS} seeds": [g.label for g in judged if len(g.values) < FEWEST_SEEDS],
        "there is no finished run": list(comparison.planned.lost),
    }
    return [f"Left out, because {why}: {_listed(labels, 'and')}." for why, labels in reasons.items() if labels]


def _missing(comparison: Comparison) -> str:
    """Return which planned seeds the answer lacks, a sentence; "" where none is missing."""
    missing = {}
    for group in comparison.judged:
        seeds = sorted(comparison.planned.seeds[group.label] - group.values.keys() - {*group.diverged})
        if seeds:
            missing[group.label] = seeds
    if not missing:
        return ""
    gone = f"seeds of {len(missing)} of {len(comparison.judged)} groups are missing"
    if len(missing) == 1:
        ((label, seeds),) = missing.items()
        gone = missing_seeds(seeds, f"{len(comparison.planned.seeds[label])} seeds of {label}")
    return f"Pairs are compared on the seeds that both have: {gone}."


def _why_unknown(comparison: Comparison) -> str:
    """Return why the best isn't known, in words."""
    for name in comparison.planned.lost:
        return lost_sentence(name, len(comparison.planned.seeds[name]), comparison.planned.diverged[name])
    if len([group for group in comparison.judged if not group.diverged]) < 2:
        return "runs diverged, and fewer than two groups are left"
    few = {group.label: len(group.values) for group in comparison.judged if len(group.values) < FEWEST_SEEDS}
    which = " and ".join(few) if len(few) <= 2 else f"{len(few)} of {len(comparison.judged)} groups"
    counts = " to ".join(map(str, sorted({min(few.values()), max(few.values())})))
    return f"an answer takes {FEWEST_SEEDS} seeds, and {which} {'have' if len(few) > 1 else 'has'} {counts}"


# Findings


def findings(comparison: Comparison) -> list[str]:
    """Return what a comparison shows, at most five sentences: differences that are shown first; where there are more on
    groups, a line for each kind."""
    effects = [
        *interactions_in_words(comparison.interactions),
        *effects_in_words(comparison.setting_effects, comparison.effect),
    ]
    on_groups, judged = on_baseline(comparison), {group.label for group in comparison.judged}
    on_judged = {label: claim for label, claim in on_groups.items() if label in judged}
    ordered = sorted(on_judged.values(), key=lambda claim: claim.kind not in ("shown", "equal"))
    texts = [*map(str, ordered), *pair_sentences(comparison)]
    if len(texts) > FEW or (len(comparison.chosen) == 1 and len(texts) + len(effects) > FEW):
        pairs = f"Of all {len(comparison.pairs)} pairs, {len(comparison.shown)} are shown to differ."
        texts = [*summary(on_judged, comparison.baseline), *([pairs] if len(comparison.pairs) > 1 else [])]
    # Of a single name, settings are all that is asked about.
    return [*effects, *texts][:FEW] if len(comparison.chosen) == 1 else [*texts, *effects][:FEW]


def all_findings(comparison: Comparison) -> list[str]:
    """Return all findings one by one, if `findings` has them but in short."""
    effects = [
        *interactions_in_words(comparison.interactions),
        *effects_in_words(comparison.setting_effects, comparison.effect),
    ]
    sentences = [*map(str, on_baseline(comparison).values()), *pair_sentences(comparison), *effects]
    return sentences if set(sentences) - set(findings(comparison)) else []


def on_baseline(comparison: Comparison) -> dict[str, Finding]:
    """Return by label how each other group compares with the baseline, from the best to the worst."""
    others = [group for group in comparison.groups if group.label != comparison.baseline]
    return {
        group.label: _finding(comparison, group, comparison.base, comparison.differences[group.label])
        for group in others
    }


def pair_sentences(comparison: Comparison) -> list[str]:
    """Return sentences on the pairs without the baseline that are shown to differ, the better group first."""
    return [str(_between(comparison, *pair)) for pair in comparison.shown if comparison.baseline not in pair]


def _between(comparison: Comparison, first: str, second: str) -> Finding | None:
    d, turned = comparison.tested.get((first, second)), comparison.tested.get((second, first))
    difference = d or (turned and turned.reversed)
    return _finding(comparison, comparison.group(first), comparison.group(second), difference) if difference else None


def _finding(comparison: Comparison, first: Group, second: Group, d: Difference) -> Finding:
    """Return the finding on two groups, with its condition."""
    condition = ""
    values = {*first.values.values(), *second.values.values()}
    if comparison.metric.is_proportion and len(values) == 1:
        condition = f"Both have {comparison.metric.text(values.pop())} in all seeds"  # 0, or 1, as a rule
    return finding(first.label, second.label, d, comparison.metric, comparison.effect, condition)


def summary(findings: Mapping[str, Finding], baseline: str) -> list[str]:
    """Return one line for each kind of finding against the baseline, with the groups that it is of, by label."""
    lines: dict[str, list[str]] = {}
    for label, claim in findings.items():
        said = f"no difference from {baseline} is shown"
        if claim.difference.significant:
            said = f"{claim.word} than {baseline}"
        elif claim.kind == "equal":
            said = f"equal to {baseline} within {claim.effect:g} {claim.metric.short_unit}".rstrip()
        elif claim.kind == "alike" and claim.difference.mean:
            said = f"{claim.word} than {baseline} in every seed, too few to claim it"
        lines.setdefault(said, []).append(label)
    order = sorted(lines.items(), key=lambda item: (item[0].startswith("no "), "equal" in item[0]))
    texts = [f"{capital(said)} ({len(of)} of {len(findings)}): {_some(of)}." for said, of in order]
    diverged = [label for label, claim in findings.items() if claim.kind == "diverged"]
    return texts + ([f"Seeds diverged: {_some(diverged)}."] if diverged else [])


# What weakens them


def caveats(comparison: Comparison) -> list[str]:
    """Return what weakens the answers, or is missing for them, a sentence each."""
    planned = comparison.planned
    lost = [lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]) for name in planned.lost]
    early = "Seeds are missing. To compare again once they are there is a second look: give looks=2 both times"
    looked = [early] if _missing(comparison) and comparison.looks == 1 else []
    others = (*lost, *looked, *confounded(comparison.groups))
    return [*map(ended, comparison.caveats), *not_above_references(comparison), *map(ended, others)]


def not_above_references(comparison: Comparison) -> list[str]:
    """Return a caveat for each reference that groups are not shown to be better than."""
    sign = comparison.metric.sign
    ends = {}
    for group in comparison.judged:
        values = group.estimate.interval or (group.estimate.mean,)
        ends[group.label] = max(values, key=lambda value: sign * value)  # the worse end
    return [*map(ended, reference_caveats(ends, comparison.references, comparison.worse_than, comparison.metric))]


def reference_caveats(
    groups: Mapping[str, float], references: Mapping[str, float], worse: Mapping[str, str], metric: Metric
) -> list[str]:
    """Return a caveat on groups, by the worse end of each one's interval, that may be no better than a reference: the
    easiest one that they miss."""
    by_value = sorted(references, key=lambda name: metric.sign * references[name], reverse=True)  # the worst first
    missed: dict[str, list[str]] = {}
    for label, end in groups.items():
        worst = next((name for name in by_value if metric.sign * (end - references[name]) > 0), None)
        if worst is not None:
            missed.setdefault(worst, []).append(label)
    return [
        f"{', '.join(labels)} {'are' if len(labels) > 1 else 'is'} not shown to be better than the {name} "
        f"({metric.text(references[name])}){f': {worse[name]}' if worse.get(name) else ''}"
        for name, labels in missed.items()
    ]


def lost_sentence(name: str, planned: int, diverged: int) -> str:
    """Return the sentence on a group without a finished run."""
    if not planned:
        return f"{name} has no such value"
    counts = (diverged, "diverged"), (planned - diverged, "are missing")
    return f"{name} has no finished run: " + ", ".join(f"{n} of {planned} seeds {what}" for n, what in counts if n)


def fine_print(comparison: Comparison) -> str:
    """Return what no test of these seeds knows: how many further ones may fail."""
    counts: Sequence[int] = [*{len(group.values) for group in comparison.groups}]
    failed = comparison.planned.lost or any(group.diverged for group in comparison.groups)
    if failed or len(counts) > 1 or comparison.metric.is_proportion:
        return ""
    most = per_cent(at_most(0, counts[0]))
    return f"No run of {counts[0]} seeds diverged. Even so, up to {most} of further seeds may (95 % limit)."
