"""Conversion of poslab's decoder to an architecture of transformers, and back: the settings of its block, names and
layouts of its weights, and its configuration.

Axes: D embedding, H heads, Dh head dimension.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from poslab.errors import as_typed
from poslab.model.block import Block
from poslab.model.decoder import GPT
from poslab.model.mlp import GELU, SwiGLU

Settings = dict[str, Any]
_NORMS, _MLPS = {nn.LayerNorm: "layer", nn.RMSNorm: "rms"}, {GELU: "gelu", SwiGLU: "swiglu"}
_QK_NORM_EPS = 1e-6  # that of `poslab.model.block.HeadNorm`


@dataclass(frozen=True)
class Architecture:
    """One architecture.

    positions: the model_type of the HFEquivalents that it can hold. prefix: of the names of all weights but the
    head's, which some files leave out. parts: poslab's name of a part -> those in transformers whose rows it has, one
    after the other, without ".weight" and ".bias"; {} stands for the layer. block: the settings, as `settings_of`
    returns them, that it has always. names: those of sizes in its configuration, by the settings that they are.
    fixed: what else a configuration may say, with the one value that poslab's decoder has. defaults: transformers' own
    of all these and of tie_word_embeddings, by their names there; None: made of others. layout: of a tensor by poslab's
    name, to transformers and back. aliases: other names by which transformers reads a size.
    """

    model_type: str
    class_name: str
    positions: str
    prefix: str
    parts: Mapping[str, tuple[str, ...]]
    block: Mapping[str, Any]
    names: Mapping[str, str]
    fixed: Mapping[str, Any]
    defaults: Mapping[str, Any]
    layout: Callable[[str, Tensor, GPT, bool], Tensor] = lambda name, tensor, model, back: tensor
    aliases: Mapping[str, str] = field(default_factory=dict)

    def computes(self, model: GPT) -> bool:
        """Return whether it has this model's block."""
        own = settings_of(model)
        alike = all(own[name] == value for name, value in self.block.items())
        usual = {"num_kv_heads": own["num_heads"], "head_dim": own["embed_dim"] // own["num_heads"]}
        return alike and all(name in self.names or own[name] == value for name, value in usual.items())

    def config(self, model: GPT, vocab_size: int) -> Settings:
        """Return the configuration of this model, positions apart."""
        own = settings_of(model)
        sizes = {there: own[here] for here, there in self.names.items()}
        return {"vocab_size": vocab_size, **sizes, **self.fixed, "tie_word_embeddings": own["tied"]}

    def settings(self, config: Mapping[str, Any]) -> Settings:
        """Return the settings that a model of this configuration has, as `settings_of`; what it leaves out is as
        transformers has it. Raises ValueError where poslab has none such, and for what is no size."""
        config = {self.aliases.get(name, name): value for name, value in config.items()}
        said = dict(self.defaults) | {name: config[name] for name in self.defaults if config.get(name) is not None}
        for name, value in self.fixed.items():
            if said[name] != value:
                raise ValueError(f"its {name} is {said[name]}, and only {value} is poslab's decoder")
        if not config.get("is_causal", True):
            raise ValueError("its is_causal is false, and poslab's decoder begins with causal weights alone")
        if config.get("quantization_config"):
            raise ValueError("its weights are quantized, by its quantization_config")
        sizes: Settings = {here: said[there] for here, there in self.names.items()}
        for here, value in sizes.items():
            least, kind = (0, int | float) if here == "norm_eps" else (1, int)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not value >= least):
                raise ValueError(f"its {self.names[here]} is {value!r}, which is no size")
        sizes["num_kv_heads"] = sizes.get("num_kv_heads") or sizes["num_heads"]
        sizes["mlp_width"] = sizes["mlp_width"] or 4 * sizes["embed_dim"]
        sizes["head_dim"] = sizes.get("head_dim") or sizes["embed_dim"] // sizes["num_heads"]
        if self.block["qk_norm"] == "rms" and sizes["norm_eps"] != _QK_NORM_EPS:
            raise ValueError(f"its rms_norm_eps is {sizes['norm_eps']}, and only {_QK_NORM_EPS} is poslab's decoder")
        return {**self.block, **sizes, "tied": said["tie_word_embeddings"]}

    def theirs(self, model: GPT) -> dict[str, tuple[str, ...]]:
        """Map poslab's name of every weight but those of the scheme to the names in transformers."""
        names_there = {}
        for name, _ in model.named_parameters():
            if name.startswith("position_tables."):
                continue
            stem, _, suffix = name.rpartition(".")
            layer = ""
            if stem.startswith("blocks."):
                _, layer, rest = stem.split(".", 2)
                stem = f"blocks.{{}}.{rest}"
            names_there[name] = tuple(f"{there.format(layer)}.{suffix}" for there in self.parts[stem])
        return names_there

    def to_transformers(self, model: GPT) -> dict[str, Tensor]:
        """Return the weights by their names there."""
        weights: dict[str, Tensor] = {}
        own = model.state_dict()
        for here, there in self.theirs(model).items():
            whole = self.layout(here, own[here], model, False)
            pieces = whole.split(_rows(whole, model, len(there))) if len(there) > 1 else [whole]
            weights |= dict(zip(there, pieces, strict=True))
        return weights

    def to_poslab(self, weights: Mapping[str, Tensor], model: GPT) -> dict[str, Tensor]:
        """Return poslab's weights, positions apart, of those in a file. Raises ValueError for one that is missing."""
        kept = (self.prefix, "lm_head.", "embed_out.")
        named = {name if name.startswith(kept) else self.prefix + name: weight for name, weight in weights.items()}
        ours = {}
        for here, there in self.theirs(model).items():
            if missing := [name for name in there if name not in named]:
                raise ValueError(f"has no {missing[0]}")
            ours[here] = self.layout(here, torch.cat([named[name] for name in there]), model, True)
        return ours


def settings_of(model: GPT) -> Settings:
    """Return sizes of a decoder and the settings of its block that an architecture decides."""
    shape, block = model.shape, model.blocks[0]
    assert isinstance(block, Block)
    norm, mlp = model.final_norm, block.mlp
    return {
        "context_length": shape.context_length,
        "embed_dim": shape.embed_dim,
        "num_layers": shape.num_layers,
        "num_heads": shape.num_heads,
        "head_dim": shape.head_dim,
        "num_kv_heads": block.attention.num_kv_heads,
        "norm": _NORMS.get(type(norm)),
        "norm_eps": getattr(norm, "eps", None),
        "mlp": _MLPS.get(type(mlp)),
        "mlp_width": mlp.project.in_features if isinstance(mlp, GELU | SwiGLU) else None,
        "qk_norm": model.form.qk_norm,
        "gate": model.form.gate,
        "biases": block.attention.project.bias is not None,
        "window": model.position.window,
        "tied": model.head is None,
    }


def settings_as_typed(settings: Mapping[str, Any], embed_dim: int) -> list[str]:
    """Return some settings of `settings_of` as one would type them."""
    others = {"norm": "model/norm", "norm_eps": "model.norm.eps", "mlp": "model/mlp", "mlp_width": "model.mlp.factor"}
    lines = []
    for name, value in settings.items():
        value = value / embed_dim if name == "mlp_width" else value
        lines.append(f"{others.get(name, f'model.{name}')}={as_typed(value)}")
    return lines


def _rows(whole: Tensor, model: GPT, pieces: int) -> list[int]:
    """Return how many rows each part of a tensor has: query, key and value, or the halves of the MLP's first map."""
    if pieces == 2:
        return [len(whole) // 2] * 2
    query_rows = model.shape.attention_dim
    return [query_rows, *[(len(whole) - query_rows) // 2] * 2]
