"""Command `evaluate`: a table on the screen, and its figures in a file beside the checkpoint."""

import hashlib
import math
import sys
from pathlib import Path

from poslab.config.files import safe_name
from poslab.config.nodes import TARGET
from poslab.config.scripts import EvaluateConfig
from poslab.errors import SettingError, as_typed
from poslab.evaluation.files import Text, evaluate_checkpoint, other_text, own_text, write_evaluation
from poslab.metric import perplexity
from poslab.processors import compute_on
from poslab.runs.checkpoint import Checkpoint, choose_device, load_checkpoint
from poslab.runs.evaluation import STRETCH, Evaluation, every_stretch
from poslab.runs.folder import EVALUATION
from seedstats.page.terminal import table

_LOSSES = ("loss", "perplexity", "sliding loss", "perplexity")
_COLUMNS = ("length", *_LOSSES, "stride", "at start", "at end", "last", "gain", "")


def run_evaluation(config: EvaluateConfig) -> Evaluation:
    """Evaluate, print and write. Raises UserError for whatever the user can put right."""
    compute_on(config.threads)
    checkpoint = load_checkpoint(config.ckpt, choose_device(config.device), config.allow_code, config.pos)
    text = own_text(checkpoint) if config.data_path is None else other_text(checkpoint, config.data_path)
    trained = f"{checkpoint.pos_name}, trained on {checkpoint.model.shape.context_length} tokens"
    print(f"checkpoint  {checkpoint.path} ({trained})")
    if checkpoint.settings:
        print(f"settings    {checkpoint.settings_in_words}")
    if len(checkpoint.model.position.draws) > 1:
        print(f"positions   drawn as in training; figures are means over {len(checkpoint.model.position.draws)} draws")
    tokens = len(text.tokens) - 1
    every = every_stretch(tokens, config.tokens)
    counted = f"1 in {every} of {tokens:,} tokens counts, in stretches of {STRETCH:,}"
    counted = counted if every > 1 else f"the same {tokens:,} tokens count, all but the first"
    print(f"text        {text.name}; at every length, {counted}\n")
    memory_lengths = None if config.model is None else config.model.memory_length
    evaluation = evaluate_checkpoint(
        checkpoint, text, config.lengths, config.stride, config.last, memory_lengths, config.tokens
    )
    measured = [result.loss for result in evaluation.lengths if result.loss is not None]
    if not all(map(math.isfinite, [*measured, *evaluation.memory_losses.values()])):
        problem = "its losses are not finite: its training diverged, or such settings are not for it"
        raise SettingError("ckpt", checkpoint.path, problem)
    _print(evaluation)
    _print_by_memory(evaluation, checkpoint.config["model"].get("memory_length", 0))
    _write(checkpoint, text, evaluation, own=config.data_path is None)
    return evaluation


def _print(evaluation: Evaluation) -> None:
    rows = []
    for result in evaluation.lengths:
        if result.loss is None or result.sliding_loss is None:
            rows.append([str(result.length), *["n/a"] * (len(_COLUMNS) - 2), result.note])
            continue
        losses, gain = result.by_position or [], evaluation.context_gains.get(result.length)
        eighth = max(1, len(losses) // 8)
        row = [str(result.length)]
        for loss in (result.loss, result.sliding_loss):
            row += [f"{loss:.4f}", f"{perplexity(loss):,.1f}"]
        row += [str(result.stride), *(f"{sum(of) / eighth:.4f}" for of in (losses[:eighth], losses[-eighth:]))]
        row.append("" if result.last_loss is None else f"{result.last_loss:.4f}")
        rows.append([*row, "" if gain is None else f"{gain:+.4f}", ""])
    told = dict(zip(("last", "gain"), zip(*(row[-3:-1] for row in rows), strict=True), strict=True))
    empty = [name for name, cells in told.items() if not any(cells)]  # as where no length is the one of training
    shown = [number for number, name in enumerate(_COLUMNS) if name not in empty]
    header, *cells = ([row[number] for number in shown] for row in (_COLUMNS, *rows))
    print(table(header, cells, align=">" * (len(shown) - 1) + "<"))
    print("loss: of windows that follow each other. sliding: windows move by the stride and only what is new counts.")
    print("at start, at end: mean loss in the first and the last eighth of sliding windows.")
    last = next((result.last for result in evaluation.lengths), None)
    if "last" not in empty:
        print(f"last: loss of the last {last} tokens of windows that end at the same places at every length.")
    if "gain" not in empty:
        print("gain: how much lower `last` is than at the training length; below 0 it is higher.")


def _print_by_memory(evaluation: Evaluation, trained: int) -> None:
    losses = evaluation.memory_losses
    if not losses:
        return
    none = losses.get("0")
    rows = []
    for length, loss in losses.items():
        gain = "" if none is None or length == "0" else f"{none - loss:+.4f}"
        note = "as trained" if int(length) == trained else ""
        rows.append([length, f"{loss:.4f}", f"{perplexity(loss):,.1f}", gain, note])
    print()
    print(table(["memory", "loss", "perplexity", "gain", ""], rows, align=">>>><"))
    print("memory: tokens remembered before each window of the training length; windows follow each other.")
    print("gain: what they take off the loss without.")


def _write(checkpoint: Checkpoint, text: Text, evaluation: Evaluation, own: bool) -> None:
    """Write into the run's folder, or beside a checkpoint that is in none; other texts, checkpoints and settings get
    other names. Where nothing can be written, a note says so: the figures are on the screen."""
    run, path = checkpoint.run, checkpoint.path
    name_parts = [] if run is not None and path == run.best else [path.stem]
    name_parts += [] if own else [_short(text.name)]
    if checkpoint.settings:
        named = {name.replace(TARGET, "pos"): as_typed(value) for name, value in checkpoint.settings.items()}
        name_parts.append(_short("-".join(f"{name}_{value}" for name, value in named.items())))
    name = "-".join([Path(EVALUATION).stem, *name_parts]) + Path(EVALUATION).suffix
    file = (run.path if run else path.parent) / name
    try:
        write_evaluation(file.parent, text, evaluation, file.name)
        print(f"\nwritten     {file}")
    except OSError as error:
        print(f"note: {file} can't be written: {error.strerror}", file=sys.stderr)


def _short(name: str) -> str:
    """Return the name as part of a file's name; a long one ends in a hash of all of it."""
    short = safe_name(name, len(name))
    return short if len(short) <= 80 else f"{short[:71]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
