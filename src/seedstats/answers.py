"""The answers that a page begins with: one line, at most five findings, and what weakens them.

`finding` has the words for two groups; those on all groups are here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from seedstats.comparison import Comparison
from seedstats.effects import confounded, effects_in_words
from seedstats.finding import (
    BETTER,
    AllAlike,
    Equal,
    Finding,
    Shown,
    capital,
    counted,
    ended,
    finding,
    missing_seeds,
)
from seedstats.groups import Group
from seedstats.interactions import interactions_in_words
from seedstats.metric import Metric, per_cent
from seedstats.statistics.best import BestSet, best_set
from seedstats.statistics.intervals import CONFIDENCE
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.proportions import at_most

FEW = 5  # findings that stand on a page one by one


# The first line


def headline(one: Comparison) -> str:
    """Return the answer in one line: which group is best, by how much, how sure that is; or why that isn't known."""
    judged = one.judged
    if len(judged) + len(one.planned.lost) < 2:
        seeds = counted(len(judged[0].values))
        return f"Only {judged[0].label} is here ({seeds}): there is nothing to compare it with."
    best = best_groups(one)
    if best is None:
        return f"No answer yet: {ended(_unknown(one))}"
    gone = [group.label for group in judged if group.diverged]
    left_out = f" Left out, because seeds diverged: {', '.join(gone)}." if gone else ""
    at_best = f" Each name is at its best setting by {one.chosen_by}." if one.in_grids else ""
    single = _single_best if len(best.members) == 1 else _several_best
    return f"{single(one, best)}{at_best}{left_out}"


def _single_best(one: Comparison, best: BestSet) -> str:
    others = [label for label in best.p_values if label not in best.members]
    first, second = best.members[0], one.baseline
    if second not in others:  # the next best takes its place, as it is best itself, or seeds of it diverged
        second = next(group.label for group in one.judged if group.label in others)
    found = _between(one, first, second)
    if found is None:
        return f"{first} is best."
    if not isinstance(found, Shown) or found.word != BETTER:  # because the page tests more than the best set does
        return f"{first} may be best, but no difference from {second} is shown: {found.numbers}."
    matters = f"{found.effect or 0:g} {one.metric.short_unit}".rstrip()
    small = f", but by less than the {matters} that matters" if found.is_small else ""
    return f"{first} is best{small}: {found.compared}."


def _several_best(one: Comparison, best: BestSet) -> str:
    members, others = best.members, [label for label in best.p_values if label not in best.members]
    equal = _between(one, *sorted(members, key=lambda of: of == one.baseline)) if len(one.judged) == 2 else None
    if isinstance(equal, Equal):
        return str(equal)
    either = f"{', '.join(members[:-1])} or {members[-1]}"
    if not others:
        return f"No difference shown: {either} may be best."
    worse = ", ".join(others) if len(others) <= 3 else f"The {len(others)} others"
    return f"The best is {either}. {worse} {'are' if len(others) > 1 else 'is'} not the best."


def _unknown(one: Comparison) -> str:
    """Return why the best isn't known, in words."""
    planned = one.planned
    for name in planned.lost:
        return lost_sentence(name, len(planned.seeds[name]), planned.diverged[name])
    for group in one.judged:
        missing = sorted(planned.seeds[group.label] - group.values.keys() - set(group.diverged))
        if missing:
            return missing_seeds(missing, f"{len(planned.seeds[group.label])} seeds of {group.label}")
    if len([group for group in one.judged if not group.diverged]) < 2:
        return "runs diverged, and fewer than two groups are left"
    few = {group.label: len(group.values) for group in one.judged if len(group.values) < FEWEST_SEEDS}
    which = " and ".join(few) if len(few) <= 2 else f"{len(few)} of {len(one.judged)} groups"
    counts = " to ".join(map(str, sorted({min(few.values()), max(few.values())})))
    return f"an answer takes {FEWEST_SEEDS} seeds, and {which} {'have' if len(few) > 1 else 'has'} {counts}"


def best_groups(one: Comparison) -> BestSet | None:
    """Return the groups not shown to be worse than any other; None with missing or too few seeds, or one group."""
    complete = not one.planned.lost and all(
        group.values.keys() | set(group.diverged) >= one.planned.seeds[group.label] for group in one.judged
    )
    values = {group.label: group.values for group in one.judged if not group.diverged}
    if not complete or len(values) < 2 or min(map(len, values.values())) < FEWEST_SEEDS:
        return None
    # A name is judged at the best of its settings, so each of these is a chance to seem better.
    chances = max(Counter(group.name for group in one.groups).values()) if one.in_grids else 1
    confidence = 1 - (1 - CONFIDENCE) / one.sections / one.looks / chances
    kind = {"lower": not one.metric.higher_is_better, "proportion": one.metric.is_proportion}
    return best_set(values, one.shown, confidence=confidence, **kind)


# Findings


def findings(one: Comparison) -> list[str]:
    """Return what a comparison shows, at most five sentences: differences that are shown first; where there are more on
    groups, a line for each kind."""
    effects = [*interactions_in_words(one.interactions), *effects_in_words(one.setting_effects, one.effect)]
    on_groups, judged = on_baseline(one), {group.label for group in one.judged}
    of_judged = {label: found for label, found in on_groups.items() if label in judged}
    ordered = sorted(of_judged.values(), key=lambda found: not isinstance(found, Shown | Equal))
    texts = [*map(str, ordered), *pair_sentences(one)]
    if len(texts) > FEW or (len(one.chosen) == 1 and len(texts) + len(effects) > FEW):
        pairs = f"Of all {len(one.pairs)} pairs, {len(one.shown)} are shown to differ."
        texts = [*summary(of_judged, one.baseline), *([pairs] if len(one.pairs) > 1 else [])]
    # Of a single name, settings are all that is asked about.
    return [*effects, *texts][:FEW] if len(one.chosen) == 1 else [*texts, *effects][:FEW]


def all_findings(one: Comparison) -> list[str]:
    """Return all findings one by one, if `findings` has them but in short."""
    effects = [*interactions_in_words(one.interactions), *effects_in_words(one.setting_effects, one.effect)]
    every = [*map(str, on_baseline(one).values()), *pair_sentences(one), *effects]
    return every if set(every) - set(findings(one)) else []


def on_baseline(one: Comparison) -> dict[str, Finding]:
    """Return by label how each other group compares with the baseline, from the best to the worst."""
    others = [group for group in one.groups if group.label != one.baseline]
    return {group.label: _finding(one, group, one.base, one.differences[group.label]) for group in others}


def pair_sentences(one: Comparison) -> list[str]:
    """Return sentences on the pairs without the baseline that are shown to differ, the better group first."""
    return [str(_between(one, *pair)) for pair in one.shown if one.baseline not in pair]


def _between(one: Comparison, first: str, second: str) -> Finding | None:
    d, turned = one.tested.get((first, second)), one.tested.get((second, first))
    found = d or (turned and turned.reversed)
    return _finding(one, one.group(first), one.group(second), found) if found else None


def _finding(one: Comparison, first: Group, second: Group, d: Difference) -> Finding:
    """Return the finding on two groups, with its condition."""
    condition = ""
    values = {*first.values.values(), *second.values.values()}
    if one.metric.is_proportion and len(values) == 1:
        condition = f"Both have {one.metric.text(values.pop())} in all seeds"  # 0, or 1, as a rule
    return finding(first.label, second.label, d, one.metric, one.effect, condition)


def summary(findings: Mapping[str, Finding], baseline: str) -> list[str]:
    """Return one line for each kind of finding against the baseline, with the groups that it is of, by label."""
    lines: dict[str, list[str]] = {}
    for label, found in findings.items():
        said = f"no difference from {baseline} is shown"
        if found.difference.significant:
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


# What weakens them


def caveats(one: Comparison) -> list[str]:
    """Return what weakens the answers, or is missing for them, a sentence each."""
    means, planned = {group.label: group.estimate.mean for group in one.judged}, one.planned
    worse = reference_caveats(means, one.references, one.worse_than, one.metric)
    lost = [lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]) for name in planned.lost]
    return [*map(ended, (*one.caveats, *worse, *lost, *confounded(one.groups)))]


def reference_caveats(
    groups: Mapping[str, float], references: Mapping[str, float], worse: Mapping[str, str], metric: Metric
) -> list[str]:
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


def lost_sentence(name: str, planned: int, diverged: int) -> str:
    """Return the sentence on a group without a finished run."""
    if not planned:
        return f"{name} has no such value"
    counts = (diverged, "diverged"), (planned - diverged, "are missing")
    return f"{name} has no finished run: " + ", ".join(f"{n} of {planned} seeds {what}" for n, what in counts if n)


def fine_print(one: Comparison) -> str:
    """Return what no test of these seeds knows: how many further ones may fail."""
    counts: Sequence[int] = [*{len(group.values) for group in one.groups}]
    failed = one.planned.lost or any(group.diverged for group in one.groups)
    if failed or len(counts) > 1 or one.metric.is_proportion:
        return ""
    most = per_cent(at_most(0, counts[0]))
    return f"No run of {counts[0]} seeds diverged. Even so, up to {most} of further seeds may (95 % limit)."
