"""Flag --info: versions, devices and backends on this machine, to send along when something looks wrong."""

import os
import platform
import re
from importlib.metadata import version

import torch

from poslab.config.files import BUNDLED_DATA, default_cache_dir, file_sha256
from poslab.config.nodes import schemes
from poslab.config.schemes import parse_scheme
from poslab.errors import SettingError
from poslab.model.decoder import GPT
from poslab.positions import PositionScheme
from poslab.training.compilation import ON_CUDA, WITHOUT_GRAPHS
from poslab.training.machine import bfloat16_units
from poslab.training.summary import PACKAGES, backend_words, git_state, training_choices

# What no machine of poslab's own can test, and the command that does. An H200 has run all but this.
WITHOUT_GPU = {
    "75 of 157 tests for CUDA, those of kernels in Triton and CUDA graphs among them": "python -m pytest -m gpu -n0",
    "attention in float32 beyond 512 tokens": "python scripts/benchmark.py groups=attention device=cuda dense=true",
    "several GPUs": "python scripts/train.py trainer.devices=2",
}


def print_info() -> None:
    """Print versions, devices, threads, the attention backend of every scheme, and whether the data are unchanged."""
    commit, clean = git_state()
    versions = {"python": platform.python_version()}
    versions |= {name: version(name) for name in (*PACKAGES, "matplotlib", "scipy")}
    versions["git commit"] = f"{commit}{'' if clean else ', changed since'}" if commit else "no git checkout"
    devices = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    devices += ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []
    units = bfloat16_units()
    machine = {
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} ({platform.machine()})",
        "threads": f"{torch.get_num_threads()}, of torch",
        "bfloat16": f"computed by {units}" if units else "computed in software, slower than float32",
        "gpus": ", ".join(devices) or "none that torch sees",
    }
    for title, lines in (
        ("versions", versions),
        ("machine", machine),
        ("attention backend that auto picks, and why", _backends()),
        ("CUDA graphs", _graphs()),
        ("data", _data()),
        ("not yet run on a GPU; to try it, in a checkout:", WITHOUT_GPU),
    ):
        print(title)
        width = max(len(name) for name in lines)
        print("\n".join(f"  {name:<{width}}  {value}" for name, value in lines.items()), end="\n\n")


def _backends() -> dict[str, str]:
    """Name the backend of each scheme, for model=mini on the first GPU or else the CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def backend(scheme: PositionScheme, dropout: float) -> str:
        return backend_words(training_choices(GPT(scheme, vocab_size=1, dropout=dropout), device))

    both = {name: [backend(parse_scheme(values), p) for p in (0.0, 0.1)] for name, values in schemes().items()}
    return {
        name: plain if plain == dropped else f"{plain}; with dropout {dropped}"
        for name, (plain, dropped) in both.items()
    }


def _graphs() -> dict[str, str]:
    """Say which runs train by CUDA graphs."""
    by_default = "no: no GPU has timed them" if ON_CUDA is True else "yes"
    asked_for = {"by default": by_default, "model.compile=reduce-overhead": "yes, on CUDA, except below"}
    return asked_for | {row.runs: f"no: {row.why}" for row in WITHOUT_GRAPHS}


def _data() -> dict[str, str]:
    """Check each file that data/README.md lists against the hash that stands there."""
    table = (BUNDLED_DATA / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([^`]+)` \|.*\| `([0-9a-f]{64})` \|$", table, flags=re.MULTILINE)
    states = {}
    for name, sha256 in listed:
        try:
            same = file_sha256(BUNDLED_DATA / name, "data", name) == sha256
            states[name] = "as published" if same else "CHANGED: not the file that poslab came with"
        except SettingError as error:
            states[name] = error.problem
    return states | {"tokens are kept in": str(default_cache_dir())}
