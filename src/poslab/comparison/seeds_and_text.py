"""Whether a difference holds for held-out text, too: losses by token of all seeds, and the words for it.

The statistics are in `poslab.statistics.text`. Text of another kind than that which was held out is another matter, as
is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group, same_tokens
from poslab.runs.evaluation import Evaluation
from poslab.runs.load import Run
from poslab.statistics.blocks import FEWEST_BLOCKS
from poslab.statistics.families import holm
from poslab.statistics.paired import FEWEST_SEEDS, Difference
from poslab.statistics.text import blocks, seeds_and_text

_ROUNDING = 2e-5  # nats: losses of tokens are kept with five decimals

Array = NDArray[np.float64]


def text_differences(comparison: Comparison, evaluations: Mapping[str, Sequence[Evaluation]]) -> dict[str, Difference]:
    """Return how each group differs from the baseline over seeds and text.

    evaluations: by label, of groups that are evaluated whole. Left out are groups with too few common seeds, too few
    tokens or different ones, diverged or missing seeds, and evaluations of other weights than those compared.

    `sd` is the standard error of the mean. P-values and intervals are corrected as if all comparisons of the page were
    tested over text, too.
    """
    groups = {group.label: group for group in comparison.groups}
    base = groups[comparison.baseline]
    found = {}
    for label, over_seeds in comparison.differences.items():
        known = comparison.score.is_loss and label in evaluations and base.label in evaluations
        if known and over_seeds.outcomes.complete and not _of_other_weights(comparison, groups[label], base):
            losses = _paired(groups[label], evaluations[label], base, evaluations[base.label])
            if losses is not None:
                found[label] = seeds_and_text(losses)
    family = max((d.comparisons for d in comparison.differences.values()), default=1)
    corrected = holm({label: d.p_value for label, d in found.items() if d.p_value is not None}, family)
    return {label: d.corrected(corrected[label], family) for label, d in found.items()}


def _paired(group: Group, of_group: Sequence[Evaluation], base: Group, of_base: Sequence[Evaluation]) -> Array | None:
    """Return differences (S, B) of the losses in common seeds by block, or None if they are not available."""
    by_seed = [
        {run.seed: _compared(run, evaluation) for run, evaluation in zip(of.runs, evaluated, strict=True)}
        for of, evaluated in ((group, of_group), (base, of_base))
    ]
    seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
    losses = [[of[seed] for seed in seeds] for of in by_seed]
    counts = {len(of_run) for of in losses for of_run in of}
    comparable = all(same_tokens(run, base.runs[0]) for of in (group, base) for run in of.runs)
    if not comparable or len(seeds) < FEWEST_SEEDS or len(counts) != 1:
        return None
    differences = blocks(np.asarray(losses[0]) - np.asarray(losses[1]))
    if differences.shape[1] < FEWEST_BLOCKS or not np.isfinite(differences).all():
        return None
    return differences if np.ptp(differences) > _ROUNDING else None  # the same model twice, or nothing that was trained


def _compared(run: Run, evaluation: Evaluation) -> list[float]:
    """Return the losses that the run's figure averages: a validation may have had only the first ones."""
    validated = run.summary.val_loss_tokens if run.summary.test_loss is None else None
    return evaluation.consecutive_losses[:validated]


def claims_by_text(comparison: Comparison, over_text: Mapping[str, Difference]) -> dict[str, bool]:
    """Return by label whether a difference claimed over seeds is shown for other text, too, if known.

    A difference shown for other text always has the direction of that over seeds.
    """
    over_seeds = comparison.differences
    return {
        label: d.significant and (d.mean or 0) * (over_seeds[label].mean or 0) > 0
        for label, d in over_text.items()
        if over_seeds[label].significant
    }


def with_text(
    comparison: Comparison, over_text: Mapping[str, Difference], evaluations: Mapping[str, Sequence[Evaluation]]
) -> list[str]:
    """Return the comparison's sentences; each claim says for which seeds and text it holds. evaluations: by label."""
    groups = {group.label: group for group in comparison.groups}
    base, words = groups[comparison.baseline], _words(comparison, over_text)
    if base.label in evaluations and comparison.score.is_loss:
        claimed = (label for label, d in comparison.differences.items() if d.significant and d.outcomes.complete)
        for label in claimed:
            if label in evaluations and _of_other_weights(comparison, groups[label], base):
                words[label] = "; of other text nothing is known, as only the best weights are evaluated"
    return [*(said + words.get(label, "") for label, said in comparison.answers.items()), *comparison.further]


def _words(comparison: Comparison, over_text: Mapping[str, Difference]) -> dict[str, str]:
    """Return the end of each claim's sentence, by label."""
    said = {}
    for label, shown in claims_by_text(comparison, over_text).items():
        d, turned = over_text[label], -1 if (comparison.differences[label].mean or 0) < 0 else 1
        assert d.interval is not None
        low, high = sorted(turned * end for end in d.interval)
        which = "and held-out text of this corpus" if shown else "on this text; not shown for other text"
        said[label] = f"; it holds for other seeds {which}: [{low:.3f}, {high:.3f}] over seeds and text"
    return said


def _of_other_weights(comparison: Comparison, group: Group, base: Group) -> bool:
    """Return whether the token losses, which are of the best weights, are of other weights than those compared."""
    of = comparison.score.of
    runs = [*group.runs, *base.runs]
    return any(of(run) not in (run.summary.test_loss, run.summary.best_val_loss) for run in runs)
