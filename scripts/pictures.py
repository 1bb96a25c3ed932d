"""Draw the pictures of data/learn from trained runs: `python scripts/pictures.py`, and `--help` for its settings."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from poslab.checked import Checked
from poslab.commands.cli import plain_command, run_program
from poslab.config.fields import setting
from poslab.errors import UserError
from poslab.evaluation.files import own_text
from poslab.evaluation.pictures import attention_figure, attention_maps, draw, sample_pairs
from poslab.evaluation.probes import Probes, probe, spread
from poslab.metric import LAST_TOKENS_LOSS
from poslab.positions import Curves, Matrix
from poslab.processors import compute_on
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.summary import Summary
from seedstats.page.svg import svg

SAMPLE = 24  # characters whose attention is drawn


@dataclass
class PicturesConfig(Checked):
    """Draw the pictures of data/learn from the runs that its commands train.

    Examples
      python scripts/pictures.py
      python scripts/pictures.py runs=runs/mine to=pictures
    """

    runs: str = setting("runs/learn", help="a folder of finished runs on one text")
    to: str = setting("data/learn/pictures", help="the folder for the pictures; each run's is named after its folder")


def main(config: PicturesConfig, _: str) -> None:
    compute_on(None)
    folders = sorted(summary.parent for summary in Path(config.runs).glob("*/summary.json"))
    if not folders:
        raise UserError(f"runs={config.runs}: no finished run; data/learn/README.md has the commands that train them")
    runs = {folder.name: load_checkpoint(folder) for folder in folders}
    text = own_text(next(iter(runs.values()))).tokens
    figures = {name: figure for name, run in runs.items() if (figure := of_scheme(run, text))}
    metrics = {folder.name: Summary.read(folder / "summary.json").metrics[LAST_TOKENS_LOSS] for folder in folders}
    figures["lengths"] = losses_by_length(metrics)
    figures["probes"] = position_errors(runs, text)
    rotary = {name: run for name, run in runs.items() if hasattr(run.model.pos, "interleaved")}
    figures |= {f"{name}_pairs": pairs(run, text) for name, run in rotary.items()}
    Path(config.to).mkdir(parents=True, exist_ok=True)
    for name, figure in figures.items():
        file = Path(config.to) / f"{name}.svg"
        file.write_text(svg(figure))
        print(f"{file}  {file.stat().st_size / 1024:.0f} KB")


def of_scheme(run: Checkpoint, text: Tensor) -> Figure | None:
    """Draw the first picture that the scheme has of itself: what it learned, or else what it computes."""
    model = run.model
    found = model.position.pictures() | model.position.explanations(sample_pairs(model, text[:SAMPLE].long()))
    return next((draw(picture) for picture in found.values() if isinstance(picture, Curves | Matrix)), None)


def losses_by_length(losses: Mapping[str, Mapping[str, float]]) -> Figure:
    """Draw the loss of the same last characters with ever more context; a scheme that ends at a length has none."""
    lengths = sorted({int(length) for by_length in losses.values() for length in by_length})
    lines = {
        name: torch.tensor([by_length.get(str(length), math.nan) for length in lengths])
        for name, by_length in losses.items()
    }
    title = "Loss of the last characters of a window"
    figure = draw(Curves(title, "characters in the window", "loss, nats per character", lengths, lines))
    axes = figure.axes[0]
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [str(length) for length in lengths])
    return figure


def position_errors(runs: Mapping[str, Checkpoint], text: Tensor) -> Figure:
    """Draw how far off a linear probe is that reads the position from hidden states."""
    probes = {name: probe(run.model, spread(text, run.model.shape.context_length)) for name, run in runs.items()}
    found: dict[str, Probes] = {name: of_run for name, of_run in probes.items() if of_run is not None}
    lines = {name: of_run.errors for name, of_run in found.items()}
    middle = next(iter(found.values())).middle
    layers = len(next(iter(lines.values())))
    lines["guessing the middle"] = torch.full((layers,), middle)
    picture = Curves("Position read from hidden states", "blocks passed", "error, tokens", [*range(layers)], lines)
    figure = draw(picture)
    figure.axes[0].set_xticks(range(layers))
    figure.axes[0].set_ylim(0, 1.6 * middle)  # so that the legend finds room above the lines
    return figure


def pairs(run: Checkpoint, text: Tensor) -> Figure:
    """Draw the attention of a run with its own pairs of channels, and with the other convention's."""
    settings = {"interleaved": str(not run.model.pos.interleaved).lower()}  # type: ignore[attr-defined]
    other, sample = load_checkpoint(run.path, settings=settings), text[:SAMPLE].long()
    maps = {name: attention_maps(of.model, sample) for name, of in {"as trained": run, "wrong pairs": other}.items()}
    return attention_figure(maps, [run.vocabulary.decode([token]) for token in sample.tolist()])


if __name__ == "__main__":
    run_program(plain_command("pictures", PicturesConfig, main).run, sys.argv[1:])
