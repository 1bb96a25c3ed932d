"""poslab installed from a wheel, without its repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from common import REPOSITORY, SMOKE

LOAD = """
from pathlib import Path

import poslab

print(Path(poslab.__file__).parent)
model = poslab.load("runs/one")
prompt = model.tokenizer.encode("I HAD always thought")
print(len(model.generate([prompt], 3)[0]) - len(prompt), "tokens written")
"""


@pytest.mark.slow
def test_a_wheel_trains_compares_and_loads_from_any_folder(tmp_path: Path) -> None:
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

    def run(*command: str) -> str:
        words = [sys.executable, *command]
        result = subprocess.run(words, capture_output=True, text=True, cwd=work, env=environment, check=False)
        assert result.returncode == 0, result.stderr
        return result.stdout

    poslab = str(site / "bin" / "poslab")
    run(poslab, "train", *SMOKE, "pos=t5", "run_dir=runs/one")
    assert "compare  poslab compare runs=runs/smoke\n" in run(poslab, "train", "-m", *SMOKE, "pos=t5,nope")
    assert "report.html" in run(poslab, "compare", "runs=runs/smoke")
    assert run("-c", LOAD) == f"{site / 'poslab'}\n3 tokens written\n"
    assert [path.name for path in work.iterdir()] == ["runs"]
    assert list((home / ".cache" / "poslab").glob("*.npy"))
    assert {path for path in site.rglob("*") if path.suffix != ".pyc"} == installed
