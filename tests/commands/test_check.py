"""Command `check`: mistakes that the hooks' own trial lets through, each found by the check that is about it."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from common import ALIBI, RunScript, assert_refused
from torch import Tensor

from poslab.commands.check import CHECKS, outcome
from poslab.positions import PositionScheme, ScoreTile
from poslab.positions.alibi import ALiBi

CHANNELS = torch.linspace(-1, 1, 24)  # a norm takes away what all channels share


@dataclass(frozen=True)
class OtherFormula(ALiBi):
    def reference_score(self, *arguments: object) -> Tensor:
        return 1.1 * super().reference_score(*arguments)


@dataclass(frozen=True)
class SeesOthersLater(PositionScheme):
    """Mixes tokens, where there are many."""

    def embed(self, tables: object, x: Tensor, positions: Tensor) -> Tensor:
        return x + x.mean(1, keepdim=True) if x.shape[1] > 100 else x


@dataclass(frozen=True)
class DependsOnItsTile(PositionScheme):
    def score_mod(self, tables: object, layer: int, tile: ScoreTile) -> Tensor:
        return tile.scores * (2 if tile.scores.shape[-2] > 128 else 1)


@dataclass(frozen=True)
class RoughInBfloat16(PositionScheme):
    def rotate(self, tables: object, x: Tensor, positions: Tensor) -> Tensor:
        return x * (positions.to(x.dtype) / 10)[:, None].sin() * (2 if x.dtype == torch.bfloat16 else 1)


@dataclass(frozen=True)
class KnowsTheLength(PositionScheme):
    def embed(self, tables: object, x: Tensor, positions: Tensor) -> Tensor:
        return x + (positions / (positions.max() + 1))[:, None].to(x.dtype) * CHANNELS


@dataclass(frozen=True)
class KeepsState(PositionScheme):
    made: ClassVar[list[int]] = []

    def tables(self, shape: object) -> dict[str, Tensor]:
        self.made.append(len(self.made))
        return {"table": torch.ones(1)}

    def embed(self, tables: dict[str, Tensor], x: Tensor, positions: Tensor) -> Tensor:
        return x + tables["table"] * len(self.made) * CHANNELS


@dataclass(frozen=True)
class AllPairs(PositionScheme):
    def embed(self, tables: object, x: Tensor, positions: Tensor) -> Tensor:
        return x + 0 * (positions[:, None] - positions).sum(-1, keepdim=True)


@dataclass(frozen=True)
class LearnsNothing(PositionScheme):
    def tables(self, shape: object) -> dict[str, Tensor]:
        return {"read": torch.ones(1), "unused": torch.ones(3)}

    def score_mod(self, tables: dict[str, Tensor], layer: int, tile: ScoreTile) -> Tensor:
        return tile.scores * tables["read"].to(tile.scores.dtype)


@dataclass(frozen=True)
class SharperLater(PositionScheme):
    def score_mod(self, tables: object, layer: int, tile: ScoreTile) -> Tensor:
        return tile.scores * (1 + 0.1 * tile.i)


@pytest.mark.parametrize(
    ("check", "scheme", "said"),
    [
        ("formula of the paper", OtherFormula(), "reference, layer 0, positions [0, 1, 2, 3, 4, 5, 6, 7]: by 0."),
        ("no look ahead", SeesOthersLater(), "logits before a changed token: by "),
        ("kernels", DependsOnItsTile(), "causal, logits: by "),
        ("kernels", LearnsNothing(), "table unused gets no gradient"),
        ("bfloat16", RoughInBfloat16(), "logits: by "),
        ("cache", KnowsTheLength(), "parts of [1, 1, 1] ... tokens: by "),
        ("given positions", KnowsTheLength(), "rows together: by "),
        ("given positions", SharperLater(), "all moved by 37 (`shift_invariant` is true): by "),
        ("memory", KnowsTheLength(), "segments of 8, by a cache: by "),
        ("files", KeepsState(), "saved and loaded: by "),
        ("linear memory", AllPairs(), "times as large as linear: by "),
    ],
)
def test_a_mistake_is_found(check: str, scheme: PositionScheme, said: str) -> None:
    result, words = outcome(CHECKS[check], scheme)
    assert (result, words[: len(said)]) == ("differs", said)
    assert outcome(CHECKS[check], ALiBi())[0] == "ok"


def test_the_command(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's scheme has every line but one; what is wrong with another one is said, and ends in exit code 1."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_alibi.py").write_text(ALIBI)
    code, output, errors = run_script("check", "own_alibi.MyALiBi", "pos.steepest=0.5")
    title, *lines = output.splitlines()
    assert (code, errors, title) == (0, "", "own_alibi.MyALiBi pos.steepest=0.5")
    results = {line[:20].strip(): line[22:].split("  ") for line in lines if line}
    assert results.keys() == CHECKS.keys()
    assert results.pop("formula of the paper") == ["not tried", "it has no reference_score"]
    export = results.pop("export")[0]
    assert export == ("ok" if find_spec("transformers") else "not tried")
    assert all(result.startswith("ok") for result, *_ in results.values())
    (tmp_path / "ahead.py").write_text(
        ALIBI.replace("bias = -slopes[:, None] *", "bias = len(distances) * -slopes[:, None] *")
    )
    code, output, errors = run_script("check", "ahead.MyALiBi")
    assert (code, errors) == (1, "error: ahead.MyALiBi: 3 checks found differences\n")
    assert_refused(
        run_script("check", "own_alibi.MyALiBi", "pos.steep=1"), "pos.steep=1: unknown setting; did you mean"
    )
    assert_refused(run_script("check", "pos.steepest=1"), "must be given first: a scheme by its name, or a class as in")
    (tmp_path / "broken.py").write_text(ALIBI.replace("bias=bias", "bias=bias.T"))
    assert_refused(run_script("check", "broken.MyALiBi"), "pos=MyALiBi.relative (broken.py, line")
    (tmp_path / "rough.py").write_text(
        ALIBI + "\n    def key(self, tables, layer, k, positions):\n        return k.float()\n"
    )
    assert_refused(run_script("check", "rough.MyALiBi"), "pos=MyALiBi.key: its result must be of float64, not ")
