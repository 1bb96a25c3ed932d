"""Command `compare`: read runs, evaluate those that aren't yet, and write the report."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tqdm import tqdm

from poslab.comparison.compare import Comparison, as_one_page, compare_alone, token_sentences
from poslab.comparison.context import context_tables
from poslab.comparison.contrasts import verdicts
from poslab.comparison.curves import Curve, read_curve, write_means
from poslab.comparison.curves import by_group as curves_by_group
from poslab.comparison.effects import effect_table
from poslab.comparison.grids import setting_panels
from poslab.comparison.groups import by_data
from poslab.comparison.learned import drift_table, model_panels
from poslab.comparison.loss_figures import loss_panels
from poslab.comparison.report import Report
from poslab.comparison.scores import LAST
from poslab.comparison.sections import Section
from poslab.comparison.seeds_and_text import text_differences, with_text
from poslab.comparison.task_figures import task_panels
from poslab.comparison.task_report import matrices, task_report
from poslab.comparison.tasks import task_runs
from poslab.config.files import require_writable
from poslab.config.schemes import is_task
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import evaluate_run, evaluation_seconds
from poslab.processors import compute_on
from poslab.report import terminal
from poslab.report.terminal import clock
from poslab.runs.evaluation import Evaluation, read_evaluation
from poslab.runs.folder import RunFolder
from poslab.runs.load import LeftOut, Run, read_runs
from poslab.runs.plan import PLAN, PlannedGroup, picked, read_plan


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Write the report, print its answers, and return its folder.

    Raises UserError for settings, runs and folders that can't be used.
    """
    compute_on(config.threads)
    runs, left_out = read_runs(config.runs)
    if all(run.diverged for run in runs):
        left_out += [LeftOut(run.folder, run.diverged) for run in runs]
        reasons = "; ".join(f"{left.folder}: {left.reason}" for left in left_out[:3])
        problem = f"no finished run to compare{f' ({reasons})' if reasons else ''}"
        raise SettingError("runs", ",".join(config.runs), problem)
    curves = {run.folder: read_curve(run.folder) for run in runs}
    titled, diverged = _with_finished(by_data(runs, together=config.allow_differences))
    left_out += diverged
    sweeps = _sweeps(runs, config)
    plan = [group for folder in sweeps for group in read_plan(folder)]
    compared = _comparisons(titled, config, plan)
    for comparison, _ in compared:
        comparison.caveats.extend(picked(comparison.runs, _around(comparison.runs, config)))
    folder = _report_folder(config)
    require_writable("out", folder)  # before anything is measured
    registered = verdicts(sweeps, [comparison for comparison, _ in compared])
    for left in [*left_out, *(left for comparison, _ in compared for left in comparison.left_out)]:
        print(f"left out  {left.folder}: {left.reason}")
    sections = [_section(title, *of_data, config, curves) for title, of_data in zip(titled, compared, strict=True)]
    by_setting = setting_panels({section.title: section.comparison for section in sections})
    report = _with_tasks(Report(sections, command, left_out, registered, by_setting))
    report.write(folder)
    for section in sections:
        means = folder / "tensorboard" / (section.id if len(sections) > 1 else "")
        write_means(means, curves_by_group(section.comparison.groups, curves))
    _print(report, folder)
    return folder


def _with_finished(titled: Mapping[str, list[Run]]) -> tuple[dict[str, list[Run]], list[LeftOut]]:
    """Leave out the tasks and texts of which all runs diverged."""
    finished = {title: runs for title, runs in titled.items() if not all(run.diverged for run in runs)}
    others = (run for title, runs in titled.items() if title not in finished for run in runs)
    return finished, [LeftOut(run.folder, run.diverged) for run in others]


def _comparisons(
    titled: Mapping[str, Sequence[Run]], config: CompareConfig, plan: Sequence[PlannedGroup]
) -> list[tuple[Comparison, list[str]]]:
    """Compare the runs of each task or text by themselves, with notes, and correct all comparisons as one family.

    Where there are several, `metric`, `length`, `validation` and `baseline` count for those that know them. Raises
    UserError for what none knows, and where runs can't be compared.
    """
    wanted = {"metric": config.metric, "length": config.length, "baseline": config.baseline}
    wanted["validation"] = config.validation if config.validation != LAST else None
    compared: list[tuple[Comparison, list[str]]] = []
    unknown: dict[str, list[SettingError]] = {name: [] for name in wanted}
    for title, runs in titled.items():
        known, notes = dict(wanted), list[str]()
        while True:
            try:
                rest: dict[str, Any] = {"effect": config.effect, "allow_differences": config.allow_differences}
                rest |= {"all_pairs": config.pairs == "all", "plan": plan}
                compared.append((compare_alone(runs, **known, **rest), notes))  # type: ignore[arg-type]
                break
            except SettingError as error:
                if known.get(error.option) is None:
                    raise
                unknown[error.option].append(error)
                known[error.option] = None
                notes.append(f"{error}; what is usual takes its place")
            except UserError as error:
                raise UserError(f"{title}: {error}") if len(titled) > 1 else error from None
    for errors in unknown.values():
        if len(errors) == len(titled):
            raise errors[0]
    corrected = as_one_page([comparison for comparison, _ in compared])
    return list(zip(corrected, (notes for _, notes in compared), strict=True))


def _section(
    title: str, comparison: Comparison, notes: list[str], config: CompareConfig, read: Mapping[Path, Curve]
) -> Section:
    """Return the report's section on the runs of one task or text, measuring what is missing."""
    evaluations, unmeasured = _evaluations(comparison, config.allow_code)
    by_group = {
        group.label: [evaluations[run.folder] for run in group.runs]
        for group in comparison.groups
        if all(run.folder in evaluations for run in group.runs)
    }
    over_text = text_differences(comparison, by_group)
    answers = with_text(comparison, over_text, by_group) + token_sentences(comparison, evaluations)
    curves = curves_by_group(comparison.groups, read)
    of_losses, without_curves = loss_panels(comparison, by_group, curves, over_text)
    of_models, not_drawn = model_panels(comparison, config.sentence, config.allow_code)
    runs = task_runs(title, comparison)
    task, without_answers = task_report(runs) if runs else (None, [])
    notes = notes + unmeasured + without_curves + not_drawn + without_answers
    return Section(
        title,
        comparison,
        by_group,
        answers,
        notes,
        of_losses + of_models,
        task,
        drift_table(comparison.groups),
        over_text,
        effect_table(comparison, curves),
        context_tables(comparison, by_group),
    )


def _with_tasks(report: Report) -> Report:
    """Add the figures of tasks, to their section where that is the only one."""
    tasks = [section.task.runs for section in report.sections if section.task]
    if not tasks:
        return report
    panels = task_panels(tasks, report.sections[0].comparison.baseline)
    if len(report.sections) > 1:
        return replace(report, overview=[*panels, *report.overview], matrices=matrices(tasks))
    (section,) = report.sections
    return replace(report, sections=[replace(section, panels=panels + section.panels)])


def _evaluations(comparison: Comparison, allow_code: bool) -> tuple[dict[Path, Evaluation], list[str]]:
    """Return evaluations by folder of the run, measured now where they were missing, and notes on runs without."""
    runs = [run for run in comparison.runs if not is_task(run.config["data"])]  # a task is tested as its run ends
    known = {run.folder: read_evaluation(run.folder, run.summary.data_sha256) for run in runs}
    evaluations = {folder: evaluation for folder, evaluation in known.items() if evaluation is not None}
    missing, notes = [run for run in runs if run.folder not in evaluations], []
    if missing:
        seconds = sum(map(evaluation_seconds, missing))
        print(f"measuring {len(missing)} runs by length and position, which takes about {clock(seconds)}", flush=True)
    for run in tqdm(missing, desc="measuring", unit="run", leave=False, disable=None):
        try:
            evaluations[run.folder] = evaluate_run(run.folder, allow_code=allow_code)
        except UserError as error:
            notes.append(f"{run.folder} is not evaluated by length and position: {error}")
    return evaluations, notes


def _sweeps(runs: Sequence[Run], config: CompareConfig) -> list[Path]:
    """Return the folders that may be a sweep's: those named, those of runs in them, and those with a plan."""
    named = [Path(os.path.expanduser(path)) for path in config.runs]
    above = [run.folder.parent for run in runs if run.folder not in named]
    planned = [file.parent for folder in named for file in sorted(folder.rglob(PLAN))]
    return list(dict.fromkeys([*named, *above, *planned]))


def _around(runs: Sequence[Run], config: CompareConfig) -> dict[Path, list[PlannedGroup]]:
    """Return the plans of folders from which runs were named one by one, and which were not named themselves."""
    named = {Path(os.path.expanduser(path)) for path in config.runs}
    folders = dict.fromkeys(run.folder.parent for run in runs if run.folder in named)
    return {folder: read_plan(folder) for folder in folders if folder not in named}


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


def _print(report: Report, folder: Path) -> None:
    print(terminal.page(report.on_screen))
    for note in (note for section in report.sections for note in section.notes):
        print(f"note: {note}", file=sys.stderr)
    print(f"\nreport  {folder / 'report.html'} (also report.md, results.csv)")
