"""Whether the files of a run can be those of one run: nothing that contradicts itself is compared, or averaged.

Folders are renamed, copied together by hand and cut short, figures are edited. What no training can have written is
found here, by what the files say of each other. Loads no torch.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from safetensors import SafetensorError, safe_open

from poslab.config.roles import NOT_IDENTITY, Role
from poslab.config.schemes import flat_node
from poslab.config.train import flat
from poslab.runs.folder import RunFolder
from poslab.runs.summary import Summary
from poslab.tasks.metric import LOSS

CLOSE = 1e-4  # relative: TensorBoard has single precision, and figures may be shown with few digits
_MAY_DIFFER = NOT_IDENTITY | {Role.LENGTH, Role.ROUNDING}  # between the best weights and the end of a run


def require_consistent(run: RunFolder, summary: Summary, config: Mapping[str, Any]) -> None:
    """Raises ValueError, in one line, for the first contradiction in the files of a run."""
    for contradictions in (
        _in_summary(summary, config),
        _with_config(summary, config),
        _with_weights(run, summary, config),
    ):
        if found := next(contradictions, None):
            raise ValueError(f"contradicts itself: {found}")


def close(first: float, second: float) -> bool:
    """Whether two figures are the same, as far as files tell."""
    return math.isclose(first, second, rel_tol=CLOSE, abs_tol=CLOSE)


def _in_summary(summary: Summary, config: Mapping[str, Any]) -> Iterator[str]:
    losses = {name: getattr(summary, name) for name in ("best_val_loss", "last_val_loss", "test_loss")}
    costs = {name: getattr(summary, name) for name in ("tokens_per_s", "wall_time_s", "peak_memory_mb")}
    for name, value in (losses | costs).items():
        if value is not None and value < 0:
            yield f"summary.json says {name}={value:g}, which is never negative"
    for metric, by_length in summary.metrics.items():
        for length, value in by_length.items():
            if metric in _shares(summary) and not 0 <= value <= 1:
                yield f"summary.json says {metric}={value:g} at {length}, which is no share"
    best, last = summary.best_val_loss, summary.last_val_loss
    by_loss = config.get("monitor", LOSS) == LOSS  # else another figure says which validation was the best
    if by_loss and best is not None and last is not None and best > last and not close(best, last):
        yield f"summary.json says best_val_loss={best:g}, above last_val_loss={last:g}"
    for step in ("best_step", "last_val_step"):
        if (getattr(summary, step) or 0) > summary.steps:
            yield f"summary.json says {step}={getattr(summary, step)} of {summary.steps} steps"
    for which in ("best", "last"):
        loss, perplexity = losses[f"{which}_val_loss"], getattr(summary, f"{which}_val_perplexity")
        if loss is not None and perplexity and not close(math.log(abs(perplexity)), loss):
            yield f"summary.json says {which}_val_loss={loss:g} and {which}_val_perplexity={perplexity:g}"


def _shares(summary: Summary) -> set[str]:
    return {measure.name for measure in summary.known_measures if measure.is_proportion}


def _with_config(summary: Summary, config: Mapping[str, Any]) -> Iterator[str]:
    said: dict[str, Any] = {"seed": summary.seed, "pos._target_": summary.pos_target}
    said |= {"model.context_length": summary.context_length}
    said |= {f"pos.{name}": value for name, value in flat_node(summary.pos_settings).items()}
    for name, value, other in _differing(said, flat_node(config)):
        yield f"summary.json says {name}={value}, config.yaml {name}={other}"


def _with_weights(run: RunFolder, summary: Summary, config: Mapping[str, Any]) -> Iterator[str]:
    """What the best weights say of their training; nothing where they are in another format, or can't be read."""
    try:
        with safe_open(run.best, "numpy") as file:
            about = json.loads((file.metadata() or {})["poslab"])
        theirs = flat(about["config"], without=_MAY_DIFFER)
        theirs |= {"data_sha256": about["data_sha256"], "step": about.get("step")}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, AttributeError):
        return
    own = flat(config, without=_MAY_DIFFER) | {"data_sha256": summary.data_sha256, "step": summary.best_step}
    for name, value, other in _differing(theirs, own):
        yield f"{run.best.name} is of {name}={value}, the run of {name}={other}"


def _differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, value in the first, value in the second) of what both know and don't agree on."""
    for name, value in first.items():
        other = second.get(name)
        if value is not None and other is not None and str(value) != str(other):
            yield name, value, other
