"""Run state: what a checkpoint may say of it, and random generators, which resume."""

import random

import numpy as np
import torch

from poslab.training.state import RunState, random_states, restore_random_states


def test_a_state_comes_back() -> None:
    plain = RunState(random=[random_states()]).plain()
    assert RunState.from_checkpoint({"state": plain | {"step": 3}}).step == 3


def test_every_random_generator_resumes() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(())), random.random(), float(np.random.rand())]

    states = random_states()
    drawn = draw()
    assert draw() != drawn
    restore_random_states(states)
    assert draw() == drawn
