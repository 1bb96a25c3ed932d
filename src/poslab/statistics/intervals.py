"""Intervals, and the t interval of a mean at any confidence."""

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
