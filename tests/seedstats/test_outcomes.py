"""What is known of two groups with missing and diverged seeds."""

import math

from seedstats.statistics.outcomes import outcomes_of


def test_outcomes_of_a_pair() -> None:
    found = outcomes_of({1: 4.0, 2: math.inf, 3: math.inf}, {1: 3.0, 2: 4.0, 3: math.inf, 5: 1.0}, range(1, 6))
    assert (found.planned, found.missing, found.diverged) == (5, (4, 5), (2, 1))
    assert found.differences == (1.0, math.inf, 0.0)
    assert found.reversed.differences == (-1.0, -math.inf, 0.0)
    assert found.reversed.diverged == (1, 2)
    assert (found.leaning, found.reversed.leaning) == (5.0, -5.0)
