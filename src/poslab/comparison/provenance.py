"""Where compared figures come from: what differs between runs beside their settings, and how that weakens answers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from poslab.comparison.scores import Score
from poslab.runs.finished import Run
from poslab.settings.schemes import targets


def caveats(runs: Sequence[Run], score: Score) -> list[str]:
    """Facts, not settings, of which the runs have several values, and how that weakens the answers."""
    other_code = "they may compute different things"
    rounding = "times can't be compared, and losses differ by rounding"
    facts: list[tuple[str, Callable[[Run], Any], str]] = [
        ("versions of poslab", lambda run: run.summary.versions.get("poslab"), other_code),
        ("versions of poslab's code", lambda run: run.summary.code_fingerprint, other_code),
        ("versions of torch", lambda run: run.summary.versions.get("torch"), rounding),
        ("devices", lambda run: run.summary.device, rounding),
        ("numbers of threads", lambda run: run.summary.threads, rounding),
    ]
    found = _of_validation(runs) if score.validation else []
    for fact, value_of, consequence in facts:
        found += _several(fact, map(value_of, runs), consequence)
    by_classes: dict[tuple[Any, ...], list[str | None]] = defaultdict(list)
    for run in runs:
        by_classes[tuple(targets(run.config["pos"]))].append(run.summary.scheme_fingerprint)
    for names, of_scheme in by_classes.items():
        found += _several(f"versions of the code of {' with '.join(map(str, names))}", of_scheme, other_code)
    return found


def _of_validation(runs: Sequence[Run]) -> list[str]:
    """What weakens losses of the validation, where it is also what training was stopped by, or came too early."""
    found = []
    if any(run.config.get("early_stopping_patience") for run in runs):
        found.append("early stopping: when to stop was chosen on the validation data that are compared")
    early = [run for run in runs if (run.summary.last_val_step or run.summary.steps) < run.summary.steps]
    if early:
        steps = f"step {early[0].summary.last_val_step} of {early[0].summary.steps}"
        found.append(f"the last validation of {len(early)} runs was before their last step ({steps})")
    return found


def _several(fact: str, values: Iterable[Any], consequence: str) -> list[str]:
    """A caveat where there are several values; one that no summary has is unknown."""
    different = sorted({"unknown" if value is None else str(value) for value in values})
    return [f"several {fact}: {', '.join(different)}; {consequence}"] if len(different) > 1 else []
