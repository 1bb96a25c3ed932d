"""answers.json: what a model got wrong of its task's first tests, for the writer and all readers. Loads no torch."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from poslab.config.files import write_whole
from poslab.runs.folder import ANSWERS
from poslab.runs.readers import checked, read_mapping

LOOKED_AT = 32  # tests of each length, the first ones


@dataclass(frozen=True)
class WrongAnswer:
    """A test that the model got wrong. Symbols are given by name; right and said are those of the places at which
    something is asked, from 0."""

    number: int  # of the test among those of its length
    reads: list[str]
    places: list[int]
    right: list[str]
    said: list[str]

    @property
    def errors(self) -> list[int]:
        """Which of the answers are wrong."""
        return [n for n, (right, said) in enumerate(zip(self.right, self.said, strict=True)) if right != said]


@dataclass(frozen=True)
class WrongAnswers:
    """Those among the first `looked_at` tests of each length; a length is text, as in JSON."""

    looked_at: int
    wrong: dict[str, list[WrongAnswer]]

    def write(self, file: Path) -> None:
        write_whole(file, json.dumps(asdict(self), separators=(",", ":")) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "WrongAnswers":
        """Those of a run. Raises ValueError with a one-line reason where its folder holds none."""
        file = folder / ANSWERS
        if not file.exists():
            raise ValueError(f"it has no {file.name}")
        plain = read_mapping(file, json.loads)
        try:
            lengths = checked(cls, plain, wrong=dict[str, list[dict[str, Any]]])["wrong"]
            wrong = {length: [_wrong_answer(answer) for answer in answers] for length, answers in lengths.items()}
            return cls(plain["looked_at"], wrong)
        except ValueError as error:
            raise ValueError(f"{file.name} {error}") from error


def _wrong_answer(plain: object) -> WrongAnswer:
    """Raises ValueError for what `asdict` can't have given."""
    answer = WrongAnswer(**checked(WrongAnswer, plain))
    if not len(answer.places) == len(answer.right) == len(answer.said):
        raise ValueError("has answers that are not asked for")
    if not answer.errors or max(answer.places) >= len(answer.reads):
        raise ValueError("calls wrong what isn't")
    return answer
