"""Blocks of a text, as long as its scenes are: what an interval for other text takes as independent draws.

How one scheme differs from another changes slowly over a text: on plays of Shakespeare, neighbouring stretches of 4,000
characters have differences with a correlation of 0.7. Blocks shorter than that are no independent draws, and an
interval from them misses the truth in 30 to 60 % of cases. So blocks become longer until the correlation of neighbours
can't be told from chance, as in Fishman (1978), "Grouping observations in digital simulation", Management Science 24:

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
