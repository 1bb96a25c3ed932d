"""Weights to begin with, from a folder of GPT-2 as transformers writes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from poslab.config.files import EXPORTED
from poslab.data.tokenizer import AnyVocabulary, Vocabulary
from poslab.errors import SettingError, first_line
from poslab.hf.architectures import GPT2, hf_equivalent, transposed
from poslab.model.decoder import GPT

# What poslab's decoder does; a configuration that says otherwise describes another one.
_FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "add_cross_attention": False,
}


def init_from_pretrained(model: GPT, folder: Path, vocabulary: AnyVocabulary) -> str:
    """Load the weights of a GPT-2 in `folder` into the model; returns what was kept, in words.

    What the scheme learns is kept where it says that GPT-2 has the same (`PositionScheme.hf_equivalent`), cut to the
    positions that it has, and else stays as it is at the start. Of a vocabulary that has only some of the encoding's
    tokens, those rows are taken. Raises SettingError for a folder that holds no GPT-2, or one of other sizes.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for name, value in _FIXED.items():
            if config.get(name, value) != value:
                raise ValueError(f"its {name} is {config[name]}, and only {value} is poslab's decoder")
        stored = load_file(folder / EXPORTED)
    except (OSError, ValueError, SafetensorError) as error:
        problem = f"is no folder with a GPT-2 as transformers writes it: {first_line(error)}"
        raise SettingError("init_from", folder, problem) from error
    whole_names = ("transformer.", "lm_head.")  # the first of which the files of some versions leave out
    weights = {n if n.startswith(whole_names) else f"transformer.{n}": weight for n, weight in stored.items()}
    if model.state_dict().keys() - GPT2.names(model.shape).keys() - {f"position_tables.{n}" for n in model.tables}:
        raise SettingError("init_from", folder, "is a GPT-2, whose block is that of model=gpt2 and model=mini")
    sizes = {"embed_dim": "n_embd", "num_layers": "n_layer", "num_heads": "n_head"}
    check_sizes(model, {name: config.get(there) for name, there in sizes.items()}, folder)
    trunk = {here: weights[there] for here, there in GPT2.names(model.shape).items() if there in weights}
    trunk = {name: transposed(name, weight, model.shape) for name, weight in trunk.items()}
    embedding = "token_embedding.weight"
    if embedding in trunk and isinstance(vocabulary, Vocabulary) and len(trunk[embedding]) != vocabulary.size:
        if vocabulary.unit != "token":
            problem = f"knows other tokens than {vocabulary.unit}s, which this text is of"
            raise SettingError("init_from", folder, problem)
        if vocabulary.observed is not None:
            trunk[embedding] = trunk[embedding][vocabulary.observed]
    expected = {name: weight for name, weight in model.state_dict().items() if not name.startswith("position_tables.")}
    for name, weight in expected.items():
        has = tuple(trunk[name].shape) if name in trunk else "none"
        if has != tuple(weight.shape):
            problem = f"its {GPT2.names(model.shape)[name]} is {has}; this model needs {tuple(weight.shape)}"
            raise SettingError("init_from", folder, problem)
    model.load_state_dict(trunk, strict=False)
    return f"weights begin with those of {folder}; {_keep_positions(model, weights)}"


def check_sizes(model: GPT, sizes: Mapping[str, Any], given: str | Path) -> None:
    """Raise SettingError for `model.` settings other than the sizes of the weights that init_from=`given` names."""
    for name in ("embed_dim", "num_layers", "num_heads"):
        here, there = getattr(model.shape, name), sizes[name]
        if here != there:
            raise SettingError(f"model.{name}", here, f"the weights of init_from={given} need {there}")


@torch.no_grad()
def _keep_positions(model: GPT, weights: dict[str, Tensor]) -> str:
    """Copies tables that GPT-2 has as well; returns in words which were kept."""
    tables = dict(model.position_tables.named_parameters())
    form = hf_equivalent(model)
    same = form.weights if form is not None and form.model_type == GPT2.model_type else {}
    kept = []
    for there, ours in same.items():
        for name, table in tables.items():
            theirs = weights.get(there)
            if table is ours and theirs is not None and theirs.shape[1:] == table.shape[1:]:
                rows = min(len(theirs), len(table))
                table[:rows] = theirs[:rows]
                kept.append(f"{name} ({rows} of its {len(theirs)} rows)")
    if kept:
        return f"of what it knows of positions, {', '.join(kept)} kept"
    return "what it knows of positions is left out"
