"""Differences over seeds and held-out text, from the figures of stretches of it, of all seeds.

The statistics are in `poslab.statistics.text`. Text of another kind than that which was held out is
another matter, as is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from poslab.comparison.groups import Group
from poslab.statistics.families import holm
from poslab.statistics.paired import FEWEST_SEEDS, Difference
from poslab.statistics.remarks import OTHER_WEIGHTS, TOO_ALIKE, TOO_FEW_DOCUMENTS, checkpoints_sentence, text_remark
from poslab.statistics.table import BEST_VALIDATION_LOSS, LAST_VALIDATION_LOSS, TEST_LOSS
from poslab.statistics.text import checkpoint_difference, seeds_and_text

_ROUNDING = 2e-5  # nats: losses of tokens are kept with five decimals


def stretches_of(group: Group) -> pd.DataFrame | None:
    """Return the compared figure of each stretch, as `Group.stretches` has it; None if they are not known, or of other
    weights than those compared.

    Losses of stretches are of the best weights. A last validation that was the best one, too, has the same.
    """
    name = group.score.name
    if name == LAST_VALIDATION_LOSS and group.values == group.figures(BEST_VALIDATION_LOSS):
        name = BEST_VALIDATION_LOSS
    return group.stretches.get(name)


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


def remarks_on_text(group: Group, base: Group, over_seeds: Difference, over_text: Difference | None) -> list[str]:
    """Return whether a claim on a group and the baseline holds for other text, if stretches of it are known."""
    known = [stretches_of(of) for of in (group, base)]
    if over_text is not None:
        return [text_remark(over_seeds, over_text)]
    if not (group.stretches and base.stretches):
        return []
    if any(of is None for of in known):
        return [OTHER_WEIGHTS]
    return [TOO_FEW_DOCUMENTS if any(map(_documents, known)) else TOO_ALIKE]


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


def checkpoint_sentences(base: Group, groups: Sequence[Group], by_run: Mapping[str, Difference]) -> list[str]:
    """Return sentences on groups of a single run each, compared with the baseline's on stretches of the same text.

    Of groups of several seeds `text_differences` says more.
    """
    names = (TEST_LOSS, BEST_VALIDATION_LOSS)
    name = next((name for name in names if name in base.stretches), None)
    alone = {group.label: group for group in groups if len(group.values) == 1 and name and name in group.stretches}
    if name is None or alone.pop(base.label, None) is None:
        return []
    texts = []
    for label, group in alone.items():
        of_both = (of.stretches[name].set_axis([0], axis=1) for of in (group, base))  # whatever their seeds
        known = _differences(*of_both)
        if known is None:
            continue
        d = checkpoint_difference(known.to_numpy()[:, 0], *_documents(known), comparisons=len(alone))
        if d:
            mean, part = by_run[label].mean or 0.0, "test" if name == TEST_LOSS else "validation"
            texts.append(checkpoints_sentence(label, base.label, d, mean, part))
    return texts
