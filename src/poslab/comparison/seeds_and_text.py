"""Differences over seeds and held-out text, from the figures of stretches of it, of all seeds.

The statistics are in `poslab.statistics.text` and `text_blocks`. Text of another kind than that which was held out is
another matter, as is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from poslab.comparison.groups import Group
from poslab.statistics.families import holm
from poslab.statistics.findings import checkpoints_sentence
from poslab.statistics.paired import FEWEST_SEEDS, Difference
from poslab.statistics.table import BEST_VALIDATION_LOSS, LAST_VALIDATION_LOSS, TEST_LOSS
from poslab.statistics.text import seeds_and_text, token_difference

_ROUNDING = 2e-5  # nats: losses of tokens are kept with five decimals

Stretches = Mapping[int, NDArray[np.float64]]  # (B,) by seed


def stretches_of(group: Group) -> Stretches:
    """Return the compared figure of each stretch; none if they are of other weights than those compared.

    Losses of stretches are of the best weights. A last validation that was the best one, too, has the same.
    """
    name = group.score.name
    if name == LAST_VALIDATION_LOSS and group.values == group.figures(BEST_VALIDATION_LOSS):
        name = BEST_VALIDATION_LOSS
    return group.stretches.get(name, {})


def text_differences(
    base: Group, groups: Sequence[Group], over_seeds: Mapping[str, Difference]
) -> dict[str, Difference]:
    """Return by label how groups differ from the baseline over seeds and text.

    Left out are groups with too few common seeds or stretches, and diverged or missing seeds. `sd` is the standard
    error of the mean. P-values and intervals are corrected as if all comparisons of the page were tested over text.
    """
    found = {}
    for group in groups:
        d = over_seeds.get(group.label)
        known = _paired(stretches_of(group), stretches_of(base)) if d and d.outcomes.complete else None
        over_text = None if known is None else seeds_and_text(known)
        if over_text is not None:
            found[group.label] = over_text
    family = max((d.comparisons for d in over_seeds.values()), default=1)
    corrected = holm({label: d.p_value for label, d in found.items() if d.p_value is not None}, family)
    return {label: d.corrected(corrected[label], family) for label, d in found.items()}


def _paired(first: Stretches, second: Stretches) -> NDArray[np.float64] | None:
    """Return differences (S, B) in the common seeds, or None if there are too few or of other numbers of stretches."""
    seeds = sorted(first.keys() & second.keys())
    counts = {len(of[seed]) for of in (first, second) for seed in seeds}
    if len(seeds) < FEWEST_SEEDS or len(counts) != 1:
        return None
    differences = np.array([first[seed] - second[seed] for seed in seeds])
    return differences if np.ptp(differences) > _ROUNDING else None  # the same model twice, or nothing was trained


def checkpoint_sentences(base: Group, groups: Sequence[Group], by_run: Mapping[str, Difference]) -> list[str]:
    """Return sentences on groups of a single run each, compared with the baseline's on stretches of the same text.

    Of groups of several seeds `text_differences` says more.
    """
    names = (TEST_LOSS, BEST_VALIDATION_LOSS)
    name = next((name for name in names if name in base.stretches), None)
    alone = {group.label: group for group in groups if len(group.values) == 1 and name and name in group.stretches}
    if name is None or alone.pop(base.label, None) is None:
        return []
    (losses,) = base.stretches[name].values()
    texts = []
    for label, group in alone.items():
        (own,) = group.stretches[name].values()
        if len(own) == len(losses):
            d = token_difference(own, losses, comparisons=len(alone))
            if d:
                mean, part = by_run[label].mean or 0.0, "test" if name == TEST_LOSS else "validation"
                texts.append(checkpoints_sentence(label, base.label, d, mean, part))
    return texts
