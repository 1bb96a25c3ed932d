"""Means with their intervals: the t interval at any confidence."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy import special

CONFIDENCE = 0.95  # of intervals and claims


class Interval(NamedTuple):
    low: float
    high: float

    @property
    def reversed(self) -> "Interval":
        """Return the interval of the number with the other sign."""
        return Interval(-self.high, -self.low)


@dataclass(frozen=True)
class StudentT:
    """t interval of a mean. error: its standard error. least, most: what the mean can be."""

    error: float
    freedom: float
    least: float = -math.inf
    most: float = math.inf

    @property
    def reversed(self) -> "StudentT":
        return replace(self, least=-self.most, most=-self.least)

    def interval(self, mean: float, confidence: float) -> Interval:
        half = float(special.stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return Interval(max(self.least, mean - half), min(self.most, mean + half))


@dataclass(frozen=True)
class Estimate:
    """Mean with its interval and the standard deviation of the n values.

    None stands for what cannot be known from so few values, or from proportions that are all alike.
    """

    mean: float
    interval: Interval | None
    sd: float | None
    n: int


def estimate(values: Iterable[float], *, proportion: bool = False) -> Estimate:
    """Estimate the mean of finite, independent values, such as one group's losses, with its t interval."""
    array = np.array(list(values))
    n, mean = len(array), float(array.mean())
    if n == 1:
        return Estimate(mean, None, None, n)
    sd = float(array.std(ddof=1))
    method = StudentT(sd / math.sqrt(n), n - 1, *((0.0, 1.0) if proportion else ()))
    return Estimate(mean, method.interval(mean, CONFIDENCE) if sd else None, sd, n)
