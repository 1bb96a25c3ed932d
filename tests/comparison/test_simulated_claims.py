"""Claims on simulated sweeps are false as rarely as promised, and true as often: figures of `simulated_claims.py`."""

import numpy as np
import pytest

from poslab.statistics.families import one_family
from poslab.statistics.paired import paired
from simulated_claims import (
    BLOCKS,
    GROUPS,
    NOISES,
    SEEDS,
    SPREADS,
    claims,
    crossed,
    false_claims,
    false_claims_of_survivors,
    false_claims_of_text,
    misses,
    pairs_of,
    power,
    sweeps,
)

COUNT = 4000
BY_CHANCE = 3 * (0.05 * 0.95 / COUNT) ** 0.5  # three standard errors of a share of 5 %


@pytest.mark.parametrize("effects", [(0, 0, 0, 0), (0, 0, 3, -3)])
def test_what_is_simulated_is_what_poslab_claims(effects: tuple[float, ...]) -> None:
    losses = sweeps(np.random.default_rng(0), NOISES["normal"], 60, effects)
    for all_pairs in (False, True):
        pairs = pairs_of(len(effects), all_pairs)
        found = []
        for sweep in losses:
            by_seed = [dict(enumerate(of_group)) for of_group in sweep]
            (tested,) = one_family([paired({(a, b): (by_seed[b], by_seed[a]) for a, b in pairs})])
            found.append([np.sign(d.mean) if d.significant else 0 for d in tested.values()])
        assert np.array_equal(claims(losses, pairs), found)
        assert np.any(found) or not any(effects)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("all_pairs", [False, True])
@pytest.mark.parametrize("effects", [(0,) * GROUPS, (0, 0, 0, 3, 6)], ids=["alike", "some differ"])
def test_any_false_claim(noise: str, all_pairs: bool, effects: tuple[float, ...]) -> None:
    rate = false_claims(NOISES[noise], COUNT, all_pairs=all_pairs, effects=effects)
    assert 0.001 < rate <= 0.05 + BY_CHANCE


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("ratio", [0.8, 1.5])
def test_power_is_as_stated(noise: str, ratio: float) -> None:
    """At least 80 % where noise is normal or has long tails; with few seeds that are skewed a little less."""
    assert power(NOISES[noise], COUNT, ratio) > 0.75


@pytest.mark.parametrize("noise", NOISES)
def test_survivors_are_not_taken_for_all(noise: str) -> None:
    """A scheme of which the bad runs diverge is not called better for the good ones."""
    count = 200
    assert false_claims_of_survivors(NOISES[noise], count) <= 0.05 + 3 * (0.05 * 0.95 / count) ** 0.5


def test_survivors_alone_would_mislead() -> None:
    assert false_claims_of_survivors(NOISES["normal"], 100, counted=False) > 0.1


# Other text


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("spread", SPREADS)
def test_any_false_claim_for_other_text(noise: str, spread: str) -> None:
    """Also where the schemes do differ on this text, as most seeds agree."""
    assert false_claims_of_text(NOISES[noise], COUNT // 8, SPREADS[spread]) <= 0.05 + BY_CHANCE * 8**0.5


def test_claims_over_seeds_are_none_for_other_text() -> None:
    assert false_claims_of_text(NOISES["normal"], COUNT // 8, SPREADS["text alone"], over_text=False) > 0.5


# Differences that are skewed themselves, which those of equal schemes are not, fool intervals of few seeds.
MOST_MISSES = {"normal": 0.065, "t(3)": 0.065, "skewed": 0.13}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("spread", [*SPREADS.values(), (0.2, 1, 3)], ids=str)
@pytest.mark.parametrize(("seeds", "of_text"), [(3, 10), (SEEDS, BLOCKS)])
def test_coverage_of_seeds_and_text(noise: str, spread: tuple[float, ...], seeds: int, of_text: int) -> None:
    """Wider than need be where little but the rest varies."""
    rate = misses(crossed(np.random.default_rng(1), NOISES[noise], (2000, seeds, of_text), spread))
    assert 0.01 < rate <= MOST_MISSES[noise] + BY_CHANCE
