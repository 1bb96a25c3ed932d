"""Differences over seeds and held-out text, from the figures of stretches of it, of all seeds.

The statistics are in `seedstats.statistics.stretches`. Text of another kind than that which was held out is
another matter, as is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from seedstats.groups import Group
from seedstats.remarks import OTHER_WEIGHTS, TOO_ALIKE, TOO_FEW_DOCUMENTS, other_text
from seedstats.statistics.families import holm
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.stretches import seeds_and_text

_ROUNDING = 2e-5  # nats: losses of tokens are kept with five decimals


def stretches_of(group: Group) -> pd.DataFrame | None:
    """Return the compared value of each passage, as `Group.stretches` has it; None if they aren't known.

    Another metric of the same value in all seeds, such as the best validation's where that was the last one, will do.
    """
    names = (group.metric.name, *group.stretches)
    alike = (name for name in names if name in group.stretches and group.of(name) == group.values)
    return next((group.stretches[name] for name in alike), None)


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
        known = _differences(stretches_of(group), stretches_of(base)) if d and d.outcomes.complete else None
        if known is None or known.shape[1] < FEWEST_SEEDS or np.ptp(known) <= _ROUNDING:
            continue  # the last: the same model twice, or nothing was trained
        over_text = seeds_and_text(known.to_numpy().T, *_documents(known))
        if over_text is not None:
            found[group.label] = over_text
    family = max((d.comparisons for d in over_seeds.values()), default=1)
    corrected = holm({label: d.p_value for label, d in found.items() if d.p_value is not None}, family)
    return {label: d.corrected(corrected[label], family) for label, d in found.items()}


def text_condition(group: Group, base: Group, over_seeds: Difference, over_text: Difference | None) -> str:
    """Return whether a claim on a group and the baseline holds for other text, if passages of it are known."""
    known = [stretches_of(of) for of in (group, base)]
    if over_text is not None:
        return other_text(over_seeds, over_text)
    if not (group.stretches and base.stretches):
        return ""
    if any(of is None for of in known):
        return OTHER_WEIGHTS
    return TOO_FEW_DOCUMENTS if any(map(_documents, known)) else TOO_ALIKE


def _differences(first: pd.DataFrame | None, second: pd.DataFrame | None) -> pd.DataFrame | None:
    """Return differences in the common seeds, with the index of both; None if one has other stretches than the other,
    or than another seed."""
    if first is None or second is None or not first.index.equals(second.index):
        return None
    seeds = first.columns.intersection(second.columns)
    differences = first[seeds] - second[seeds]
    return None if differences.isna().any(axis=None) else differences


def _documents(figures: pd.DataFrame) -> tuple[pd.Index, ...]:
    """Return (document, tokens) of each row; () where the text has no documents."""
    documents, tokens = (figures.index.get_level_values(name) for name in ("document", "stretch_tokens"))
    return (documents, tokens) if documents.any() else ()
