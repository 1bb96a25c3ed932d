"""Differences over text: of one pair of checkpoints, and of two schemes over seeds and text at once.

The difference of two schemes is known for S seeds, each on the same B blocks of text. Seeds are some of many, and so
are blocks: an interval over seeds alone says nothing about other text, one over blocks alone nothing about other seeds.
Here both are random and crossed, and so is what a seed makes of a block:

    d[s, b] = mean + seed[s] + block[b] + rest[s, b]

The variance of the mean comes from the mean squares (MS) of the two-way analysis of variance, its degrees of freedom
from Satterthwaite (1946), "An approximate distribution of estimates of variance components":

    variance = (MS_seeds + MS_blocks - MS_rest) / (S B)          at least the larger of the first two / (S B)

A block is as long as it takes for blocks to be independent, or a document (`poslab.statistics.text_blocks`).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats

from poslab.statistics.intervals import CONFIDENCE, Estimate, Interval, StudentT
from poslab.statistics.paired import Difference
from poslab.statistics.text_blocks import document_blocks, text_blocks

FEWEST_FOR_BOOTSTRAP = 20  # with fewer blocks, a bootstrap interval is clearly too narrow

Array = NDArray[np.float64]


def seeds_and_text(
    differences: ArrayLike, documents: ArrayLike | None = None, tokens: ArrayLike = ()
) -> Difference | None:
    """Return the mean of differences (S, N) over seeds and stretches of a text, with its uncorrected p-value and
    interval; None if too few blocks of the text, or documents, can be taken as independent.

    documents, tokens: (N,) of each stretch, if they are known. `sd` is the standard error of the mean, `n` the number
    of seeds.
    """
    found = text_blocks(differences) if documents is None else document_blocks(differences, documents, tokens)
    if found is None:
        return None
    array = found.differences
    mean, error, freedom = (float(figure) for figure in two_way(array))
    freedom = max(1.0, freedom / max(1.0, found.inflation))  # blocks that are alike tell less of the spread, too
    p_value = 2 * float(special.stdtr(freedom, -abs(mean) / error)) if error else 1.0
    d = Difference(mean, None, error, None, len(array), method=StudentT(error, freedom))
    return d.corrected(p_value, 1)


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


def token_difference(differences: ArrayLike, *, comparisons: int = 1, resamples: int = 9999) -> Estimate | None:
    """Estimate the mean of finite differences (N,) of two checkpoints in the loss of stretches of text, or documents.

    The interval is a bootstrap percentile interval, one of so many `comparisons` (Bonferroni). Stretches should exceed
    the distance over which losses of tokens are correlated, as no tokens are drawn but contiguous, non-overlapping
    blocks of them (Carlstein 1986). None with fewer than FEWEST_FOR_BOOTSTRAP. It says how sure the difference between
    these two checkpoints is on held-out text of this corpus, and nothing about other seeds. The same arrays give the
    same interval.
    """
    difference = np.asarray(differences, dtype=float)
    n = len(difference)
    if n < FEWEST_FOR_BOOTSTRAP:
        return None
    interval = stats.bootstrap(
        (difference,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, 1_000_000 // n),  # a million numbers, 8 MB, at a time
        confidence_level=1 - (1 - CONFIDENCE) / comparisons,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    between = Interval(float(interval.low), float(interval.high))
    return Estimate(float(difference.mean()), between, float(difference.std(ddof=1)), n)
