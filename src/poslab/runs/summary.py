"""summary.json: the figures and facts of a finished run."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from poslab.config.files import write_whole
from poslab.metric import Metric, metric_named
from poslab.runs.readers import read_mapping, values_of


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Figures and facts of a run. Losses in nats per token, None if unknown or not finite; memory in MB, times in s.

    A new field needs a default, or runs that are there can't be read any more.

    metrics: {"exact": {"96": 0.98}} by metric and length; in the file each stands under its own name. measures: what
    they are, first the one by which such runs are compared. solved_step: of a task, the first validation that got 99 %
    of the examples in the range of training right.
    """

    pos: str
    pos_settings: dict[str, Any]
    pos_target: str  # the scheme's class
    seed: int
    best_val_loss: float | None
    best_val_perplexity: float | None
    best_step: int
    best_monitored: float | None = None  # the best of the figure that `monitor` names
    val_loss_tokens: int | None  # predictions that each of the validation losses is a mean over
    last_val_loss: float | None
    last_val_step: int | None
    late_fall: float | None  # of the validation loss, in the last tenth of the steps
    last_val_perplexity: float | None
    epochs: int
    steps: int
    tokens: int
    tokens_per_s: float
    wall_time_s: float
    peak_memory_mb: float | None
    params_total: int
    params_trunk: int
    params_scheme: int
    context_length: int
    data: str
    data_sha256: str
    init_from: str | None = None  # the weights that it began with
    init_sha256: str | None  # and theirs
    vocabulary: str
    vocabulary_size: int
    train_tokens: int | None = None  # of a text
    validation_tokens: int | None = None
    test_tokens: int | None = None  # of a text that has a test part
    documents: int | None = None  # of a text that is made of some
    untrained_losses: dict[str, float] = field(default_factory=dict)  # of models that need no training, by name
    device: str
    processes: int = 1
    threads: int
    precision: str
    attention_backend: str
    versions: dict[str, Any]
    git_commit: str | None
    git_clean: bool | None  # whether the code was that of the commit; None outside a checkout, or unknown
    code_fingerprint: str | None  # of poslab.runs.code
    scheme_fingerprint: str | None  # None: of a class without a file
    training_length: int  # the longest one of training
    solved_step: int | None
    measures: list[Metric]
    test_loss: float | None = None  # of the best weights, on a part of the text that decided nothing
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def loss(self) -> float | None:
        """Return the loss of the part of a text that was held out, if there is one; else of the last validation."""
        return self.last_val_loss if self.test_loss is None else self.test_loss

    @property
    def worse_than_guessing(self) -> str:
        """Return a warning if the last validation loss is above that of equal chances for all tokens, or nothing."""
        uniform, loss = math.log(self.vocabulary_size), self.last_val_loss
        if loss is None or loss <= uniform:
            return ""
        guess = f"{uniform:.4f}, which equal chances for all {self.vocabulary_size:,} tokens give"
        return f"the last validation loss, {loss:.4f}, is above {guess}: it has learned nothing, or too fast"

    def measure(self, name: str) -> Metric:
        """Return the metric of that name. Raises KeyError if it is none of `measures`, nor called after one."""
        return metric_named(name, self.measures)

    def write(self, file: Path) -> None:
        plain = asdict(self)
        plain |= plain.pop("metrics")
        write_whole(file, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Summary":
        """Read and check a summary; unknown keys are left out. Raises ValueError with a one-line reason
        for a file that is no run's summary."""
        plain = read_mapping(file, json.loads)
        names = {f.name for f in fields(cls)}
        others = {key: value for key, value in plain.items() if key not in names and isinstance(value, dict)}
        plain["metrics"] = {key: by for key, by in others.items() if by and all(map(str.isdecimal, by))}
        try:
            values = values_of(cls, plain)
            values["measures"] = [Metric(**values_of(Metric, measure)) for measure in values["measures"]]
            if not 0 <= values["seed"] < 2**32:
                raise ValueError("has no seed of a run")
        except ValueError as error:
            raise ValueError(f"{file.name} {error}") from error
        return cls(**values)
