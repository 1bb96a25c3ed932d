"""Sentences that a section opens with: which ones, in which order, and those on all its groups together."""

from poslab.comparison import factors, pairs
from poslab.comparison.compare import Comparison
from poslab.comparison.seeds_and_text import checkpoint_sentences
from poslab.statistics.best import BestSet, best_set
from poslab.statistics.findings import Equal, Shown
from poslab.statistics.intervals import CONFIDENCE
from poslab.statistics.paired import FEWEST_SEEDS
from poslab.statistics.proportions import proportion
from poslab.statistics.remarks import best_sentence, lost_sentence, solved_sentence, summary, unfailed_sentence

_FEW = 6  # findings that stand on a page one by one


def answers(one: Comparison) -> list[str]:
    """Return what the page opens with: the best groups, effects of settings, what is shown to differ or to be equal,
    what isn't known and what would show it."""
    best = best_groups(one)
    first = best_line(one, best) + factors.in_words(one.setting_effects) + factors.confounded(one.groups)
    last = [*further(one), *outlook(one, best)]
    if len(one.findings) > _FEW:
        return [*first, *kinds(one), *pairs.in_lines(one), *last]
    certain = {label: isinstance(found, Shown | Equal) for label, found in one.findings.items()}
    ordered = sorted(one.answers, key=lambda label: not certain[label])
    return [*first, *(one.answers[label] for label in ordered), *pairs.sentences(one), *last]


def details(one: Comparison) -> list[str]:
    """Return all findings one by one, where `answers` has but a line for each kind."""
    return [*one.answers.values(), *pairs.sentences(one)] if len(one.findings) > _FEW else []


def in_short(one: Comparison) -> list[str]:
    """Return the best groups, and a line for each kind of finding."""
    return best_line(one, best_groups(one)) + kinds(one)


def kinds(one: Comparison) -> list[str]:
    """Return a line for each kind of finding, and one on held-out text."""
    shown = [label for label, found in one.findings.items() if isinstance(found, Shown)]
    over_text = {label: d for label, d in one.over_text.items() if one.differences[label].significant}
    both = ((one.differences[label], d) for label, d in over_text.items())
    holding = sum(d.significant and (d.mean or 0) * (of_seeds.mean or 0) > 0 for of_seeds, d in both)
    on_text = [f"shown for held-out text of this corpus, too: {holding} of {len(shown)}"] if over_text else []
    return [*summary(one.findings, one.baseline), *on_text]


def best_groups(one: Comparison) -> BestSet | None:
    """Return the groups not shown to be worse than any other; None with missing or too few seeds, or one group."""
    complete = not one.planned.lost and all(
        group.values.keys() | set(group.diverged) >= one.planned.seeds[group.label] for group in one.groups
    )
    figures = {group.label: group.values for group in one.groups if not group.diverged}
    if not complete or len(figures) < 2 or min(map(len, figures.values())) < FEWEST_SEEDS:
        return None
    metric, confidence = one.score.metric, 1 - (1 - CONFIDENCE) / one.sections / one.looks
    return best_set(figures, lower=metric.sign > 0, proportion=metric.is_proportion, confidence=confidence)


def best_line(one: Comparison, best: BestSet | None) -> list[str]:
    if best is None:
        return []
    others = [label for label in best.p_values if label not in best.members]
    return [best_sentence(best, others, untested=[group.label for group in one.groups if group.diverged])]


def further(one: Comparison) -> list[str]:
    """Return sentences on how many pairs differ, lost groups and single checkpoints."""
    texts = []
    if not one.answers:
        n = len(one.base.values)
        texts.append(f"only {one.baseline} is here (n = {n}), so there is nothing to compare it with")
    if len(one.pairs) > 1:
        texts.append(f"of all {len(one.pairs)} pairs {len(pairs.ranked(one))} are shown to differ")
    planned = one.planned
    texts += [lost_sentence(name, len(planned.seeds[name]), planned.diverged[name]) for name in planned.lost]
    return texts + checkpoint_sentences(one.base, one.groups, one.differences)


def outlook(one: Comparison, best: BestSet | None) -> list[str]:
    """Return sentences on further seeds: how many may fail, or solve the task, which no test of these seeds knows."""
    if not any(isinstance(found, Shown) for found in one.findings.values()):
        return []
    texts = []
    failed = one.planned.lost or any(group.diverged for group in one.groups)
    counts = {len(group.values) for group in one.groups}
    if not failed and len(counts) == 1 and not one.score.metric.is_proportion:
        texts.append(unfailed_sentence(counts.pop()))
    for group in one.groups:
        solved = group.figures("solved") if group.figures("steps_to_solve") else {}
        if solved and group.label in (one.baseline, *(best.members if best else ())[:1]):
            texts.append(solved_sentence(group.label, proportion(int(sum(solved.values())), len(solved))))
    return texts
