"""Weights of a folder as transformers saves them: one file, or shards that an index lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from poslab.config.files import EXPORTED

if TYPE_CHECKING:
    from torch import Tensor, nn

INDEX = f"{EXPORTED}.index.json"


def weights_files(folder: Path) -> list[Path]:
    """Return the file of the weights, or their index and its shards; nothing for a folder that has neither.

    Raises ValueError for an index that can't be read, for names that are none of its own folder's, and for shards that
    are missing.
    """
    if (folder / EXPORTED).exists():
        return [folder / EXPORTED]
    if not (folder / INDEX).exists():
        return []
    names = sorted(set(_shard_of_each(folder).values()))
    shards = [folder / name for name in names]
    if missing := [shard.name for shard in shards if not shard.is_file()]:
        raise ValueError(f"{INDEX} lists {len(shards)} shards, of which {missing[0]} is missing")
    return [folder / INDEX, *shards]


def load_weights(folder: Path) -> dict[str, Tensor]:
    """Read all weights by name. Raises ValueError as `weights_files`, and for a shard without a weight of the index;
    OSError for a folder without weights."""
    from safetensors.torch import load_file  # loads torch

    first, *shards = weights_files(folder) or [folder / EXPORTED]
    if not shards:
        return load_file(first)
    weights: dict[str, Tensor] = {}
    for shard in shards:
        weights |= load_file(shard)
    for name, shard_name in _shard_of_each(folder).items():
        if name not in weights:
            raise ValueError(f"{shard_name} lacks {name}, which {INDEX} lists")
    return weights


def require_fractions(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError for parameters whose weights are whole numbers, as a quantized model's, which torch would cut
    off as it loads them."""
    for name, parameter in model.named_parameters():
        if name in weights and parameter.is_floating_point() and not weights[name].is_floating_point():
            raise ValueError(f"its weights of {name} are {weights[name].dtype}, which are no fractions")


def _shard_of_each(folder: Path) -> dict[str, str]:
    """Return the name of the shard of each weight."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{INDEX} is damaged: it is no JSON") from error
    listed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(listed, dict) or not listed:
        raise ValueError(f"{INDEX} has no weight_map")
    for shard in listed.values():
        # A stranger's index names no other folder's files.
        if not isinstance(shard, str) or Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise ValueError(f"{INDEX} lists {shard!r}, which is no name of a shard beside it")
    return listed
