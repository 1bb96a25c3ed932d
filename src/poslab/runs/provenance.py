"""Provenance of compared figures: differences between runs beside their settings, and how they weaken answers."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from poslab.runs.load import Run

NO_WEIGHTS = "none"


def initial_weights(group: str) -> str:
    """Return in words what runs of an init_group, SCHEME-566ed6f9, began with."""
    scheme, _, own = group.rpartition("-")
    return group if group == NO_WEIGHTS else f"weights of a {scheme} model ({own})"


def caveats(runs: Sequence[Run]) -> list[str]:
    """Return caveats for facts, not settings, of which the runs have several values."""
    other_code, rounding = "they may compute different things", "times can't be compared, and losses differ by rounding"
    summaries = [run.summary for run in runs]
    packages = dict.fromkeys(["poslab", "torch"]) | dict.fromkeys(name for of in summaries for name in of.versions)
    versions = {name: [of.versions.get(name) for of in summaries] for name in packages}
    caveats = _several("versions of poslab", versions.pop("poslab"), other_code)
    caveats += _several("versions of poslab's code", [of.code_fingerprint for of in summaries], other_code)
    caveats += _several("versions of torch", versions.pop("torch"), rounding)
    caveats += _several("devices", [of.device for of in summaries], rounding)
    caveats += _several("numbers of threads", [of.threads for of in summaries], rounding)
    tokens: dict[int, set[int]] = defaultdict(set)  # by seed, which of a task decides how long its examples are
    for run in runs:
        tokens[run.seed].add(run.summary.tokens)
    unequal = {count for counts in tokens.values() if len(counts) > 1 for count in counts}
    caveats += _several("numbers of tokens trained on at one seed", unequal, "more tokens, more training")
    for name, numbers in versions.items():
        caveats += _several(f"versions of {name}", numbers, "losses may differ by rounding")
    kinds = {run.config.get("init_group", NO_WEIGHTS) for run in runs}
    if len(kinds) == 1 and (kind := kinds.pop()) != NO_WEIGHTS:
        after = "what is compared are schemes put into a trained model, not trained from the beginning"
        caveats.append(f"all runs began with {initial_weights(kind)}: {after}")
    begun = {(run.config.get("init_group"), run.seed): run.summary.init_sha256 for run in runs if run.summary.init_from}
    if len(begun) > len(set(begun.values())):
        caveats.append("runs of several seeds begin with the same weights: what others would give is not known")
    by_classes: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_classes[run.classes].append(run)
    for whose, scheme_runs in by_classes.items():
        sources = [run.summary.scheme_fingerprint for run in scheme_runs]
        backends = [run.summary.attention_backend for run in scheme_runs]
        caveats += _several(f"versions of the code of {whose}", sources, other_code)
        caveats += _several(f"attention backends of {whose}", backends, "losses differ by rounding")
    return caveats


def caveats_of_validation(runs: Sequence[Run]) -> list[str]:
    """Return caveats on validation losses that also stopped training, or came too early."""
    caveats = []
    if any(run.config.get("early_stopping_patience") for run in runs):
        caveats.append("early stopping: when to stop was chosen on the validation data that are compared")
    early = [run for run in runs if (run.summary.last_val_step or run.summary.steps) < run.summary.steps]
    if early:
        steps = f"step {early[0].summary.last_val_step} of {early[0].summary.steps}"
        caveats.append(f"the last validation of {len(early)} runs was before their last step ({steps})")
    return caveats


@dataclass(frozen=True)
class Repeat:
    """Run with the seed and the settings of another one, `first`, which it could replace."""

    first: Run
    run: Run

    @property
    def differing_losses(self) -> str:
        """Return the first figure in which the two runs differ, in words, or "" if all are equal up to rounding."""
        for name in ("last_val_loss", "best_val_loss", "test_loss"):
            first, own = (getattr(run.summary, name) for run in (self.first, self.run))
            both_known = first is not None and own is not None
            if not (math.isclose(first, own, rel_tol=1e-4) if both_known else first == own):
                both = ("no finite loss" if loss is None else f"{loss:.9g}" for loss in (first, own))
                return f"seed {self.run.seed} of {self.run.summary.pos} has two results, {' and '.join(both)}"
        return ""

    @property
    def caveat(self) -> str:
        """Return the caveat beside the answers, or "" if the two runs are equal."""
        same = f"with the same settings ({self.first.folder}, {self.run.folder}); the first is compared"
        return self.differing_losses and f"{self.differing_losses}, {same}"

    @property
    def reason(self) -> str:
        """Return the reason why the run is left out."""
        differing = f", but other results: {self.differing_losses}" if self.differing_losses else ""
        return f"repeats seed {self.run.seed} of {self.first.folder}, with the same settings{differing}"


def _several(fact: str, values: Iterable[Any], consequence: str) -> list[str]:
    """Return a caveat if there are several values; one that no summary has is unknown."""
    different = sorted({"unknown" if value is None else str(value) for value in values})
    return [f"several {fact}: {', '.join(different)}; {consequence}"] if len(different) > 1 else []
