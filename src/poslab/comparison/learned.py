"""Pictures of the compared models: learned tables and attention."""

import torch
from torch import Tensor

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_task, own_text
from poslab.evaluation.pictures import LEGIBLE, attention_figure, attention_maps, draw
from poslab.evaluation.task_metrics import legible_example
from poslab.report.blocks import Figure
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.load import Run


def model_panels(comparison: Comparison, sentence: str | None, allow_code: bool) -> tuple[list[Figure], list[str]]:
    """Return (panels of attention and learned tables of each group's median run, notes).

    sentence: the text whose attention is drawn; None: the beginning of the validation text, or an example of the task.
    """
    learned: list[Figure] = []
    notes, words = list[str](), list[str]()
    maps: dict[str, Tensor] = {}
    for group in comparison.groups:
        try:
            checkpoint = load_checkpoint(group.median_run.folder, allow_code=allow_code)
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
    runs = f"in the runs of the median {comparison.score.metric.name}"
    caption = f"Mean over layers and heads, {runs}. Each row is a token looking back."
    if maps:
        picture = attention_figure(maps, words)
        learned.insert(0, Figure("attention", "Attention on the same words", caption, picture))
    return learned, notes


def _learned(group: Group, checkpoint: Checkpoint) -> list[Figure]:
    with torch.no_grad():
        pictures = checkpoint.model.pictures()
    panels = []
    for name, picture in pictures.items():
        title = f"{picture.title}: {group.label}"
        caption = f"{group.label}, seed {group.median_run.seed}. {picture.caption}".rstrip(". ")
        panels.append(Figure(f"learned_{group.label}_{name}", title, caption, draw(picture), small=True))
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
    if run.text_path:
        return own_text(checkpoint).tokens[:longest].to(torch.int64), None
    example = legible_example(own_task(checkpoint, allow_code))
    positions = None if example.positions is None else example.positions[0, :longest]
    return example.tokens[0, :longest], positions
