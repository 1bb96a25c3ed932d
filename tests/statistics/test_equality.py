"""Equality within a margin: against two one-sided t tests of scipy."""

import pytest
from scipy import stats

from poslab.statistics.equality import equality

DIFFERENCES = [0.01, -0.012, 0.004, 0.006, -0.001]


@pytest.mark.parametrize("margin", [0.005, 0.02])
@pytest.mark.parametrize("shift", [-0.03, 0.0, 0.01])
def test_two_one_sided_tests(margin: float, shift: float) -> None:
    gaps = [gap + shift for gap in DIFFERENCES]
    too_high = stats.ttest_1samp(gaps, margin, alternative="less").pvalue
    too_low = stats.ttest_1samp(gaps, -margin, alternative="greater").pvalue
    assert equality(gaps, margin).p_value == pytest.approx(max(too_high, too_low))


def test_smallest_margin_is_just_shown() -> None:
    found = equality(DIFFERENCES, 0.02)
    assert found.smallest_margin is not None
    assert equality(DIFFERENCES, found.smallest_margin).p_value == pytest.approx(0.05)
    of_ten = equality(DIFFERENCES, 0.02, alpha=0.005)
    assert equality(DIFFERENCES, of_ten.smallest_margin).p_value == pytest.approx(0.005)


@pytest.mark.parametrize("gaps", [[0.01], [0.0, 0.0, 0.0], [0.01, 0.01]], ids=str)
def test_an_unknown_spread_shows_nothing(gaps: list[float]) -> None:
    found = equality(gaps, 0.02)
    assert (found.p_value, found.smallest_margin, found.n) == (None, None, len(gaps))


def test_margins_are_above_0() -> None:
    for gaps, margin in (([], 0.1), (DIFFERENCES, 0.0)):
        with pytest.raises(ValueError, match="margin above 0"):
            equality(gaps, margin)
