"""Windows over tokens: by definition, of any type, and impossible ones; and samplers: permutations that are computed
position by position, and resume anywhere."""

import tracemalloc

import pytest
import tiktoken
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poslab.data import SlidingWindowDataset
from poslab.data.windows import ContiguousRows, CoveringWindows, SeekableSampler, Shuffled, Steps
from poslab.errors import SettingError
from poslab.metric import IGNORED


def test_reference_windows(reference_cases: dict, gpt2: tiktoken.Encoding) -> None:
    case = reference_cases["sliding_window"]
    token_ids = gpt2.encode_ordinary(case["text_start"])
    dataset = SlidingWindowDataset(token_ids, case["max_length"], case["stride"])
    windows = [dataset[i] for i in range(case["batch_size"])]
    inputs = torch.stack([window for window, _ in windows])
    assert inputs.tolist() == case["inputs"]
    assert inputs.dtype == torch.int64
    for i, (_, target) in enumerate(windows):
        assert target.tolist() == token_ids[4 * i + 1 : 4 * i + 5]


@given(length=st.integers(0, 40), max_length=st.integers(1, 12), stride=st.integers(1, 15))
@settings(max_examples=200, deadline=None)
def test_windows_by_definition(length: int, max_length: int, stride: int) -> None:
    token_ids = list(range(100, 100 + length))
    dataset = SlidingWindowDataset(token_ids, max_length, stride)
    expected = []
    start = 0
    while start + max_length < length:
        expected.append((token_ids[start : start + max_length], token_ids[start + 1 : start + max_length + 1]))
        start += stride
    assert len(dataset) == len(expected)
    assert [(x.tolist(), y.tolist()) for x, y in dataset] == expected
    if expected:
        assert dataset[-1][0].tolist() == expected[-1][0]


@given(count=st.integers(2, 40), length=st.integers(1, 45), stride=st.integers(1, 45))
@settings(max_examples=200, deadline=None)
def test_covering_windows_predict_every_token_but_the_first(count: int, length: int, stride: int) -> None:
    text, stride = torch.arange(100, 100 + count, dtype=torch.int32), min(stride, length)
    windows = list(CoveringWindows(text, length, stride))
    predicted: list[int] = []
    for number, (index, inputs, targets) in enumerate(windows):
        assert index == number
        assert inputs.dtype == targets.dtype == torch.int64
        assert inputs.shape == targets.shape == (length,)
        counted = targets != IGNORED
        assert torch.equal(targets[counted], inputs[counted] + 1)
        assert number == len(windows) - 1 or counted.all()
        predicted += targets[counted].tolist()
    assert sorted(set(predicted)) == text[1:].tolist()
    assert stride < length or len(predicted) == count - 1
    assert windows[-1][0] == 0 or targets[length - stride] != IGNORED  # no window too many


@pytest.mark.parametrize(("max_length", "stride"), [(0, 1), (1, 0), (-1, 1)])
def test_impossible_windows(max_length: int, stride: int) -> None:
    with pytest.raises(SettingError):
        SlidingWindowDataset([1, 2, 3], max_length, stride)


def order_of(count: int, seed: int, epoch: int = 0) -> torch.Tensor:
    return Shuffled(count, seed).indices(epoch, torch.arange(count))


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16, 17, 1000, 4097])
def test_every_index_comes_once(count: int) -> None:
    for seed, epoch in ((1, 0), (2**32 - 1, 7)):
        order = order_of(count, seed, epoch)
        assert order.dtype == torch.int64
        assert order.sort().values.tolist() == [*range(count)]


def test_another_seed_or_epoch_has_another_order() -> None:
    orders = {tuple(order_of(1000, seed, epoch)[:20].tolist()) for seed in range(5) for epoch in range(5)}
    assert len(orders) == 25


def test_positions_tell_nothing_of_indices() -> None:
    """Each of 5 indices comes at each position, and each pair follows another, about as often over many seeds."""
    seeds = 600
    orders = torch.stack([order_of(5, seed) for seed in range(seeds)])
    at = torch.stack([(orders == index).sum(0) for index in range(5)])  # (index, position)
    deviation = (seeds * 0.2 * 0.8) ** 0.5
    assert (at - seeds / 5).abs().max() < 4.5 * deviation
    of_two = (orders[:, 0] * 5 + orders[:, 1]).bincount(minlength=25).view(5, 5)
    assert of_two.diagonal().sum() == 0
    others = of_two[~torch.eye(5, dtype=torch.bool)]
    assert (others - seeds / 20).abs().max() < 4.5 * (seeds / 20) ** 0.5


def test_a_large_order_is_no_pattern() -> None:
    count = 10**6
    order = order_of(count, 1)
    both = torch.stack([order[:-1], order[1:]]).double()
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.005  # five standard deviations
    assert abs(float(torch.corrcoef(torch.stack([order, torch.arange(count)]).double())[0, 1])) < 0.005


def test_a_billion_windows_cost_nothing() -> None:
    tracemalloc.start()
    windows = Shuffled(10**9, seed=1)
    windows.go_to(epoch=500, start=10**9 - 5)
    last = list(iter(windows))  # list(windows) makes room for as many as there are in all
    first = [index for index, _ in zip(windows, range(5), strict=False)]
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
    assert last == windows.indices(500, torch.arange(10**9 - 5, 10**9)).tolist()
    assert first == windows.indices(501, torch.arange(5)).tolist()


@pytest.mark.parametrize(
    "sampler",
    [Shuffled(100_000, seed=5), ContiguousRows(100_003, 4), Steps(100_000)],
    ids=lambda sampler: type(sampler).__name__,
)
def test_resumes_anywhere(sampler: SeekableSampler) -> None:
    epochs = [list(sampler) for _ in range(4)]
    assert {len(epoch) for epoch in epochs} == {len(sampler)} == {100_000}
    for epoch, start in ((2, 30), (0, 99_999), (3, 0)):
        sampler.go_to(epoch, start)
        sampler.set_epoch(epoch)  # as Lightning does, which doesn't start the epoch anew
        assert list(sampler) == epochs[epoch][start:]
        assert sampler.epoch == epoch + 1
        sampler.set_epoch(1)
        assert list(sampler) == epochs[1]


def test_rows_are_contiguous_and_steps_count_on() -> None:
    rows = [0, 5, 10, 15, 1, 6, 11, 16, 2, 7, 12, 17, 3, 8, 13, 18, 4, 9, 14, 19]
    assert list(ContiguousRows(23, 4)) == rows
    steps = Steps(3)
    assert [*steps, *steps] == [*range(6)]
