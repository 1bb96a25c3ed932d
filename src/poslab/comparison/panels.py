"""Panels of a report: figures with captions that say how to read them, and notes on what could not be drawn."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from matplotlib.figure import Figure
from torch import Tensor

from poslab.comparison import figures
from poslab.comparison.curves import read_curve
from poslab.comparison.groups import Comparison, Group
from poslab.errors import SettingError, UserError
from poslab.evaluation.attention_maps import attention_maps
from poslab.evaluation.files import own_text
from poslab.evaluation.pictures import attention_figure, draw
from poslab.runs.checkpoint import Checkpoint, find_checkpoint, load_checkpoint
from poslab.runs.evaluation import Evaluation

_WORDS = 20  # of the sentence whose attention is shown
# Titles and captions.
_CAPTIONS = {
    "losses": (
        "Validation loss",
        "Left, each dot is a run; below them the mean over seeds and its 95 % interval. Right, the difference from the "
        "baseline, seed by seed, and its 95 % interval.",
    ),
    "curves": (
        "Loss curves",
        "Means over seeds, and right less those of the baseline. Bands, where schemes are few, are one standard "
        "deviation.",
    ),
    "by_position": (
        "Loss by position",
        "How much seeing more helps: mean loss at each place of a window of the training length. A short text has few "
        "such windows; what all schemes have in common is then the text's.",
    ),
    "by_length": (
        "Loss by length",
        "The same tokens at every length. Left, windows follow each other, so short ones suffer from their starts; "
        "right, windows slide by half their length and only what is new counts. A scheme that ends at the training "
        "length knows no positions beyond.",
    ),
    "attention": (
        "Attention on the same words",
        "Mean over layers and heads, in the runs of the median loss. Each row is a token looking back.",
    ),
}


@dataclass(frozen=True)
class Panel:
    """A figure of the report; its file gets the name. small: whether it stands beside others of its kind."""

    name: str
    title: str
    caption: str
    figure: Figure
    small: bool = False


def loss_panels(comparison: Comparison, evaluations: Mapping[str, list[Evaluation]]) -> tuple[list[Panel], list[str]]:
    """(panels of losses by run, step, position and length, notes); evaluations are by the label of the group."""
    baseline = comparison.baseline
    styles = figures.styles_of((group.label for group in comparison.groups), baseline)
    curves, empty = {}, []
    for group in comparison.groups:
        of_runs = [(run.folder.name, read_curve(run.folder)) for run in group.runs]
        curves[group.label] = [curve for _, curve in of_runs if curve.validation]
        empty += [name for name, curve in of_runs if not curve.validation]
    drawn = {
        "losses": figures.losses_figure(comparison, styles),
        "curves": figures.curves_figure(curves, styles, baseline),
    }
    if evaluations:
        drawn["by_position"] = figures.by_position_figure(evaluations, styles, baseline)
        drawn["by_length"] = figures.by_length_figure(evaluations, styles)
    panels = [Panel(name, *_CAPTIONS[name], figure) for name, figure in drawn.items()]
    return panels, [f"no loss curve in {', '.join(empty)}"] if empty else []


def model_panels(comparison: Comparison, sentence: str | None, allow_code: bool) -> tuple[list[Panel], list[str]]:
    """(panels of where each group's median run looks and what it has learned, notes).

    sentence: the text whose attention is drawn; None: the beginning of the validation text.
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
            tokens = _tokens(checkpoint, sentence)
            group_words = [checkpoint.vocabulary.decode([token]) for token in tokens.tolist()]
            words = words or group_words
            if group_words != words:
                raise UserError("its text has other words than that of the groups before")
            maps[group.label] = attention_maps(checkpoint.model, tokens)
        except UserError as error:
            notes.append(f"{group.label} has no picture of its attention: {error}")
    attention = [Panel("attention", *_CAPTIONS["attention"], attention_figure(maps, words))] if maps else []
    return attention + learned, notes


def _learned(group: Group, checkpoint: Checkpoint) -> list[Panel]:
    caption = f"{group.label}, seed {group.median_run.seed}"
    with torch.no_grad():
        pictures = checkpoint.model.pictures()
    return [
        Panel(f"learned_{group.label}_{name}", f"{picture.title}: {group.label}", caption, draw(picture), small=True)
        for name, picture in pictures.items()
    ]


def _tokens(checkpoint: Checkpoint, sentence: str | None) -> Tensor:
    """(T,) token ids of the sentence, or of the beginning of the validation text."""
    longest = min(_WORDS, checkpoint.model.shape.context_length)
    if sentence is None:
        return own_text(checkpoint).tokens[:longest].to(torch.int64)
    ids = checkpoint.vocabulary.encode(sentence, "sentence")
    if not ids:
        raise SettingError("sentence", sentence, "has no tokens")
    return torch.tensor(ids[:longest])
