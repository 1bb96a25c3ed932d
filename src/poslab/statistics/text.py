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
from scipy import special

from poslab.statistics.intervals import CONFIDENCE, Estimate, StudentT
from poslab.statistics.paired import Difference
from poslab.statistics.text_blocks import TextBlocks, document_blocks, text_blocks

Array = NDArray[np.float64]


def seeds_and_text(
    differences: ArrayLike, documents: ArrayLike | None = None, tokens: ArrayLike = ()
) -> Difference | None:
    """Return the mean of differences (S, N) over seeds and stretches of a text, with its uncorrected p-value and
    interval; None if too few blocks of the text, or documents, can be taken as independent.

    documents, tokens: (N,) of each stretch, if they are known. `sd` is the standard error of the mean, `n` the number
    of seeds.
    """
    found = _blocks(np.asarray(differences, dtype=float), documents, tokens)
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


def checkpoint_difference(
    differences: ArrayLike, documents: ArrayLike | None = None, tokens: ArrayLike = (), *, comparisons: int = 1
) -> Estimate | None:
    """Return the mean of differences (N,) of two checkpoints on stretches of a text, with its t interval over blocks of
    the text, one of so many `comparisons` (Bonferroni); None if too few can be taken as independent.

    documents, tokens: as for `seeds_and_text`. It is on held-out text of this corpus, and says nothing of other seeds.
    """
    found = _blocks(np.asarray(differences, dtype=float)[None], documents, tokens)
    if found is None:
        return None
    (blocks,), n = found.differences, found.differences.shape[1]
    mean, sd = float(blocks.mean()), float(blocks.std(ddof=1))
    method = StudentT(sd / n**0.5, max(1.0, (n - 1) / max(1.0, found.inflation)))
    return Estimate(mean, method.interval(mean, 1 - (1 - CONFIDENCE) / comparisons), sd, n)


def _blocks(differences: Array, documents: ArrayLike | None, tokens: ArrayLike) -> TextBlocks | None:
    return text_blocks(differences) if documents is None else document_blocks(differences, documents, tokens)
