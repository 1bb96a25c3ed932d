"""Runs that failed: they are named before a mean that they make misleading."""

import math

import numpy as np
import pytest
from tables import compared, rows

from seedstats import headline
from seedstats.section import Section
from seedstats.statistics.failures import failed_seeds
from simulations.estimates import failures_named
from simulations.sweeps import NOISES, correlated

SPEEDS = {"metric": "speed", "unit": "tokens", "better": "higher"}


def drawn(seeds: int = 10, names: str = "abc", scale: float = 1.0, seed: int = 0) -> dict[str, dict[int, float]]:
    noise = scale * np.random.default_rng(seed).normal(size=(len(names), seeds))
    return {name: dict(enumerate(of.tolist(), start=1)) for name, of in zip(names, noise, strict=True)}


def test_one_run_in_ten_by_twenty_sd_stands_before_the_mean() -> None:
    values = drawn()
    values["a"][4] += 20
    one = compared(rows(values))
    assert one.failed == {"a": [4]}
    first, answer = headline(one).split(": ", 1)
    assert first.startswith("1 of 10 seeds of a failed")
    assert answer.startswith(f"its median is {np.median(list(values['a'].values())):.1f}.")
    table = Section("", one).table
    row = next(dict(zip(table.columns, row, strict=True)) for row in table.rows if row[0] == "a")
    assert row["failed"] == "1 of 10"
    assert [*row].index("failed") < [*row].index("median") < [*row].index("loss")


def test_three_seeds_that_are_alike_make_no_failure_of_the_next_one() -> None:
    """Runs of one seed share their batches, so that a seed may be worse for all of them."""
    losses = {"learned_alibi": (3.1484, 3.1601, 3.1491), "alibi": (3.1483, 3.1603, 3.1489)}
    losses["rope"] = (3.1517, 3.1615, 3.1537)
    values = {name: dict(enumerate(of, start=1)) for name, of in losses.items()}
    assert failed_seeds(values, 1) == {}
    values["rope"][2] = 9.0  # what blew up is told from three seeds, too
    assert failed_seeds(values, 1) == {"rope": [2]}


def test_a_run_that_is_less_than_what_matters_worse_did_not_fail() -> None:
    values = drawn(scale=0.0001)
    values["a"][4] += 0.015
    assert failed_seeds(values, 1) == {"a": [4]}
    assert compared(rows(values), effect=0.02).failed == {}


@pytest.mark.parametrize("correlation", [0.0, 0.99])
@pytest.mark.parametrize(("groups", "seeds"), [(2, 8), (3, 3), (3, 5), (8, 3)])
def test_at_most_two_pages_of_a_thousand_name_a_failure_by_chance(groups: int, seeds: int, correlation: float) -> None:
    count = 2000
    named = failures_named(correlated(correlation), groups, seeds, count)
    assert named <= 0.002 + 3 * (0.002 / count) ** 0.5


@pytest.mark.parametrize("groups", [2, 3])
def test_one_run_in_ten_by_twenty_sd_is_named_among_ten_seeds(groups: int) -> None:
    assert failures_named(NOISES["normal"], groups, 10, 200, worse=20) > 0.95


@pytest.mark.parametrize("sign", [1, -1])
def test_only_runs_on_the_worse_side_fail(sign: int) -> None:
    values = drawn()
    values["b"][2] += sign * 30
    assert failed_seeds(values, 1) == ({"b": [2]} if sign == 1 else {})
    assert failed_seeds(values, -1) == ({} if sign == 1 else {"b": [2]})


def test_noise_is_no_failure() -> None:
    """Nor that of one group which is five times as noisy, nor of two modes, nor of proportions, which have ends."""
    assert not any(failed_seeds(drawn(seed=seed), 1) for seed in range(200))
    noisy = [drawn(seed=seed) | drawn(names="d", scale=5, seed=seed) for seed in range(200)]
    assert not any(failed_seeds(values, 1) for values in noisy)
    modes = {name: {seed: x + 10 * (seed % 2) for seed, x in of.items()} for name, of in drawn().items()}
    assert failed_seeds(modes, 1) == {}
    shares = {"a": [0.9] * 9 + [0.0], "b": [0.91] * 10}
    assert compared(rows(shares, {"metric": "exact", "unit": "of all", "better": "higher"})).failed == {}
    assert failed_seeds({"a": {1: 0.0, 2: 0.0, 3: 50.0}}, 1) == {}  # too few runs to know the spread


def test_columns_have_as_many_digits_as_their_intervals_are_wide() -> None:
    values = {name: {seed: 12_000 + 100 * x for seed, x in of.items()} for name, of in drawn().items()}
    table = Section("", compared(rows(values, SPEEDS))).table
    for row in table.rows:
        cells = dict(zip(table.columns, row, strict=True))
        assert "." not in f"{cells['speed']}{cells['95 % interval, each alone']}{cells['difference']}"
    small = {name: {seed: x / 1000 for seed, x in of.items()} for name, of in drawn().items()}
    table = Section("", compared(rows(small, SPEEDS))).table
    digits = {len(dict(zip(table.columns, row, strict=True))["speed"].partition(".")[2]) for row in table.rows}
    assert digits == {math.ceil(-math.log10(0.0015)) + 1}
