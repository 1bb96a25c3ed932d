"""The data module of a text: which windows train and validate, in which order, and texts too short for one;
and losses of the uniform, unigram and bigram models, against counting in Python."""

import math
import multiprocessing
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from corpora import VERDICT
from hypothesis import given
from hypothesis import strategies as st

from poslab.config.schema import DataConfig
from poslab.data.module import TextDataModule, untrained_losses
from poslab.errors import SettingError


def module_of(path: Path, cache: Path, context_length: int = 256, seed: int = 1, **settings: object) -> TextDataModule:
    return TextDataModule(DataConfig(str(path), cache_dir=str(cache), **settings), context_length, seed)


def test_split_comes_before_windows(tmp_path: Path) -> None:
    data = module_of(VERDICT, tmp_path, stride=64)
    assert len(data.train_windows) == len(range(0, 4612 - 256, 64))
    windows = list(data.validation_windows)
    assert len(windows) == 3  # side by side: 534 tokens, starts 0, 256 and 512
    assert torch.equal(data.corpus.validation[:-1].long(), torch.cat([inputs for _, inputs, _ in windows])[:533])


def test_order_depends_on_the_seed_alone(tmp_path: Path) -> None:
    def batches(seed: int, noise: int) -> list[torch.Tensor]:
        torch.manual_seed(noise)
        data = module_of(VERDICT, tmp_path, seed=seed, stride=64)
        return [batch[0] for batch in data.train_dataloader()]

    first, same, other = batches(1, noise=0), batches(1, noise=9), batches(2, noise=0)
    assert all(torch.equal(a, b) for a, b in zip(first, same, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_workers_change_nothing(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any start method gives the same batches: jobs of a sweep have another one."""
    monkeypatch.setattr(
        multiprocessing.context._default_context, "_actual_context", multiprocessing.get_context(method)
    )

    def two_epochs(workers: int) -> list[torch.Tensor]:
        data = module_of(VERDICT, tmp_path, stride=512, num_workers=workers)
        loader = data.train_dataloader()
        return [batch[0] for _ in range(2) for batch in loader]

    assert all(torch.equal(a, b) for a, b in zip(two_epochs(0), two_epochs(1), strict=True))


@pytest.mark.parametrize("context_length", [534, 5000])
def test_text_too_short_for_a_window(context_length: int, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"validation part .* 534 tokens; up to 533 would fit") as refusal:
        module_of(VERDICT, tmp_path, context_length)
    assert refusal.value.option == "model.context_length"
    assert len(module_of(VERDICT, tmp_path, 533).validation_windows) == 1
    assert len(module_of(VERDICT, tmp_path, 532).validation_windows) == 2
    with pytest.raises(SettingError, match=r"test part .* has only"):
        module_of(VERDICT, tmp_path, 32, test_share=0.001)


VOCABULARY = 7
texts = st.lists(st.integers(0, VOCABULARY - 1), min_size=2, max_size=60)


def by_counting(train: list[int], validation: list[int]) -> dict[str, float]:
    tokens, pairs = Counter(train), Counter(pairwise(train))
    contexts = Counter(train[:-1])

    def unigram(token: int) -> float:
        return (tokens[token] + len(tokens) / VOCABULARY) / (len(train) + len(tokens))

    def bigram(before: int, token: int) -> float:
        followers = len({pair for pair in pairs if pair[0] == before})
        if not followers:
            return unigram(token)
        return (pairs[before, token] + followers * unigram(token)) / (contexts[before] + followers)

    for before in range(VOCABULARY):
        assert sum(bigram(before, token) for token in range(VOCABULARY)) == pytest.approx(1)
    predicted = list(pairwise(validation))
    return {
        "uniform": math.log(VOCABULARY),
        "unigram": -sum(math.log(unigram(token)) for _, token in predicted) / len(predicted),
        "bigram": -sum(math.log(bigram(*pair)) for pair in predicted) / len(predicted),
    }


@given(texts, texts)
def test_untrained_losses_are_those_of_counting(train: list[int], validation: list[int]) -> None:
    losses = untrained_losses(torch.tensor(train), torch.tensor(validation, dtype=torch.int32), VOCABULARY)
    assert losses == pytest.approx(by_counting(train, validation))
