"""scripts/compare.py: reads runs, evaluates those that aren't yet, and writes the report."""

import os
import sys
import time
from pathlib import Path

from poslab.comparison.groups import Comparison, compare, token_sentences
from poslab.comparison.panels import loss_panels, model_panels
from poslab.comparison.report import COLUMNS, Report
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import evaluate_run
from poslab.runs.evaluation import Evaluation, read_evaluation
from poslab.runs.finished import read_runs
from poslab.runs.folder import RunFolder
from poslab.runs.screen import table
from poslab.settings.files import require_writable
from poslab.settings.scripts import CompareConfig


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Writes the report, prints the answers, and returns the report's folder.

    Raises UserError for settings, runs and folders that can't be used.
    """
    runs, left_out = read_runs(config.runs)
    if not runs:
        reasons = "; ".join(f"{left.folder}: {left.reason}" for left in left_out[:3])
        problem = f"no finished run to compare{f' ({reasons})' if reasons else ''}"
        raise SettingError("runs", ",".join(config.runs), problem)
    comparison = compare(
        runs, left_out, baseline=config.baseline, effect=config.effect, allow_differences=config.allow_differences
    )
    folder = _report_folder(config)
    require_writable("out", folder)  # before anything is measured
    for left in comparison.left_out:
        print(f"left out  {left.folder}: {left.reason}")
    evaluations, notes = _evaluations(comparison, config.allow_code)
    by_group = {
        group.label: [evaluations[run.folder] for run in group.runs]
        for group in comparison.groups
        if all(run.folder in evaluations for run in group.runs)
    }
    answers = comparison.sentences + token_sentences(comparison, evaluations)
    of_losses, without_curves = loss_panels(comparison, by_group)
    of_models, not_drawn = model_panels(comparison, config.sentence, config.allow_code)
    notes += without_curves + not_drawn
    report = Report(comparison, by_group, answers, notes, of_losses + of_models, command)
    report.write(folder)
    _print(report, folder)
    return folder


def _evaluations(comparison: Comparison, allow_code: bool) -> tuple[dict[Path, Evaluation], list[str]]:
    """(evaluations by folder of the run, those that were missing measured now; notes on runs that have none)."""
    evaluations, notes = {}, []
    for run in comparison.runs:
        evaluation = read_evaluation(run.folder, run.summary.data_sha256)
        try:
            if evaluation is None:
                print(f"evaluating {run.folder} ...", flush=True)
                evaluation = evaluate_run(run.folder, allow_code=allow_code)
            evaluations[run.folder] = evaluation
        except UserError as error:
            notes.append(f"{run.folder} is not evaluated by length and position: {error}")
    return evaluations, notes


def _report_folder(config: CompareConfig) -> Path:
    """`out`, or "report" in the folder of the runs; beside runs that are named one by one, a folder with a time."""
    if config.out is not None:
        return Path(os.path.expanduser(config.out))
    first = Path(os.path.expanduser(config.runs[0]))
    is_run = RunFolder(first).finished
    if len(config.runs) == 1 and not is_run:
        return first / "report"
    if is_run:
        first = (first if first.name else first.resolve()).parent  # of "." it would be "."
    return first / f"report-{time.strftime('%Y%m%d-%H%M%S')}"


def _print(report: Report, folder: Path) -> None:
    shown = [0, 1, 2, 3, 5, 6, 7]
    rows = [[cells[n] for n in shown] for cells in (COLUMNS, *map(report.row, report.comparison.groups))]
    print(table(rows[0], rows[1:]))
    print()
    for answer in report.in_short or report.answers:
        print(f"- {answer}")
    for caveat in report.comparison.caveats:
        print(f"  caveat: {caveat}")
    for note in report.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\nreport  {folder / 'report.html'} (also report.md, results.csv)")
