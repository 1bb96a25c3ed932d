"""Checkpoint files: written whole or not at all, the one before the last is kept, and verified when read.

The last checkpoint is in torch's format, a zip archive with a checksum of each part. The best weights are in
safetensors, which can hold no code: tensors, and in the header a description and the sha256 of both.
"""

import hashlib
import json
import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from poslab.config.files import EXPORTED, appearing_whole, refuse_lfs_pointer
from poslab.config.train import TrainConfig
from poslab.data.tokenizer import AnyVocabulary, Symbols
from poslab.errors import lacks_memory
from poslab.runs.readers import fits, is_config, is_endless
from poslab.runs.saved_weights import INDEX, load_weights, weights_files

SAFETENSORS = ".safetensors"
_PREFIX = "model."  # of the weights' names in a Lightning module
_OBSERVED = "observed_tokens"  # the vocabulary, beside the weights
_FOREIGN = "not a checkpoint of poslab's, or a damaged one"


def describe(config: TrainConfig, vocabulary: AnyVocabulary, data_sha256: str) -> dict[str, Any]:
    """Return everything needed to use the weights, in plain containers and one tensor, `observed`."""
    observed = vocabulary.observed
    return {
        "config": config.plain,
        "pos": config.pos_name,
        "observed": None if observed is None else observed.clone(),
        "symbols": list(vocabulary.symbols) if isinstance(vocabulary, Symbols) else None,
        "data_sha256": data_sha256,
    }


def save_weights(path: Path, state: Mapping[str, Tensor], about: dict[str, Any]) -> None:
    """Write weights and their description (`describe`) as one safetensors file."""
    # Copies, because the format refuses tensors that share memory.
    tensors = {name.removeprefix(_PREFIX): weight.detach().cpu().contiguous().clone() for name, weight in state.items()}
    if about["observed"] is not None:
        tensors[_OBSERVED] = about["observed"]
    description = json.dumps({key: value for key, value in about.items() if key != "observed"})
    metadata = {"format": "pt", "poslab": description, "sha256": _sha256(description, tensors)}
    with appearing_whole(path, durable=True) as file:
        file.touch()
        mode = file.stat().st_mode  # as files of this user are; save_file lets nobody else read
        save_file(tensors, file, metadata)
        file.chmod(mode)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint of either format: weights by name under "state_dict", their description under "poslab".

    Of an exported model that transformers has saved, "model_type" says whose names the weights have. Raises ValueError
    with a one-line reason for a file that is not, to the bit, what poslab has written, and for others.
    A lack of memory, which says nothing of the file, is raised as it is.
    """
    if path.name == INDEX:
        weights_files(path.parent)  # which says what is wrong with the index
    try:
        refuse_lfs_pointer(path)
        if path.name in (EXPORTED, INDEX) and (saved := _read_saved(path)):
            content: Any = saved
        elif path.suffix == SAFETENSORS:
            content = _read_safetensors(path)
        else:
            with zipfile.ZipFile(path) as archive:
                # torch compresses nothing; what another has compressed could unpack to any size.
                stored = all(part.compress_type == zipfile.ZIP_STORED for part in archive.infolist())
                intact = stored and archive.testzip() is None
            content = torch.load(path, map_location="cpu", weights_only=True) if intact else None
    except pickle.UnpicklingError as error:
        problem = "holds something else than tensors and plain values, so it isn't loaded: that could run any code"
        raise ValueError(problem) from error
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror or error}") from error
    except Exception as error:  # whatever half a file, or another program's, makes of the reader
        if lacks_memory(error):
            raise
        raise ValueError(_FOREIGN) from error
    if content is None:
        raise ValueError("damaged: its contents are not those that were written")
    if not isinstance(content, dict) or not {"poslab", "state_dict"} <= content.keys():
        raise ValueError(_FOREIGN)
    _check_description(content["poslab"])
    return content


def _check_description(about: Any) -> None:
    """Raise ValueError for a description that lacks something that any model needs, or has another type for it."""
    if not isinstance(about, dict) or is_endless(about):
        raise ValueError(_FOREIGN)
    config, observed, symbols = (about.get(name) for name in ("config", "observed", "symbols"))
    settings: dict[str, Any] = config if isinstance(config, dict) and is_config(config) else {}
    checks = {
        "config": is_config(config),
        "config.seed": type(settings.get("seed")) is int and 0 <= settings["seed"] < 2**32,
        "pos": isinstance(about.get("pos"), str),
        "data_sha256": isinstance(about.get("data_sha256"), str),
        "observed": observed is None or _is_ascending(observed),
        "symbols": fits(symbols, list[str] | None),
        "config.data.encoding": bool(symbols) or isinstance(settings.get("data", {}).get("encoding"), str),
    }
    if lacking := [name for name, is_right in checks.items() if not is_right]:
        raise ValueError(f"its description is incomplete, or another version's: {', '.join(lacking)}")


def _is_ascending(observed: Any) -> bool:
    """Return whether tokens can be those that occur in a text: (V,) int32, each once."""
    is_list = isinstance(observed, Tensor) and observed.dtype == torch.int32 and observed.dim() == 1
    return is_list and bool((observed[:1] >= 0).all() and (observed.diff() > 0).all())


def _read_safetensors(path: Path) -> dict[str, Any] | None:
    """Return the content; None if the checksum is another one."""
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118  # it is no dict
    if metadata["sha256"] != _sha256(metadata["poslab"], tensors):
        return None
    about = json.loads(metadata["poslab"]) | {"observed": tensors.pop(_OBSERVED, None)}
    return {"poslab": about, "state_dict": tensors}


def _read_saved(path: Path) -> dict[str, Any] | None:
    """Return the content of a folder that transformers has saved, or `poslab.hf.export` for it; None for another."""
    if path.name == EXPORTED:
        with safe_open(path, framework="pt") as opened:
            if "poslab" in (opened.metadata() or {}):
                return None
    config = json.loads(path.with_name("config.json").read_text(encoding="utf-8"))
    about, weights, model_type = config["poslab"], load_weights(path.parent), config["model_type"]
    weights.pop(_OBSERVED, None)
    if not (isinstance(model_type, str) and fits(about["observed"], list[int] | None)):
        raise ValueError(_FOREIGN)
    observed = None if about["observed"] is None else torch.tensor(about["observed"], dtype=torch.int32)
    return {"poslab": about | {"observed": observed}, "state_dict": weights, "model_type": model_type}


def _sha256(description: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
