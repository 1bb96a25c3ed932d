"""summary.json: the figures and facts of a finished run, for the writer and all readers. Loads no torch."""

import json
import reprlib
import types
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from poslab.settings.files import write_whole


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Losses in nats per token, None where they are unknown or not finite; memory in MB, times in seconds.

    Fields without a default are what a comparison needs; those with one are missing from older summaries.
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

    def write(self, file: Path) -> None:
        write_whole(file, json.dumps(asdict(self), indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, file: Path) -> "Summary":
        """Reads and checks a summary; keys that it doesn't know are left out. Raises ValueError with a one-line reason
        for a file that is no run's summary."""
        try:
            plain = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise ValueError(f"unfinished: it has no {file.name}") from error
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{file.name} can't be read: {error}") from error
        if not isinstance(plain, dict):
            raise ValueError(f"{file.name} is not a run's")
        missing = [f.name for f in fields(cls) if f.default is MISSING and f.name not in plain]
        if missing:
            raise ValueError(f"{file.name} says nothing of {', '.join(missing)}: not a run's, or another version's")
        known = {name: plain[name] for name in get_type_hints(cls) if name in plain}
        for name, hint in get_type_hints(cls).items():
            problem = _problem(known[name], hint) if name in known else ""
            if problem:
                raise ValueError(f"{file.name} has {name}={reprlib.repr(known[name])}, which is {problem}")
        return cls(**known)


def _problem(value: Any, hint: Any) -> str:
    """Says how the value is none of the field's type; empty if it is."""
    options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if value is None and types.NoneType in options:
        return ""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if int in options:
        return "" if is_whole else "no whole number"
    if float in options:
        return "" if is_whole or isinstance(value, float) else "no number"
    if str in options:
        return "" if isinstance(value, str) and value.strip() and value.isprintable() else "no name"
    if bool in options:
        return "" if isinstance(value, bool) else "neither true nor false"
    return "" if isinstance(value, dict) else "no group of values"
