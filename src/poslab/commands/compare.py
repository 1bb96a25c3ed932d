"""What scripts/compare.py does: read the runs, measure what isn't measured yet, and write the report."""

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path

import torch
from torch import Tensor

from poslab.comparison import figures
from poslab.comparison.curves import Curve, read_curve
from poslab.comparison.groups import Comparison, Group, compare, token_sentences
from poslab.comparison.report import Report
from poslab.errors import SettingError, UserError
from poslab.evaluation.attention_maps import attention_maps
from poslab.evaluation.files import FILE, evaluate_checkpoint, own_text, read_evaluation, write_evaluation
from poslab.evaluation.losses import Evaluation
from poslab.evaluation.pictures import attention_figure, draw
from poslab.runs.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from poslab.runs.finished import Run, read_runs
from poslab.settings.scripts import CompareConfig

_WORDS = 20  # of the sentence whose attention is shown


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Writes the report, says the answer, and returns the report's folder. Raises UserError for what the user can put
    right."""
    runs, left_out = read_runs(config.runs)
    if not runs:
        reasons = "; ".join(f"{left.folder}: {left.reason}" for left in left_out[:3])
        problem = f"no finished run to compare{f' ({reasons})' if reasons else ''}"
        raise SettingError("runs", ",".join(config.runs), problem)
    comparison = compare(
        runs, left_out, baseline=config.baseline, effect=config.effect, allow_differences=config.allow_differences
    )
    folder = _out(config)
    _check_out(folder)  # before anything is measured
    notes = list(comparison.notes)
    for left in comparison.left_out:
        print(f"left out  {left.folder}: {left.reason}")
    evaluations = _evaluations(comparison, config.allow_code, notes)
    of_groups = {
        group.label: [evaluations[str(run.folder)] for run in group.runs]
        for group in comparison.groups
        if all(str(run.folder) in evaluations for run in group.runs)
    }
    answers = comparison.sentences + token_sentences(comparison, evaluations)
    report = Report(comparison, of_groups, answers, notes, command)
    _draw(report, comparison, config)
    try:
        report.write(folder)
    except OSError as error:
        raise SettingError("out", folder, f"can't be written: {error.strerror}") from error
    _say(comparison, answers, notes, folder)
    return folder


def _evaluations(comparison: Comparison, allow_code: bool, notes: list[str]) -> dict[str, Evaluation]:
    """Of each run, by its folder; those that have none yet are evaluated now."""
    found = {}
    for run in comparison.runs:
        try:
            found[str(run.folder)] = _read_evaluation(run) or _evaluate(run, allow_code)
        except UserError as error:
            notes.append(f"{run.folder} is not evaluated by length and position: {error}")
    return found


def _read_evaluation(run: Run) -> Evaluation | None:
    """What the run's folder says of its own text, if anything. Raises UserError for what can't be drawn."""
    evaluation = read_evaluation(run.folder, run.summary["data_sha256"])
    if evaluation is not None and not _is_whole(evaluation):
        raise UserError(f"{FILE} is damaged; without it, it would be measured anew")
    return evaluation


def _is_whole(evaluation: Evaluation) -> bool:
    """Whether all that is drawn or told are numbers, or text where text belongs."""
    counts = [evaluation.context_length]
    losses = [evaluation.token_losses]
    for result in evaluation.lengths:
        counts.append(result.length)
        losses += [result.by_position or [], [n for n in (result.loss, result.sliding_loss) if n is not None]]
    return (
        all(type(count) is int and 0 < count < 2**31 for count in counts)
        and all(isinstance(result.note, str) for result in evaluation.lengths)
        and all(isinstance(row, list) and all(isinstance(loss, float) for loss in row) for row in losses)
    )


def _evaluate(run: Run, allow_code: bool) -> Evaluation:
    print(f"evaluating {run.folder} ...", flush=True)
    checkpoint = load_checkpoint(find_checkpoint(str(run.folder)), allow_code=allow_code)
    text = own_text(checkpoint)
    evaluation = evaluate_checkpoint(checkpoint, text)
    with contextlib.suppress(OSError, UnicodeError):  # a folder that takes no files is evaluated anew each time
        write_evaluation(run.folder, text, evaluation)
    return evaluation


def _draw(report: Report, comparison: Comparison, config: CompareConfig) -> None:
    styles = figures.Styles([group.label for group in comparison.groups])
    caption = "Each dot is a run; below them the mean over seeds and its 95 % interval."
    report.add("losses", "Validation loss", caption, figures.losses_figure(comparison, styles))
    curves = {group.label: _curves(group, report.notes) for group in comparison.groups}
    caption = "Mean over seeds; bands are one standard deviation."
    report.add("curves", "Loss curves", caption, figures.curves_figure(curves, styles))
    if report.evaluations:
        caption = (
            "How much seeing more helps: mean loss at each place of a window of the training length. A short text has "
            "few such windows; what all schemes have in common is then the text's."
        )
        report.add("by_position", "Loss by position", caption, figures.by_position_figure(report.evaluations, styles))
        caption = (
            "The same tokens at every length. Left, windows follow each other, so short ones suffer from their starts; "
            "right, windows slide by half their length and only what is new counts. Bands are one standard deviation. "
            "A scheme that ends at the training length knows no positions beyond."
        )
        report.add("by_length", "Loss by length", caption, figures.by_length_figure(report.evaluations, styles))
    _draw_models(report, comparison, config)


def _draw_models(report: Report, comparison: Comparison, config: CompareConfig) -> None:
    """What each group's median run has learned, and where it looks."""
    maps: dict[str, Tensor] = {}
    words: list[str] = []
    for group in comparison.groups:
        run = group.median_run
        try:
            checkpoint = load_checkpoint(find_checkpoint(str(run.folder)), allow_code=config.allow_code)
        except UserError as error:
            report.notes.append(f"{group.label} has no pictures of what it learned: {error}")
            continue
        with torch.no_grad():
            pictures = checkpoint.model.pictures()
        for name, picture in pictures.items():
            caption = f"What {group.label} learned, in the run of the median loss (seed {run.seed})."
            report.add(f"learned_{group.label}_{name}", f"{picture.title}: {group.label}", caption, draw(picture))
        try:
            tokens = _sentence(checkpoint, config.sentence)
        except UserError as error:
            report.notes.append(f"{group.label} has no picture of its attention: {error}")
            continue
        own_words = [checkpoint.vocabulary.decode([token]) for token in tokens.tolist()]
        words = words or own_words
        if own_words != words:
            report.notes.append(f"{group.label} has no picture of its attention: it would be on other words")
            continue
        maps[group.label] = attention_maps(checkpoint.model, tokens)
    if maps:
        caption = "Mean over layers and heads, in the runs of the median loss. Each row is a token looking back."
        report.add("attention", "Attention on the same words", caption, attention_figure(maps, words))


def _curves(group: Group, notes: list[str]) -> list[Curve]:
    curves = [read_curve(run.folder) for run in group.runs]
    empty = [run.name for run, curve in zip(group.runs, curves, strict=True) if not curve.validation]
    if empty:
        notes.append(f"no loss curve in {', '.join(empty)}")
    return [curve for curve in curves if curve.validation]


def _sentence(checkpoint: Checkpoint, sentence: str | None) -> Tensor:
    """(T,) token ids: those of the sentence, by default of how the validation text begins."""
    longest = min(_WORDS, checkpoint.model.shape.context_length)
    if sentence is None:
        return own_text(checkpoint).tokens[:longest].to(torch.int64)
    ids = checkpoint.vocabulary.encode(sentence, "sentence")
    if not ids:
        raise SettingError("sentence", sentence, "has no tokens")
    return torch.tensor(ids[:longest])


def _out(config: CompareConfig) -> Path:
    """`out`, or the folder "report" in that of the runs."""
    if config.out is not None:
        return Path(os.path.expanduser(config.out))
    first = Path(os.path.expanduser(config.runs[0]))
    is_run = (first / "summary.json").exists()
    if len(config.runs) == 1 and not is_run:
        return first / "report"
    if is_run:
        first = (first if first.name else first.resolve()).parent  # of "." it would be "."
    return first / f"report-{time.strftime('%Y%m%d-%H%M%S')}"


def _check_out(folder: Path) -> None:
    """Raises SettingError where the report's folder can't be made."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(dir=there):
            pass
    except OSError as error:
        raise SettingError("out", folder, f"can't be written: {error.strerror}") from error


def _say(comparison: Comparison, answers: list[str], notes: list[str], folder: Path) -> None:
    width = max(len(group.label) for group in comparison.groups)
    print(f"{'scheme':<{width}}   n  best val loss  95 % interval")
    for group in comparison.groups:
        loss = group.loss
        interval = "n/a" if loss.low is None or loss.high is None else f"{loss.low:.4f} to {loss.high:.4f}"
        print(f"{group.label:<{width}}  {loss.n:>2}  {loss.mean:>13.4f}  {interval}")
    print()
    for answer in answers:
        print(f"- {answer}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"\nreport  {folder / 'report.html'} (also report.md, results.csv)")
