"""Differences of two schemes over seeds and text at once.

The difference of two schemes is known for S seeds, each on the same B blocks of text. Seeds are some of many, and so
are blocks: an interval over seeds alone says nothing about other text, one over blocks alone nothing about other seeds.
Here both are random and crossed, and so is what a seed makes of a block:

    d[s, b] = mean + seed[s] + block[b] + rest[s, b]

The variance of the mean comes from the mean squares (MS) of the two-way analysis of variance, its degrees of freedom
from Satterthwaite (1946), "An approximate distribution of estimates of variance components":

    variance = (MS_seeds + MS_blocks - MS_rest) / (S B)          at least the larger of the first two / (S B)

Blocks are as long as the scenes of a text: how one scheme differs from another changes slowly. On plays of Shakespeare,
neighbouring stretches of 4,000 characters have differences with a correlation of 0.7. Shorter blocks are no independent
draws, and an interval from them misses the truth in 30 to 60 % of cases. So blocks become longer until the correlation
of neighbours can't be told from chance, as in Fishman (1978), "Grouping observations in digital simulation", Management
Science 24:

    lag-1 correlation of the block means < 2 / sqrt(blocks)

What correlation is left, up to that limit, still narrows the interval. The variance between blocks is therefore raised
by the factor of a first-order autoregression, (1 + r) / (1 - r), with r corrected for the bias of few blocks (Kendall
1954, "Note on bias in the estimation of autocorrelation", Biometrika 41). In simulations, 95 % intervals then miss in
4 to 8 % where the text is at least 20 correlation lengths long; by the limit alone in up to 22 %.

Where it is known which documents a text has, whole ones are the blocks. As they differ in length, their variance is
that of the jackknife (CR3: Cameron & Miller 2015, "A practitioner's guide to cluster-robust inference", Journal of
Human Resources 50).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from seedstats.statistics.intervals import StudentT
from seedstats.statistics.paired import Difference

MOST_BLOCKS = 40
FEWEST_BLOCKS = 10  # with fewer, simulated intervals are too narrow; so many documents of equal length

Array = NDArray[np.float64]


class TextBlocks(NamedTuple):
    """Differences (S, B) of S seeds on B blocks of a text, whose mean is that of all its stretches.

    inflation: the factor of the variance between blocks that the correlation of neighbours asks for, or the lengths of
    documents; the deviations of the blocks in `differences` are raised by its square root, so that an analysis that
    takes blocks as independent, and all alike, is right.
    """

    differences: Array
    inflation: float


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


# Blocks


def text_blocks(differences: ArrayLike) -> TextBlocks | None:
    """Return the shortest blocks that can be taken as independent, of differences (S, N) on short stretches of a text
    in its order; None if there would be fewer than FEWEST_BLOCKS."""
    array = np.asarray(differences, dtype=float)
    count = min(MOST_BLOCKS, array.shape[1])
    while count >= FEWEST_BLOCKS:
        blocks = contiguous_blocks(array, count)
        found = lag_one(blocks.mean(0))
        if found < 2 / count**0.5:
            unbiased = (found * count + 1) / (count - 3)  # the mean of what is found is r - (1 + 3 r) / count
            remaining = min(max(unbiased, 0.0), 0.8)
            return _inflated(blocks, (1 + remaining) / (1 - remaining))
        count = min(count - 1, round(count / 1.1))
    return None


def document_blocks(differences: ArrayLike, documents: ArrayLike, tokens: ArrayLike) -> TextBlocks | None:
    """Return whole documents as blocks, of differences (S, N) on stretches of them; a long one counts by its tokens, as
    in the mean of all. None if they tell less of others than FEWEST_BLOCKS documents of equal length would.

    documents: (N,) the one that a stretch is of. tokens: (N,) how many it has.
    """
    array, weights = np.asarray(differences, dtype=float), np.asarray(tokens, dtype=float)
    _, of_stretch = np.unique(documents, return_inverse=True)
    sizes = np.bincount(of_stretch, weights)
    count, total = len(sizes), float(sizes.sum())
    if total**2 / float(sizes @ sizes) < FEWEST_BLOCKS:  # the variance of a mean with these weights
        return None
    mean = array @ weights[:, None] / total  # (S, 1)
    sums = np.stack([np.bincount(of_stretch, row) for row in (array - mean) * weights])
    of_text = sums.mean(0)
    left_out = np.square(of_text / (1 - sizes / total)).sum() * (1 - 1 / count) ** 2  # each draws the mean to itself
    inflation = float(left_out / np.square(of_text).sum()) if of_text.any() else 1.0
    return _inflated(mean + sums * count / total, inflation)


def _inflated(blocks: Array, inflation: float) -> TextBlocks:
    of_text = blocks.mean(0) - blocks.mean()
    return TextBlocks(blocks + (inflation**0.5 - 1) * of_text, inflation)


def contiguous_blocks(values: ArrayLike, blocks: int) -> Array:
    """Return means (..., B) of contiguous blocks of values (..., N).

    Block lengths differ by at most 1; means are weighted so that their mean is exactly that of the values.
    """
    array = np.asarray(values, dtype=float)
    n, mean = array.shape[-1], array.mean(-1, keepdims=True)
    return mean + np.add.reduceat(array - mean, np.arange(blocks) * n // blocks, axis=-1) * blocks / n


def lag_one(means: ArrayLike) -> float:
    """Return the correlation of neighbours in a series (B,) of at least 4 means; 0 where all are alike."""
    series = np.asarray(means, dtype=float)
    series = series - series.mean()
    total = float(series @ series)
    return float(series[1:] @ series[:-1]) / total if total else 0.0
