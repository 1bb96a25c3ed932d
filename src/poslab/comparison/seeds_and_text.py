"""Differences between two schemes with seeds and text as crossed random effects.

The difference is known for S seeds, each on the same B blocks of text. Seeds are some of many, and so are blocks: an
interval over seeds alone says nothing about other text, one over blocks alone nothing about other seeds. Here both are
random and crossed, and so is what a seed makes of a block:

    d[s, b] = mean + seed[s] + block[b] + rest[s, b]

The variance of the mean comes from the mean squares (MS) of the two-way analysis of variance, its degrees of freedom
from Satterthwaite (1946), "An approximate distribution of estimates of variance components":

    variance = (MS_seeds + MS_blocks - MS_rest) / (S B)          at least the larger of the first two / (S B)

A block is a stretch of at least SMALLEST_BLOCK tokens, and there are at most MOST_BLOCKS of them, so that blocks of a
long text reach over thousands of tokens: how scheme differs from scheme is correlated over a few tokens of subwords or
characters, and a little over whole scenes. More blocks would narrow the interval by less than 2 %.

Text of another kind than that which was held out is another matter, as is a scheme whose code or settings are others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group, same_tokens
from poslab.comparison.sentences import p_text
from poslab.comparison.statistics import CONFIDENCE, Difference, Interval, block_means, holm
from poslab.runs.evaluation import Evaluation
from poslab.runs.load import Run

SMALLEST_BLOCK = 16  # tokens
MOST_BLOCKS = 40
FEWEST_BLOCKS = 10  # with fewer, or fewer seeds, simulated intervals are too narrow
FEWEST_SEEDS = 3
_ROUNDING = 2e-5  # nats: losses of tokens are kept with five decimals

Array = NDArray[np.float64]


def blocks(losses: ArrayLike) -> Array:
    """Return block means (S, B) of losses (S, N) of the same tokens in text order; none if there are too few tokens."""
    array = np.asarray(losses, dtype=float)
    count = min(MOST_BLOCKS, array.shape[1] // SMALLEST_BLOCK)
    return block_means(array, count) if count else np.empty((len(array), 0))


def two_way(differences: ArrayLike) -> tuple[Array, Array, Array]:
    """Return (mean, its standard error, degrees of freedom), each (...), of differences (..., S, B); S and B at least
    2."""
    array = np.asarray(differences, dtype=float)
    *_, seeds, of_text = array.shape
    by_seed, by_block = array.mean(-1), array.mean(-2)
    mean = by_seed.mean(-1)
    rest = array - by_seed[..., :, None] - by_block[..., None, :] + mean[..., None, None]
    of_seeds, of_blocks = of_text * by_seed.var(-1, ddof=1), seeds * by_block.var(-1, ddof=1)  # mean squares
    free_seeds, free_blocks = seeds - 1, of_text - 1
    of_rest = np.square(rest).sum((-2, -1)) / (free_seeds * free_blocks)
    both, larger = of_seeds + of_blocks - of_rest, np.maximum(of_seeds, of_blocks)
    parts = of_seeds**2 / free_seeds + of_blocks**2 / free_blocks + of_rest**2 / (free_seeds * free_blocks)
    alone = np.where(of_seeds >= of_blocks, free_seeds, free_blocks)  # one of the two explains nothing beyond chance
    satterthwaite = np.divide(both**2, parts, out=np.ones_like(both), where=parts > 0)
    return mean, np.sqrt(np.maximum(both, larger) / (seeds * of_text)), np.where(both > larger, satterthwaite, alone)


def text_differences(comparison: Comparison, evaluations: Mapping[str, Sequence[Evaluation]]) -> dict[str, Difference]:
    """Return how each group differs from the baseline over seeds and text.

    evaluations: by label, of groups that are evaluated whole. Left out are groups with too few common seeds, too few
    tokens or different ones, diverged or missing seeds, and evaluations of other weights than those compared.

    Intervals are uncorrected, `sd` is the standard deviation of the mean. The p-values are corrected as if all groups
    of the comparison were tested.
    """
    groups = {group.label: group for group in comparison.groups}
    base = groups[comparison.baseline]
    found = {}
    for label, over_seeds in comparison.differences.items():
        known = comparison.score.is_loss and label in evaluations and base.label in evaluations
        if known and over_seeds.outcomes.complete and not _of_other_weights(comparison, groups[label], base):
            losses = _paired(groups[label], evaluations[label], base, evaluations[base.label])
            if losses is not None:
                found[label] = _difference(losses)
    family = max((d.comparisons for d in comparison.differences.values()), default=1)
    corrected = holm({label: d.p_value for label, d in found.items() if d.p_value is not None}, family)
    return {label: replace(d, p_value=corrected[label], comparisons=family) for label, d in found.items()}


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


def _difference(differences: Array) -> Difference:
    mean, sd, freedom = (float(figure) for figure in two_way(differences))
    half = float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2)) * sd
    p_value = 2 * float(special.stdtr(freedom, -abs(mean) / sd)) if sd else 1.0
    return Difference(mean, Interval(mean - half, mean + half), sd, p_value, len(differences))


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
        assert d.p_value is not None
        low, high = sorted(turned * end for end in d.interval)
        corrected = (
            f" (p = {p_text(d.p_value)} after Holm's correction)" if low * high > 0 and not d.significant else ""
        )
        which = "and held-out text of this corpus" if shown else f"on this text; not shown for other text{corrected}"
        said[label] = f"; it holds for other seeds {which}: [{low:.3f}, {high:.3f}] over seeds and text"
    return said


def _of_other_weights(comparison: Comparison, group: Group, base: Group) -> bool:
    """Return whether the token losses, which are of the best weights, are of other weights than those compared."""
    of = comparison.score.of
    runs = [*group.runs, *base.runs]
    return any(of(run) not in (run.summary.test_loss, run.summary.best_val_loss) for run in runs)
