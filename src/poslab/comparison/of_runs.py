"""Runs as what a comparison reads: their table, what is missing measured, and what only runs add to a report."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from tqdm import tqdm

from poslab.comparison.curves import Curve, read_curve, write_means
from poslab.comparison.learned import model_panels
from poslab.comparison.loss_figures import loss_panels
from poslab.comparison.memory import memory_table
from poslab.comparison.repeat import sources
from poslab.comparison.results import Results
from poslab.comparison.task_figures import task_panels
from poslab.comparison.task_report import errors_of, matrices
from poslab.comparison.tasks import TaskRuns, task_runs
from poslab.config.files import require_writable
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import evaluate_run, evaluation_seconds
from poslab.processors import compute_on
from poslab.runs.evaluation import Evaluation, read_evaluation
from poslab.runs.folder import RunFolder
from poslab.runs.groups import by_data
from poslab.runs.load import LeftOut, Run, read_runs
from poslab.runs.plan import PLAN, PlannedGroup, read_plan
from poslab.runs.table import RunTable, run_table
from seedstats.comparison import Comparison
from seedstats.lengths import length_table
from seedstats.page.blocks import Block
from seedstats.page.terminal import clock
from seedstats.section import Section

Runs = dict[str, list[Run]]  # by the label of their group


@dataclass(frozen=True)
class RunResults(Results):
    """Results of run folders. runs: by what is in the table's column `folder`. unmeasured: why runs have no
    evaluation, by folder; curves: of all runs."""

    config: CompareConfig = field(default_factory=CompareConfig)
    titled: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    plan: Sequence[PlannedGroup] = ()
    picked_from: Mapping[Path, Sequence[PlannedGroup]] = field(default_factory=dict)
    runs: Mapping[str, Run] = field(default_factory=dict)
    evaluations: Mapping[Path, Evaluation] = field(default_factory=dict)
    unmeasured: Mapping[Path, UserError] = field(default_factory=dict)

    @property
    def missing(self) -> list[Run]:
        """Return the runs on a text that aren't measured by length and position; tasks are tested by training."""
        measurable = (run for runs in self.titled.values() for run in runs if run.text_path and not run.diverged)
        return [run for run in measurable if run.folder not in self.evaluations]

    def measured(self) -> "RunResults":
        compute_on(self.config.threads)
        missing, evaluations, errors = self.missing, dict(self.evaluations), dict[Path, UserError]()
        runs = "1 run" if len(missing) == 1 else f"{len(missing)} runs"
        seconds = sum(map(evaluation_seconds, missing))
        print(
            f"\nmeasuring {runs} by length and position, about {clock(seconds)} (measure=false leaves it)", flush=True
        )
        for run in tqdm(missing, desc="measuring", unit="run", leave=False, disable=None):
            try:
                evaluations[run.folder] = evaluate_run(run.folder, allow_code=self.config.allow_code)
            except UserError as error:
                errors[run.folder] = error
        return replace(self, table=self._table(evaluations).table, evaluations=evaluations, unmeasured=errors)

    def _table(self, evaluations: Mapping[Path, Evaluation]) -> RunTable:
        differing = self.config.allow_differences
        return run_table(self.titled, evaluations, self.plan, self.picked_from, allow_differences=differing)

    def of(self, comparison: Comparison) -> Runs:
        """Return the runs of each group, by its label."""
        return {group.label: [self.runs[folder] for folder in group.folders.values()] for group in comparison.groups}

    def section(self, title: str, comparison: Comparison) -> Section:
        runs = self.of(comparison)
        measured = {label: {run.seed: self.evaluations.get(run.folder) for run in of} for label, of in runs.items()}
        by_seed = {
            label: {seed: evaluation for seed, evaluation in of.items() if evaluation is not None}
            for label, of in measured.items()
            if None not in of.values()
        }
        evaluations = {label: [*of.values()] for label, of in by_seed.items()}
        curves = self._curves(runs)
        loss_figures, without_curves = loss_panels(
            comparison, by_seed, curves, comparison.metric.unit if comparison.references else "nats"
        )
        asked = self.config.sentence, self.config.allow_code
        model_figures, not_drawn = model_panels(comparison, runs, *asked) if self.config.measure else ([], [])
        task = task_runs(title, runs, _diverged(comparison))
        errors, without_answers = errors_of(task) if task else ([], [])
        memory = memory_table(evaluations)
        losses_by_length = length_table(comparison, "sliding loss", "Loss by length, sliding windows, nats")
        beyond = {label: _at_longest(seed_evaluations) for label, seed_evaluations in evaluations.items()}
        all_runs = [run for of in runs.values() for run in of]
        unmeasured = _without_evaluation([run.folder for run in all_runs], self.unmeasured)
        base = super().section(title, comparison)
        trained = " or ".join(dict.fromkeys(f"{run.summary.training_length:,}" for run in all_runs))
        return replace(
            base,
            about=f"{base.about} Training ended at length {trained}.".lstrip() if task else base.about,
            columns=base.columns if task or not beyond else {**base.columns, "loss of longer windows": beyond},
            tables=[*base.tables, *filter(None, [losses_by_length, memory]), *errors],
            figures=loss_figures + model_figures,
            gallery=f"In each scheme's run of the median {comparison.metric.name}.",
            notes=[*unmeasured, *without_curves, *not_drawn, *without_answers],
            sources=sources(runs),
        )

    def across(self, comparisons: Mapping[str, Comparison]) -> list[Block]:
        """Return what is about all tasks together."""
        tasks: list[TaskRuns] = []
        for title, comparison in comparisons.items():
            if task := task_runs(title, self.of(comparison), _diverged(comparison)):
                tasks.append(task)
        if not tasks:
            return []
        panels = task_panels(tasks, next(iter(comparisons.values())).baseline)
        return [*(matrices(tasks) if len(tasks) > 1 else []), *panels]

    def write_means(self, comparisons: Mapping[str, Comparison]) -> Path | None:
        # Beside the folder of the runs, as within it TensorBoard would take them for runs.
        above = self.folder.absolute().parent
        folder = self.folder / "tensorboard" if self.config.out else above.with_name(f"{above.name}-means")
        written = [
            write_means(
                folder / (Section(title, comparison).id if len(comparisons) > 1 else ""),
                self._curves(self.of(comparison)),
            )
            for title, comparison in comparisons.items()
        ]
        return folder if any(written) else None

    def _curves(self, runs: Runs) -> dict[str, dict[int, Curve]]:
        return {label: {run.seed: read_curve(run.folder) for run in of} for label, of in runs.items()}


def read_folders(config: CompareConfig) -> RunResults:
    """Return the runs in the folders, with what is measured of them. Raises UserError for settings, runs and folders
    that can't be used."""
    runs, left_out = read_runs(config.runs)
    if all(run.diverged for run in runs):
        left_out += [LeftOut(run.folder, run.divergence) for run in runs]
        reasons = "; ".join(f"{left.folder}: {left.reason}" for left in left_out[:3])
        problem = f"no finished run to compare{f' ({reasons})' if reasons else ''}"
        raise SettingError("runs", ",".join(config.runs), problem)
    titled = by_data(runs, together=config.allow_differences)
    finished = {title: of for title, of in titled.items() if not all(run.diverged for run in of)}
    left_out += [LeftOut(run.folder, run.divergence) for title in titled.keys() - finished for run in titled[title]]
    folder = _report_folder(config)
    require_writable("out", folder)

    # A sweep's may be the folders that are named, those of runs in them, and those with a plan.
    named = [Path(os.path.expanduser(path)) for path in config.runs]
    above = [run.folder.parent for run in runs if run.folder not in named]
    planned = [file.parent for place in named for file in sorted(place.rglob(PLAN))]
    plan = [group for sweep in dict.fromkeys([*named, *above, *planned]) for group in read_plan(sweep)]
    # Runs that are named one by one are picked from others beside them.
    around = dict.fromkeys(run.folder.parent for run in runs if run.folder in named)
    picked_from = {place: read_plan(place) for place in around if place not in named}

    text_runs = [run for of in finished.values() for run in of if run.text_path and not run.diverged]
    read_evaluations = {run.folder: read_evaluation(run.folder, run.summary.data_sha256) for run in text_runs}
    evaluations = {folder: evaluation for folder, evaluation in read_evaluations.items() if evaluation is not None}
    compared = run_table(finished, evaluations, plan, picked_from, allow_differences=config.allow_differences)
    lines = [f"{left.folder}: {left.reason}" for left in [*left_out, *compared.left_out]]
    return RunResults(
        compared.table, folder, lines, config, finished, plan, picked_from, compared.runs, evaluations=evaluations
    )


def _diverged(comparison: Comparison) -> dict[str, int]:
    return {group.label: len(group.diverged) for group in comparison.groups}


def _without_evaluation(folders: Sequence[Path], errors: Mapping[Path, UserError]) -> list[str]:
    """Return a note for each reason why runs have no evaluation, with all runs that it holds for."""
    by_reason: dict[str, list[Path]] = {}
    for folder in (folder for folder in folders if folder in errors):
        error = errors[folder]
        by_reason.setdefault(error.problem if isinstance(error, SettingError) else str(error), []).append(folder)
    notes = []
    for reason, of in by_reason.items():
        are, why = ("is", errors[of[0]]) if len(of) == 1 else ("are", reason)
        notes.append(f"{', '.join(map(str, of))} {are} not evaluated by length and position: {why}")
    return notes


def _at_longest(evaluations: Sequence[Evaluation]) -> str:
    """Return the mean sliding loss at the longest window beyond the training length, or why there is none."""
    results = [result for e in evaluations for result in e.lengths if result.length > e.context_length]
    measured = [(result.length, result.sliding_loss) for result in results if result.sliding_loss is not None]
    if not measured:
        return next((result.note for result in results if result.note), "n/a")
    longest = max(length for length, _ in measured)
    return f"{fmean(loss for length, loss in measured if length == longest):.4f} at {longest:,}"


def _report_folder(config: CompareConfig) -> Path:
    """Return `out`, or "report" in the folder of the runs; of runs named one by one, a dated folder beside them."""
    if config.out is not None:
        return Path(os.path.expanduser(config.out))
    first = Path(os.path.expanduser(config.runs[0]))
    is_run = RunFolder(first).finished
    if len(config.runs) == 1 and not is_run:
        return first / "report"
    if is_run:
        first = (first if first.name else first.resolve()).parent  # of "." it would be "."
    return first / f"report-{time.strftime('%Y%m%d-%H%M%S')}"
