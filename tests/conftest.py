"""What several test files share."""

import json
import re
import socket
import warnings
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir

from poslab.config import CONFIGS, TrainConfig, parse, parse_scheme
from poslab.positions import PositionScheme

REPOSITORY = Path(__file__).resolve().parents[1]
# The README's Python, in its order.
GENERATION, ALIBI, EXAMPLES = re.findall(
    r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), flags=re.DOTALL
)
SCHEMES = sorted(path.stem for path in CONFIGS.glob("pos/*.yaml"))


@pytest.fixture(scope="session")
def reference_cases() -> dict:
    return json.loads((Path(__file__).parent / "reference_cases.json").read_text())


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError("the network is blocked")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


def compose_config(*overrides: str) -> TrainConfig:
    """The real configuration, as the command line would give it."""
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", list(overrides))
    chosen = next((o.removeprefix("pos=") for o in overrides if o.startswith("pos=")), "absolute")
    named = not any(o.startswith("pos._target_") for o in overrides)
    return parse(config, chosen if named else None)


def make_scheme(name: str, **settings: object) -> PositionScheme:
    """The scheme that configs/pos/<name>.yaml describes."""
    from omegaconf import OmegaConf

    return parse_scheme(OmegaConf.to_container(OmegaConf.load(CONFIGS / "pos" / f"{name}.yaml")) | settings)


@pytest.fixture(autouse=True)
def warnings_of_lightning() -> None:
    # Lightning uses a deprecated torch function; a run filters the same message.
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
