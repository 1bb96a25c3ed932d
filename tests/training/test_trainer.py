"""Settings of the trainer that this machine, Lightning or the data can't do: one line, and no run folder."""

from pathlib import Path

import pytest
import torch
from common import SMOKE, compose_config
from refusals import refused

from poslab.errors import UserError
from poslab.training.train import train
from poslab.training.trainer import check_trainer


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        pytest.param(
            "trainer=gpu",
            "trainer=gpu: torch sees no GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        ("trainer=cpu trainer.precision=16-mixed", "trainer.precision=16-mixed: needs a GPU; valid on a CPU: 32-true"),
        ("trainer.profiler=foo", "trainer.profiler=foo: "),
        ("trainer.strategy=dpp", "trainer.strategy=dpp: unknown; did you mean ddp"),
        *(
            (f"trainer=cpu trainer.devices={value}", f"trainer.devices={value}: must be auto or a number of processes")
            for value in ("two", "0", "1000000", "-1", "[0]")
        ),
        ("trainer.limit_val_batches=0.1", "trainer.limit_val_batches=0.1: leaves none of 9 batches"),
        ("trainer.limit_train_batches=0.01", "trainer.limit_train_batches=0.01: leaves none of"),
        ("trainer.val_check_interval=4", "trainer.val_check_interval=4: an epoch has 3 batches"),
        ("trainer.strategy=fsdp", "trainer.strategy=fsdp: "),
        ("trainer.max_time=soon", "trainer.max_time=soon: "),
        ("trainer.max_time=00:10", "trainer.max_time=00:10: must be days:hours:minutes:seconds"),
        ("model.attention_backend=sdpa", "model.attention_backend=sdpa: can't compute keys, values; valid"),
        ("model.attention_backend=flex trainer=cpu", "model.attention_backend=flex: trains on CUDA only"),
        ("model.attention_backend=triton trainer=cpu", "model.attention_backend=triton: "),
    ],
)
def test_settings_that_this_run_refuses(
    override: str, problem: str, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.raises(UserError) as refusal:
        train(compose_config(*SMOKE, f"run_dir={tmp_path / 'run'}", "pos=shaw", *override.split()))
    assert str(refusal.value).startswith(problem)
    assert "\n" not in str(refusal.value)
    assert not recwarn
    assert not (tmp_path / "run").exists()


def test_devices_of_a_gpu_are_a_number_or_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with refused("trainer.devices", "two", "1", "-1"):
        check_trainer(compose_config("trainer.devices=two").trainer)


def test_a_whole_number_may_be_typed_as_a_power_of_ten() -> None:
    """But a share of the batches is none of them."""
    trainer = compose_config("trainer.max_steps=1e3", "trainer.limit_val_batches=1.0").trainer
    assert (repr(trainer.max_steps), repr(trainer.limit_val_batches)) == ("1000", "1.0")
    assert repr(compose_config("trainer.limit_val_batches=1").trainer.limit_val_batches) == "1"
    with refused("trainer.max_steps", 1.5):
        compose_config("trainer.max_steps=1.5")
