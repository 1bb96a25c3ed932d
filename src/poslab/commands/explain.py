"""Command `explain`: read one run or two, or make a model that is not trained, and write the page about it."""

import os
import shlex
from pathlib import Path

import hydra
import torch

from poslab.config.command_line import command_line
from poslab.config.files import CONFIGS, require_writable, safe_name, write_whole
from poslab.config.nodes import TARGET, shown, with_settings
from poslab.config.schema import DataConfig
from poslab.config.schemes import node_of
from poslab.config.scripts import ExplainConfig
from poslab.config.train import parse, resolved
from poslab.data.corpus import corpus_of
from poslab.errors import SettingError, UserError, as_typed
from poslab.evaluation.files import own_task, own_text
from poslab.explanation.model_under_study import ModelUnderStudy, examine, require_comparable
from poslab.explanation.page import MARK, write
from poslab.explanation.probe_data import task_probes, text_probes
from poslab.model.decoder import GPT
from poslab.model.memory import decoder_of
from poslab.processors import compute_on
from poslab.runs.checkpoint import Checkpoint, listed, load_checkpoint
from poslab.runs.folder import RunFolder
from poslab.runs.summary import Summary

_NAME = "explanation"
_NEEDS_POSITION = "three_back"  # the experiment that is offered for a model that makes no use of position
_MOST = 2  # models side by side


def run_explanation(config: ExplainConfig, command: str) -> Path:
    """Write the page and return its path. Raises UserError for whatever the user can put right."""
    compute_on(config.threads)
    if config.ckpt:
        paths = _runs_of_a_sweep(config.ckpt[0]) if len(config.ckpt) == 1 else config.ckpt
        checkpoints = [load_checkpoint(path, allow_code=config.allow_code) for path in paths]
        for checkpoint in checkpoints:
            checkpoint.require_its_code()
        if newest := dict(zip(paths, checkpoints, strict=True)).get("last"):  # another one, when it is made again
            path = str(newest.run or newest.path)
            command = shlex.join(path if word in ("last", "ckpt=last") else word for word in shlex.split(command))
        out = _out(config, checkpoints)
        studies = [_trained(label, checkpoint, config) for label, checkpoint in _labelled(checkpoints).items()]
    else:
        out = _out(config, [])
        studies = [_untrained(config)]
    if len(studies) == 2:
        require_comparable(*studies)
    findings = []
    for study in studies:
        print(f"measuring  {study.label} ...", flush=True)
        findings.append(examine(study))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, write(findings, command, command_line("train", "-m", f"experiment={_NEEDS_POSITION}")))
    print(f"page       {out}")
    return out


def _runs_of_a_sweep(path: str) -> list[str]:
    """Return the finished runs in a folder of runs, the one of the lowest loss first; of another path itself."""
    folder = RunFolder(Path(os.path.expanduser(path)))
    files = [] if folder.is_run else folder.path.glob("*/summary.json")
    summaries = {file.parent: Summary.read(file) for file in files}
    if len(summaries) > _MOST:
        problem = f"has {len(summaries)} runs; name one, or {_MOST} to stand side by side: {listed(sorted(summaries))}"
        raise SettingError("ckpt", path, problem)
    runs = sorted(summaries, key=lambda run: summaries[run].best_val_loss or 0.0)
    return [str(run) for run in runs] or [path]


def _out(config: ExplainConfig, checkpoints: list[Checkpoint]) -> Path:
    """Return the page's path. Raises SettingError where it can't be written, or holds no page of this command."""
    if config.out is not None:
        out = Path(os.path.expanduser(config.out))
    elif len(checkpoints) > len(config.ckpt):  # the folder of a sweep
        out = Path(os.path.expanduser(config.ckpt[0])) / f"{_NAME}.html"
    elif checkpoints:
        first, *others = checkpoints
        beside = first.run.path if first.run is not None else first.path.parent
        names = [_NAME, *([] if first.run is not None else [first.path.stem]), *map(_name, others)]
        out = beside / f"{'-'.join(names)}.html"
    else:
        out = Path(f"{_NAME}-{safe_name(_scheme(config) or 'scheme')}.html")
    if out.is_dir():
        raise SettingError("out", out, "is a folder; name a file in it")
    if out.exists() and MARK not in out.read_text(encoding="utf-8", errors="replace")[:1000]:
        raise SettingError("out", out, "is there already, and no page of this script; name another file")
    try:
        require_writable("out", out.parent)
    except SettingError as error:
        raise SettingError("out", out, error.problem) from error
    return out


def _labelled(checkpoints: list[Checkpoint]) -> dict[str, Checkpoint]:
    """Return the checkpoints by their names on the page: the schemes or, where these are the same, with their runs."""
    schemes = [checkpoint.pos_name for checkpoint in checkpoints]
    if len(set(schemes)) == len(checkpoints):
        return dict(zip(schemes, checkpoints, strict=True))
    named = {f"{checkpoint.pos_name} ({_name(checkpoint)})": checkpoint for checkpoint in checkpoints}
    if len(named) < len(checkpoints):
        return {f"{checkpoint.pos_name} ({checkpoint.path})": checkpoint for checkpoint in checkpoints}
    return named


def _name(checkpoint: Checkpoint) -> str:
    return safe_name(checkpoint.run.path.resolve().name if checkpoint.run is not None else checkpoint.path.stem)


def _trained(label: str, checkpoint: Checkpoint, config: ExplainConfig) -> ModelUnderStudy:
    model, notes = checkpoint.model, []
    probe_data = None
    try:
        if "path" in (checkpoint.config.get("data") or {"path": None}):
            text = own_text(checkpoint)
            probe_data = text_probes(text.name, text.tokens, model, text.ends)
        else:
            probe_data = task_probes(own_task(checkpoint, config.allow_code), model)
        probe_data = probe_data.with_sentence(checkpoint.vocabulary, config.sentence, model.shape.context_length)
    except UserError as error:
        if isinstance(error, SettingError) and error.option == "sentence":
            raise
        print(f"note       {error}")
        notes.append(f"{label}: what the model does with a text: {error}")
    facts = _facts(model) | {"run": str(checkpoint.run or checkpoint.path)}
    try:
        loss = _validation_loss(checkpoint)
    except ValueError as error:
        loss = None
        notes.append(f"{label}: the loss of its validation: {error}")
    return ModelUnderStudy(label, model, checkpoint.vocabulary, facts, probe_data, validation_loss=loss, notes=notes)


def _validation_loss(checkpoint: Checkpoint) -> float | None:
    """Return the validation loss that the run had with these weights; None if it isn't known. Raises ValueError for a
    file that is no summary."""
    run = checkpoint.run
    if run is None or not run.summary.exists():
        return None
    summary = Summary.read(run.summary)
    return {run.best: summary.best_val_loss, run.last: summary.last_val_loss}.get(checkpoint.path)


def _scheme(config: ExplainConfig) -> str:
    """Return the scheme that is typed as pos=NAME; of a class nothing."""
    name = config.pos.get(TARGET, "")
    return "" if "." in name else name


def _untrained(config: ExplainConfig) -> ModelUnderStudy:
    """Return the model at its initialisation, as train would begin with it."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        plain = resolved(hydra.compose("train"))
    parsed = parse(plain | {"pos": with_settings(plain["pos"], config.pos)}, _scheme(config) or None)
    assert isinstance(parsed.data, DataConfig)  # that of train.yaml
    corpus = corpus_of(parsed.data)
    torch.manual_seed(parsed.settings.seed)
    model = decoder_of(parsed.pos, vocab_size=corpus.vocabulary.size, **parsed.model.arguments).eval()
    text = text_probes(f"{corpus.name}, validation part", corpus.validation, model)
    text = text.with_sentence(corpus.vocabulary, config.sentence, model.shape.context_length)
    facts = _facts(model) | {"training": "none: as it is made, before its first step"}
    return ModelUnderStudy(parsed.pos_name, model, corpus.vocabulary, facts, text, trained=False)


def _facts(model: GPT) -> dict[str, str]:
    shape, counts = model.shape, model.parameter_counts()
    settings = {name: value for name, value in shown(node_of(model.pos)).items() if name != TARGET}
    is_shorter = shape.training_length < shape.context_length
    trained = f", of which training used {shape.training_length}" if is_shorter else ""
    return {
        "settings": ", ".join(f"{name}={as_typed(value)}" for name, value in settings.items()) or "none",
        "learned for position": f"{counts['scheme']:,} of {counts['total']:,} parameters",
        "model": f"{_many(shape.num_layers, 'layer')} of {_many(shape.num_heads, 'head')}, {shape.embed_dim} wide",
        "context": f"{shape.context_length} tokens{trained}",
        **{f"note {n}" if n > 1 else "note": text for n, text in enumerate(model.pos.warnings(shape), 1)},
    }


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"
