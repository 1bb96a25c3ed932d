"""poslab installed from a wheel, without its repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPOSITORY

USE = """
from pathlib import Path

import poslab
from hydra import compose, initialize_config_dir
from poslab.settings.files import CONFIGS
from poslab.settings.train import parse
from poslab.training import train

print(Path(poslab.__file__).parent)
with initialize_config_dir(str(CONFIGS), version_base="1.3"):
    config = compose("train", ["experiment=smoke", "trainer=cpu", "pos=t5", "data.vocabulary=observed", "run_dir=run"])
train(parse(config, "t5"))
model = poslab.load("run")
prompt = model.tokenizer.encode("I HAD always thought")
print(len(model.generate([prompt], 3)[0]) - len(prompt), "tokens written")
"""


@pytest.mark.slow
def test_a_wheel_trains_and_loads_from_any_folder(tmp_path: Path) -> None:
    """Configurations, vocabulary and text come with it; what it writes goes to the user's folders, not into it."""
    site, home, work = (tmp_path / name for name in ("site", "home", "work"))
    work.mkdir()
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", f"--wheel-dir={tmp_path}", str(REPOSITORY)], check=True)
    (wheel,) = tmp_path.glob("poslab-*.whl")
    subprocess.run([*pip, "install", "--no-deps", f"--target={site}", str(wheel)], check=True)
    installed = {path for path in site.rglob("*") if path.suffix != ".pyc"}
    environment = {name: value for name, value in os.environ.items() if name != "XDG_CACHE_HOME"}
    environment |= {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(home)}
    command = [sys.executable, "-c", USE]
    result = subprocess.run(command, capture_output=True, text=True, cwd=work, env=environment, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{site / 'poslab'}\n")
    assert result.stdout.endswith("3 tokens written\n")
    assert [path.name for path in work.iterdir()] == ["run"]
    assert len(list((home / ".cache" / "poslab").glob("*.bin"))) == 4
    assert {path for path in site.rglob("*") if path.suffix != ".pyc"} == installed
