"""Run state: what a checkpoint may say of it, and random generators, which resume."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from poslab.training.state import RunState, random_states, restore_random_states

IMPOSSIBLE = {
    "step": -1, "epoch": 1.5, "batches": True, "tokens": 2**63, "best_step": None, "threads": 0, "sample": 5,
    "best_val_loss": "low", "last_val_loss": None, "val_loss_tokens": -3, "batch_loss": [1], "batch_losses": [None],
    "best_monitored": "high", "improvements": -1, "solved_step": 0.5, "clock": "0:01", "training_clock": None,
    "random": [], "events": {"events": -1}, "validations": {"3": None},
}  # fmt: skip


@pytest.fixture
def plain() -> dict[str, Any]:
    return RunState(random=[random_states()]).plain()


def test_a_state_comes_back(plain: dict[str, Any]) -> None:
    assert RunState.from_checkpoint({"state": plain | {"step": 3}}).step == 3
    assert plain.keys() == IMPOSSIBLE.keys()


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_state_is_refused(name: str, plain: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^says .*{name}="):
        RunState.from_checkpoint({"state": plain | {name: IMPOSSIBLE[name]}})
    del plain[name]
    with pytest.raises(ValueError, match=f"^says nothing of a run's {name}: another version's$"):
        RunState.from_checkpoint({"state": plain})


def test_every_random_generator_resumes() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(())), random.random(), float(np.random.rand())]

    states = random_states()
    drawn = draw()
    assert draw() != drawn
    restore_random_states(states)
    assert draw() == drawn
