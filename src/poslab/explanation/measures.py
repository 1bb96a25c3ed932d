"""Measures of what a model does: attention by distance, and ablations of the text that it reads.

L layers, H heads, T tokens, N questions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.evaluation.losses import BATCH_TOKENS
from poslab.evaluation.pictures import attention_maps
from poslab.explanation.probe_data import Questions
from poslab.model.decoder import GPT
from poslab.progress import progress

MASS = 0.9  # of the attention, within the receptive field
_REPEATED = 8  # tokens whose repetitions are read

Change = Callable[[Questions, int], Questions]


@dataclass(frozen=True, eq=False)
class AttentionMeasures:
    """Attention of the queries in the second half of each window."""

    by_distance: Tensor  # (L, H, T): mean weight of the key so far back, where there is one
    alone: Tensor  # (L, H, T): the same in texts of one token again and again, where only position tells keys apart
    even: Tensor  # (T,): the same if all keys got the same weight
    reach: Tensor  # (L, H): tokens, the query's own included, that hold MASS of the weight
    even_reach: int
    first: Tensor  # (L, H): weight of the first token of the text

    @property
    def sharpest(self) -> "Sharpest":
        """Return the head that looks most at one distance, of those that every query has a key at."""
        near = self.by_distance[..., : max(1, self.by_distance.shape[-1] // 2)]
        layer, head, distance = (int(index) for index in torch.unravel_index(near.argmax(), near.shape))
        agreeing = int((near.argmax(-1) == distance).sum())
        return Sharpest(layer, head, distance, float(near.max()), float(self.even[distance]), agreeing)


class Sharpest(NamedTuple):
    """Head that has more of its attention at one distance than any other head at any. weight: the mean of what it has
    there; even: the same if all keys got the same weight; agreeing: how many heads, it included, have most there."""

    layer: int
    head: int
    distance: int
    weight: float
    even: float
    agreeing: int

    @property
    def is_peak(self) -> bool:
        """Return whether the weight is far from that of attention to all keys alike."""
        return self.weight > max(0.2, 3 * self.even)


@dataclass(frozen=True, eq=False)
class Ablation:
    """Results of one change of the text, at several sizes.

    values (P,): mean loss in nats or, if `exact`, proportion of right answers. differences and errors (P,): from the
    unchanged text, and the standard error of that over questions.
    """

    exact: bool
    sizes: list[int]  # tokens left, or the offset
    values: Tensor
    differences: Tensor
    errors: Tensor


def attention(model: GPT, windows: Tensor) -> AttentionMeasures:
    """Measure attention on windows (B, T)."""
    length = windows.shape[-1]
    by_distance, mass, first = _by_distance(model, windows)
    tokens = windows.flatten().bincount().argsort(descending=True)[:_REPEATED]
    alone, _, _ = _by_distance(model, tokens[:, None].expand(-1, length))
    alike = torch.ones(1, 1, length, length).tril()
    even, even_mass, _ = _gathered(alike / alike.sum(-1, keepdim=True))
    even_reach = int(_reach(even_mass))
    return AttentionMeasures(by_distance, alone, even[0, 0], _reach(mass), even_reach, first)


def _reach(mass: Tensor) -> Tensor:
    """Return the number (...) of nearest keys that hold MASS, from weights by distance (..., T)."""
    share = MASS * mass.sum(-1, keepdim=True)  # of what doesn't go to nobody
    return ((mass.cumsum(-1) < share - 1e-6).sum(-1) + 1).clamp(max=mass.shape[-1])


def _by_distance(model: GPT, windows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the means of `_gathered` over windows (B, T)."""
    by_window = [_gathered(attention_maps(model, window)) for window in windows]
    by_distance, mass, first = (torch.stack(measures).mean(0) for measures in zip(*by_window, strict=True))
    return by_distance, mass, first


def _gathered(maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return, from maps (L, H, T, T), by distance (L, H, T) the mean weight where there is a key, and the mean over all
    queries, which sums to 1 or less; and the weight (L, H) of the first token."""
    length = maps.shape[-1]
    queries = range(length // 2, length)
    mass, keys = torch.zeros(*maps.shape[:2], length), torch.zeros(length)
    for query in queries:
        mass[..., : query + 1] += maps[..., query, : query + 1].flip(-1)
        keys[: query + 1] += 1
    return mass / keys, mass / len(queries), maps[..., queries.start :, 0].mean(-1)


def ablation(model: GPT, questions: Sequence[Questions], exact: bool, change: Change, sizes: list[int]) -> Ablation:
    """Measure a change of each size beside the unchanged questions. exact: proportions of right answers rather than
    losses."""
    plain = _results(model, questions, exact)
    changed = torch.stack(
        [
            _results(model, [change(batch, size) for batch in questions], exact)
            for size in progress(sizes, "changing the text, sizes")
        ]
    )
    difference = changed - plain  # (P, N)
    errors = difference.std(-1) / difference.shape[-1] ** 0.5 if len(plain) > 1 else torch.zeros(len(changed))
    return Ablation(exact, sizes, changed.mean(-1), difference.mean(-1), errors)


@torch.no_grad()
def _results(model: GPT, questions: Sequence[Questions], exact: bool) -> Tensor:
    """Return the loss (N,) of each question, or 1 where the likeliest answer is right and 0 elsewhere."""
    results = []
    for tokens, wanted, positions in questions:
        rows = max(1, BATCH_TOKENS // tokens.shape[-1])
        starts = range(0, len(tokens), rows)
        row_positions = [None if positions is None else positions[start : start + rows] for start in starts]
        batches = zip(tokens.split(rows), row_positions, strict=True)
        with model.position.drawing(0):
            hidden = torch.cat([model.read(batch, at)[:, -1] for batch, at in batches])
        logits = F.linear(hidden, model.head_weight).float()
        losses = F.cross_entropy(logits, wanted, reduction="none")
        results.append((logits.argmax(-1) == wanted).float() if exact else losses)
    return torch.cat(results)


def truncated(batch: Questions, n: int) -> Questions:
    """Keep only the last n tokens."""
    positions = None if batch.positions is None else batch.positions[:, -n:]
    return batch._replace(tokens=batch.tokens[:, -n:], positions=positions)


def shuffled(batch: Questions, n: int) -> Questions:
    """Put all tokens before the last n in a random order."""
    far, near = batch.tokens[:, :-n], batch.tokens[:, -n:]
    order = torch.rand(far.shape, generator=torch.Generator().manual_seed(n)).argsort(-1)
    return batch._replace(tokens=torch.cat([far.gather(-1, order), near], -1))


def shifted(batch: Questions, offset: int) -> Questions:
    """Add an offset to all positions."""
    positions = torch.arange(batch.tokens.shape[-1]) if batch.positions is None else batch.positions
    return batch._replace(positions=(positions + offset).expand(batch.tokens.shape))


def offsets(model: GPT, length: int, farthest: int) -> list[int]:
    """Return offsets of positions, as far as the scheme has them for texts of that length."""
    positions = model.pos.max_length(model.shape)
    return [0, *powers(4, farthest if positions is None else min(farthest, positions - length))]


def powers(base: int, highest: int) -> list[int]:
    """Return 1, base, base ** 2, ... below the highest, and the highest."""
    below = [base**n for n in range(32) if base**n < highest]
    return [*below, highest] if highest > 0 else []
