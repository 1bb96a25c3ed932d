"""Equality within a margin: two one-sided tests (TOST).

Schuirmann (1987), "A comparison of the two one-sided tests procedure and the power approach for assessing the
equivalence of average bioavailability", Journal of Pharmacokinetics and Biopharmaceutics 15. Two schemes are shown to
be equal within a margin where one t test rejects "the mean difference is the margin or more" and another "it is minus
the margin or less". A difference that is not shown is no evidence of equality; this is.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special


@dataclass(frozen=True)
class Equality:
    """Result of two one-sided tests of n paired differences with a mean of `mean`, in the unit of the figures.

    p_value: that of "the mean difference is not within the margin", uncorrected. smallest_margin: of the margins within
    which equality is shown at the level `alpha`. None where the spread is not known: with one seed, or where all
    differences are alike.
    """

    mean: float
    n: int
    margin: float
    p_value: float | None
    smallest_margin: float | None


def equality(differences: ArrayLike, margin: float, alpha: float = 0.05) -> Equality:
    """Test whether the mean of finite paired differences (n,) lies between -margin and margin.

    A family of such tests is corrected by the caller; `smallest_margin` then takes its share of `alpha`. ValueError
    without differences or a margin above 0.
    """
    array = np.asarray(differences, dtype=float)
    n = array.size
    if not n or margin <= 0:
        raise ValueError("equality needs differences, and a margin above 0")
    mean = float(array.mean())
    error = float(array.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    if error <= 1e-12 * max(1.0, abs(mean)):  # rounding
        return Equality(mean, n, margin, None, None)
    p_value = float(special.stdtr(n - 1, (abs(mean) - margin) / error))  # the larger one of the two
    return Equality(mean, n, margin, p_value, abs(mean) + float(special.stdtrit(n - 1, 1 - alpha)) * error)
