"""Losses of models that need no training, which a decoder must beat."""

import math

import torch
from torch import Tensor

_MOST = 1 << 21  # tokens that are counted, and that are predicted: more would change little, and take memory


def untrained_losses(train: Tensor, validation: Tensor, vocabulary_size: int) -> dict[str, float]:
    """Return the losses of models that a decoder must beat, by name, in nats per token, on `validation` (N,).

    uniform: every token is as likely as any other; unigram: as likely as it is frequent in `train`; bigram: ... after
    the token before it. Unseen events get their share by Witten and Bell's rule (1991, method C): N counts of which T
    are different tokens leave the weight T / (N + T) to the next simpler model.

        p(w)     = (count(w) + T / V) / (N + T)
        p(w | h) = (count(h w) + T(h) p(w)) / (count(h) + T(h))          T(h): different tokens seen after h

    train, validation: ids below vocabulary_size, at least 2 each; of longer texts the first two million count.
    """
    train, validation = (tokens[:_MOST].to(torch.int64) for tokens in (train, validation))
    before, token = validation[:-1], validation[1:]  # (N - 1,)
    counts = train.bincount(minlength=vocabulary_size).double()
    types = float((counts > 0).sum())
    unigram = (counts + types / vocabulary_size) / (len(train) + types)  # (V,)

    pairs, pair_counts = (train[:-1] * vocabulary_size + train[1:]).unique(return_counts=True)  # ascending
    contexts = train[:-1].bincount(minlength=vocabulary_size)  # (V,): how often each token has a next one
    followers = (pairs // vocabulary_size).bincount(minlength=vocabulary_size)  # (V,): how many different ones
    pair = before * vocabulary_size + token
    index = torch.searchsorted(pairs, pair).clamp(max=len(pairs) - 1)
    seen = torch.where(pairs[index] == pair, pair_counts[index], 0)  # (N - 1,)
    # After a token that training never saw before another one, only the unigram is left.
    bigram = torch.where(
        contexts[before] > 0,
        (seen + followers[before] * unigram[token]) / (contexts[before] + followers[before]).clamp(min=1),
        unigram[token],
    )
    return {
        "uniform": math.log(vocabulary_size),
        "unigram": -float(unigram[token].log().mean()),
        "bigram": -float(bigram.log().mean()),
    }
