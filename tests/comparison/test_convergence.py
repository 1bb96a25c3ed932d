"""Verdicts on runs that are hardly trained say so in the same sentence."""

from pathlib import Path
from typing import Any

import pytest
from runs_to_compare import compare_folders, report_of, write_run

from poslab.training.state import RunState

REFERENCES = {"uniform": 7.3, "unigram": 6.1, "bigram": 5.4}


def sentence_of(root: Path, absolute: float, t5: float, **facts: Any) -> str:
    for seed in range(1, 6):
        noise = 0.001 * seed**2
        write_run(root, "absolute", seed, absolute + noise, reference_losses=REFERENCES, **facts)
        write_run(root, "t5", seed, t5 - noise, reference_losses=REFERENCES, **facts)
    (sentence,) = compare_folders(root).sentences
    return sentence


@pytest.mark.parametrize(
    ("absolute", "t5", "ending"),
    [
        (5.3, 5.1, "n = 5"),
        (5.5, 5.1, "n = 5; absolute's loss is above that of counting pairs of tokens (5.4000): hardly trained"),
        (7.1, 5.5, "n = 5; both losses are above that of counting pairs of tokens (5.4000): hardly trained"),
        (7.1, 7.0, "n = 5; both losses are above that of counting single tokens (6.1000): hardly trained"),
    ],
)
def test_above_counting_pairs(absolute: float, t5: float, ending: str, tmp_path: Path) -> None:
    sentence = sentence_of(tmp_path, absolute, t5)
    assert sentence.startswith("t5 is better than absolute by ")
    assert sentence.endswith(ending)


def test_a_loss_that_still_falls_by_more_than_what_is_claimed(tmp_path: Path) -> None:
    still = "; t5's (by 0.3) and absolute's (by 0.3) losses still fell by more than that in the last tenth of the steps"
    assert still in sentence_of(tmp_path / "early", 5.3, 5.1, late_fall=0.3)
    assert "still fell" not in sentence_of(tmp_path / "late", 5.3, 5.1, late_fall=0.1)
    assert "still fell" not in sentence_of(tmp_path / "older", 5.3, 5.1, late_fall=None)
    assert "still fell" not in sentence_of(tmp_path / "unclear", 5.3, 5.3, late_fall=0.3)


def test_untrained_models_stand_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence_of(tmp_path, 5.3, 5.1)
    folder = report_of(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    untrained = [line.split() for line in lines if line.startswith("(")]
    assert untrained == [[f"({name})", f"{loss:.4f}"] for name, loss in reversed(REFERENCES.items())]
    assert "<tr><td>(bigram)</td><td></td><td>5.4000</td>" in (folder / "report.html").read_text()
    assert "| (bigram) |  | 5.4000 |" in (folder / "report.md").read_text()


def test_runs_that_are_judged_by_other_tokens_share_no_references(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1, 7.0, reference_losses=REFERENCES)
    write_run(tmp_path, "t5", 1, 7.1, reference_losses={"bigram": 5.5})
    assert "hardly trained" not in compare_folders(tmp_path).sentences[0]


@pytest.mark.parametrize(
    ("validations", "fall"),
    [({}, None), ({"100": 5.0}, None), ({"95": 5.0, "100": 4.0}, None), ({"80": 5.0, "100": 4.0}, 0.5)],
)
def test_the_fall_over_the_last_tenth(validations: dict[str, float], fall: float | None) -> None:
    assert RunState(validations=validations).late_fall == (fall if fall is None else pytest.approx(fall))
