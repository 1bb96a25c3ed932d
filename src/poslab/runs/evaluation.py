"""evaluation.json: losses by length and position."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from poslab.config.schema import EvaluationConfig
from poslab.metric import LAST_TOKENS_LOSS, MEMORY_LOSS
from poslab.runs.folder import EVALUATION
from poslab.runs.readers import read_mapping, values_of


@dataclass(frozen=True)
class LengthLoss:
    """Losses, in nats per token, of windows of one length; None if they can't be measured, for the reason in `note`.

    last: how many tokens at the end of a window count in last_loss; None if not known.
    """

    length: int
    stride: int
    loss: float | None = None  # of consecutive windows
    sliding_loss: float | None = None
    by_position: list[float] | None = None  # mean loss at each place of a full window, over all sliding windows
    windows: int = 0  # that by_position is a mean over
    last: int | None = None
    last_loss: float | None = None  # of the same tokens at every length
    note: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Losses of one model on one text, in nats.

    most_tokens: the limit that `every_stretch` and `window_ends` have kept to; None: all tokens count at each length.
    memory_losses: mean loss of all tokens, by how many tokens are remembered. weights_sha256: of the model's
    parameters. settings: those of its scheme that are others than in training; trained_with: the same ones, as they
    were then.
    """

    context_length: int
    tokens: int  # of the text, but the first
    lengths: list[LengthLoss]
    weights_sha256: str
    most_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    trained_with: dict[str, Any] = field(default_factory=dict)
    memory_losses: dict[str, float] = field(default_factory=dict)

    @property
    def last_losses(self) -> dict[int, float]:
        """Return the loss of the same last tokens by length: only the context differs."""
        return {result.length: result.last_loss for result in self.lengths if result.last_loss is not None}

    @property
    def context_gains(self) -> dict[int, float]:
        """Return by length how much a longer context than that of training lowers the last loss, nats."""
        losses = self.last_losses
        trained = losses.get(self.context_length)
        return {} if trained is None else {n: trained - loss for n, loss in losses.items() if n > self.context_length}

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Return the figures that summary.json keeps, by metric and length."""
        by_length = {str(length): loss for length, loss in self.last_losses.items()}
        return {name: by for name, by in ((LAST_TOKENS_LOSS, by_length), (MEMORY_LOSS, self.memory_losses)) if by}

    def plain(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value != {}}


def read_evaluation(folder: Path, sha256: str | None = None, file: str = EVALUATION) -> Evaluation | None:
    """Read the folder's evaluation of the text with that hash, or of any; None if there is no whole one."""
    try:
        plain = read_mapping(folder / file, json.loads)
        values = values_of(Evaluation, plain)
        lengths = [LengthLoss(**values_of(LengthLoss, result)) for result in values.pop("lengths")]
    except ValueError:
        return None
    return Evaluation(lengths=lengths, **values) if sha256 in (None, plain.get("text_sha256")) else None


# Which tokens count

STRETCH = 1024  # tokens that follow each other and count together
LAST_TIMES = (1, 2, 4, 8)  # the training length, for losses of last tokens


def every_stretch(tokens: int, most: int | None) -> int:
    """Return n for which every n-th stretch of STRETCH tokens of a text counts: at most about `most` tokens in all."""
    return 1 if most is None else max(1, math.ceil(tokens / max(most, STRETCH)))


def window_ends(context: int, tokens: int, last: int, most: int | None) -> range:
    """Return the positions of the last targets of windows whose `last` tokens count at every length, evenly spread.

    They lie so far into the text that all windows end there; at most about half as many tokens as `most` count.
    """
    reach = last_reach(context, tokens)
    if not reach:
        return range(0)
    ends = range(reach, tokens + 1, max(last, reach // 2))
    return ends if most is None else ends[:: max(1, math.ceil(2 * len(ends) * last / most))]


def last_reach(context: int, targets: int) -> int:
    """Return the longest window whose last tokens are measured, in a text of so many targets; 0 if there is none."""
    return max((context * n for n in LAST_TIMES if context * n <= targets), default=0)


def sliding_stride(length: int, stride: int | None = None) -> int:
    """Return the stride of sliding windows of a length: `stride`, or half the length, but no more than the length."""
    return min(length, stride or max(1, length // 2))


def last_tokens(context: int, last: int | None = None) -> int:
    """Return how many tokens at the end of a window count in the last loss: `last`, or half the training length."""
    return last or max(1, context // 2)


def unmeasured_lengths(folder: Path, wanted: EvaluationConfig) -> list[int]:
    """Return the lengths that the folder's evaluation lacks, or has with another stride or last tokens."""
    evaluation = read_evaluation(folder) if wanted.lengths else None
    if evaluation is None:
        return sorted(set(wanted.lengths))
    measured = {(result.length, result.stride, result.last) for result in evaluation.lengths}
    last = last_tokens(evaluation.context_length, wanted.last)
    return sorted(n for n in set(wanted.lengths) if (n, sliding_stride(n, wanted.stride), last) not in measured)
