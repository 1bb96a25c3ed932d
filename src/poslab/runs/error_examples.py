"""answers.json: examples of the errors that a model makes in its task's first tests."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poslab.config.files import write_whole
from poslab.runs.folder import ANSWERS
from poslab.runs.readers import read_mapping, values_of

LOOKED_AT = 32  # tests of each length, the first ones


@dataclass(frozen=True)
class WrongAnswer:
    """Test that the model got wrong. Symbols are given by name; right and said are the targets and the predictions at
    `places`, positions counted from 0."""

    number: int  # of the test among those of its length
    reads: list[str]
    places: list[int]
    right: list[str]
    said: list[str]

    @property
    def errors(self) -> list[int]:
        """Return the indices of the wrong answers."""
        return [n for n, (right, said) in enumerate(zip(self.right, self.said, strict=True)) if right != said]


def write_wrong_answers(file: Path, wrong: dict[str, list[WrongAnswer]]) -> None:
    """Write the wrong answers among the first LOOKED_AT tests of each length; a length is text, as in JSON."""
    plain = {"looked_at": LOOKED_AT, "wrong": {length: list(map(asdict, of)) for length, of in wrong.items()}}
    write_whole(file, json.dumps(plain, separators=(",", ":")) + "\n")


def read_wrong_answers(folder: Path) -> dict[str, list[WrongAnswer]]:
    """Read the wrong answers of a run. Raises ValueError with a one-line reason if its folder holds none."""
    file = folder / ANSWERS
    if not file.exists():
        raise ValueError(f"it has no {file.name}")
    wrong: Any = read_mapping(file, json.loads).get("wrong")
    try:
        return {length: [_wrong_answer(answer) for answer in answers] for length, answers in wrong.items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{file.name} is not a run's, or another version's") from error


def _wrong_answer(plain: Any) -> WrongAnswer:
    """Raises ValueError for values that contradict each other."""
    answer = WrongAnswer(**values_of(WrongAnswer, plain))
    asked = len(answer.places)
    if not len(answer.right) == len(answer.said) == asked or not answer.errors:
        raise ValueError("it has not one answer for each place, of which some are wrong")
    if not all(0 <= place < len(answer.reads) for place in answer.places):
        raise ValueError("it asks at places that it doesn't read")
    return answer
