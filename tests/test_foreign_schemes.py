"""Schemes of a stranger, one file and a yaml each, among those of poslab: no test takes a scheme for granted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY

# As whoever adds them would write their yaml: one with tables of every layer, one that ends, one that decays
# fast, one whose tokens bring something along, one that is no function of the distance.
FOREIGN = {
    "per_layer": "_target_: poslab.positions.foreign_schemes.PerLayerBias\nreach: 20\n",
    "bounded": "_target_: poslab.positions.foreign_schemes.BoundedKeys\nstd: 0.5\n",
    "fast": "_target_: poslab.positions.foreign_schemes.FastDecay\nslope: 4.0\n",
    "gated": "_target_: poslab.positions.foreign_schemes.Gated\ngain: 2.0\n",
    "stretched": "_target_: poslab.positions.foreign_schemes.Stretched\n",
}


@pytest.mark.slow
def test_the_suite_passes_with_a_strangers_schemes(tmp_path: Path) -> None:
    """All default tests in a copy of the repository that has them."""
    copy = tmp_path / "repository"
    left_out = shutil.ignore_patterns(".cache", "__pycache__", "*.egg-info")
    for folder in ("src", "configs", "scripts", "data", "tests", ".github"):
        shutil.copytree(REPOSITORY / folder, copy / folder, ignore=left_out)
    for file in REPOSITORY.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    shutil.copy(REPOSITORY / "tests" / "foreign_schemes.py", copy / "src" / "poslab" / "positions")
    for name, yaml in FOREIGN.items():
        (copy / "configs" / "pos" / f"{name}.yaml").write_text(yaml)
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-rpf", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-10_000:]
    assert all(f"{name}]" in result.stdout for name in FOREIGN)  # they were there
