"""Sentences on all groups together, remarks that weaken or extend a finding on two, and numbers of tables."""

import math
from collections.abc import Mapping, Sequence

from poslab.statistics.best import BestSet
from poslab.statistics.findings import BETTER, WORSE, AllAlike, Equal, Finding, places_for, unit_after
from poslab.statistics.intervals import Estimate
from poslab.statistics.paired import Difference
from poslab.statistics.proportions import Proportion, at_most
from poslab.statistics.text import FEWEST_BLOCKS


def summary(findings: Mapping[str, Finding], baseline: str) -> list[str]:
    """Return one line for each kind of finding against the baseline, with the groups that it is of, by label."""
    lines: dict[str, list[str]] = {}
    for label, found in findings.items():
        d = found.difference
        said = f"no difference from {baseline} can be shown of"
        if d.significant:
            said = f"each is {found.word} than {baseline}"
        elif isinstance(found, Equal):
            said = f"equal to {baseline} within {found.effect:g}{unit_after(found.measure)}"
        elif isinstance(found, AllAlike) and found.size:
            said = f"{found.word} than {baseline} in every seed, too few to claim it"
        lines.setdefault(said, []).append(label)
    order = sorted(lines.items(), key=lambda item: ("each is" not in item[0], "equal" not in item[0]))
    found_lines = [f"{said}: {', '.join(of)} ({len(of)} of {len(findings)})" for said, of in order]
    incomplete = [label for label, found in findings.items() if not found.difference.outcomes.complete]
    return found_lines + ([f"seeds missing or diverged: {', '.join(incomplete)}"] if incomplete else [])


def best_sentence(best: BestSet, others: Sequence[str], untested: Sequence[str] = ()) -> str:
    """Return the sentence on the best set. others: the groups that are not in it; untested: those that diverged."""
    sure = f"{100 * best.confidence:.4g} % sure"
    left = f"; left out: {', '.join(untested)}, of which a seed diverged" if untested else ""
    if not others:
        return f"best: not known, any of {', '.join(best.members)} may be" + left
    if len(best.members) == 1:
        return f"best: {best.members[0]} ({sure})" + left
    return f"best: one of {', '.join(best.members)} ({sure}); not {', '.join(others)}" + left


def unfailed_sentence(n: int) -> str:
    """Return what n seeds without a failure say of further ones."""
    upto = per_cent(at_most(0, n))
    return f"none of the {n} seeds of each scheme failed, yet up to {upto} of further seeds may (95 % limit)"


def solved_sentence(name: str, solved: Proportion) -> str:
    """Return how often a scheme solves a task, as far as its seeds tell."""
    range_ = f"{per_cent(solved.low)} to {per_cent(solved.high)}"
    return f"{name} solved the task in {solved.count} of {solved.n} seeds, so {range_} of further seeds would"


def lost_sentence(name: str, planned: int, diverged: int) -> str:
    """Return the sentence on a group without a finished run."""
    if not planned:
        return f"{name} has no such figure"
    parts = [f"{diverged} of {planned} seeds diverged"] if diverged else []
    parts += [f"{planned - diverged} of {planned} seeds are missing"] if planned > diverged else []
    return f"{name} has no finished run: {', '.join(parts)}"


def lost_count(planned: int, diverged: int) -> str:
    """Return the number of seeds of a group without a finished run, in words, "0 (2 diverged, 1 missing)"."""
    parts = [f"{count} {word}" for count, word in ((diverged, "diverged"), (planned - diverged, "missing")) if count]
    return f"0 ({', '.join(parts)})" if parts else "0"


def looks_sentence(earlier: Sequence[int]) -> str:
    """Return the caveat on seeds that were planned after comparisons of so many seeds."""
    before = ", then ".join(f"{seeds} seeds" for seeds in earlier)
    return (
        f"further seeds were planned after a comparison of {before}: whoever may look again finds more differences by "
        f"chance, so p-values and intervals are corrected for {1 + len(earlier)} looks"
    )


def without_baseline(names: Sequence[str]) -> str:
    """Return why nothing is claimed against a baseline that might have been another group."""
    be = f"be {names[0]}, which has" if len(names) == 1 else f"be {' or '.join(names)}, which have"
    return f"the baseline would {be} no finished run"


# Remarks


def text_remark(over_seeds: Difference, over_text: Difference) -> str:
    """Return whether a claimed difference holds for other text than that which was held out, too."""
    turned = -1 if (over_seeds.mean or 0) < 0 else 1
    assert over_text.interval is not None
    low, high = sorted(turned * end for end in over_text.interval)
    which = "on this text; not shown for other text"
    if over_text.significant and (over_text.mean or 0) * (over_seeds.mean or 0) > 0:
        which = "and held-out text of this corpus"
    places = places_for(3, low, high)
    return f"it holds for other seeds {which}: [{low:.{places}f}, {high:.{places}f}] over seeds and text"


OTHER_WEIGHTS = "of other text nothing is known, as its stretches were measured with the best weights, not the last"
TOO_ALIKE = "of other text nothing is known, as too few of its stretches are independent"
TOO_FEW_DOCUMENTS = (
    "of other text nothing is known, as what is held out tells less of it than "
    f"{FEWEST_BLOCKS} documents of equal length"
)
COUNTED = {"bigram": "pairs of tokens", "unigram": "single tokens"}  # what models that need no training count


def convergence_remarks(
    d: Difference, losses: Mapping[str, float], untrained: Mapping[str, float], falls: Mapping[str, float]
) -> list[str]:
    """Return signs that runs were trained too briefly for their losses to be compared.

    Early in training a scheme is ahead because it moves first, and may end behind. losses, falls: mean loss, and how
    far it fell in the last tenth of the steps, by group. untrained: losses of models without training, by name.
    """
    parts = []
    early = [label for label, loss in losses.items() if loss > untrained.get("bigram", math.inf)]
    if early:
        whose = f"{early[0]}'s loss is" if len(early) == 1 else "both losses are"
        least = min(losses[label] for label in early)
        name = max((name for name in COUNTED if untrained.get(name, math.inf) < least), key=untrained.__getitem__)
        parts.append(f"{whose} above that of counting {COUNTED[name]} ({untrained[name]:.4f}): hardly trained")
    falling = [f"{label}'s (by {fall:.2g})" for label, fall in falls.items() if fall > abs(d.mean or 0.0)]
    if d.significant and falling:
        are = f"loss{'es' * (len(falling) > 1)}"
        parts.append(f"{' and '.join(falling)} {are} still fell by more than that in the last tenth of the steps")
    return parts


def checkpoints_sentence(first: str, second: str, difference: Estimate, mean: float, part: str) -> str:
    """Return the sentence on single checkpoints of two groups, compared on stretches of the same held-out text.

    mean: the difference of the compared figures. part: validation or test.
    """
    assert difference.interval is not None
    by, (low, high) = difference.mean, difference.interval
    places = places_for(3, by, low, high)
    chosen = ", which chose them," if part == "validation" else ","
    whose = f"on {difference.n:,} stretches of the {part} text{chosen} the checkpoints of {first} and {second}"
    if low * high > 0 > by * mean:
        return f"{whose} differ in the other direction ({by:+.{places}f} nats): these two runs can't be told apart"
    verdict = f"can't be told apart: {by:+.{places}f} nats [{low:+.{places}f}, {high:+.{places}f}]"
    if low * high > 0:
        smaller, larger = sorted((abs(low), abs(high)))
        verdict = f"differ: {first}'s is {BETTER if by < 0 else WORSE} by {abs(by):.{places}f} nats"
        verdict += f" [{smaller:.{places}f}, {larger:.{places}f}]"
    return f"{whose} {verdict}; another seed may reverse this"


# Numbers


def per_cent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def fixed(value: float, places: int, sign: str = "") -> str:
    """Return a number with so many decimals, or with two digits where it would look like 0."""
    return f"{value:{sign}.{places}f}" if value == 0 or round(value, places) else f"{value:{sign}.1e}"
