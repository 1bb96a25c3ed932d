"""What a checkpoint says of itself beside its weights, and the model back from it."""

from __future__ import annotations

import os
import pickle
import sys
import warnings
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poslab.data.corpus import Corpus
from poslab.data.tokenizer import load_tokenizer
from poslab.data.vocabulary import Vocabulary
from poslab.errors import SettingError
from poslab.model import GPT
from poslab.positions import PositionScheme
from poslab.runs.code import changed, is_outside
from poslab.settings.train import ModelConfig, TrainConfig, parse_scheme
from poslab.settings.typed import typed


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A model in eval mode, and what is known of its training."""

    path: Path
    model: GPT
    vocabulary: Vocabulary
    pos_name: str
    config: dict[str, Any]  # as in config.yaml
    data_sha256: str

    @property
    def run_folder(self) -> Path | None:
        """The folder of the run that wrote it; None for a file somewhere else."""
        folder = self.path.parent.parent
        return folder if self.path.parent.name == "checkpoints" and (folder / "config.yaml").exists() else None


def describe(config: TrainConfig, corpus: Corpus) -> dict[str, Any]:
    """Everything needed to use the weights, in plain containers: torch.load(weights_only=True) takes the file."""
    observed = corpus.vocabulary.observed
    return {
        "config": config.plain,
        "pos": config.pos_name,
        "observed": None if observed is None else observed.clone(),
        "data_sha256": corpus.sha256,
    }


def find_checkpoint(path: str) -> Path:
    """The file itself, or of a run folder best.ckpt, else last.ckpt. Raises SettingError where there is none."""
    given = Path(os.path.expanduser(path))
    candidates = [given, *(given / "checkpoints" / name for name in ("best.ckpt", "last.ckpt"))]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    raise SettingError("ckpt", path, "no such file, nor a run folder with checkpoints/best.ckpt")


def load_checkpoint(path: Path, device: str = "cpu", allow_code: bool = False) -> Checkpoint:
    """The model that `path` holds. Loading runs no code of the file's; a scheme is imported from outside poslab only
    where `allow_code` says so. Raises SettingError for a file that is no complete checkpoint of poslab's.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of files of other programs
            content = torch.load(path, map_location="cpu", weights_only=True)
            about, state = content["poslab"], content["state_dict"]
        weights = {name.removeprefix("model."): weight for name, weight in state.items()}
        config, observed = about["config"], _observed(about["observed"])
        target, encoding = str(config["pos"]["_target_"]), str(config["data"]["encoding"])
        sizes: dict[str, Any] = {field.name: config["model"].get(field.name) for field in fields(ModelConfig)}
        pos_name, sha256 = str(about["pos"]), str(about["data_sha256"])
    except pickle.UnpicklingError as error:
        problem = "holds something else than tensors and plain values, so it isn't loaded: that could run any code"
        raise SettingError("ckpt", path, problem) from error
    except Exception as error:  # whatever the file of another program makes the unpickler raise
        raise SettingError("ckpt", path, "not a checkpoint of poslab's, or a damaged one") from error
    if is_outside(target) and not allow_code:
        problem = f"its scheme is {target}, which is no part of poslab; allow_code=true imports it, if you trust it"
        raise SettingError("ckpt", path, problem)
    scheme = parse_scheme(config["pos"])
    if is_outside(target) and "scheme_fingerprint" in changed(about, type(scheme)):
        print(f"warning: {path}: the code of {target} has changed since it was trained", file=sys.stderr)
    vocabulary = Vocabulary(load_tokenizer(encoding), observed)
    sizes |= {"compile": False, "dropout": 0.0, "attention_backend": "auto"}  # which takes linear memory
    typed(ModelConfig, sizes, "model")
    try:
        if not _fits(weights, None if is_outside(target) else scheme, vocabulary.size, sizes):
            raise SettingError("ckpt", path, "its weights don't fit the model that it describes")
        model = GPT(scheme, vocab_size=vocabulary.size, **sizes)
        model.load_state_dict(weights)
        model.to(device)
    except (RuntimeError, MemoryError) as error:
        no_room = isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
        problem = (
            "there is not enough memory for it" if no_room else "its weights don't fit the model that it describes"
        )
        raise SettingError("ckpt", path, problem) from error
    model.tokenizer = vocabulary
    return Checkpoint(path, model.eval(), vocabulary, pos_name, config, sha256)


def load(path: str | Path, device: str = "cpu", allow_code: bool = False) -> GPT:
    """The model of a checkpoint file or a run folder, in eval mode, its vocabulary as `model.tokenizer`.

    The rest is as in `load_checkpoint`. Raises SettingError for what can't be loaded.
    """
    return load_checkpoint(find_checkpoint(str(path)), device, allow_code).model


def _fits(weights: dict[str, Any], scheme: PositionScheme | None, vocab_size: int, sizes: dict[str, Any]) -> bool:
    """Whether the weights have the shapes of the model described, found without taking its memory: a file may describe
    a model of any size. A scheme from outside poslab need not be able to do that, and is None."""
    layers = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
    if len(layers) != sizes["num_layers"]:
        return False
    with torch.device("meta"):
        plain = GPT(None, vocab_size=vocab_size, **sizes)
        tables = {} if scheme is None else scheme.tables(plain.shape)
    expected = plain.state_dict() | {f"position_tables.{name}": table for name, table in tables.items()}
    # A tensor that isn't contiguous may claim any shape with hardly any numbers behind it.
    return all(
        isinstance(weights.get(name), Tensor) and weights[name].shape == tensor.shape and weights[name].is_contiguous()
        for name, tensor in expected.items()
    )


def _observed(ids: Any) -> Tensor | None:
    if ids is None:
        return None
    return ids.view(ids.numel()).to(torch.int32)  # which refuses a view that claims more than the file holds
