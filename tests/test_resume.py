"""Runs that are cut off anywhere and go on end as those that were not: in weights, figures and logs, to the bit."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from pytorch_lightning import Callback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import compose_config
from poslab.config import CONFIGS, parse
from poslab.resume import resumed
from poslab.training import run as run_module
from poslab.training import train

TINY = [
    "data.vocabulary=observed", "data.stride=null", "model.context_length=16", "model.embed_dim=16",
    "model.num_layers=2", "model.num_heads=2", "model.dropout=0.2", "trainer.max_epochs=2",
    "trainer.limit_train_batches=5", "trainer.limit_val_batches=2", "trainer.log_every_n_steps=1",
    "sample.new_tokens=4", "checkpoint_every_n_steps=2", "threads=1",
]  # fmt: skip
TIMES = {"wall_time_s", "tokens_per_s", "peak_memory_mb"}
HOOKS = (
    "on_train_batch_start", "on_train_batch_end", "on_validation_batch_end", "on_validation_end", "on_train_epoch_end",
)  # fmt: skip


class CutOff(BaseException):
    """As sudden as SIGKILL, but within a test."""


class Counter(Callback):
    """Counts the hooks of a training, and cuts it off at one of them."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.count = 0
        for hook in HOOKS:
            setattr(self, hook, self._note)

    def _note(self, *_: Any, **__: Any) -> None:
        self.count += 1
        if self.count == self.at:
            raise CutOff


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take most of so short a run's time."""
    monkeypatch.setattr("poslab.training.trainer.Pictures", lambda *_: Callback())


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Counter]:
    """Puts a Counter among the callbacks of the next trainings: first, or last but for the checkpoints."""

    def install(at: int | None = None, first: bool = True) -> Counter:
        counter = Counter(at)

        def make(*arguments: Any) -> Any:
            trainer = make_trainer(*arguments)
            trainer.callbacks.insert(0 if first else len(trainer.callbacks), counter)
            return trainer

        monkeypatch.setattr(run_module, "make_trainer", make)
        return counter

    make_trainer = run_module.make_trainer
    return install


def go_on(folder: Path, *overrides: str) -> dict[str, Any]:
    """What `python scripts/train.py resume=FOLDER ...` does."""
    given = [f"resume={folder}", *overrides]
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = compose("train", given)
    return train(parse(*resumed(composed, given)))


def content_of(folder: Path, name: str = "last.ckpt") -> dict[str, Any]:
    return torch.load(folder / "checkpoints" / name, weights_only=True)


def logged(folder: Path) -> dict[str, list[tuple[int, Any]]]:
    """Every scalar and text that TensorBoard shows, but for speeds."""
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    scalars = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    tags = [tag for tag in events.Tags()["tensors"] if "sample" in tag]
    texts = {tag: [(e.step, e.tensor_proto.string_val[0]) for e in events.Tensors(tag)] for tag in tags}
    return {tag: values for tag, values in (scalars | texts).items() if "tokens_per_s" not in tag}


def assert_equal(ours: Any, theirs: Any, where: str = "") -> None:
    if isinstance(ours, torch.Tensor):
        assert torch.equal(ours, theirs), where
    elif isinstance(ours, dict):
        assert ours.keys() == theirs.keys(), where
        for key, value in ours.items():
            assert_equal(value, theirs[key], f"{where}/{key}")
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs), where
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            assert_equal(one, other, f"{where}/{number}")
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), where  # two NaNs


def assert_same_run(folder: Path, whole: Path) -> None:
    for name in ("last.ckpt", "best.ckpt"):
        if (whole / "checkpoints" / name).exists():
            ours, theirs = content_of(folder, name), content_of(whole, name)
            for key in ("state_dict", "optimizer_states", "lr_schedulers", "figures", "loops"):
                assert_equal(ours.get(key), theirs.get(key), f"{name}: {key}")
    ours, theirs = (json.loads((run / "summary.json").read_text()) for run in (folder, whole))
    assert {k: v for k, v in ours.items() if k not in TIMES} == {k: v for k, v in theirs.items() if k not in TIMES}
    assert logged(folder) == logged(whole)
    assert not (folder / "checkpoints" / "previous.ckpt").exists()


CASES = {
    "default": [],
    "validation within epochs": ["trainer.val_check_interval=2"],
    "no validation": ["trainer.limit_val_batches=0"],
    "validation at every second epoch": ["trainer.check_val_every_n_epoch=2"],
    "accumulated gradients": ["trainer.accumulate_grad_batches=2"],
    "a number of steps": ["trainer.max_steps=7"],
    "steps without validation": ["trainer.max_steps=7", "trainer.limit_val_batches=0", "trainer.max_epochs=null"],
    "validation across epochs": ["trainer.val_check_interval=3", "trainer.check_val_every_n_epoch=null"],
    "early stopping": ["optim.learning_rate=0", "early_stopping_patience=1", "trainer.max_epochs=4"],
    "bfloat16": ["trainer.precision=bf16-mixed"],
    "float64": ["trainer.precision=64-true"],
    "workers": ["data.num_workers=1"],
    "whole epochs": ["trainer.limit_train_batches=null", "data.stride=600", "trainer.max_epochs=3"],
}


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("case", CASES)
def test_cut_off_at_any_hook(case: str, hooks: Callable[..., Counter], tmp_path: Path) -> None:
    settings = [*TINY, "pos=shaw", *CASES[case]]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    counter = hooks()
    train(compose_config(*settings, f"run_dir={whole}"))
    for at in range(1, counter.count + 1, 3):
        hooks(at, first=at % 2 == 0)
        with pytest.raises(CutOff):
            train(compose_config(*settings, f"run_dir={cut}"))
        hooks()
        go_on(cut)
        assert_same_run(cut, whole)
        shutil.rmtree(cut)
