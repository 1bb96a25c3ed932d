"""The answers that a page begins with: one line, and at most five findings."""

from seedstats.comparison import Comparison
from seedstats.effects import confounded, effects_in_words
from seedstats.finding import BETTER, Equal, Finding, Shown, counted, ended, missing_seeds
from seedstats.remarks import headline_of_best, lost_sentence, reference_caveats, summary, unfailed_sentence
from seedstats.statistics.best import BestSet, best_set
from seedstats.statistics.intervals import CONFIDENCE
from seedstats.statistics.paired import FEWEST_SEEDS

FEW = 5  # findings that stand on a page one by one


def headline(one: Comparison) -> str:
    """Return the answer in one line: which group is best, by how much, how sure that is; or why that isn't known."""
    judged = one.judged
    if len(judged) + len(one.planned.lost) < 2:
        seeds = counted(len(judged[0].values))
        return f"Only {judged[0].label} is here ({seeds}): there is nothing to compare it with."
    best = best_groups(one)
    if best is None:
        return f"No answer yet: {_unknown(one)}."
    gone = [group.label for group in judged if group.diverged]
    left_out = f" Left out, because seeds diverged: {', '.join(gone)}." if gone else ""
    return _best_known(one, best) + left_out


def _best_known(one: Comparison, best: BestSet) -> str:
    others = [label for label in best.p_values if label not in best.members]
    at_best = f" Each name is at its best setting by {one.chosen_by}." if one.in_grids else ""
    if len(best.members) > 1:
        pair = sorted(best.members, key=lambda label: label == one.baseline)
        equal = _between(one, *pair) if len(one.judged) == 2 else None
        return str(equal) if isinstance(equal, Equal) else headline_of_best(best, others) + at_best
    first, second = best.members[0], one.baseline
    if second not in others:  # the next best takes its place, as it is best itself, or seeds of it diverged
        second = next(group.label for group in one.judged if group.label in others)
    found = _between(one, first, second)
    if not isinstance(found, Shown) or found.word != BETTER:
        return f"{first} is best.{f' Compared with {second}: {found.numbers}.' if found else ''}{at_best}"
    matters = f"{found.effect or 0:g} {one.metric.short_unit}".rstrip()
    small = f", but by less than the {matters} that matters" if found.is_small else ""
    return f"{first} is best{small}: {found.compared}.{at_best}"


def _between(one: Comparison, first: str, second: str) -> Finding | None:
    if (first, second) in one.tested:
        return one.finding_on(one.group(first), one.group(second), one.tested[first, second])
    if (second, first) in one.tested:
        return one.finding_on(one.group(first), one.group(second), one.tested[second, first].reversed)
    return None


def _unknown(one: Comparison) -> str:
    """Return why the best isn't known, in words."""
    planned = one.planned
    for name in planned.lost:
        return lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]).removesuffix(".")
    for group in one.judged:
        missing = sorted(planned.seeds[group.label] - group.values.keys() - set(group.diverged))
        if missing:
            return missing_seeds(missing, f"{len(planned.seeds[group.label])} seeds of {group.label}")
    fewest = min(one.judged, key=lambda group: len(group.values))
    if len([group for group in one.judged if not group.diverged]) < 2:
        return "runs diverged, and fewer than two groups are left"
    return f"{fewest.label} has {counted(len(fewest.values))}, and an answer takes {FEWEST_SEEDS}"


def findings(one: Comparison) -> list[str]:
    """Return what a comparison shows, at most five sentences: differences that are shown first; where there are more, a
    line for each kind."""
    effects = effects_in_words(one.setting_effects, one.effect)
    texts = [*_one_by_one(one), *effects]
    if len(texts) > FEW:
        pairs = f"Of all {len(one.pairs)} pairs, {len(one.shown)} are shown to differ."
        short = [*kinds(one), *([pairs] if len(one.pairs) > 1 else [])]
        # Of a single name, settings are all that is asked about.
        texts = [*effects, *short] if len(one.chosen) == 1 else [*short, *effects]
    return texts[:FEW]


def all_findings(one: Comparison) -> list[str]:
    """Return all findings one by one, if `findings` has them but in short."""
    effects = effects_in_words(one.setting_effects, one.effect)
    every = [*map(str, one.findings.values()), *pair_sentences(one), *effects]
    return every if set(every) - set(findings(one)) else []


def _one_by_one(one: Comparison) -> list[str]:
    of_judged = [one.findings[group.label] for group in one.judged if group.label != one.baseline]
    ordered = sorted(of_judged, key=lambda found: not isinstance(found, Shown | Equal))
    return [*map(str, ordered), *pair_sentences(one)]


def caveats(one: Comparison) -> list[str]:
    """Return what weakens the answers, or is missing for them, a sentence each."""
    means, planned = {group.label: group.estimate.mean for group in one.judged}, one.planned
    worse = reference_caveats(means, one.references, one.worse_than, one.metric)
    lost = [lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]) for name in planned.lost]
    return [*map(ended, (*one.caveats, *worse, *lost, *confounded(one.groups)))]


def kinds(one: Comparison) -> list[str]:
    """Return a line for each kind of finding on the groups that names are judged by."""
    judged = {group.label for group in one.judged}
    return summary({label: found for label, found in one.findings.items() if label in judged}, one.baseline)


def best_groups(one: Comparison) -> BestSet | None:
    """Return the groups not shown to be worse than any other; None with missing or too few seeds, or one group."""
    complete = not one.planned.lost and all(
        group.values.keys() | set(group.diverged) >= one.planned.seeds[group.label] for group in one.judged
    )
    values = {group.label: group.values for group in one.judged if not group.diverged}
    if not complete or len(values) < 2 or min(map(len, values.values())) < FEWEST_SEEDS:
        return None
    confidence = 1 - (1 - CONFIDENCE) / one.sections / one.looks
    kind = {"lower": not one.metric.higher_is_better, "proportion": one.metric.is_proportion}
    return best_set(values, one.shown, confidence=confidence, **kind)


def pair_sentences(one: Comparison) -> list[str]:
    """Return sentences on the pairs without the baseline that are shown to differ, the better group first."""
    return [str(_between(one, *pair)) for pair in one.shown if one.baseline not in pair]


def fine_print(one: Comparison) -> str:
    """Return what no test of these seeds knows: how many further ones may fail."""
    counts = {len(group.values) for group in one.groups}
    failed = one.planned.lost or any(group.diverged for group in one.groups)
    return "" if failed or len(counts) > 1 or one.metric.is_proportion else unfailed_sentence(counts.pop())
