"""Losses of the uniform, unigram and bigram models, against counting in Python."""

import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poslab.data.baselines import untrained_losses

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
