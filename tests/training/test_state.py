"""Run state: the fall of its losses, and random generators, which resume."""

import random

import numpy as np
import pytest
import torch

from poslab.training.resume_points import random_states, restore_random_states
from poslab.training.state import RunState


@pytest.mark.parametrize(
    ("validations", "fall"),
    [({}, None), ({"100": 5.0}, None), ({"95": 5.0, "100": 4.0}, None), ({"80": 5.0, "100": 4.0}, 0.5)],
)
def test_the_fall_over_the_last_tenth(validations: dict[str, float], fall: float | None) -> None:
    assert RunState(validations=validations).late_fall == (fall if fall is None else pytest.approx(fall))


def test_every_random_generator_resumes() -> None:
    def draw() -> list[float]:
        return [float(torch.rand(())), random.random(), float(np.random.rand())]

    states = random_states()
    drawn = draw()
    assert draw() != drawn
    restore_random_states(states)
    assert draw() == drawn
