"""Runs that are cut off anywhere and resume end as those that were not: in weights, figures and logs, to the bit."""

import csv
import itertools
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import yaml
from common import ENDLESS, FULL_CAMPAIGN, REPOSITORY, RICHEST, compose_config
from processes import without_pictures
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.loggers import CSVLogger
from refusals import refused
from runs_to_compare import runs_by_group
from runs_to_evaluate import Malicious
from runs_to_resume import TINY, TINY_TASK, assert_same_run, content_of, logged, resume

import poslab.training.train as train_module
from poslab.comparison.repeat import command_of
from poslab.config.files import CONFIGS
from poslab.errors import RunStopped, SettingError, UserError
from poslab.hf.export import export
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.folder import RunFolder
from poslab.runs.groups import differences_beyond_the_scheme
from poslab.runs.initial import initial_fields
from poslab.runs.load import read_runs
from poslab.runs.plan import keys_of
from poslab.signals import Interrupted
from poslab.training.module import LanguageModel
from poslab.training.resume import resume_hints
from poslab.training.run_ends import Limits
from poslab.training.train import make_trainer, train

HOOKS = (
    "on_train_batch_start", "on_train_batch_end", "on_validation_batch_end", "on_validation_end", "on_train_epoch_end",
)  # fmt: skip


class CutOff(BaseException):
    """End of a run as sudden as SIGKILL, but within a test."""


class Counter(Callback):
    """Callback that counts the hooks of a training, and at one of them cuts it off, or interrupts it as Ctrl-C does."""

    def __init__(self, at: int | None = None, interrupts: bool = False) -> None:
        self.at, self.interrupts = at, interrupts
        self.count = 0
        for hook in HOOKS:
            setattr(self, hook, self._note)

    def _note(self, *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count == self.at:
            if not self.interrupts:
                raise CutOff
            os.kill(os.getpid(), signal.SIGINT)


@contextmanager
def counted(at: int | None = None, first: bool = True, interrupts: bool = False) -> Iterator[Counter]:
    """Put a Counter among the callbacks of trainings: first, or last but for the checkpoints."""
    counter = Counter(at, interrupts)

    def make(*arguments: Any) -> Any:
        trainer = make_trainer(*arguments)
        trainer.callbacks.insert(0 if first else len(trainer.callbacks), counter)
        return trainer

    with mock.patch.object(train_module, "make_trainer", make):
        yield counter


def train_in(folder: Path, *settings: str) -> None:
    train(compose_config(*settings, f"run_dir={folder}"))


def cut_off(at: int, run: Callable[..., Any], *arguments: Any, first: bool = True) -> None:
    """Train or resume up to a hook, of those that one run calls."""
    with counted(at, first), pytest.raises(CutOff):
        run(*arguments)


CASES = {
    "default": [],
    "validation within epochs": ["trainer.val_check_interval=2"],
    "no validation": ["trainer.limit_val_batches=0"],
    "validation at every second epoch": ["trainer.check_val_every_n_epoch=2"],
    "accumulated gradients": ["trainer.accumulate_grad_batches=2"],
    "validation while gradients accumulate": ["trainer.accumulate_grad_batches=2", "trainer.val_check_interval=1"],
    "a number of steps": ["trainer.max_steps=7"],
    "steps without validation": ["trainer.max_steps=7", "trainer.limit_val_batches=0", "trainer.max_epochs=null"],
    "validation across epochs": ["trainer.val_check_interval=3", "trainer.check_val_every_n_epoch=null"],
    "early stopping": ["optim.learning_rate=0", "early_stopping_patience=1", "trainer.max_epochs=4"],
    "bfloat16": ["trainer.precision=bf16-mixed"],
    "float64": ["trainer.precision=64-true"],
    "bfloat16 throughout": ["trainer.precision=bf16-true"],
    "workers": ["data.num_workers=1"],
    "faster tables": ["optim.position_learning_rate_factor=8"],
    "muon": ["optim=muon", "schedule=wsd"],
    "memory": ["data.order=stream", "model.memory_length=24"],
    "whole epochs": ["trainer.limit_train_batches=null", "data.stride=600", "trainer.max_epochs=3"],
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_cut_off_at_any_hook(case: str, tmp_path: Path) -> None:
    settings = [*TINY, f"pos={RICHEST}", *CASES[case]]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    with counted() as counter:
        train_in(whole, *settings)
    moments = range(1, counter.count + 1, 3 if FULL_CAMPAIGN else 9)
    for at in moments:
        cut_off(at, train_in, cut, *settings, first=at % 2 == 0)
        resume(cut)
        assert_same_run(cut, whole)
        shutil.rmtree(cut)
    print(f"campaign: cut off {len(moments)} times, {case}")


@pytest.mark.parametrize(
    "validation", [[], ["trainer.val_check_interval=3"]], ids=["then a batch", "then a validation"]
)
def test_an_interruption_waits_for_the_step_of_accumulated_gradients(
    validation: list[str], trained: Callable[..., Path], tmp_path: Path
) -> None:
    settings = [*TINY, "trainer.accumulate_grad_batches=2", *validation]
    third_batch_end = 6
    with counted(third_batch_end, interrupts=True), pytest.raises(Interrupted, match=r"\bstep 2\b"):
        train_in(tmp_path / "cut", *settings)
    resume(tmp_path / "cut")
    assert_same_run(tmp_path / "cut", trained(*settings))


STREAM = [*TINY, "data.order=stream"]
RETRIEVAL = ("model.retrieval.layer=1", "model.retrieval.size=40", "model.retrieval.k=4")
MEMORY = [*STREAM, "model.memory_length=24", *RETRIEVAL]
MEMORY_OF_TASK = [*TINY_TASK, "model.context_length=4", "model.memory_length=6"]


@pytest.mark.parametrize(
    ("data", "scheme", "second"),
    [
        (TINY, RICHEST, 15),
        (STREAM, RICHEST, 15),
        (MEMORY, ENDLESS, 15),
        ([*TINY_TASK, "evaluation.probes=true"], RICHEST, 20),
        (MEMORY_OF_TASK, ENDLESS, 20),
    ],
    ids=["text", "stream", "memory", "task", "memory of a task"],
)
def test_cut_off_between_checkpoints(
    data: list[str], scheme: str, second: int, trained: Callable[..., Path], tmp_path: Path
) -> None:
    settings = [*data, f"pos={scheme}"]
    whole, cut = trained(*settings), tmp_path / "cut"
    cut_off(7, train_in, cut, *settings)
    cut_off(second, resume, cut)
    assert resume(cut)["steps"] == 10
    assert_same_run(cut, whole)
    assert ("val_retrieval/gate_head_1" in logged(whole)) == (data is MEMORY)
    assert ("val_position_error/layer_0" in logged(whole)) == ("evaluation.probes=true" in data)


@pytest.mark.parametrize("at", [1, 7, 16])
def test_the_same_command_goes_on_with_a_run_that_was_killed(
    at: int, trained: Callable[..., Path], tmp_path: Path
) -> None:
    cut_off(at, train_in, tmp_path / "cut", *TINY)
    train_in(tmp_path / "cut", *TINY)
    assert_same_run(tmp_path / "cut", trained(*TINY))


@pytest.mark.parametrize("logger", ["tensorboard", "csv"])
def test_the_same_command_begins_again_where_a_run_was_killed_before_its_first_step(
    logger: str, trained: Callable[..., Path], tmp_path: Path
) -> None:
    """Killed before the folder has a file, while config.yaml is written, and when the loggers are there."""
    cut, settings = tmp_path / "cut", [*TINY, f"logger={logger}"]
    (cut / "checkpoints").mkdir(parents=True)
    for name in (".lock", "config.yaml.123.tmp"):
        (cut / name).touch()

    def make(*arguments: Any) -> Any:
        make_trainer(*arguments)
        raise CutOff

    for step, replaced in {"write_whole": mock.Mock(side_effect=CutOff), "make_trainer": make}.items():
        with mock.patch.object(train_module, step, replaced), pytest.raises(CutOff):
            train_in(cut, *settings)
    train_in(cut, *settings)
    assert_same_run(cut, trained(*settings))


def test_another_command_does_not_touch_a_run_that_was_killed(run_cut_off: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    before = tree(cut)
    for other in ("seed=2", "trainer.max_epochs=3", "pos=t5", "optim=sgd"):
        with pytest.raises(SettingError, match=r"^run_dir=.*is not empty.*resume="):
            train_in(cut, *TINY, other)
    assert tree(cut) == before


def csv_rows(run: Path) -> list[dict[str, str]]:
    """Return all that logger=csv wrote, but the times."""
    rows = []
    for file in sorted(run.glob("csv/version_*/metrics.csv")):
        with file.open(newline="") as opened:
            rows += [
                {k: v for k, v in row.items() if v and k != "train/tokens_per_s"} for row in csv.DictReader(opened)
            ]
    return rows


@pytest.mark.parametrize("at", [(1,), (7,), (9, 3), (16,), (21, 2)])
def test_rows_of_csv_stand_there_once_however_often_a_run_is_cut_off(
    at: tuple[int, ...], trained: Callable[..., Path], tmp_path: Path
) -> None:
    settings = [*TINY, "logger=csv"]
    save = CSVLogger.log_metrics

    def log_and_save(self: CSVLogger, *given: Any, **named: Any) -> None:
        """Write each row at once: a run that is killed may have written any of them."""
        save(self, *given, **named)
        self.save()

    with mock.patch.object(CSVLogger, "log_metrics", log_and_save):
        cut_off(at[0], train_in, tmp_path / "cut", *settings)
        for further in at[1:]:
            cut_off(further, resume, tmp_path / "cut")
        resume(tmp_path / "cut")
    assert csv_rows(tmp_path / "cut") == csv_rows(trained(*settings))


@pytest.mark.parametrize(
    ("text", "other", "setting"),
    [
        ("embed_dim: 16", "embed_dim: 32", "model.embed_dim=32"),
        (" dropout: 0.2", " dropout: 0.5", "model.dropout=0.5"),
        ("batch_size: 2", "batch_size: 3", "data.batch_size=3"),
        ("seed: 1\n", "seed: 2\n", "seed=2"),
        ("learning_rate: 0.001", "learning_rate: 0.01", "optim.learning_rate=0.01"),
        ("max_positions: null", "max_positions: 64", "pos.max_positions=64"),
        ("callbacks: {}", "callbacks: {a: {_target_: pytorch_lightning.callbacks.Timer}}", "callbacks.a._target_="),
    ],
)
def test_a_config_edited_between_a_kill_and_the_resume_is_refused(
    text: str, other: str, setting: str, run_cut_off: Path, tmp_path: Path
) -> None:
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    in_config(cut, text, other)
    before = tree(cut)
    with pytest.raises(SettingError, match=re.escape(setting)) as refusal:
        resume(cut, "allow_code=true")
    assert refusal.value.option == "resume"
    assert tree(cut) == before


def test_of_an_edited_config_what_may_change_is_taken(run_cut_off: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    in_config(cut, "max_epochs: 2", "max_epochs: 3")
    assert resume(cut)["steps"] == 15


def test_a_run_that_stops_within_accumulated_gradients_loses_nothing_of_its_epoch(tmp_path: Path) -> None:
    """Three steps of two, two and one of five batches."""
    run = tmp_path / "run"

    def stop(self: Limits, trainer: Trainer, *_: Any) -> None:
        trainer.should_stop |= trainer.fit_loop.total_batch_idx == 7  # the third batch of the second epoch

    with mock.patch.object(Limits, "on_train_batch_end", stop):
        train_in(run, *TINY, "trainer.accumulate_grad_batches=2")
    assert content_of(run)["state"]["step"] == 4
    found = resume(run, "trainer.max_epochs=3")
    assert (found["steps"], found["epochs"]) == (9, 3)


def test_checkpoints_of_a_callback_are_beside_those_of_the_run(tmp_path: Path) -> None:
    given = ["callbacks.a._target_=pytorch_lightning.callbacks.ModelCheckpoint", "callbacks.a.every_n_train_steps=1"]
    cut_off(7, train_in, tmp_path / "run", *TINY, *given)
    assert content_of(tmp_path / "run")["state"]["step"] == 2


def test_a_run_that_early_stopping_has_ended_is_not_extended(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train_in(run, *TINY, *CASES["early stopping"])
    before = tree(run)
    with pytest.raises(UserError, match=r"early stopping.*\b10\b"):
        resume(run, "trainer.max_epochs=8")
    assert tree(run) == before


def test_an_option_of_a_group_does_not_change_the_length(run_folder: Path) -> None:
    with pytest.raises(UserError, match="finished"):
        resume(run_folder, "trainer=auto", *(s for s in TINY if s.startswith("trainer.limit") or "log_every" in s))


def test_parts_of_a_user_are_cut_off_and_resume(trained: Callable[..., Path], tmp_path: Path) -> None:
    """Two optimizers as one, and a callback that counts and draws random numbers."""
    own = ("callbacks.noise._target_=brought.Noise", "callbacks.noise.every=3")
    settings = [*TINY, f"pos={RICHEST}", "optim=muon", "schedule=wsd", *own]
    whole, cut = trained(*settings), tmp_path / "cut"
    cut_off(7, train_in, cut, *settings)
    cut_off(15, resume, cut, "allow_code=true")
    assert resume(cut, own[0])["steps"] == 10
    assert_same_run(cut, whole)
    (state,) = (state for name, state in content_of(cut)["callbacks"].items() if name.startswith("Noise"))
    assert state == {"batches": 10, "added": 3}


def test_initial_weights_and_a_cut_off_before_the_first_checkpoint(
    trained: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut, weights = tmp_path / "cut", tmp_path / "weights"
    export(load_checkpoint(trained(*TINY)), weights)
    sha256 = initial_fields(str(weights))["init_sha256"]
    settings = [*TINY, f"init_from={weights}"]
    whole = trained(*settings)
    cut_off(1, train_in, cut, *settings)
    assert not list((cut / "checkpoints").iterdir())
    assert resume(cut)["init_sha256"] == sha256
    assert_same_run(cut, whole)
    assert yaml.safe_load((cut / "config.yaml").read_text())["init_sha256"] == sha256
    copy = weights.rename(tmp_path / "copy")
    (copy / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"^init_from=\S*/copy: "):
        resume(cut, "trainer.max_epochs=3", f"init_from={copy}")
    capsys.readouterr()
    assert resume(cut, "trainer.max_epochs=3")["init_sha256"] == sha256
    assert "weights begin with" not in capsys.readouterr().out


def test_the_best_weights_stay_the_best(tmp_path: Path) -> None:
    run = tmp_path / "run"
    cut_off(18, train_in, run, *TINY, "optim.learning_rate=0")
    assert content_of(run)["state"]["step"] >= 5
    assert resume(run)["best_step"] == 5
    assert content_of(run, "best.safetensors")["poslab"]["step"] == 5


@pytest.fixture(scope="module")
def run_cut_off(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two checkpoints."""
    folder = tmp_path_factory.mktemp("runs") / "cut"
    with without_pictures():
        cut_off(12, train_in, folder, *TINY)
    return folder


@pytest.mark.parametrize("damage", ["half", "changed", "gone"])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    damage: str,
    run_cut_off: Path,
    trained: Callable[..., Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    content = bytearray(last(cut).read_bytes())
    content[len(content) // 2] ^= 1  # within a tensor: nothing but the checksum can tell
    if damage == "gone":
        last(cut).unlink()  # as between two renames
    else:
        last(cut).write_bytes(content[: len(content) // 2] if damage == "half" else content)
    capsys.readouterr()
    resume(cut)
    printed = capsys.readouterr()
    assert ("damaged" in printed.err and "; resuming from previous.ckpt\n" in printed.err) == (damage != "gone")
    assert "resumes from step 2" in printed.out
    assert_same_run(cut, trained(*TINY))


def test_a_checkpoint_that_memory_is_too_small_for_is_not_called_damaged(run_cut_off: Path, tmp_path: Path) -> None:
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    with mock.patch("torch.load", side_effect=MemoryError), pytest.raises(MemoryError):
        resume(cut)
    with mock.patch("torch.load", side_effect=MemoryError), pytest.raises(SettingError, match="memory"):
        load_checkpoint(last(cut))


@pytest.mark.parametrize("hook", ["on_train_batch_end", "on_validation_end", "on_train_end"])
@pytest.mark.parametrize("gone", [".", "config.yaml"])
def test_a_run_whose_folder_is_removed_ends_with_one_line(hook: str, gone: str, tmp_path: Path) -> None:
    run, remover = tmp_path / "run", Callback()

    def remove(*_: Any, **__: Any) -> None:
        if (run / gone).exists():
            (run / gone).unlink() if (run / gone).is_file() else shutil.rmtree(run)
            raise OSError("as a file of it is missed") if gone == "config.yaml" else FileNotFoundError(run)

    setattr(remover, hook, remove)

    def make(*arguments: Any) -> Any:
        trainer = make_trainer(*arguments)
        trainer.callbacks.append(remover)
        return trainer

    with mock.patch.object(train_module, "make_trainer", make), pytest.raises(RunStopped, match="was removed") as end:
        train_in(run, *TINY)
    assert "resume" not in str(end.value)


def test_only_what_gloo_raises_is_called_a_lost_process(tmp_path: Path) -> None:
    config, hook = compose_config(*TINY), threading.excepthook
    (tmp_path / "config.yaml").touch()
    with (
        pytest.raises(RunStopped, match="process"),
        resume_hints(RunFolder(tmp_path), config),
    ):
        raise RuntimeError("[third_party/gloo/gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    with pytest.raises(KeyError), resume_hints(RunFolder(tmp_path), config):
        raise KeyError("igloo")
    assert threading.excepthook is hook


def last(run: Path) -> Path:
    return run / "checkpoints" / "last.ckpt"


def in_config(run: Path, text: str, other: str) -> None:
    """Change a text in a run's config.yaml."""
    config = run / "config.yaml"
    assert text in config.read_text()
    config.write_text(config.read_text().replace(text, other))


@pytest.fixture
def run_folder(trained: Callable[..., Path], tmp_path: Path) -> Path:
    """A finished run that a test may change."""
    return Path(shutil.copytree(trained(*TINY, "pos=t5", "evaluation.lengths=[16]"), tmp_path / "run"))


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, elsewhere = tmp_path / "text.txt", tmp_path / "elsewhere"
    text.write_bytes((REPOSITORY / "data" / "the-verdict.txt").read_bytes())
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    train(compose_config(*TINY, "data.path=text.txt", "run_dir=run"))
    monkeypatch.chdir(elsewhere)
    assert resume(Path("../run"), "trainer.max_epochs=3")["steps"] == 15
    text.rename(elsewhere / "moved.txt")
    problem = rf"^data\.path={text}: no such file, .* \(in \.\./run/config\.yaml; data\.path=\.\.\. gives another\)$"
    with pytest.raises(UserError, match=problem):
        resume(Path("../run"), "trainer.max_epochs=4")
    assert resume(Path("../run"), "trainer.max_epochs=4", "data.path=moved.txt")["steps"] == 20


def test_a_finished_run_is_extended(run_folder: Path) -> None:
    before = json.loads((run_folder / "summary.json").read_text())
    summary = resume(run_folder, "trainer.max_epochs=3")
    assert (before["steps"], summary["steps"], summary["epochs"]) == (10, 15, 3)
    assert summary["tokens"] == 15 * 2 * 16
    assert json.loads((run_folder / "summary-step10.json").read_text()) == before
    assert (run_folder / "evaluation-step10.json").exists()
    assert (run_folder / "evaluation.json").exists()
    steps = [step for step, _ in logged(run_folder)["train/loss"]]
    assert steps == list(range(15))
    rates = dict(logged(run_folder)["train/learning_rate"])
    assert rates[10] > 2 * rates[9]  # the longer schedule, from its place for this step on
    assert resume(run_folder, "trainer.max_epochs=4")["steps"] == 20
    lengths = ["trainer.max_epochs=2 to step 10", "trainer.max_epochs=3 to step 15"]
    assert yaml.safe_load((run_folder / "config.yaml").read_text())["extended"] == lengths


def test_an_extended_run_is_none_that_was_trained_for_as_long_at_once(
    trained: Callable[..., Path], tmp_path: Path
) -> None:
    """Extending changes the learning rate of later steps; interrupting as well changes nothing more."""
    cut, whole = tmp_path / "cut", trained(*TINY, "trainer.max_epochs=3")
    shutil.copytree(trained(*TINY), cut)
    cut_off(2, resume, cut, "trainer.max_epochs=3")
    cut_off(9, resume, cut)
    resume(cut)
    runs, left_out = read_runs([str(cut), str(whole)])
    assert not left_out
    extended = "[trainer.max_epochs=2 to step 10] (as in cut), null (as in run)"
    assert differences_beyond_the_scheme(runs) == {"extended": extended}
    own, other = map(keys_of, runs)
    assert own[0] != other[0]
    assert own[1] != other[1]
    assert command_of(*runs_by_group(cut).values()) == "not recorded"


def test_a_run_planned_by_steps_has_no_fewer_epochs_than_it_has_trained(tmp_path: Path) -> None:
    train_in(tmp_path / "run", *TINY, "trainer.max_epochs=null", "trainer.max_steps=10")  # two epochs
    before = tree(tmp_path / "run")
    with refused("trainer.max_epochs", "1", "2"):
        resume(tmp_path / "run", "trainer.max_epochs=1")
    assert tree(tmp_path / "run") == before


def test_an_unfinished_run_keeps_what_its_learning_rate_follows(run_cut_off: Path, tmp_path: Path) -> None:
    """Of two epochs. A limit of another kind is refused, and a time may end it earlier."""
    cut = shutil.copytree(run_cut_off, tmp_path / "cut")
    before = tree(cut)
    with refused("trainer.max_steps", 100, "trainer.max_epochs=2", "trainer.max_time"):
        resume(cut, "trainer.max_steps=100")
    with refused("trainer.max_epochs", "null", "trainer.max_epochs=2", "trainer.max_time"):
        resume(cut, "trainer.max_epochs=null", "trainer.max_steps=100")
    assert tree(cut) == before
    assert resume(cut, "trainer.max_time=01:00:00:00")["steps"] == 10
    trainer = yaml.safe_load((cut / "config.yaml").read_text())["trainer"]
    assert (trainer["max_epochs"], trainer["max_time"]) == (2, "01:00:00:00")


def test_fewer_steps_than_a_run_was_to_have_are_refused(tmp_path: Path) -> None:
    cut_off(7, train_in, tmp_path, *TINY, "trainer.max_epochs=null", "trainer.max_steps=10")
    with refused("trainer.max_steps", "8", "10"):
        resume(tmp_path, "trainer.max_steps=8")


@pytest.mark.parametrize("earlier", ["trainer.max_steps=10", "trainer.max_epochs=2", "trainer.max_time=00:00:02:00"])
def test_a_run_goes_on_until_a_time_that_counts_from_where_it_is_first_given(
    earlier: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock of Lightning's on which each look takes a second. A time follows a finished run, and ends a part that
    is killed and resumes where the whole would."""
    seconds = itertools.count()
    monkeypatch.setattr("pytorch_lightning.callbacks.timer.time.monotonic", lambda: float(next(seconds)))
    estimates: dict[int, int] = {}  # of the whole run's steps, by the step at which it is asked for
    total_steps = LanguageModel.total_steps

    def noted(module: LanguageModel) -> int:
        return estimates.setdefault(module.global_step, total_steps(module))

    settings = [*TINY, "trainer.limit_val_batches=0"]
    train_in(tmp_path, *settings, earlier)
    begun = content_of(tmp_path)["state"]["step"]
    monkeypatch.setattr(LanguageModel, "total_steps", noted)
    cut_off(20, resume, tmp_path, "trainer.max_time=00:00:04:00")
    killed_at = content_of(tmp_path)["state"]["step"]
    ended = resume(tmp_path)["steps"]
    assert begun < killed_at < ended
    trained = ended - begun
    late = {step: total for step, total in estimates.items() if step > begun + 0.75 * trained}
    assert all(abs(total - ended) <= 0.25 * trained for total in late.values())


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([], "it is finished, after 10 steps; trainer.max_epochs=2 ends it, a greater one trains on"),
        (["trainer.max_steps=10"], "after 10 steps; trainer.max_steps=10 ends it, a greater one trains on"),
        (["trainer.max_steps=20", "trainer.max_epochs=2"], "after 10 steps; trainer.max_epochs=2 ends it, a greater"),
        (["trainer.max_steps=10", "trainer.max_epochs=3"], "after 10 steps; trainer.max_steps=10 ends it, a greater"),
        (
            ["trainer.max_epochs=1"],
            "trainer.max_epochs=1: the run was to have 2; it can be extended, not shortened",
        ),
        (["model.embed_dim=32"], "model.embed_dim=16; what may change is"),
        (["pos.num_buckets=8"], " pos.num_buckets=8 begins a new run"),
        (["optim.learning_rate=0.1"], ": poslab train "),
        (["optim.learning_rate=0.1"], " optim.learning_rate=0.1 begins"),
        (["optim.learning_rate=0.1"], " optim.learning_rate=0.001"),
        (["pos=nope"], " pos=nope begins"),
        (["pos=nope"], "keeps its pos=t5"),
        (["seed=2", "model=gpt2"], "seed=1"),
        (["run_dir=elsewhere"], "run_dir=elsewhere: can't be given with resume"),
        ([f"data.path={CONFIGS / 'train.yaml'}", "trainer.max_epochs=3"], "is not the one that it was trained on"),
    ],
)
def test_what_a_run_can_not_resume_with(overrides: list[str], problem: str, run_folder: Path) -> None:
    before = tree(run_folder)
    with pytest.raises(UserError) as refusal:
        resume(run_folder, *overrides)
    assert problem in str(refusal.value)
    assert tree(run_folder) == before


def test_the_command_for_other_settings_is_of_a_new_run(run_folder: Path) -> None:
    (run_folder / "config.yaml").open("a").write(
        f"overrides: [pos=t5, 'run_dir={run_folder}', init_from=last, seed=1]\n"
    )
    with pytest.raises(UserError) as refusal:
        resume(run_folder, "optim.learning_rate=0.1")
    assert f" pos=t5 seed=1 init_from={run_folder} optim.learning_rate=0.1 " in str(refusal.value)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda run: shutil.rmtree(run), "no such folder"),
        (lambda run: (run / "config.yaml").unlink(), "no run to resume: unfinished: it has no config.yaml"),
        (lambda run: (run / "config.yaml").write_text("- [half"), "config.yaml can't be read"),
        (lambda run: last(run).write_bytes(b"PK"), "a damaged one; no intact checkpoint is left"),
        (lambda run: last(run).unlink(), "it is finished, but has no last.ckpt to resume from"),
        (lambda run: in_config(run, "seed: 1", "seed: ${oc.env:HOME}"), "seed=${oc.env:HOME}: must be a whole number"),
    ],
)
def test_folders_that_no_run_can_resume_in(spoil: Callable[[Path], Any], problem: str, run_folder: Path) -> None:
    spoil(run_folder)
    with pytest.raises(UserError) as refusal:
        resume(run_folder, "trainer.max_epochs=3")
    assert problem in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_checkpoint_that_runs_code_is_refused_and_runs_nothing(run_folder: Path, tmp_path: Path) -> None:
    content = content_of(run_folder) | {"extra": Malicious(tmp_path / "trace")}
    torch.save(content, last(run_folder))
    with pytest.raises(UserError, match="so it isn't loaded"):
        resume(run_folder, "trainer.max_epochs=3")
    assert not (tmp_path / "trace").exists()


def test_a_scheme_from_elsewhere_is_not_imported_unless_the_user_says_so(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text(f"open({str(tmp_path / 'trace')!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    in_config(run_folder, "poslab.positions.t5.T5", "planted.Scheme")
    with pytest.raises(UserError, match=r"planted\.Scheme.*allow_code=true"):
        resume(run_folder, "trainer.max_epochs=3")
    assert not (tmp_path / "trace").exists()


def test_nothing_is_written_where_a_checkpoint_or_a_configuration_says(run_folder: Path, tmp_path: Path) -> None:
    """Names of event files lead nowhere else, links are not followed, and the cache stays where it is."""
    precious = tmp_path / "precious"
    precious.write_text("mine" * 100)
    content = content_of(run_folder)
    content["state"]["events"] |= {"../../precious": 1, "events.out.tfevents.link": 1}
    torch.save(content, last(run_folder))
    (run_folder / "events.out.tfevents.link").symlink_to(precious)
    in_config(run_folder, "cache_dir: null", f"cache_dir: {tmp_path / 'cache'}")
    resume(run_folder, "trainer.max_epochs=3", "allow_code=true")
    assert precious.read_text() == "mine" * 100
    assert {path.name for path in tmp_path.iterdir()} == {"run", "precious"}


def test_damaged_best_weights_are_named_where_a_run_resumes(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = run_folder / "checkpoints" / "best.safetensors"
    best.write_bytes(best.read_bytes()[:-1] + b"?")
    resume(run_folder, "trainer.max_epochs=3", "evaluation.lengths=[]", "optim.learning_rate=0.001")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "best.safetensors" in line]
    assert "is damaged: the best weights so far are lost, unless a later validation loss is lower" in line


def test_a_loss_that_is_no_number_stops_the_run_and_is_not_saved(tmp_path: Path) -> None:
    settings = [*TINY, "optim.learning_rate=1e30", "trainer.gradient_clip_val=null", "checkpoint_every_n_steps=1"]
    with pytest.raises(RunStopped) as stopped:
        train(compose_config(*settings, f"run_dir={tmp_path / 'run'}"))
    message = re.fullmatch(
        r"step (\d+): the (?:loss|gradient's norm) is (?:nan|inf); "
        r"(?:the last good checkpoint is of step (\d+)|there is no checkpoint yet)\. "
        r"Try, in a new run, a smaller optim\.learning_rate than 1e\+30, "
        r"or trainer\.gradient_clip_val=1\.0; debug=overfit .*",
        str(stopped.value),
    )
    assert message, str(stopped.value)
    assert stopped.value.exit_code == 1
    assert not (tmp_path / "run" / "summary.json").exists()
    ((run,), _) = read_runs([str(tmp_path / "run")])
    assert f"it diverged, by step {run.summary.steps}" in run.divergence
    if message[2]:
        assert int(message[2]) < int(message[1])
        weights = content_of(tmp_path / "run")["state_dict"].values()
        assert all(weight.isfinite().all() for weight in weights)
