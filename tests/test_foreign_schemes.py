"""Schemes of a stranger, one file and a yaml each, among those of poslab: no test takes a scheme for granted."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from common import REPOSITORY

# As whoever adds them would write their yaml: one with tables of every layer, one that ends, one that decays fast and
# has a name near another's, one whose tokens bring something along, one that is no function of the distance, one whose
# gradient cancels, one whose rotation looks at the token.
FOREIGN = {
    "per_layer": "_target_: poslab.positions.foreign_schemes.PerLayerBias\nreach: 20\n",
    "bounded": "_target_: poslab.positions.music.MusicTransformer\n",
    "rope2": "_target_: poslab.positions.foreign_schemes.FastDecay\nslope: 4.0\n",
    "gated": "_target_: poslab.positions.foreign_schemes.Gated\ngain: 2.0\n",
    "stretched": "_target_: poslab.positions.foreign_schemes.Stretched\n",
    "sharpened": "_target_: poslab.positions.foreign_schemes.Sharpened\n",
    "turned_by_tokens": "_target_: poslab.positions.foreign_schemes.TurnedByTokens\n",
}


def pytest_with(schemes: dict[str, str], copy: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the default tests in a copy of the repository that has these options of configs/pos as well."""
    left_out = shutil.ignore_patterns(".cache", "__pycache__", "*.egg-info")
    for folder in ("src", "configs", "scripts", "data", "tests", ".ci", ".github"):
        shutil.copytree(REPOSITORY / folder, copy / folder, ignore=left_out)
    for file in REPOSITORY.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    shutil.copy(REPOSITORY / "tests" / "support" / "foreign_schemes.py", copy / "src" / "poslab" / "positions")
    for name, yaml in schemes.items():
        (copy / "configs" / "pos" / f"{name}.yaml").write_text(yaml)
    for git in (["init", "--quiet"], ["add", "."]):  # some tests ask git which files are the project's
        subprocess.run(["git", *git], cwd=copy, check=True)
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_suite_passes_with_a_strangers_schemes(tmp_path: Path) -> None:
    result = pytest_with(FOREIGN, tmp_path / "repository", "-rpf")
    assert result.returncode == 0, result.stdout[-10_000:]
    assert all(f"{name}]" in result.stdout for name in FOREIGN)  # they were there


@pytest.mark.slow
def test_a_scheme_that_is_refused_fails_in_its_own_tests(tmp_path: Path) -> None:
    broken = {"broken": "_target_: poslab.positions.foreign_schemes.Nothing\n"}
    result = pytest_with(broken, tmp_path / "repository", "-n0", "-rf", "-k", "each_row_has_its_own or greedy")
    failed = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    assert failed
    assert all("broken]" in line for line in failed), result.stdout[-10_000:]
    assert " passed" in result.stdout
