"""Differences over seeds and held-out text, from the figures of stretches of it, of all seeds.

The statistics are in `seedstats.statistics.stretches`. Text of another kind than that which was held out is
another matter, as is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from seedstats.groups import Group
from seedstats.statistics.families import holm
from seedstats.statistics.paired import FEWEST_SEEDS, Difference
from seedstats.statistics.stretches import FEWEST_BLOCKS, seeds_and_text

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
        if over_text.significant and (over_text.mean or 0) * (over_seeds.mean or 0) > 0:
            return "It holds for new seeds and for other text of this corpus"
        return "It holds for new seeds on this text; for other text it is not shown"
    if not (group.stretches and base.stretches):
        return ""
    why = "too few passages of this one are independent"
    if any(of is None for of in known):
        why = "the passages of this one were measured with another checkpoint than the one compared"
    elif any(map(_documents, known)):
        why = f"its held-out documents tell less than {FEWEST_BLOCKS} of equal length would"
    return f"Nothing is known of other text, because {why}"


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
