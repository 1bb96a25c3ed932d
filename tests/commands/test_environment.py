"""What notebooks, cluster templates, containers and other projects leave behind: a command works, or one line says what
to unset or to rename."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from common import REPOSITORY
from processes import run_process
from runs_to_resume import TINY

from poslab.environment import prepare
from poslab.errors import UserError

TRAIN = (*TINY, "trainer=cpu", "trainer.max_steps=2", "trainer.max_epochs=null", "run_dir=run")
# Read while a run is made; with what one line says, or nothing where it trains.
AT_THE_START = {
    "WORLD_SIZE=4 MASTER_ADDR=10.255.0.1 MASTER_PORT=29500": "",
    "RANK=0 WORLD_SIZE=1 MASTER_ADDR=x MASTER_PORT=2 KUBERNETES_PORT=x": "",
    "RANK=1 WORLD_SIZE=2": "RANK=1: left behind",
    "SLURM_NTASKS=abc SLURM_PROCID=1 SLURM_JOB_ID=3": "SLURM_NTASKS=abc: left behind",
    "TORCHELASTIC_RUN_ID=x": "TORCHELASTIC_RUN_ID=x: left behind",
    "SLURM_NTASKS=4 SLURM_JOB_ID=5 SLURM_NODELIST=n1 SLURM_JOB_NAME=x": "",
    "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 PMI_RANK=2": "",
    "PL_TRAINER_DEVICES=2 PL_TRAINER_MAX_EPOCHS=abc PL_GLOBAL_SEED=abc": "",
    "HOME=/nowhere TMPDIR=/nowhere XDG_CACHE_HOME=/proc/nowhere": "",
    "COLUMNS=garbage LINES=x NO_COLOR=1 TERM=dumb FORCE_COLOR=abc": "",
    "HYDRA_FULL_ERROR=abc HYDRA_MAIN_MODULE=x": "",
    "TOKENIZERS_PARALLELISM=x TIKTOKEN_CACHE_DIR=/nowhere SOURCE_DATE_EPOCH=abc TZ=garbage": "",
    "CUDA_VISIBLE_DEVICES=garbage": "",
    "CUDA_VISIBLE_DEVICES=": "",
}


@pytest.mark.parametrize("variables", AT_THE_START)
def test_variables_that_are_read_while_a_run_is_made(variables: str, tmp_path: Path) -> None:
    line = AT_THE_START[variables]
    settings = dict(setting.split("=") for setting in variables.split())
    result = run_process("train", *TRAIN, cwd=tmp_path, env=settings)
    if line:
        assert (result.returncode, result.stderr.count("\n")) == (2, 1), result.stderr
        assert line in result.stderr
        assert not (tmp_path / "run").exists()
    else:
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "run" / "summary.json").exists()


# Read by a library as it is loaded: variables, then files in the current folder with what they hold.
AT_IMPORT = [
    ("MPLBACKEND=module://matplotlib_inline.backend_inline MPLCONFIGDIR=/proc/nowhere", {}, ""),
    ("OMP_NUM_THREADS=garbage MKL_NUM_THREADS=abc TORCHDYNAMO_DISABLE=1", {}, ""),
    ("LC_ALL=C PYTHONIOENCODING=ascii PYTHONUTF8=0 PYTHONCOERCECLOCALE=0", {}, ""),
    ("PYTHONWARNINGS=error PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=cpp", {}, ""),
    ("PYTHONOPTIMIZE=2", {}, "error: PYTHONOPTIMIZE, or python -O: removes checks that poslab needs; unset it"),
    ("", {f"{name}.py": "x=1" for name in ("random", "tokenize", "tensorboard", "torch", "yaml", "logging")}, ""),
    (
        "",
        {"conf/config.yaml": "a: 1", ".hydra/config.yaml": "a: 1", "hydra": "", "matplotlibrc": "text.usetex: true"},
        "",
    ),
    ("MATPLOTLIBRC=usetex", {"usetex": "text.usetex: true"}, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("variables", "files", "line"), AT_IMPORT)
def test_what_is_read_at_import(variables: str, files: dict[str, str], line: str, tmp_path: Path) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    environment = {**os.environ, **dict(setting.split("=", 1) for setting in variables.split())}
    command = [sys.executable, REPOSITORY / "scripts" / "train.py", *TRAIN]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert result.returncode == (2 if line else 0), result.stderr
    assert line in result.stderr
    assert "Traceback" not in result.stderr


def test_a_notebook_s_backend_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    prepare()
    assert os.environ["MPLBACKEND"] == "agg"


def test_a_folder_that_was_deleted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(UserError, match="current folder"):
        prepare()
