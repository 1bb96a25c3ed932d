"""Weights to begin with, from a folder with a model as transformers writes it (`poslab.model.architectures`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from poslab.data.tokenizer import AnyVocabulary, Vocabulary
from poslab.errors import SettingError, first_line, lacks_memory
from poslab.hf.tokenizer import BYTE_OF
from poslab.model.architectures import ARCHITECTURES, hf_equivalent, tables_of
from poslab.model.conversion import Architecture, settings_as_typed, settings_of
from poslab.model.decoder import GPT
from poslab.runs.saved_weights import load_weights, require_fractions

_EMBEDDING = "token_embedding.weight"
_PADDED = 128  # rows beyond the vocabulary, which models have so that their number is a round one


def init_from_pretrained(model: GPT, folder: Path, vocabulary: AnyVocabulary) -> str:
    """Load the weights of the model in `folder` into this one; returns what was kept, in words.

    What the scheme learns is kept where it says that theirs has the same (`PositionScheme.hf_equivalent`), cut to the
    positions that it has, and else stays as it is at the start. Of a vocabulary that has only some of the encoding's
    tokens, those rows are taken. Raises SettingError for a folder that holds no such model, one of other sizes, with
    the settings that it needs, or one of other tokens.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("its config.json is no configuration")
        if str(config.get("model_type")) not in ARCHITECTURES:
            raise ValueError(f"its model_type is {config.get('model_type')}; valid: {', '.join(ARCHITECTURES)}")
        architecture = ARCHITECTURES[config["model_type"]]
        needed = architecture.settings(config)
        _require(model, needed, folder)
        weights = load_weights(folder)
        trunk = architecture.to_poslab(weights, model)
        tables = tables_of(model, architecture, weights)
        rotation = rotation_of(config, architecture.model_type)
        for name in (_EMBEDDING, "head.weight"):
            if name in trunk:
                trunk[name] = _rows_of(trunk[name], vocabulary, folder)
        require_fractions(model, trunk | tables)
    except SettingError:
        raise
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:  # of odd types and shapes, too
        if lacks_memory(error):
            raise
        problem = f"can't be read as a model that transformers has written: {first_line(error)}"
        raise SettingError("init_from", folder, problem) from error
    for name, weight in trunk.items():
        has, needs = tuple(weight.shape), tuple(model.get_parameter(name).shape)
        if has != needs:
            problem = f"its {' and '.join(architecture.theirs(model)[name])} is {has}; this model needs {needs}"
            raise SettingError("init_from", folder, problem)
    model.load_state_dict(trunk, strict=False)
    return f"weights begin with those of {folder}; {_keep_positions(model, architecture, rotation, tables)}"


def check_same_sizes(model: GPT, sizes: Mapping[str, Any], init_from: str | Path) -> None:
    """Raise SettingError for `model.` settings other than the sizes of the weights that init_from=`init_from` names."""
    for name in ("embed_dim", "num_layers", "num_heads"):
        here, there = getattr(model.shape, name), sizes[name]
        if here != there:
            raise SettingError(f"model.{name}", here, f"the weights of init_from={init_from} need {there}")


def _require(model: GPT, needed: Mapping[str, Any], folder: Path) -> None:
    own, needed = map(_without_usual, (settings_of(model), needed))
    del own["context_length"]  # a model may read less than it could, and a scheme says where it ends
    if differing := {name: needed[name] for name in own if own[name] != needed[name]}:
        raise SettingError(
            "init_from", folder, f"its weights need {' '.join(settings_as_typed(differing, needed['embed_dim']))}"
        )


def _without_usual(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with None for those that are as usual."""
    usual = {"num_kv_heads": settings["num_heads"], "head_dim": settings["embed_dim"] / settings["num_heads"]}
    return {name: None if usual.get(name) == value else value for name, value in settings.items()}


def _rows_of(rows: Tensor, vocabulary: AnyVocabulary, folder: Path) -> Tensor:
    """Return the rows of the embedding, or of the head, (V, D), that are the vocabulary's tokens.

    Raises SettingError for those of another vocabulary.
    """
    listed = folder / "tokens.json"  # of `poslab.hf.export`
    if listed.exists() and _read(listed) == [vocabulary.decode([i]) for i in range(vocabulary.size)]:
        return rows
    if not isinstance(vocabulary, Vocabulary) or vocabulary.unit != "token":
        unit = vocabulary.unit if isinstance(vocabulary, Vocabulary) else "symbol"
        raise SettingError("init_from", folder, f"knows other tokens than {unit}s, which these data are of")
    encoding = vocabulary.encoding
    if not 0 <= len(rows) - encoding.n_vocab < _PADDED:
        problem = f"knows {len(rows):,} tokens, and data.encoding={encoding.name} has {encoding.n_vocab:,}"
        raise SettingError("init_from", folder, problem)
    for theirs, token in _tokenizer_beside(folder).items():
        if token < encoding.n_vocab and theirs != (ours := encoding.decode_bytes([token])):
            problem = f"has another tokenizer than data.encoding={encoding.name}: {token} is {theirs!r}, here {ours!r}"
            raise SettingError("init_from", folder, problem)
    return rows[: encoding.n_vocab] if vocabulary.observed is None else rows[vocabulary.observed]


def _tokenizer_beside(folder: Path) -> dict[bytes, int]:
    """Return the tokens, in UTF-8, of the tokenizer beside the weights; none where there isn't any."""
    file = next((file for name in ("vocab.json", "tokenizer.json") if (file := folder / name).exists()), None)
    if file is None:
        return {}
    try:
        ids = _read(file) if file.name == "vocab.json" else _read(file)["model"]["vocab"]
        listed = ids.items() if isinstance(ids, dict) else ((token, number) for number, (token, *_) in enumerate(ids))
        tokens = {str(token): int(number) for token, number in listed}
        if min(tokens.values(), default=0) < 0:
            raise ValueError("a token below 0")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{file.name} has no vocabulary") from error
    return {
        bytes(BYTE_OF[c] for c in token) if all(c in BYTE_OF for c in token) else token.encode(): number
        for token, number in tokens.items()
    }


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


@torch.no_grad()
def _keep_positions(
    model: GPT, architecture: Architecture, rotation: Mapping[str, Any], tables: Mapping[str, Tensor]
) -> str:
    """Copy tables that theirs has as well; returns in words what was kept of how it knows positions."""
    kept = []
    for name, theirs in tables.items():
        table = model.get_parameter(name)
        if theirs.shape[1:] == table.shape[1:]:
            rows = min(len(theirs), len(table))
            table[:rows] = theirs[:rows]
            kept.append(f"{name.removeprefix('position_tables.')} ({rows} of its {len(theirs)} rows)")
    if kept:
        return f"of what it knows of positions, {', '.join(kept)} kept"
    equivalent = hf_equivalent(model)
    if rotation and equivalent is not None and equivalent[1].model_type == architecture.positions:
        here = equivalent[1].settings["rope_parameters"]
        words = " ".join(f"{name}={value}" for name, value in rotation.items())
        differs = any(here.get(name) != value for name, value in rotation.items())
        return f"it was trained with {words}{', and positions here are others' if differs else ', as here'}"
    return "what it knows of positions is left out"


def rotation_of(config: Mapping[str, Any], model_type: str) -> dict[str, Any]:
    """Return the rotation of a configuration, as transformers 5 writes it and as earlier versions did; what it leaves
    out is as transformers has it. Nothing for GPT-2, which has none."""
    if model_type == "gpt2":
        return {}
    rotation = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    if "type" in rotation:
        rotation["rope_type"] = rotation.pop("type")
    # Names of earlier versions; those of GPT-NeoX have one of their own for each.
    theta = config.get("rope_theta", config.get("rotary_emb_base", 10000.0))
    usual = {"rope_theta": theta, "rope_type": "default"}
    if model_type == "gpt_neox":
        usual["partial_rotary_factor"] = config.get("partial_rotary_factor", config.get("rotary_pct", 0.25))
    return usual | rotation
