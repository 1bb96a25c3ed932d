"""Pictures of the compared models: learned tables and attention."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_task, own_text
from poslab.evaluation.pictures import LEGIBLE, attention_maps, attention_panels, draw_panels, needs_rows
from poslab.evaluation.task_metrics import legible_example
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.load import Run
from seedstats.comparison import Comparison
from seedstats.groups import Group
from seedstats.page.blocks import Figure
from seedstats.page.looks import looks_of


def model_panels(
    comparison: Comparison, runs: Mapping[str, Sequence[Run]], sentence: str | None, allow_code: bool
) -> tuple[list[Figure], list[str]]:
    """Return (panels of attention and learned tables of each group's median run, notes). runs: by label.

    sentence: the text whose attention is drawn; None: the beginning of the validation text, or an example of the task.
    """
    looks = looks_of(group.label for group in comparison.groups)
    colours = {label: str(look["color"]) for label, look in looks.items()}
    learned: list[Figure] = []
    notes, words = list[str](), list[str]()
    maps: dict[str, Tensor] = {}
    for group in comparison.groups:
        run = median_run(group, runs[group.label])
        try:
            checkpoint = load_checkpoint(run.folder, allow_code=allow_code)
        except UserError as error:
            notes.append(f"{group.label} has no pictures of what it learned: {error}")
            continue
        learned += _learned(group.label, run, checkpoint, colours[group.label])
        try:
            tokens, positions = _read(run, checkpoint, sentence, allow_code)
            group_words = [checkpoint.vocabulary.decode([token]) for token in tokens.tolist()]
            words = words or group_words
            if group_words != words:
                raise UserError("its text has other words than that of the groups before")
            maps[group.label] = attention_maps(checkpoint.model, tokens, positions)
        except UserError as error:
            notes.append(f"{group.label} has no picture of its attention: {error}")
    if maps:
        panels, darkest = attention_panels(maps, words, colours)
        caption = (
            f"Mean over layers and heads, in the runs of the median {comparison.metric.name}. Each row is a token "
            f"looking back. From no colour at 0 to the darkest at {darkest:.2f}, on a root scale."
        )
        learned.insert(0, Figure("attention", "Attention on the same words", caption, panels))
    return learned, notes


def median_run(group: Group, runs: Sequence[Run]) -> Run:
    """Return the run of the median value, whose pictures represent its group."""
    return sorted(runs, key=lambda run: (group.values[run.seed], run.best_loss))[(len(runs) - 1) // 2]


def _learned(label: str, run: Run, checkpoint: Checkpoint, colour: str) -> list[Figure]:
    with torch.no_grad():
        pictures = checkpoint.model.position.pictures()
    as_rows = needs_rows(pictures.values())
    figures = []
    for name, picture in pictures.items():
        title = f"{picture.title}: {label}"
        drawn = draw_panels(picture, colour, as_rows)
        axes = f" Across: {picture.x_label}, up: {picture.y_label}." if len(drawn) > 1 else ""
        for head, panel in drawn.items():
            panel.axes[0].set_title(head, fontsize="small", loc="left")
        caption = f"{picture.title} of {label}, seed {run.seed}.{axes} {picture.caption}".rstrip()
        figures.append(Figure(f"learned_{label}_{name}", title, caption, [*drawn.values()], small=True))
    return figures


def _read(run: Run, checkpoint: Checkpoint, sentence: str | None, allow_code: bool) -> tuple[Tensor, Tensor | None]:
    """Return token ids (T,) of the sentence, of a task's example or of the beginning of the validation text, and their
    positions (T,), unless they are 0, 1, ..."""
    longest = min(LEGIBLE, checkpoint.model.shape.context_length)
    if sentence is not None:
        ids = checkpoint.vocabulary.encode(sentence, "sentence")
        if not ids:
            raise SettingError("sentence", sentence, "has no tokens")
        return torch.tensor(ids[:longest]), None
    if run.text_path:
        return own_text(checkpoint).tokens[:longest].to(torch.int64), None
    example = legible_example(own_task(checkpoint, allow_code))
    positions = None if example.positions is None else example.positions[0, :longest]
    return example.tokens[0, :longest], positions
