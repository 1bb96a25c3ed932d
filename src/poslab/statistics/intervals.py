"""Intervals of a mean, and of the difference of two means, at any confidence."""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from scipy import special


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
class TwoShares:
    """Interval of the difference of two independent proportions, each of n trials.

    By Newcombe (1998), "Interval estimation for the difference between independent proportions", method 10, which
    combines Wilson's intervals. It has a width also where all trials agree.
    """

    first: float
    second: float
    n: int

    @property
    def reversed(self) -> "TwoShares":
        return TwoShares(self.second, self.first, self.n)

    def interval(self, mean: float, confidence: float) -> Interval:
        """Return the interval of first - second, which is `mean`."""
        a, b = wilson(self.first, self.n, confidence), wilson(self.second, self.n, confidence)
        below = math.hypot(self.first - a.low, b.high - self.second)
        above = math.hypot(a.high - self.first, self.second - b.low)
        return Interval(max(-1.0, mean - below), min(1.0, mean + above))


def wilson(share: float, n: int, confidence: float) -> Interval:
    """Return the score interval of a proportion (Wilson 1927)."""
    z = float(special.ndtri((1 + confidence) / 2))
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Interval((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n))
