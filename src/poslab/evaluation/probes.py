"""Places in a text that only a reader with a long memory predicts well, in bins by how far back it must remember.

A probe is a function of the tokens' bytes, in the text's order, that gives the numbers of such tokens by bin; none
where the text has no such places. Bins are in tokens, as contexts are, so a probe is of any encoding.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from poslab.data.vocabulary import AnyVocabulary

BINS = (64, 128, 256, 512, 1024)
NEVER = "never before"
_NAMES = [f"< {BINS[0]}", *(f"{low} to {high}" for low, high in pairwise(BINS)), f"≥ {BINS[-1]}"]
_FEWEST = 10  # speech heads: with fewer, it is no play
_MOST_NAMES = 0.5  # of the heads: in a play names come again, other words in such a place, as in source code, seldom do

# A line of a name and a colon after an empty line, or at the very beginning.
_SPEECH_HEAD = re.compile(rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))[^\s:][^\n\r:]{0,39}:(?=\r?\n)")

TokenNumbers = Mapping[str, Sequence[int]]  # numbers of tokens by bin


def speakers(pieces: Sequence[bytes]) -> dict[str, list[int]]:
    """The names at the heads of speeches in a play, by the distance from where that name last stood at one.

    Who speaks now often spoke before: the first letters say which of the speakers in sight it is, and the rest is to be
    copied. Half of the speakers of Shakespeare's plays come again after 330 characters.
    """
    ends = list(accumulate(map(len, pieces)))  # of the tokens, in bytes
    heads = list(_SPEECH_HEAD.finditer(b"".join(pieces)))
    names = {head[0] for head in heads}
    if len(heads) < _FEWEST or len(names) > _MOST_NAMES * len(heads):
        return {}
    bins: dict[str, list[int]] = {name: [] for name in (*_NAMES, NEVER)}
    last: dict[bytes, int] = {}
    for head in heads:
        first, end = bisect_right(ends, head.start()), bisect_right(ends, head.end() - 1) + 1
        before = last.get(head[0])
        name = NEVER if before is None else _NAMES[bisect_right(BINS, first - before)]
        bins[name] += range(max(1, first), end)  # nothing predicts the first token
        last[head[0]] = first
    return {name: numbers for name, numbers in bins.items() if numbers}


def places_in(tokens: Tensor, vocabulary: AnyVocabulary) -> dict[str, TokenNumbers]:
    """Each probe's places in a text of (N,) tokens, without probes that have none there."""
    pieces = {token: vocabulary.decode_bytes([token]) for token in tokens.to(torch.int32).unique().tolist()}
    found = {name: probe([pieces[token] for token in tokens.tolist()]) for name, probe in PROBES.items()}
    return {name: places for name, places in found.items() if places}


PROBES: dict[str, Callable[[Sequence[bytes]], TokenNumbers]] = {"speakers": speakers}
