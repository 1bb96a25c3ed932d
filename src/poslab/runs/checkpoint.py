"""Checkpoints read back: the description that each holds, and the model that it describes."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from poslab.config.checking import checked
from poslab.config.files import EXPORTED, missing
from poslab.config.nodes import TARGET, shown, with_settings
from poslab.config.schema import ModelConfig
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.trust import require_trusted
from poslab.data.tokenizer import AnyVocabulary, Symbols, Vocabulary, load_tokenizer
from poslab.errors import SettingError, as_typed, lacks_memory
from poslab.model.architectures import ARCHITECTURES, tables_of
from poslab.model.decoder import GPT
from poslab.model.memory import decoder_of
from poslab.positions import PositionScheme
from poslab.positions.combined import Wrapper
from poslab.positions.sizes import check_sizes, initial_tables
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.code import edited
from poslab.runs.folder import RunFolder, run_at
from poslab.runs.saved_weights import INDEX, require_fractions


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Model in eval mode, and what is known of its training.

    edited: the classes, of its scheme or its block, whose code has changed since, so that the model may be another one;
    empty if none.
    config: every setting of its training, in plain values.
    settings: those of the scheme that are others than in training, of another scheme those that were given;
    trained_with: the same ones, as they were then.
    """

    path: Path
    model: GPT
    vocabulary: AnyVocabulary
    pos_name: str
    data_sha256: str
    edited: str
    config: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    trained_with: dict[str, Any] = field(default_factory=dict)

    @property
    def settings_in_words(self) -> str:
        """Return the settings of its scheme that are others than in training; empty if none are."""
        now, then = (
            " ".join(f"{_option(name)}={as_typed(value)}" for name, value in settings.items())
            for settings in (self.settings, self.trained_with)
        )
        return f"{now} (trained with {then})" if now else ""

    def require_its_code(self) -> None:
        """Raise SettingError if measurements would be another model's."""
        if self.edited:
            problem = (
                f"the code of {self.edited} has changed since it was trained, so its losses may be another model's"
            )
            raise SettingError("ckpt", self.path, problem)

    @property
    def run(self) -> RunFolder | None:
        """Return the run that wrote it; None for a file somewhere else."""
        run = RunFolder(self.path.parent.parent)
        return run if self.path.parent.name == run.checkpoints.name and run.config.exists() else None


def find_checkpoint(path: str | Path) -> Path:
    """Return the file itself, or the best weights of a run folder, else its last checkpoint. Raises SettingError for
    none."""
    place = run_at(path)
    begun = [] if place.exists() else _runs_begun(place)
    if len(begun) == 1:
        print(f"note: {path} is {begun[0]}", file=sys.stderr)
        place = begun[0]
    run = RunFolder(place)
    try:
        for candidate in (place, run.best, run.last, place / EXPORTED, place / INDEX):
            if candidate.is_file():
                return candidate
    except OSError as error:
        raise SettingError("ckpt", path, f"can't be read: {error.strerror}") from error
    runs = sorted(config.parent for config in place.glob("*/config.yaml"))
    if runs:
        raise SettingError("ckpt", path, f"is a folder of runs; name one of them: {listed(runs)}")
    if begun:
        raise SettingError("ckpt", path, f"several runs begin so; name one of them: {listed(begun)}")
    raise SettingError("ckpt", path, missing(place, "no such file, nor a run folder with a checkpoint"))


_LISTED = 8  # runs that an error names


def listed(runs: Sequence[Path]) -> str:
    """Return runs by their paths, the first of many."""
    more = [f"and {len(runs) - _LISTED:,} more"] if len(runs) > _LISTED else []
    return ", ".join([*map(str, runs[:_LISTED]), *more])


def _runs_begun(path: Path) -> list[Path]:
    """Return the run folders whose paths begin with this one, which may end in dots, as commands in texts do."""
    start = path.name.rstrip(".…")
    try:
        beside = sorted(path.parent.iterdir()) if start else []
    except OSError:  # of a folder that isn't there, or may not be read
        return []
    return [folder for folder in beside if folder.name.startswith(start) and RunFolder(folder).is_run]


def choose_device(name: str) -> str:
    """Return cpu or cuda for auto, cpu or cuda. Raises SettingError for a GPU that torch doesn't see."""
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device", name, "torch sees no GPU; valid here: auto, cpu")
    return "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")


def load_checkpoint(
    file_or_run: str | Path,
    device: str = "cpu",
    allow_code: bool = False,
    settings: Mapping[str, str] | None = None,
    named: Collection[str] = (),
) -> Checkpoint:
    """Load the model of a file or a run folder, its weights as they were written. Loading runs no code of the file's:
    its scheme and block are poslab's own (`config.trust`), of classes in `named`, or any where `allow_code` says so.

    settings: of the scheme, as text by name, in the place of those that it was trained with.

    Raises SettingError for a file that is no complete checkpoint of poslab's, and for settings that its tables don't
    fit.
    """
    path = find_checkpoint(file_or_run)
    try:
        content = read_checkpoint(path)
        about = content["poslab"]
        require_trusted(about["config"], ("pos", "model"), named, allow_code)
        scheme = parse_scheme(about["config"]["pos"])
        if whose := edited(about, scheme, about["config"]["model"]):
            print(f"warning: {path}: the code of {whose} has changed since it was trained", file=sys.stderr)
        vocabulary = vocabulary_of(about)
        config, pos_name, sha256 = dict(about["config"]), str(about["pos"]), str(about["data_sha256"])
        model = _model(scheme, vocabulary.size, config["model"], content).to(device)
    except ValueError as error:
        raise SettingError("ckpt", path, str(error)) from error
    except (RuntimeError, MemoryError) as error:
        if not lacks_memory(error):
            raise
        raise SettingError("ckpt", path, "there is not enough memory for it") from error
    model.tokenizer, model.position.seed = vocabulary, int(config["seed"])
    checkpoint = Checkpoint(path, model.eval(), vocabulary, pos_name, sha256, whose, config)
    return _with_settings(checkpoint, settings) if settings else checkpoint


def load(
    path: str | Path, device: str = "cpu", allow_code: bool = False, settings: Mapping[str, Any] | None = None
) -> GPT:
    """Loads the model of a checkpoint file or a run folder, in eval mode, its vocabulary as `model.tokenizer`.

    settings: of the scheme, {"scaling": "yarn", "factor": 4}, in the place of those that it was trained with. The rest
    is as in `load_checkpoint`. Raises SettingError for what can't be loaded.
    """
    as_text = {name: as_typed(value) for name, value in (settings or {}).items()}
    return load_checkpoint(path, device, allow_code, as_text).model


def _with_settings(checkpoint: Checkpoint, settings: Mapping[str, str]) -> Checkpoint:
    """Return the checkpoint with other settings of its scheme. Raises SettingError if these need other tables."""
    model, before = checkpoint.model, node_of(checkpoint.model.pos)
    scheme = parse_scheme(with_settings(before, settings))
    inner_given = any(name.partition(".")[0] == "of" for name in settings)
    names_given = {name.removesuffix(f".{TARGET}") for name in settings}
    if isinstance(scheme, Wrapper) and not (inner_given or isinstance(model.pos, type(scheme))):  # around what it is
        scheme = replace(scheme, of=model.pos)
        names_given.add("of")
    then, now = (shown(node) for node in (before, node_of(scheme)))
    differing = [name for name in now if now[name] != then.get(name)]
    if not differing:
        return checkpoint
    try:
        check_sizes(scheme, model.shape)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("pos") from None
    if TARGET in differing:  # of another class's settings those that were given
        differing = [name for name in differing if name in names_given]
    trained = dict(model.position_tables.named_parameters())
    needed = initial_tables(scheme, model.shape)
    has, needs = ({name: tuple(table.shape) for name, table in tables.items()} for tables in (trained, needed))
    if has != needs:
        learned, wanted = (", ".join(f"{name} {of[name]}" for name in of) or "none" for of in (has, needs))
        problem = f"needs the learned tables {wanted}; this run learned {learned}"
        raise SettingError(_option(differing[0]), now[differing[0]], problem)
    earlier = model.pos.warnings(model.shape)
    model.replace_scheme(scheme)
    for warning in scheme.warnings(model.shape):
        if warning not in earlier:
            print(f"warning: {warning}", file=sys.stderr)
    return replace(
        checkpoint,
        settings={name: now[name] for name in differing},
        trained_with={name: then[name] for name in differing if name in then},
    )


def _option(name: str) -> str:
    """Return the name on the command line of a setting of the scheme, or of the scheme itself."""
    return "pos" if name == TARGET else f"pos.{name}"


def vocabulary_of(about: dict[str, Any]) -> AnyVocabulary:
    """Return the vocabulary of the data that a checkpoint was trained on; about: its description."""
    if about.get("symbols"):
        return Symbols(tuple(map(str, about["symbols"])))
    encoding, observed = load_tokenizer(about["config"]["data"]["encoding"]), about["observed"]
    if observed is not None and (observed >= encoding.n_vocab).any():
        raise ValueError(f"its vocabulary has tokens that {encoding.name} doesn't have")
    return Vocabulary(encoding, observed)


def _model(scheme: PositionScheme, vocab_size: int, settings: dict[str, Any], content: dict[str, Any]) -> GPT:
    """Load weights into the model described. Raises ValueError if they are not those of that model."""
    without_training = {"compile": False, "dropout": 0.0, "attention_backend": "auto"}  # which takes linear memory
    sizes = checked(ModelConfig, settings | without_training, "model")
    if sizes.num_layers > len(content["state_dict"]):  # before so many are made, which could take any time
        raise ValueError("its weights don't fit the model that it describes")
    model = decoder_of(scheme, vocab_size=vocab_size, **sizes.arguments)
    state, architecture = content["state_dict"], ARCHITECTURES.get(content.get("model_type", ""))
    try:
        if architecture is not None:
            state = architecture.to_poslab(state, model) | tables_of(model, architecture, state)
        state = {str(name).removeprefix("model."): weight for name, weight in state.items()}
        if "model_type" in content:  # transformers can add rows, for tokens that this vocabulary doesn't have
            rows = [name for name in ("token_embedding.weight", "head.weight") if name in state]
            state |= {name: state[name][:vocab_size] for name in rows}
        model.load_state_dict(state)
    except (RuntimeError, IndexError) as error:  # IndexError: of a weight without rows
        raise ValueError("its weights don't fit the model that it describes") from error
    require_fractions(model, state)
    return model
