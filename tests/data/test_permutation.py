"""Orders that are computed place by place."""

import tracemalloc

import pytest
import torch

from poslab.data.permutation import Permutation
from poslab.data.samplers import Shuffled


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097])
def test_every_number_comes_once(count: int) -> None:
    for seed, epoch in ((1, 0), (2**32 - 1, 7)):
        order = Permutation(count, seed, epoch)[:]
        assert order.dtype == torch.int64
        assert order.sort().values.tolist() == [*range(count)]


def test_any_part_is_that_of_the_whole() -> None:
    order = Permutation(1000, 3, 1)
    whole = order[:]
    assert len(order) == 1000
    for places in (slice(0, 10), slice(990, 2000), slice(5, 900, 7), slice(4, 4)):
        assert torch.equal(order[places], whole[places])


def test_orders_of_other_seeds_and_epochs_are_others() -> None:
    orders = {tuple(Permutation(1000, seed, epoch)[:20].tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_places_tell_nothing_of_numbers() -> None:
    """Each of 5 numbers comes at each place, and each pair follows another, about as often over many seeds."""
    seeds = 1500
    orders = torch.stack([Permutation(5, seed, 0)[:] for seed in range(seeds)])
    at = torch.stack([(orders == number).sum(0) for number in range(5)])  # (number, place)
    deviation = (seeds * 0.2 * 0.8) ** 0.5
    assert (at - seeds / 5).abs().max() < 4.5 * deviation
    of_two = (orders[:, 0] * 5 + orders[:, 1]).bincount(minlength=25).view(5, 5)
    assert of_two.diagonal().sum() == 0
    others = of_two[~torch.eye(5, dtype=torch.bool)]
    assert (others - seeds / 20).abs().max() < 4.5 * (seeds / 20) ** 0.5


def test_a_large_order_is_no_pattern() -> None:
    count = 10**6
    order = Permutation(count, 1, 0)[:]
    both = torch.stack([order[:-1], order[1:]]).double()
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.005  # five standard deviations
    assert abs(float(torch.corrcoef(torch.stack([order, torch.arange(count)]).double())[0, 1])) < 0.005


def test_a_billion_windows_cost_nothing() -> None:
    tracemalloc.start()
    windows = Shuffled(10**9, seed=1)
    windows.resume_at(epoch=500, start=10**9 - 5)
    last = list(iter(windows))  # list(windows) makes room for as many as there are in all
    first = [index for index, _ in zip(windows, range(5), strict=False)]
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    assert last == Permutation(10**9, 1, 500)[10**9 - 5 :].tolist()
    assert first == Permutation(10**9, 1, 501)[:5].tolist()


def test_fewer_windows_keep_the_order_that_they_had(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = list(Shuffled(100, seed=1))
    monkeypatch.setattr(Shuffled, "MOST_DRAWN", 99)
    assert list(Shuffled(100, seed=1)) == Permutation(100, 1, 0)[:].tolist() != drawn
    assert Shuffled.MOST_DRAWN * 8 < 1e9
