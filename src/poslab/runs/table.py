"""Run folders as a table of results: a row for each run, metric and length (columns: `seedstats.table`).

What stands first is what is usual: the metric and length by which such runs are compared, and the group that is the
baseline. Seeds that were planned and are missing, and those that diverged, have rows without a value.
"""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from poslab.config.nodes import default_scheme
from poslab.errors import UserError, as_typed
from poslab.metric import BEST_VALIDATION_LOSS, LAST_VALIDATION_LOSS, LOSS, LOSSES_BY_LENGTH, TEST_LOSS, Metric
from poslab.runs.evaluation import Evaluation
from poslab.runs.groups import are_crossed, differences_beyond_the_scheme, group_runs, named_conditions, untried
from poslab.runs.load import LeftOut, Run
from poslab.runs.plan import PlannedGroup, comparable, keys_of, merged, picked
from poslab.runs.provenance import caveats, caveats_of_validation
from seedstats.table import DIVERGED, FINISHED, KNOWN, MISSING, REFERENCE, SOURCE, UNPLANNED, checked

_LISTED = 5  # differences between runs that one line can hold
_LOSSES = (TEST_LOSS, LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS)
# Of a summary; those that a report's table has are in `comparison.costs`.
_FACTS = ("params_scheme", "tokens_per_s", "wall_time_s", "peak_memory_mb", "steps", "late_fall")

_BY_WINDOW = dict(zip(LOSSES_BY_LENGTH, ("loss", "sliding_loss", "last_loss"), strict=True))  # fields of an evaluation


FigureKey = tuple[str, int | None]  # metric, length
# By seed: its run, if there is one, and the look that it was planned for; 0: never.
Looks = dict[int, tuple[Run | None, int]]


@dataclass(frozen=True)
class RunTable:
    """Checked table, its runs by what is in column `folder`, and the runs that are left out of it."""

    table: pd.DataFrame
    runs: Mapping[str, Run]
    left_out: list[LeftOut]


def run_table(
    titled: Mapping[str, Sequence[Run]],
    evaluations: Mapping[Path, Evaluation] | None = None,
    plan: Sequence[PlannedGroup] = (),
    picked_from: Mapping[Path, Sequence[PlannedGroup]] | None = None,
    *,
    allow_differences: bool = False,
) -> RunTable:
    """Return the table of runs, by the title of their data. evaluations: by folder. plan: that of the runs' sweeps.
    picked_from: the plans of sweeps of which single runs were named.

    Raises UserError without a finished run, and for runs that differ in more than the scheme, unless
    `allow_differences`.
    """
    rows: list[dict[str, Any]] = []
    runs_by_folder: dict[str, Run] = {}
    left_out: list[LeftOut] = []
    for title, runs in titled.items():
        try:
            section = _Section(title, runs, evaluations or {}, plan, allow_differences)
        except UserError as error:
            raise UserError(f"{title}: {error}") if len(titled) > 1 else error from None
        section.caveats += picked(section.runs, picked_from or {})
        rows += section.rows()
        runs_by_folder |= {_text(run.folder): run for group in section.groups for run in group.runs.values()}
        left_out += section.left_out
    order = [name for name in KNOWN if any(name in row for row in rows)]
    settings = dict.fromkeys(name for row in rows for name in row if name not in KNOWN)
    table = pd.DataFrame(rows, columns=[*order, *settings], dtype=object).fillna("")
    return RunTable(checked(table), runs_by_folder, left_out)


class _Section:
    """Rows of the runs on one text or task."""

    def __init__(
        self,
        title: str,
        runs: Sequence[Run],
        evaluations: Mapping[Path, Evaluation],
        plan: Sequence[PlannedGroup],
        allow_differences: bool,
    ) -> None:
        finished = [run for run in runs if not run.diverged]
        if not finished:
            raise UserError("no finished run to compare")
        differences = differences_beyond_the_scheme(finished)
        conditions = named_conditions(finished, differences)
        crossed = are_crossed(runs, conditions)
        values = {
            key: differences.get(key) or ", ".join(dict.fromkeys(map(read, finished)))
            for key, read in conditions.items()
        }
        if conditions and not (crossed or allow_differences):
            listed = "; ".join([f"{key}: {levels}" for key, levels in values.items()][:_LISTED])
            listed += f"; and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
            if gap := untried(runs, conditions):
                listed += f"; {gap}"
            folders = Counter(run.folder.parent for run in finished)
            several = [
                shlex.quote(str(folder)) for folder, count in folders.most_common() if count > 1 and len(folders) > 1
            ]
            raise UserError(
                f"runs={several[0] if several else 'FOLDER'} compares fewer runs, allow_differences=true all of these, "
                f"which differ in more than the scheme, so that it can't be said to cause a difference: {listed}"
            )
        self.title, self.evaluations = title, evaluations
        diverged, foreign = comparable([run for run in runs if run.diverged], finished)
        self.groups = group_runs([*finished, *diverged], conditions)
        repeats = [repeat for group in self.groups for repeat in group.repeats]
        self.left_out = [*foreign, *(LeftOut(run.folder, run.divergence) for run in diverged)]
        self.left_out += [LeftOut(repeat.run.folder, repeat.reason) for repeat in repeats]
        self.runs = finished
        self.caveats = [repeat.caveat for repeat in repeats if repeat.caveat]
        self.caveats += [] if crossed else [f"{key} differs: {levels}" for key, levels in values.items()]
        self.caveats += caveats(finished)
        shared = {keys_of(run)[1] for group in self.groups for run in group.runs.values()}
        # The planned groups that were to be compared with these, by their key.
        self.plan = {group.group: group for group in merged(plan) if group.shared in shared}

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows, ordered by metric and length, then by group, then by seed."""
        members = self._members()
        figures = {str(run.folder): self._figures(run) for run in self.runs}
        names = list(dict.fromkeys(figure for run_figures in figures.values() for figure in run_figures))
        # By these the runs are compared; not by what has chosen the weights.
        tested = any(run.summary.test_loss is not None for run in self.runs)
        compared = {TEST_LOSS} if tested else {LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS}
        compared |= {name for run in self.runs for name in run.metrics}
        validation_caveats = caveats_of_validation(self.runs)
        rows: list[dict[str, Any]] = []
        for metric, length in sorted(names, key=lambda figure: self._place(*figure)):
            first = len(rows)
            shared = {"data": self.title, "metric": metric, "length": length} | self._unit(metric)
            for scheme, settings, seeds in members:
                for seed, (run, look) in seeds.items():
                    value = figures.get(str(run.folder), {}).get((metric, length)) if run else None
                    status = FINISHED if value is not None else MISSING
                    if run and run.diverged:
                        status = DIVERGED
                    elif run is None and not look:
                        status = UNPLANNED
                    if status == FINISHED or metric in compared:
                        own = {"name": scheme, "seed": seed, "value": value, "status": status, "look": max(look, 1)}
                        folder = {"folder": _text(run.folder)} if run and status != MISSING else {}
                        rows.append({**own, **shared, **folder, **settings})
            weak = self.caveats + (validation_caveats if metric in (LAST_VALIDATION_LOSS, BEST_VALIDATION_LOSS) else [])
            if weak and first < len(rows):
                rows[first]["caveat"] = _text("\n".join(weak))
        return rows + self._references([name for name in _LOSSES if (name, None) in names])

    def _references(self, losses: Sequence[str]) -> list[dict[str, Any]]:
        """Return rows of models without training, if all runs share their losses, and of the most frequent answer.

        losses: the metrics that runs have; of others a table would look as if it had that metric.
        """
        first, rows = self.runs[0].summary, list[dict[str, Any]]()
        for name, loss in first.untrained_losses.items():
            if all(run.summary.untrained_losses.get(name) == loss for run in self.runs):
                reference = {"name": f"{name} model", "value": loss, "caveat": "undertrained"}
                rows += [reference | {"metric": metric} for metric in losses]
        for name in self.runs[0].metrics:
            for length, value in first.metrics.get(f"{name}_chance", {}).items():
                rows.append({"name": "most frequent answer", "metric": name, "length": int(length), "value": value})
        return [row | {"data": self.title, "status": REFERENCE} | self._unit(row["metric"]) for row in rows]

    def _members(self) -> list[tuple[str, dict[str, str], Looks]]:
        """Return (scheme, settings, (run or None, look) by seed) of each group, the natural baseline first.

        That is the default scheme of train.py, else one without positions, else the first by name; of its groups the
        one with the fewest settings away from their defaults, and of versions of edited code the one with the most
        runs. A group without plan lacks all seeds that others have.
        """
        everywhere = {seed for group in self.groups for seed in group.runs}
        everywhere |= {seed for planned in self.plan.values() for seed in planned.seeds}
        members: list[tuple[tuple[bool, bool, str, int, int], str, dict[str, str], Looks]] = []
        for group in self.groups:
            planned = self.plan.get(keys_of(group.first)[0])
            looks = {seed: (group.runs.get(seed), _look(planned, seed)) for seed in sorted(everywhere)}
            order = (group.scheme != default_scheme(), not group.knows_nothing, group.scheme, group.n_nondefault)
            rank = (*order, -len(group.runs) if SOURCE in group.settings else 0)
            members.append((rank, group.scheme, group.settings, looks))
        there = {keys_of(run)[0] for group in self.groups for run in group.runs.values()}
        for key, planned in self.plan.items():
            if key not in there:
                looks = {seed: (None, _look(planned, seed)) for seed in sorted(everywhere)}
                rank = (planned.scheme != default_scheme(), False, planned.scheme, 0, 0)
                namesakes = [group.settings for group in self.groups if group.scheme == planned.scheme]
                settings = dict(namesakes[0]) if namesakes else {}  # so far as they are known
                settings |= {str(name): as_typed(value) for name, value in planned.settings.items()}
                settings |= {SOURCE: "another version"} if settings in namesakes else {}
                members.append((rank, planned.scheme, settings, looks))
        members.sort(key=lambda member: (member[0], str(member[2])))
        return [(scheme, settings, seeds) for _, scheme, settings, seeds in members]

    def _figures(self, run: Run) -> dict[FigureKey, float]:
        summary = run.summary
        losses = dict(zip(_LOSSES, (summary.test_loss, summary.last_val_loss, summary.best_val_loss), strict=True))
        figures: dict[FigureKey, Any] = {(name, None): loss for name, loss in losses.items()}
        for name in run.metrics:
            figures |= {(name, length): summary.metrics[name][str(length)] for length in run.lengths(name)}
        figures |= {(name, None): getattr(summary, name) for name in _FACTS}
        if not run.text_path:
            solved = summary.solved_step is not None
            figures["solved", None] = float(solved)
            figures["steps_to_solve", None] = summary.solved_step if solved else summary.steps
        for result in self.evaluations[run.folder].lengths if run.folder in self.evaluations else ():
            figures |= {(name, result.length): getattr(result, key) for name, key in _BY_WINDOW.items()}
        measured = {key: float(value) for key, value in figures.items() if value is not None}
        return {key: value for key, value in measured.items() if math.isfinite(value)}

    def _place(self, metric: str, length: int | None) -> tuple[Any, ...]:
        """Return the sort key of a figure: the one by which such runs are compared first."""
        run = self.runs[0]
        names = [name for measure in run.metrics for name in (_LOSSES if measure == LOSS else [measure])]
        place = names.index(metric) if metric in names else len(names)
        lengths = {length for run in self.runs for length in run.lengths(metric)}
        beyond = [length for length in lengths if length > run.summary.training_length]
        usual = length == (min(beyond) if beyond else max(lengths, default=None))
        return place, metric if place == len(names) else "", not usual, length or 0

    def _unit(self, metric: str) -> dict[str, str]:
        """Return the metric's unit and which way is better, if that is known."""
        if metric not in _LOSSES and not any(metric in run.metrics for run in self.runs):
            # Without a direction: where a run isn't measured, no value is missing.
            return {"unit": self.runs[0].summary.measure(LOSS).unit} if metric in _BY_WINDOW else {}
        of: Metric = self.runs[0].summary.measure(LOSS if metric in _LOSSES else metric)
        return {"unit": of.unit, "better": "higher" if of.higher_is_better else "lower"}


def _text(content: object) -> str:
    """Return what UTF-8 can hold; names of folders may be other bytes."""
    return str(content).encode(errors="backslashreplace").decode()


def _look(planned: PlannedGroup | None, seed: int) -> int:
    """Return how many comparisons had been made when the seed was planned, and this one; 0 if it was not planned."""
    if planned is None:
        return 1
    return 1 + sum(seed not in seeds for seeds in planned.earlier) if seed in planned.seeds else 0
