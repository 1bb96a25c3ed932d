"""Exercises: their solutions pass the contract, and an unsolved one says what is to be written."""

from pathlib import Path

import pytest
from common import REPOSITORY, RunScript

from poslab.contract.parts import PARTS

EXERCISES = ("MyWindow", "MyALiBi", "MyT5", "MyHalfRoPE")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_an_exercise(exercise: str, run_script: RunScript) -> None:
    code, output, errors = run_script("check", f"solutions.{exercise}")
    lines = [line for line in output.splitlines()[1:] if line]
    results = {line[:22].strip(): line[22:] for line in lines}
    assert (code, errors, results.keys()) == (0, "", PARTS.keys())
    assert {part for part, result in results.items() if not result.startswith("ok")} <= {"device", "export"}

    code, output, errors = run_script("check", f"exercises.{exercise}")
    _, hooks, *_ = output.splitlines()
    assert hooks.startswith(f"hooks                 differs: pos={exercise}.")
    assert "NotImplementedError: return " in hooks
    assert (code, errors) == (1, f"error: exercises.{exercise}: 1 part of the contract differs\n")


def test_the_page_shows_what_an_unsolved_exercise_says(run_script: RunScript) -> None:
    page = Path(REPOSITORY / "data/learn/exercises.md").read_text()
    (command,) = [line for line in page.splitlines() if line.startswith("    python scripts/check.py")]
    assert f"    {run_script('check', *command.split()[2:])[1].splitlines()[1]}\n" in page
