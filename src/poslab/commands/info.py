"""Flag --info: versions, devices and backends on this machine, to send along when something looks wrong."""

import os
import platform
import re
from importlib.metadata import version

import torch

from poslab.config.files import BUNDLED_DATA, default_cache_dir, fingerprint
from poslab.config.schemes import parse_scheme, schemes
from poslab.errors import SettingError
from poslab.model.decoder import GPT
from poslab.positions import PositionScheme
from poslab.training.summary import PACKAGES, git_state, training_backend
from poslab.training.trainer import bfloat16_units


def print_info() -> None:
    """Print versions, devices, threads, the attention backend of every scheme, and whether the data are unchanged."""
    for title, lines in (
        ("versions", _versions()),
        ("machine", _machine()),
        ("attention backend that auto picks, without and with dropout", _backends()),
        ("data", _data()),
    ):
        print(title)
        width = max(len(name) for name in lines)
        print("\n".join(f"  {name:<{width}}  {value}" for name, value in lines.items()), end="\n\n")


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in (*PACKAGES, "matplotlib", "scipy")}
    commit, clean = git_state()
    git = f"{commit}{'' if clean else ', changed since'}" if commit else "no git checkout"
    return {"python": platform.python_version(), **packages, "git commit": git}


def _machine() -> dict[str, str]:
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    devices += ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []
    return {
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} ({platform.machine()})",
        "threads": f"{torch.get_num_threads()}, of torch",
        "bfloat16": f"computed by {units}"
        if (units := bfloat16_units())
        else "computed in software, slower than float32",
        "gpus": ", ".join(devices) or "none that torch sees",
    }


def _backends() -> dict[str, str]:
    """Name the backend of each scheme, for model=mini on the first GPU or else the CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def backend(scheme: PositionScheme, dropout: float) -> str:
        return training_backend(GPT(scheme, vocab_size=1, dropout=dropout), device)

    all_schemes = {name: parse_scheme(values) for name, values in schemes().items()}
    return {name: f"{backend(scheme, 0.0)}, {backend(scheme, 0.1)}" for name, scheme in all_schemes.items()}


def _data() -> dict[str, str]:
    """Check each file that data/README.md lists against the hash that stands there."""
    table = (BUNDLED_DATA / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", table, flags=re.MULTILINE)
    return {name: _check(name, sha256) for name, sha256 in listed} | {"tokens are kept in": str(default_cache_dir())}


def _check(name: str, sha256: str) -> str:
    try:
        same = fingerprint(str(BUNDLED_DATA / name)) == sha256
    except SettingError as error:
        return error.problem
    return "as published" if same else "CHANGED: not the file that poslab came with"
