"""Constants and helpers that several test files share: schemes by what they are, configurations, the repository."""

import copy
import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from poslab import GPT
from poslab.config.files import CONFIGS
from poslab.config.overrides import parse_arguments, unquoted
from poslab.config.schemes import parse_scheme, parse_task
from poslab.config.train import TrainConfig, parse
from poslab.positions import ModelShape, PositionScheme
from poslab.tasks import Task

REPOSITORY = Path(__file__).resolve().parents[2]


def python_in(readme: str) -> list[str]:
    """Return the Python that a README shows, in its order."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / readme).read_text(), flags=re.DOTALL)


PYTHON, ALIBI = python_in("README.md")
GENERATION, MEASURED, EXAMPLES, EXPORTED = python_in("src/poslab/README.md")
# Set by scripts/maintenance/fault_campaign.py: all faults, as before a release, and not a part of them.
FULL_CAMPAIGN = os.environ.get("POSLAB_CAMPAIGN") == "full"
SCHEMES = sorted(path.stem for path in CONFIGS.glob("pos/*.yaml"))
# A tiny run of six steps, with the text's own vocabulary: its checkpoints are small.
SMOKE = ("experiment=smoke", "trainer=cpu", "data.vocabulary=observed")


def compose_config(*overrides: str) -> TrainConfig:
    """Return the real configuration, as the command line would give it."""
    _, settings = parse_arguments(overrides)
    chosen = next((o.removeprefix("pos=") for o in settings if o.startswith("pos=")), "absolute")
    named = None if chosen == "own" else chosen
    return parse(composed(*settings), named, [unquoted(setting) for setting in settings])


def composed(*overrides: str, hydra: bool = False) -> DictConfig:
    """Return what Hydra composes. Yamls are put together once per session, which takes Hydra nearly all of its time.

    hydra: with Hydra's own node.
    """
    groups = [o for o in overrides if (CONFIGS / o.lstrip("+").partition("=")[0]).is_dir()]
    config = copy.deepcopy(_composed_of_yamls(*groups, hydra=hydra))
    values = OverridesParser.create().parse_overrides([o for o in overrides if o not in groups])
    for override in values:  # as Hydra's own compose does
        name = override.key_or_group
        if OmegaConf.is_struct(config) and name.partition(".")[0] not in config:
            raise HydraException(f"Could not override '{name}'.")
        OmegaConf.update(config, name, override.value(), merge=True, force_add=override.is_add())
    if hydra:
        config.hydra.overrides.task = list(overrides)
    return config


@functools.cache
def _composed_of_yamls(*groups: str, hydra: bool) -> DictConfig:
    of_caller, GlobalHydra.instance().hydra = GlobalHydra.instance().hydra, None  # of a script under way
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", list(groups), return_hydra_config=hydra)
    GlobalHydra.instance().hydra = of_caller
    return config


def make_scheme(name: str, **settings: object) -> PositionScheme:
    """Return the scheme that configs/pos/<name>.yaml describes, or one of VARIANTS."""
    yaml, chosen = VARIANTS.get(name, (name, {}))
    return parse_scheme(copy.deepcopy(_yaml_of(yaml)) | chosen | settings)


@functools.cache
def _yaml_of(scheme: str) -> dict[str, Any]:
    return OmegaConf.to_container(OmegaConf.load(CONFIGS / "pos" / f"{scheme}.yaml"))  # type: ignore[return-value]


_SHAPE = ModelShape(context_length=32, embed_dim=32, num_layers=2, num_heads=2)


def _is_sound(name: str) -> bool:
    try:
        GPT(make_scheme(name), vocab_size=2, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    except Exception:  # whatever it is, it comes up again in the tests of its own
        return False
    return True


# Each scheme with the settings other than its defaults that it wants tried, for the tests where settings can matter:
# "t5[scale=0.5]" is ("t5", {"scale": 0.5}).
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {}
# Those with which a model can be made: one that is refused fails in the tests of its own, and in no others.
SOUND = [name for name in SCHEMES if _is_sound(name)]
for _name in SOUND:
    for _settings in make_scheme(_name).variants:
        VARIANTS[f"{_name}[{','.join(f'{key}={value}' for key, value in _settings.items())}]"] = _name, _settings


def _richest(names: list[str]) -> str:
    """Return the scheme with most tables to initialise, train, save and resume with."""
    return max(names, key=lambda name: len(make_scheme(name).tables(_SHAPE)))


# Schemes by what they are, not by their names: a new one finds its place among them by itself. What concerns a whole
# training or a script is tested with one of each kind; what concerns the scheme itself, with all (see test_schemes.py).
UNBOUNDED = [name for name in SOUND if make_scheme(name).max_length(_SHAPE) is None]
BOUNDED = [name for name in SOUND if name not in UNBOUNDED]
RICHEST, ENDLESS, ENDING = _richest(SOUND), _richest(UNBOUNDED), _richest(BOUNDED)


def moved(model: Any, by: float) -> Any:
    """Add normal noise of this spread to every parameter, so that none is as it began and position matters."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * by)
    return model


# Runs scripts/<name>.py with arguments: exit code, what it says, what it complains of.
RunScript = Callable[..., tuple[Any, str, str]]


def assert_refused(result: tuple[Any, str, str], message: str) -> None:
    """Check that a script ended with exit code 2 and one line that has the message."""
    code, _, errors = result
    assert (code, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: ")
    assert message in errors


def make_task(name: str, **settings: object) -> Task:
    node = OmegaConf.load(CONFIGS / "data" / f"{name}.yaml").data
    return parse_task(OmegaConf.to_container(node) | settings)


TASKS = sorted(p.stem for p in CONFIGS.glob("data/*.yaml") if "_target_" in OmegaConf.load(p).get("data", {}))
