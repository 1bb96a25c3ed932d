"""Weights that a run begins with (`init_from`): which files they are, and what tells them apart from others.

They are the best weights of a run, its last checkpoint where it has no best, a file of weights, or a folder with a
model as transformers writes it. Nothing here runs code of theirs.
"""

import glob
import os
from pathlib import Path
from typing import Any

from poslab.config.files import EXPORTED, file_sha256, joined_sha256, missing
from poslab.errors import SettingError
from poslab.runs.folder import RunFolder
from poslab.runs.plan import group_keys
from poslab.runs.saved_weights import weights_files


def initial_files(init_from: str) -> list[Path]:
    """Return the file of a run's weights, a file of weights, or configuration and weights of a model of transformers,
    with the index where they are shards.

    `init_from` may be a pattern of one such path, as in runs/sweep/NAME-seed1-*. Raises SettingError for none and for
    several.
    """
    matches = [init_from] if os.path.exists(init_from) else sorted(glob.glob(init_from))
    if len(matches) != 1:
        several = f"must name one run, not {len(matches)}: {', '.join(matches[:3])}"
        raise SettingError("init_from", init_from, several if matches else missing(init_from, "no such file or folder"))
    path = Path(matches[0])
    run = RunFolder(path)
    for file in (path, run.best, run.last):
        if file.is_file():
            return [file]
    try:
        weights = weights_files(path)
    except ValueError as error:
        raise SettingError("init_from", init_from, str(error)) from error
    files = [path / "config.json", *(weights or [path / EXPORTED])]
    for needed in files:
        if not needed.exists():
            lacks = f"is neither a run nor a model of transformers: has no {needed.name}"
            raise SettingError("init_from", init_from, "is a run without weights" if run.is_run else lacks)
    return files


def initial_fields(init_from: str | None) -> dict[str, Any]:
    """Return init_sha256 and init_group of a TrainConfig: the sha256 of `initial_files` joined, and a name that runs
    have in common which begin with runs that differ in nothing but the seed; nothing for None.

    Raises SettingError for files that can't be read, or hold no weights of poslab's.
    """
    if init_from is None:
        return {}
    files = initial_files(init_from)
    sha256 = joined_sha256([file_sha256(file, "init_from", init_from) for file in files])
    if len(files) > 1:
        return {"init_sha256": sha256, "init_group": f"transformers-{sha256[:8]}"}
    from poslab.runs.checkpoint_files import read_checkpoint  # loads torch

    try:
        about = read_checkpoint(files[0])["poslab"]
    except ValueError as error:
        raise SettingError("init_from", init_from, str(error)) from error
    group_hash, _ = group_keys(about["pos"], about["config"], about["data_sha256"], about.get("scheme_fingerprint"))
    return {"init_sha256": sha256, "init_group": f"{about['pos']}-{joined_sha256([group_hash, files[0].name])[:8]}"}
