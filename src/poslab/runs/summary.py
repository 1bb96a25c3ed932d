"""summary.json: the figures and facts of a finished run, for the writer and all readers. Loads no torch."""

import json
import reprlib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from poslab.runs.readers import checked, read_mapping
from poslab.settings.files import write_whole


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Losses in nats per token, None where they are unknown or not finite; memory in MB, times in seconds.

    Fields without a default are what a comparison needs; those with one are missing from older summaries. metrics: of
    a task, {"exact": {"96": 0.98}} by metric and length; in the file each stands under its own name.
    """

    pos: str
    pos_settings: dict[str, Any]
    pos_target: str | None = None  # the scheme's class
    seed: int
    best_val_loss: float | None
    best_val_perplexity: float | None = None
    best_step: int | None = None
    val_loss_tokens: int | None = None  # predictions that each of the validation losses is a mean over
    last_val_loss: float | None
    last_val_perplexity: float | None = None
    epochs: int | None = None
    steps: int
    tokens: int | None = None
    tokens_per_s: float
    wall_time_s: float
    peak_memory_mb: float | None = None
    params_total: int
    params_trunk: int | None = None
    params_scheme: int
    context_length: int
    data: str
    data_sha256: str
    vocabulary: str = "full"
    vocabulary_size: int | None = None
    train_tokens: int | None = None
    validation_tokens: int | None = None
    device: str | None = None
    threads: int | None = None
    precision: str | None = None
    attention_backend: str | None = None
    versions: dict[str, Any]
    git_commit: str | None = None
    git_clean: bool | None = None  # whether the code was that of the commit; None outside a checkout, or unknown
    code_fingerprint: str | None = None  # of poslab.runs.code
    scheme_fingerprint: str | None = None
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    def write(self, file: Path) -> None:
        plain = asdict(self)
        plain |= plain.pop("metrics")
        write_whole(file, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Summary":
        """Reads and checks a summary; keys that it doesn't know are left out. Raises ValueError with a one-line reason
        for a file that is no run's summary."""
        plain = read_mapping(file, json.loads)
        known = {f.name for f in fields(cls)}
        plain["metrics"] = {key: value for key, value in plain.items() if isinstance(value, dict) and key not in known}
        try:
            values = checked(cls, plain)
        except ValueError as error:
            raise ValueError(f"{file.name} {error}") from error
        for name, value in values.items():
            if isinstance(value, str) and not (value.strip() and value.isprintable()):
                raise ValueError(f"{file.name} says {name}={reprlib.repr(value)}, which is no name")
        return cls(**values)
