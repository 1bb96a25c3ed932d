"""Runs as what a comparison reads: their table, what is missing measured now, and pictures of their models."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from poslab.comparison.compare import Comparison
from poslab.comparison.curves import Curve, by_group, read_curve, write_means
from poslab.comparison.learned import model_panels
from poslab.comparison.loss_figures import loss_panels
from poslab.comparison.memory import memory_table
from poslab.comparison.report import Report
from poslab.comparison.sections import Section
from poslab.comparison.source import Source
from poslab.comparison.task_report import wrong_by_length
from poslab.comparison.tasks import task_runs
from poslab.config.files import require_writable
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import evaluate_run, evaluation_seconds
from poslab.processors import compute_on
from poslab.report.terminal import clock
from poslab.runs.evaluation import Evaluation, read_evaluation
from poslab.runs.folder import RunFolder
from poslab.runs.groups import by_data
from poslab.runs.load import LeftOut, Run, read_runs
from poslab.runs.plan import PLAN, read_plan
from poslab.runs.table import run_table


@dataclass(frozen=True)
class RunSource(Source):
    """Source with the runs' evaluations and curves, by folder. unmeasured: notes on runs without an evaluation."""

    config: CompareConfig = field(default_factory=CompareConfig)
    evaluations: Mapping[Path, Evaluation] = field(default_factory=dict)
    unmeasured: Mapping[Path, str] = field(default_factory=dict)
    curves: Mapping[Path, Curve] = field(default_factory=dict)

    def section(self, title: str, comparison: Comparison, notes: list[str]) -> Section:
        evaluations = {
            group.label: [self.evaluations[run.folder] for run in group.runs]
            for group in comparison.groups
            if all(run.folder in self.evaluations for run in group.runs)
        }
        curves = by_group(comparison.groups, self.curves)
        of_losses, without_curves = loss_panels(comparison, evaluations, curves)
        of_models, not_drawn = model_panels(comparison, self.config.sentence, self.config.allow_code)
        task = task_runs(title, comparison)
        wrong, without_answers = wrong_by_length(task) if task else ([], [])
        unmeasured = [self.unmeasured[run.folder] for run in comparison.runs if run.folder in self.unmeasured]
        return Section(
            title,
            comparison,
            of_losses + of_models,
            notes + unmeasured + without_curves + not_drawn + without_answers,
            evaluations,
            task,
            wrong,
            memory_table(evaluations),
        )

    def write_means(self, report: Report) -> None:
        for section in report.sections:
            folder = self.folder / "tensorboard" / (section.id if len(report.sections) > 1 else "")
            write_means(folder, by_group(section.comparison.groups, self.curves))


def read_folders(config: CompareConfig) -> RunSource:
    """Return the runs in the folders, evaluated. Raises UserError for settings, runs and folders that can't be used."""
    compute_on(config.threads)
    runs, left_out = read_runs(config.runs)
    if all(run.diverged for run in runs):
        left_out += [LeftOut(run.folder, run.diverged) for run in runs]
        reasons = "; ".join(f"{left.folder}: {left.reason}" for left in left_out[:3])
        problem = f"no finished run to compare{f' ({reasons})' if reasons else ''}"
        raise SettingError("runs", ",".join(config.runs), problem)
    titled = by_data(runs, together=config.allow_differences)
    finished = {title: of for title, of in titled.items() if not all(run.diverged for run in of)}
    left_out += [LeftOut(run.folder, run.diverged) for title in titled.keys() - finished for run in titled[title]]
    folder = _report_folder(config)
    require_writable("out", folder)
    plan = [group for sweep in _sweeps(runs, config) for group in read_plan(sweep)]
    named = {Path(os.path.expanduser(path)) for path in config.runs}
    around = dict.fromkeys(run.folder.parent for run in runs if run.folder in named)  # of runs named one by one
    picked_from = {above: read_plan(above) for above in around if above not in named}
    run_table(finished, {}, plan, picked_from, allow_differences=config.allow_differences)  # refused before measured
    evaluations, unmeasured = _evaluations([run for of in finished.values() for run in of], config.allow_code)
    found = run_table(finished, evaluations, plan, picked_from, allow_differences=config.allow_differences)
    return RunSource(
        found.table,
        folder,
        [*left_out, *found.left_out],
        found.runs,
        config,
        evaluations,
        unmeasured,
        {run.folder: read_curve(run.folder) for run in runs},
    )


def _evaluations(runs: Sequence[Run], allow_code: bool) -> tuple[dict[Path, Evaluation], dict[Path, str]]:
    """Return evaluations, measured now where they were missing, and notes on runs without, by folder of the run."""
    runs = [run for run in runs if not run.diverged and run.text_path]  # tasks are tested by training
    known = {run.folder: read_evaluation(run.folder, run.summary.data_sha256) for run in runs}
    evaluations = {folder: evaluation for folder, evaluation in known.items() if evaluation is not None}
    missing, notes = [run for run in runs if run.folder not in evaluations], {}
    if missing:
        seconds = sum(map(evaluation_seconds, missing))
        runs_missing = "1 run" if len(missing) == 1 else f"{len(missing)} runs"
        print(f"measuring {runs_missing} by length and position, which takes about {clock(seconds)}", flush=True)
    for run in tqdm(missing, desc="measuring", unit="run", leave=False, disable=None):
        try:
            evaluations[run.folder] = evaluate_run(run.folder, allow_code=allow_code)
        except UserError as error:
            notes[run.folder] = f"{run.folder} is not evaluated by length and position: {error}"
    return evaluations, notes


def _sweeps(runs: Sequence[Run], config: CompareConfig) -> list[Path]:
    """Return the folders that may be a sweep's: those named, those of runs in them, and those with a plan."""
    named = [Path(os.path.expanduser(path)) for path in config.runs]
    above = [run.folder.parent for run in runs if run.folder not in named]
    planned = [file.parent for folder in named for file in sorted(folder.rglob(PLAN))]
    return list(dict.fromkeys([*named, *above, *planned]))


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
