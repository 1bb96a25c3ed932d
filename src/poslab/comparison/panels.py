"""Panels of a report: figures with captions that say how to read them, and notes on what could not be drawn."""

from collections.abc import Mapping

import torch
from torch import Tensor

from poslab.comparison import figures
from poslab.comparison.compare import Comparison
from poslab.comparison.convergence import shared_references
from poslab.comparison.curves import Curve
from poslab.comparison.groups import Group
from poslab.comparison.pareto import trade_off_figure
from poslab.config.schemes import is_task
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_task, own_text
from poslab.evaluation.pictures import LEGIBLE, attention_figure, attention_maps, draw
from poslab.evaluation.task_metrics import legible_example
from poslab.positions import Curves
from poslab.report.blocks import Figure
from poslab.runs.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from poslab.runs.checkpoint_files import start_and_best
from poslab.runs.evaluation import Evaluation
from poslab.runs.folder import RunFolder
from poslab.runs.load import Run
from poslab.statistics.paired import Difference
from poslab.tasks.metric import LOSS

# Titles and captions.
_CAPTIONS = {
    "trade_offs": (
        "What it costs",
        "Means over seeds with 95 % intervals, over the time that training takes and over the parameters that the "
        "scheme adds. By their means, schemes on the grey line (the Pareto front) are beaten by no other in "
        "both at once; schemes off it are.",
    ),
    "curves": (
        "Loss curves",
        "Means over seeds, and right less those of the baseline. Bands, where schemes are few, are one standard "
        "deviation.",
    ),
    "by_position": (
        "Loss by position",
        "Mean loss at each position of a window of the training length: how much more context helps. A short text has "
        "few such windows; what all schemes have in common is then the text's. Of a text of more than 16,384 tokens "
        "about so many count, in stretches of 1,024 spread evenly over it.",
    ),
    "by_length": (
        "Loss by length",
        "The same tokens at every length: all, or of a text of more than 16,384 tokens about so many, in stretches of "
        "1,024 spread evenly over it. Left, windows are contiguous, so short ones suffer from their starts; "
        "right, windows slide by half their length and only what is new counts. A scheme that ends at the training "
        "length knows no positions beyond.",
    ),
    "last": (
        "Does more context help?",
        "The same tokens at every length, the last ones of windows that end at the same positions: only the context "
        "before them grows. Means over seeds, with 95 % intervals. Right, by how much the loss is lower than at the "
        "training length: above zero, a scheme uses context that it was not trained to; below, that breaks it.",
    ),
    "attention": (
        "Attention on the same words",
        "Mean over layers and heads, in the runs of the median {}. Each row is a token looking back.",
    ),
}


def loss_panels(
    comparison: Comparison,
    evaluations: Mapping[str, list[Evaluation]],
    by_seed: Mapping[str, Mapping[int, Curve]],
    over_text: Mapping[str, Difference] | None = None,
) -> tuple[list[Figure], list[str]]:
    """Return (panels of the score by run, and of losses by step, position and length, notes).

    evaluations, over_text: of groups that have them, by label; the latter are differences over seeds and text. by_seed:
    the curves of all runs, by label and seed.
    """
    baseline, score = comparison.baseline, comparison.score
    styles = figures.styles_of((group.label for group in comparison.groups), baseline)
    references = shared_references(comparison.runs, score)
    curves, empty = {}, []
    for group in comparison.groups:
        of_runs = [(run.folder.name, by_seed[group.label][run.seed]) for run in group.runs]
        curves[group.label] = [curve for _, curve in of_runs if curve.validation]
        empty += [name for name, curve in of_runs if not curve.validation]
    unit = next((m.unit for run in comparison.runs for m in run.summary.measures if m.name == LOSS), "nats")
    drawn = {"curves": figures.curves_figure(curves, styles, baseline, unit, references)}
    if evaluations:
        drawn["by_position"] = figures.by_position_figure(evaluations, styles, baseline)
        drawn["by_length"] = figures.by_length_figure(evaluations, styles)
        if any(evaluation.last_losses for of_seeds in evaluations.values() for evaluation in of_seeds):
            drawn["last"] = figures.last_figure(evaluations, styles)
    by_run = figures.scores_panel(comparison, styles, references, over_text)
    traded = trade_off_figure(comparison, styles)
    trade_offs = [Figure("trade_offs", *_CAPTIONS["trade_offs"], traded)] if traded else []
    panels = [by_run, *trade_offs, *(Figure(name, *_CAPTIONS[name], figure) for name, figure in drawn.items())]
    return panels, [f"no loss curve in {', '.join(empty)}"] if empty else []


def model_panels(comparison: Comparison, sentence: str | None, allow_code: bool) -> tuple[list[Figure], list[str]]:
    """Return (panels of attention and learned tables of each group's median run, notes).

    sentence: the text whose attention is drawn; None: the beginning of the validation text, or an example of the task.
    """
    learned, notes = [], []
    maps: dict[str, Tensor] = {}
    words: list[str] = []
    for group in comparison.groups:
        folder = group.median_run.folder
        try:
            checkpoint = load_checkpoint(find_checkpoint(str(folder)), allow_code=allow_code)
        except UserError as error:
            notes.append(f"{group.label} has no pictures of what it learned: {error}")
            continue
        learned += _learned(group, checkpoint)
        try:
            tokens, positions = _read(group.median_run, checkpoint, sentence, allow_code)
            group_words = [checkpoint.vocabulary.decode([token]) for token in tokens.tolist()]
            words = words or group_words
            if group_words != words:
                raise UserError("its text has other words than that of the groups before")
            maps[group.label] = attention_maps(checkpoint.model, tokens, positions)
        except UserError as error:
            notes.append(f"{group.label} has no picture of its attention: {error}")
    title, caption = _CAPTIONS["attention"]
    caption = caption.format(comparison.score.metric.name)
    attention = [Figure("attention", title, caption, attention_figure(maps, words))] if maps else []
    return attention + learned, notes


def _learned(group: Group, checkpoint: Checkpoint) -> list[Figure]:
    run, model = group.median_run, checkpoint.model
    before = {name: start for name, (start, _) in start_and_best(RunFolder(run.folder)).items()}
    with torch.no_grad():
        pictures = model.pictures()
        starts = model.pos.pictures(before, model.shape) if before else {}
    panels = []
    for name, picture in pictures.items():
        start = starts.get(name)
        dotted = "; dotted: before training" if isinstance(start, Curves) else ""
        title = f"{picture.title}: {group.label}"
        caption = f"{group.label}, seed {run.seed}{dotted}. {picture.caption}".rstrip(". ")
        panels.append(Figure(f"learned_{group.label}_{name}", title, caption, draw(picture, start), small=True))
    return panels


def _read(run: Run, checkpoint: Checkpoint, sentence: str | None, allow_code: bool) -> tuple[Tensor, Tensor | None]:
    """Return token ids (T,) of the sentence, of a task's example or of the beginning of the validation text, and their
    positions (T,), unless they are 0, 1, ..."""
    longest = min(LEGIBLE, checkpoint.model.shape.context_length)
    if sentence is not None:
        ids = checkpoint.vocabulary.encode(sentence, "sentence")
        if not ids:
            raise SettingError("sentence", sentence, "has no tokens")
        return torch.tensor(ids[:longest]), None
    if not is_task(run.config["data"]):
        return own_text(checkpoint).tokens[:longest].to(torch.int64), None
    example = legible_example(own_task(checkpoint, allow_code))
    positions = None if example.positions is None else example.positions[0, :longest]
    return example.tokens[0, :longest], positions
