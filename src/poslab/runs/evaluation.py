"""evaluation.json: losses by length and position, for the writer and all readers. Loads no torch."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poslab.runs.folder import EVALUATION
from poslab.settings.train import EvaluationConfig


@dataclass(frozen=True)
class LengthLoss:
    """Losses, in nats per token, of windows of one length; None where they can't be had, for the reason in `note`."""

    length: int
    stride: int
    loss: float | None = None  # of consecutive windows
    sliding_loss: float | None = None
    by_position: list[float] | None = None  # mean loss at each place of a full window, over all sliding windows
    windows: int = 0  # that by_position is a mean over
    note: str = ""

    @property
    def perplexity(self) -> float | None:
        return None if self.loss is None else math.exp(min(self.loss, 700))

    @property
    def sliding_perplexity(self) -> float | None:
        return None if self.sliding_loss is None else math.exp(min(self.sliding_loss, 700))


@dataclass(frozen=True)
class Evaluation:
    """Of one model on one text. token_losses: of each token after the first, with sliding windows of context_length
    (or of the whole text where that is shorter). weights_sha256: of the model's parameters."""

    context_length: int
    tokens: int  # that count: all but the first
    lengths: list[LengthLoss]
    token_losses: list[float]
    weights_sha256: str = ""

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_plain(plain: dict[str, Any]) -> "Evaluation":
        """The inverse of `plain`. Raises KeyError, TypeError or ValueError for anything else than what that gave."""
        lengths = [LengthLoss(**values) for values in plain["lengths"]]
        weights = plain.get("weights_sha256", "")
        evaluation = Evaluation(plain["context_length"], plain["tokens"], lengths, plain["token_losses"], weights)
        if not evaluation._is_whole():
            raise ValueError("an evaluation with values of the wrong type")
        return evaluation

    def _is_whole(self) -> bool:
        counts = [
            self.context_length,
            self.tokens,
            *(n for result in self.lengths for n in (result.length, result.stride)),
        ]
        means = [n for result in self.lengths for n in (result.loss, result.sliding_loss) if n is not None]
        rows = [self.token_losses, means, *(result.by_position or [] for result in self.lengths)]
        return (
            all(type(count) is int and 0 < count < 2**31 for count in counts)
            and all(isinstance(row, list) and all(isinstance(loss, float) for loss in row) for row in rows)
            and all(isinstance(text, str) for text in (self.weights_sha256, *(result.note for result in self.lengths)))
        )


def read_evaluation(folder: Path, sha256: str | None = None, file: str = EVALUATION) -> Evaluation | None:
    """Reads the folder's evaluation of the text with that hash, or of any; None where there is no whole one."""
    try:
        plain = json.loads((folder / file).read_text(encoding="utf-8"))
        same = sha256 is None or plain["text_sha256"] == sha256
        return Evaluation.of_plain(plain) if same else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def sliding_stride(length: int, asked: int | None = None) -> int:
    """The stride of sliding windows of a length: the one asked for, or half the length, but no more than the length."""
    return min(length, asked or max(1, length // 2))


def unmeasured_lengths(folder: Path, wanted: EvaluationConfig) -> list[int]:
    """The lengths that the folder's evaluation lacks, or has with another stride."""
    evaluation = read_evaluation(folder) if wanted.lengths else None
    measured = {(result.length, result.stride) for result in evaluation.lengths} if evaluation else set()
    return sorted(n for n in set(wanted.lengths) if (n, sliding_stride(n, wanted.stride)) not in measured)
