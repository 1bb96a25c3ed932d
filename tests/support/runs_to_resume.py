"""Helpers for tests of interrupted runs: a tiny run, resuming, and a comparison of two runs to the bit."""

import json
from pathlib import Path
from typing import Any

import torch
from common import composed
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.resumed_settings import settings_of_resumed_run
from poslab.training.train import train

TINY = [
    "data.vocabulary=observed", "data.stride=null", "model.context_length=16", "model.embed_dim=16",
    "model.num_layers=2", "model.num_heads=2", "model.dropout=0.2", "trainer.max_epochs=2",
    "trainer.limit_train_batches=5", "trainer.limit_val_batches=2", "trainer.log_every_n_steps=1",
    "sample.new_tokens=4", "checkpoint_every_n_steps=2", "threads=1",
]  # fmt: skip
TINY_TASK = [
    "data=copy", "data.vocabulary=8", "data.max_length=4", "data.test_lengths=[4,6]", "data.batch_size=4",
    "data.validate_every=5", "model.context_length=16", "model.embed_dim=16", "model.num_heads=2", "model.dropout=0.2",
    "trainer.max_steps=10", "trainer.log_every_n_steps=1", "checkpoint_every_n_steps=2", "threads=1",
]  # fmt: skip
# Of a summary: times, and the state of the checkout, which may be edited between two trainings.
NOT_OF_THE_RUN = {"wall_time_s", "tokens_per_s", "peak_memory_mb", "git_commit", "git_clean"}


def resume(folder: Path, *overrides: str) -> dict[str, Any]:
    """Resume as `python scripts/train.py resume=FOLDER ...` does."""
    given = [f"resume={folder}", *overrides]
    return vars(train(settings_of_resumed_run(composed(*given), given)))


def content_of(folder: Path, name: str = "last.ckpt") -> dict[str, Any]:
    return read_checkpoint(folder / "checkpoints" / name)


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


def assert_same_weights(ours: Path, theirs: Path) -> None:
    assert_equal(content_of(ours)["state_dict"], content_of(theirs)["state_dict"], "last.ckpt")


def assert_same_run(folder: Path, whole: Path) -> None:
    for name in ("last.ckpt", "best.safetensors"):
        if (whole / "checkpoints" / name).exists():
            ours, theirs = content_of(folder, name), content_of(whole, name)
            for key in ("state_dict", "optimizer_states", "lr_schedulers", "loops", "StreamDataModule"):
                assert_equal(ours.get(key), theirs.get(key), f"{name}: {key}")
    ours, theirs = (content_of(run)["state"] for run in (folder, whole))
    for name in theirs.keys() - {"clock", "training_clock", "events", "csv_rows"}:
        assert_equal(ours[name], theirs[name], f"last.ckpt: {name}")
    ours, theirs = (json.loads((run / "summary.json").read_text()) for run in (folder, whole))
    for name in theirs.keys() - NOT_OF_THE_RUN:
        assert_equal(ours[name], theirs[name], f"summary.json: {name}")
    assert ours.keys() == theirs.keys()
    assert logged(folder) == logged(whole)
    assert not (folder / "checkpoints" / "previous.ckpt").exists()
