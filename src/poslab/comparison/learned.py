"""Learned tables and attention of the compared models: pictures, and how far training moved the tables."""

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from poslab.comparison.compare import Comparison
from poslab.comparison.groups import Group
from poslab.errors import SettingError, UserError
from poslab.evaluation.files import own_task, own_text
from poslab.evaluation.pictures import LEGIBLE, attention_figure, attention_maps, draw
from poslab.evaluation.task_metrics import legible_example
from poslab.positions import Curves
from poslab.report.blocks import Figure, Table
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.checkpoint_files import start_and_best
from poslab.runs.folder import RunFolder
from poslab.runs.load import Run

_DRIFT = (
    "Root mean squares of each table's numbers before training and of their change up to the best weights, means over "
    "seeds. AdamW moves a number by about its learning rate in a step, so a table whose change is near learning rate x "
    "steps may still have been on its way; what never moved was never trained."
)


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
    if run.text_path:
        return own_text(checkpoint).tokens[:longest].to(torch.int64), None
    example = legible_example(own_task(checkpoint, allow_code))
    positions = None if example.positions is None else example.positions[0, :longest]
    return example.tokens[0, :longest], positions


def drift(run: Run) -> pd.DataFrame:
    """Return how far training moved each table of a run, a row by its name; none if not known.

    numbers: of the table. start, moved: root mean squares, of the table and of its change up to the best weights.
    of_most: the latter as a proportion of the peak learning rate times the steps, as AdamW moves a number by about its
    learning rate in a step. still: the proportion of numbers that did not change.
    """
    optim, steps = run.config["optim"], run.summary.best_step
    most = optim["learning_rate"] * optim["position_learning_rate_factor"] * steps
    rows = {}
    for name, (start, best) in start_and_best(RunFolder(run.folder)).items():
        change = best.double() - start.double()
        moved = _rms(change)
        sizes = {"numbers": start.numel(), "start": _rms(start), "moved": moved}
        rows[name] = sizes | {"of_most": moved / most if most else 0.0, "still": float((change == 0).double().mean())}
    return pd.DataFrame.from_dict(rows, orient="index")


def drift_table(groups: Sequence[Group]) -> Table | None:
    """Return a table of means over seeds, for the groups with known drift in all runs, or None if there are none."""
    columns = ("scheme", "table", "numbers", "at the start", "moved by", "of learning rate x steps", "never moved")
    rows = []
    for group in groups:
        for name, of_runs in pd.concat([drift(run) for run in group.runs]).groupby(level=0, sort=False):
            if len(of_runs) == len(group.runs):
                numbers, start, moved, of_most, still = of_runs.mean()
                cells = [f"{numbers:,.0f}", f"{start:.3g}", f"{moved:.3g}", f"{of_most:.0%}", f"{still:.0%}"]
                rows.append([group.label, name, *cells])
    return Table("How far training moved what schemes learn", columns, rows, _DRIFT) if rows else None


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())
