"""answers.json: examples of the errors that a model makes in its task's first tests."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class WrongAnswers:
    """Wrong answers among the first `looked_at` tests of each length; a length is text, as in JSON."""

    looked_at: int
    wrong: dict[str, list[WrongAnswer]]

    def write(self, file: Path) -> None:
        write_whole(file, json.dumps(asdict(self), separators=(",", ":")) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "WrongAnswers":
        """Read the wrong answers of a run. Raises ValueError with a one-line reason if its folder holds none."""
        file = folder / ANSWERS
        if not file.exists():
            raise ValueError(f"it has no {file.name}")
        plain = read_mapping(file, json.loads)
        try:
            wrong = {
                length: [WrongAnswer(**values_of(WrongAnswer, answer)) for answer in answers]
                for length, answers in values_of(cls, plain)["wrong"].items()
            }
            return cls(plain["looked_at"], wrong)
        except ValueError as error:
            raise ValueError(f"{file.name} {error}") from error
