"""Loggers beside TensorBoard: the same keys and values everywhere, and a run that resumes resumes there, too."""

import contextlib
import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from common import SMOKE, RunScript, assert_refused, compose_config
from runs_to_resume import assert_equal, content_of, logged, resume
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.errors import UserError
from poslab.metric import tag_of
from poslab.training import loggers
from poslab.training.data.text import TextDataModule
from poslab.training.train import train


def logged_name(tag: str) -> str:
    """What a metric is called by all loggers but TensorBoard's, which sorts its tags."""
    name = tag.replace("eval/", "val/").replace("loss_best", "best_loss")
    assert tag_of(name) == tag
    return name


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    return {tag: points for tag, points in logged(folder).items() if not tag.startswith("sample")}


@pytest.mark.pictures
def test_tensorboard_shows_validation_and_then_training_first(tmp_path: Path) -> None:
    """It sorts tags by name; pictures stand among the scalars in its first tab."""
    settings = ("evaluation.probes=true", "evaluation.lengths=[16,32]", "trainer.max_epochs=1")
    train(compose_config(*SMOKE, *settings, f"run_dir={tmp_path / 'run'}"))
    tags = EventAccumulator(str(tmp_path / "run")).Reload().Tags()
    groups = sorted({tag.partition("/")[0] for tag in (*tags["scalars"], *tags["images"])})
    assert groups[:2] == ["eval", "train"]
    assert {"val_induction", "val_pictures", "vs_length", "vs_position"} <= {*groups}


@pytest.mark.parametrize(
    ("written", "in_markdown", "in_line"),
    [
        ("except Attribute" + 31 * " ", "except Attribute␣×31", "except Attribute␣×31"),
        ("a line\nand \n\n", "a line\nand␣↵↵", "a line↵and␣↵↵"),
        ("\n\n\n\n", "↵×4", "↵×4"),
        (" \t\t", "␣⇥⇥", "␣⇥⇥"),
        ("    x", "    x", "␣×4x"),
        ("a b\u200b", "a b·", "a b·"),
    ],
)
def test_what_is_blank_in_a_sample_is_visible(
    written: str,
    in_markdown: str,
    in_line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(TextDataModule, "sample", lambda self, model: (written, written))
    train(compose_config(*SMOKE, "trainer.max_epochs=1", "sample.new_tokens=1", f"run_dir={tmp_path / 'run'}"))
    (of_tensorboard,) = (points for tag, points in logged(tmp_path / "run").items() if tag.startswith("sample"))
    assert of_tensorboard[0][1].decode() == in_markdown
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("       ") and line.strip())
    assert line.strip() == in_line


def test_csv_has_what_tensorboard_has(trained: Callable[..., Path]) -> None:
    """Probes among it, and training is the same without."""
    folder = trained(*SMOKE, "logger=[tensorboard,csv]", "evaluation.probes=true")
    with (folder / "csv" / "version_0" / "metrics.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    columns = set(rows[0]) - {"epoch", "step", "train/tokens_per_s"}
    found = {name: [(int(row["step"]), float(row[name])) for row in rows if row[name]] for name in columns}
    theirs = {logged_name(tag): points for tag, points in scalars(folder).items()}
    expected = {"train/loss", "val/loss", "val_induction/layer_0_head_1", "val_position_error/layer_2"}
    assert expected <= theirs.keys() == found.keys()
    for name, points in found.items():
        assert points == [(step, pytest.approx(value, rel=1e-6)) for step, value in theirs[name]]
    assert len(found["val_induction/layer_0_head_1"]) == len(found["val/loss"])
    for name in ("state_dict", "optimizer_states"):
        assert_equal(content_of(folder)[name], content_of(trained(*SMOKE))[name], name)


def run_twice(folder: Path, *settings: str, then: Sequence[str] = ()) -> str:
    """Trains for an epoch, and resumes for another; returns what is printed."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train(compose_config(*SMOKE, *settings, "trainer.max_epochs=1", f"run_dir={folder}"))
        resume(folder, "trainer.max_epochs=2", *then)
    return printed.getvalue()


def test_mlflow_has_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which needs no database
    store = f"file:{tmp_path / 'store'}"
    run_twice(tmp_path / "run", "logger=mlflow", f"logger.mlflow.tracking_uri={store}")
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name("poslab")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("run", "FINISHED")
    assert run.data.params["seed"] == "1"
    theirs = {logged_name(tag): points for tag, points in scalars(tmp_path / "run").items()}
    assert run.data.metrics.keys() == {*theirs, "epoch", "train/tokens_per_s"}
    for name, points in theirs.items():
        history = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        assert history == [(step, pytest.approx(value, rel=1e-6)) for step, value in points]


def test_mlflow_that_can_t_begin(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="needs the extra 'mlflow'")
    with pytest.raises(UserError, match=r"^logger\.mlflow=[^\n]*tracking_uri=nonsense://there[^\n]*$"):
        run_twice(tmp_path / "run", "logger=mlflow", "logger.mlflow.tracking_uri=nonsense://there")


def test_wandb_is_offline_and_has_one_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("wandb", reason="needs the extra 'wandb'")
    printed = run_twice(tmp_path / "run", "logger=wandb", "logger.wandb.project=mine")
    files = sorted((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len({file.name for file in files}) == 1
    assert len(files) == 2
    for name in map(logged_name, scalars(tmp_path / "run")):
        assert all(name.encode() in file.read_bytes() for file in files), name
    assert "wandb" not in capfd.readouterr().err
    assert f"upload   wandb sync {tmp_path / 'run'}/wandb/offline-run-*" in printed.splitlines()


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_logger_that_is_not_installed(
    name: str, run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loggers, "find_spec", lambda package: None)
    monkeypatch.chdir(tmp_path)
    missing = f'logger={name}: needs a package that is not installed: pip install "poslab[{name}]"\n'
    assert_refused(run_script("train", *SMOKE, f"logger={name}"), missing)
    assert list(tmp_path.iterdir()) == []


def test_a_run_resumes_with_another_logger(tmp_path: Path) -> None:
    run_twice(tmp_path / "run", then=["logger=csv"])
    assert (tmp_path / "run" / "csv" / "version_0" / "metrics.csv").is_file()
    assert "    _target_: pytorch_lightning.loggers.CSVLogger\n" in (tmp_path / "run" / "config.yaml").read_text()
