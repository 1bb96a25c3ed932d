"""The configuration that a run goes on with: its own, and the few settings that may change on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from poslab.errors import SettingError, as_typed

CONFIG = "config.yaml"
# How long to train, how often to save, where tokens are kept, what is measured at the end. (The text may have moved:
# what counts is its contents.) Everything else would make it another run.
MAY_CHANGE = (
    "trainer.max_epochs", "trainer.max_steps", "trainer.max_time", "target_loss", "checkpoint_every_n_steps",
    "threads", "data.path", "data.cache_dir", "data.num_workers", "evaluation.lengths",
    "evaluation.stride", "allow_code",
)  # fmt: skip


def resumed(composed: DictConfig, overrides: Sequence[str]) -> tuple[DictConfig, str | None]:
    """(the configuration of the run in `composed.resume`, changed by what the command line gives, and the name of its
    scheme, if it says). Raises SettingError where there is no run, a setting can't change, or its scheme is not
    poslab's and neither the command line nor `allow_code` names it."""
    folder = Path(str(composed.resume)).expanduser()
    own = _read(folder)
    pos_name = own.pop("pos_name", None)
    target = str(OmegaConf.select(own, "pos._target_"))
    if not (target.startswith("poslab.") or composed.allow_code or target == composed.pos.get("_target_")):
        problem = f"its scheme is {target}, which is no part of poslab; allow_code=true imports it, if you trust it"
        raise SettingError("resume", folder, problem)
    # Where this run writes is where it is now, whatever its configuration says.
    own.run_dir, own.resume = None, str(folder)
    own.data.cache_dir = None
    before = _flat(own)
    for key, _, value in (override.lstrip("+~").partition("=") for override in overrides):
        if key in ("experiment", "debug"):
            raise SettingError(key, value, "can't be given with resume, a run keeps its settings; give single ones")
        if key != "resume":
            _change(own, key, composed)
    after = _flat(own)
    changed = {key: value for key, value in after.items() if value != before.get(key) and key not in MAY_CHANGE}
    if changed:
        values = {key: (as_typed(value), as_typed(before.get(key))) for key, value in changed.items()}
        listed = ", ".join(f"{key}={value} (its own: {own_value})" for key, (value, own_value) in values.items())
        problem = f"the run has other settings, {listed}; what may change is {', '.join(MAY_CHANGE[:-1])}"
        raise SettingError("resume", folder, problem)
    return own, None if pos_name is None else str(pos_name)


def _read(folder: Path) -> DictConfig:
    if not folder.is_dir():
        raise SettingError("resume", folder, "no such folder; name that of a run")
    file = folder / CONFIG
    if not file.exists():
        raise SettingError("resume", folder, f"no run to go on with, it has no {CONFIG}")
    try:
        own = OmegaConf.load(file)
        plain: Any = OmegaConf.to_container(own)  # nothing is resolved: a run's values are plain
        groups = ("pos", "model", "data", "optim", "trainer", "sample", "evaluation")
        if not (isinstance(plain, dict) and all(isinstance(plain.get(group), dict) for group in groups)):
            raise ValueError("it is not a run's")
    except (OSError, ValueError, RecursionError, YAMLError, OmegaConfBaseException) as error:
        raise SettingError("resume", folder, f"its {CONFIG} can't be read: {str(error).splitlines()[0]}") from error
    return OmegaConf.create({str(key): value for key, value in plain.items()})


def _change(own: DictConfig, key: str, composed: DictConfig) -> None:
    """Puts what the command line says of a setting, or a whole group, in the place of the run's own."""
    if key == "run_dir":
        raise SettingError("run_dir", composed.run_dir, "can't be given with resume, which names the run's folder")
    node = OmegaConf.select(composed, key)
    value = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    OmegaConf.update(own, key, value, merge=False, force_add=True)


def _flat(config: DictConfig) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    plain: Any = OmegaConf.to_container(config)
    for group, values in plain.items():
        if isinstance(values, dict):
            flat |= {f"{group}.{key}": value for key, value in values.items()}
        else:
            flat[str(group)] = values
    return flat
