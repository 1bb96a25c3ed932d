"""Evaluation of checkpoints: chooses the text, and keeps the losses in the run folder, as JSON and for TensorBoard."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from poslab.config.checking import checked
from poslab.config.corpora import fingerprint
from poslab.config.fields import MOST_TOKENS
from poslab.config.files import default_cache_dir, write_whole
from poslab.config.hugging_face import on_this_machine
from poslab.config.nodes import TARGET
from poslab.config.schema import APART, DataConfig
from poslab.config.schemes import parse_task
from poslab.config.trust import require_trusted
from poslab.data.corpus import WHOLE, Corpus, Split, load_corpus, reading
from poslab.data.tokenizer import Vocabulary
from poslab.errors import SettingError
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.stream_losses import memory_lengths_of
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.code import task_sha256
from poslab.runs.evaluation import Evaluation, last_tokens, read_evaluation, window_ends
from poslab.runs.folder import EVALUATION, RunFolder
from poslab.runs.load import Run
from poslab.tasks import Task

_EVENTS = ".evaluation"  # ends the name of the event file, so that a new evaluation can replace it


@dataclass(frozen=True, eq=False)
class Text:
    """Text to evaluate on; `tokens` (N,) are ids of the model's vocabulary. ends: where documents end in them."""

    name: str
    sha256: str
    tokens: Tensor
    ends: Tensor | None = None


def default_lengths(context_length: int) -> list[int]:
    """Return window lengths from a quarter of the context to four times it."""
    return sorted({max(1, context_length // 4), max(1, context_length // 2), *(context_length * n for n in (1, 2, 4))})


def held_out(corpus: Corpus) -> Text:
    part, tokens = corpus.held_out
    return Text(f"{corpus.name}, {part} part", corpus.sha256, tokens, corpus.ends.get(part))


def own_text(checkpoint: Checkpoint, path: str | None = None) -> Text:
    """Read the held-out part of the text that the model was trained on: the test part, or else the validation part.

    path: where that text is now; where the run says, nobody is contacted. Raises SettingError where it is gone or has
    changed.
    """
    vocabulary, data = _vocabulary(checkpoint), checkpoint.config["data"]
    elsewhere = nullcontext() if path else on_this_machine(data["path"])
    path = path or str(data["path"])
    try:
        with elsewhere:
            config = _data_config(path, data)
            if fingerprint(path, config.name) == checkpoint.data_sha256:  # it may name any file: no other is tokenised
                cuts = (vocabulary.observed is not None, Split(config.validation_share, config.test_share))
                read = reading(vars(config))
                return held_out(load_corpus(path, vocabulary.encoding, default_cache_dir(), *cuts, **read))
    except (SettingError, OSError) as error:  # OSError: of a name that no system takes
        problem = f"the text it was trained on can't be read ({error}); name one with data_path"
        raise SettingError("ckpt", checkpoint.path, problem) from error
    problem = f"{path} is not the text any more that it was trained on; name one with data_path"
    raise SettingError("ckpt", checkpoint.path, problem)


def _data_config(path: str, data: Mapping[str, Any]) -> DataConfig:
    """Return how a description says that the corpus at `path` is read. Raises SettingError for what no run can have."""
    names = ("encoding", "column", "name", "split", "dtype", "document_separator", "validation_share", "test_share")
    return checked(DataConfig, {name: data[name] for name in names if name in data} | {"path": path}, "")


def own_task(checkpoint: Checkpoint, allow_code: bool) -> Task:
    """Return the task of the model's training. Raises SettingError where it may not be imported, or has changed."""
    node = checkpoint.config["data"]
    try:
        require_trusted(checkpoint.config, ("data",), allow_code=allow_code)
    except ValueError as error:
        raise SettingError("ckpt", checkpoint.path, str(error)) from error
    task = parse_task(node)
    if task_sha256(task) != checkpoint.data_sha256:
        raise SettingError("ckpt", checkpoint.path, f"the code of {node[TARGET]} has changed since it was trained")
    return task


def other_text(checkpoint: Checkpoint, path: str) -> Text:
    """Read all of another text.

    Raises SettingError where it can't be read, or has tokens that the model's vocabulary lacks.
    """
    vocabulary, data = _vocabulary(checkpoint), checkpoint.config["data"]
    try:
        # Cut only where training cut it, too: half words are tokens that the vocabulary has then, and only then.
        same = fingerprint(path, data.get("name")) == checkpoint.data_sha256
        split, read = WHOLE, {name: data[name] for name in ("column", "dtype") if name in data}
        if same:
            config = _data_config(path, data)
            split, read = Split(config.validation_share, config.test_share), reading(vars(config))
        corpus = load_corpus(path, vocabulary.encoding, default_cache_dir(), split=split, **read)
        splits = {name: getattr(corpus, name) for name in ("train", "validation", "test")}
        starts = dict(zip(splits, accumulate(map(len, splits.values()), initial=0), strict=False))
        ends = [starts[name] + split_ends.clamp(max=len(splits[name])) for name, split_ends in corpus.ends.items()]
        tokens = vocabulary.narrow(torch.cat([*splits.values()]))
        return Text(corpus.name, corpus.sha256, tokens, torch.cat(ends) if ends else None)
    except SettingError as error:
        raise SettingError("data_path", path, error.problem) from error


# Settings of a text by which it is read again.
_READ = {"path", "name", "split", "dtype", "document_separator", "column", "validation_share", "test_share"}


def _vocabulary(checkpoint: Checkpoint) -> Vocabulary:
    """Return the model's vocabulary of a text; SettingError for a model of a task."""
    if isinstance(checkpoint.vocabulary, Vocabulary):
        if lacking := sorted(_READ - checkpoint.config["data"].keys()):
            problem = (
                f"its description says nothing of data.{', data.'.join(lacking)}: incomplete, or another version's"
            )
            raise SettingError("ckpt", checkpoint.path, problem)
        return checkpoint.vocabulary
    problem = "was trained on a task, and reads its symbols only; how it does there stands in its run's summary.json"
    raise SettingError("ckpt", checkpoint.path, problem)


def evaluate_checkpoint(
    checkpoint: Checkpoint,
    text: Text,
    lengths: Sequence[int] | None = None,
    stride: int | None = None,
    last: int | None = None,
    memory_lengths: Sequence[int] | None = None,
    most_tokens: int | None = MOST_TOKENS,
) -> Evaluation:
    """Evaluate at `lengths`, and with memories of `memory_lengths`, or at the default ones; `evaluate` has the rest.

    Raises SettingError for a text of fewer than two tokens, for more last tokens than the training length has, for
    memory that the model can't have, and for a scheme whose code is not the one trained: the losses would be kept as
    those of the trained model.
    """
    checkpoint.require_its_code()
    if len(text.tokens) < 2:
        raise SettingError("data_path", text.name, "has fewer than two tokens, so there is none to predict")
    model, context = checkpoint.model, checkpoint.model.shape.context_length
    if last is not None and last > context:
        raise SettingError("last", last, f"must be at most {context}, the training length")
    lengths, memories = lengths or default_lengths(context), memory_lengths_of(model, memory_lengths)
    apart = checkpoint.config["data"].get("documents") == APART
    evaluation = evaluate(model, text.tokens, lengths, stride, last, memories, text.ends, most_tokens, apart)
    return replace(evaluation, settings=checkpoint.settings, trained_with=checkpoint.trained_with)


def evaluate_run(
    folder: Path,
    lengths: Sequence[int] | None = None,
    stride: int | None = None,
    last: int | None = None,
    *,
    text: Text | None = None,
    data_path: str | None = None,
    allow_code: bool = False,
    named: Collection[str] = (),
) -> Evaluation:
    """Evaluate the best weights of a run on its own text, and write the result into its folder where that is possible.

    text: the run's own, where it is at hand. data_path: where that text is now. allow_code, named: as in
    `load_checkpoint`. Raises SettingError for a checkpoint or a text that can't be read.
    """
    checkpoint = load_checkpoint(folder, allow_code=allow_code, named=named)
    text = text or own_text(checkpoint, data_path)
    evaluation = evaluate_checkpoint(checkpoint, text, lengths, stride, last)
    with suppress(OSError, UnicodeError):  # then it is evaluated anew each time
        return write_evaluation(folder, text, evaluation)
    return evaluation


def evaluation_seconds(run: Run) -> float:
    """Estimate how long `evaluate_run` takes, from the speed of the run's training: a pass without gradients takes a
    third of a step. 0 where that speed is not known."""
    summary = run.summary
    tokens = summary.test_tokens or summary.validation_tokens or 0
    context, counted = summary.context_length, min(tokens, MOST_TOKENS)
    lengths = default_lengths(context)
    windows = len(window_ends(context, tokens, last_tokens(context), MOST_TOKENS))
    read = 3 * counted * len(lengths) + windows * sum(lengths)
    return read / (3 * summary.tokens_per_s) if summary.tokens_per_s else 0.0


def write_evaluation(folder: Path, text: Text, evaluation: Evaluation, file: str = EVALUATION) -> Evaluation:
    """Write an evaluation to the folder's file and to TensorBoard; return it with what the file keeps beside it.

    Other lengths of the same weights, settings and text are kept, without losses of other last tokens.
    """
    earlier = read_evaluation(folder, text.sha256, file)
    same = ("weights_sha256", "settings", "most_tokens")
    if earlier is not None and all(getattr(earlier, name) == getattr(evaluation, name) for name in same):
        measured = {result.length for result in evaluation.lengths}
        last = {result.last for result in evaluation.lengths}
        kept = [
            result if result.last in last else replace(result, last=None, last_loss=None)
            for result in earlier.lengths
            if result.length not in measured
        ]
        lengths = sorted([*kept, *evaluation.lengths], key=lambda result: result.length)
        memories = earlier.memory_losses | evaluation.memory_losses
        by_length = {length: memories[length] for length in sorted(memories, key=int)}
        evaluation = replace(evaluation, lengths=lengths, memory_losses=by_length)
    plain: dict[str, Any] = {"text": text.name, "text_sha256": text.sha256, **evaluation.plain()}
    write_whole(folder / file, json.dumps(plain) + "\n")
    if file != EVALUATION:
        return evaluation
    scalars: dict[str, dict[int, float]] = {}
    for result in evaluation.lengths:
        if result.loss is None or result.sliding_loss is None:
            continue
        scalars.setdefault("vs_length/loss_non_overlapping", {})[result.length] = result.loss
        scalars.setdefault("vs_length/loss_sliding", {})[result.length] = result.sliding_loss
        if result.length == evaluation.context_length:
            scalars["vs_position/loss"] = dict(enumerate(result.by_position or []))
    scalars["vs_memory/loss"] = {int(length): loss for length, loss in evaluation.memory_losses.items()}
    scalars |= {"vs_length/loss_last": evaluation.last_losses, "vs_length/context_gain": evaluation.context_gains}
    write_scalars(folder, scalars)
    return evaluation


def write_scalars(folder: Path, scalars: Mapping[str, Mapping[int, float]]) -> None:
    """Write curves of an evaluation, by name, for TensorBoard, in place of those of an earlier one.

    TensorBoard shows names in alphabetical order: `vs_length/...` stands after `train` and `val`.
    """
    for path in RunFolder(folder).events:
        if path.name.endswith(_EVENTS):
            path.unlink()
    with SummaryWriter(str(folder), filename_suffix=_EVENTS) as writer:
        for name, curve in scalars.items():
            for step, value in curve.items():
                writer.add_scalar(name, value, step)
