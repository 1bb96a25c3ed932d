"""Windows over tokens: by definition, of any type, and impossible ones."""

import pytest
import tiktoken
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poslab.data import SlidingWindowDataset
from poslab.data.windows import CoveringWindows
from poslab.errors import SettingError


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
    embedding = torch.nn.Embedding(case["vocab_size"], case["embedding_dim"])
    assert list(embedding(inputs).shape) == case["embedded_shape"]
    assert gpt2.n_vocab == case["vocab_size"]


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
        counted = targets != CoveringWindows.IGNORED
        assert torch.equal(targets[counted], inputs[counted] + 1)
        assert number == len(windows) - 1 or counted.all()
        predicted += targets[counted].tolist()
    assert sorted(set(predicted)) == text[1:].tolist()
    assert stride < length or len(predicted) == count - 1
    assert windows[-1][0] == 0 or targets[length - stride] != CoveringWindows.IGNORED  # no window too many


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_windows_are_int64_whatever_the_tokens_are(dtype: torch.dtype) -> None:
    window, target = SlidingWindowDataset(torch.arange(20, dtype=dtype), 5, 3)[1]
    assert window.dtype == target.dtype == torch.int64
    assert (window.tolist(), target.tolist()) == ([3, 4, 5, 6, 7], [4, 5, 6, 7, 8])


def test_windows_store_nothing_but_the_array() -> None:
    token_ids = torch.zeros(10_000_000, dtype=torch.int32)
    dataset = SlidingWindowDataset(token_ids, 1024, 1)
    assert len(dataset) == 10_000_000 - 1024
    assert dataset.token_ids.data_ptr() == token_ids.data_ptr()
    assert set(vars(dataset)) == {"token_ids", "max_length", "stride"}


@pytest.mark.parametrize(("max_length", "stride"), [(0, 1), (1, 0), (-1, 1)])
def test_impossible_windows(max_length: int, stride: int) -> None:
    with pytest.raises(SettingError):
        SlidingWindowDataset([1, 2, 3], max_length, stride)
