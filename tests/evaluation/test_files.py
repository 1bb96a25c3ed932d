"""evaluation.json and what TensorBoard shows of it: kept, merged, replaced."""

import json
from pathlib import Path

import pytest
from common import ENDING, ENDLESS
from runs_to_evaluate import CONTEXT, lively_model, random_text
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from poslab.config.schema import EvaluationConfig
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.files import Text, write_evaluation
from poslab.runs.evaluation import Evaluation, read_evaluation, unmeasured_lengths


def written(folder: Path, text: Text, *lengths: int, name: str = ENDLESS, file: str = "evaluation.json") -> Evaluation:
    return write_evaluation(folder, text, evaluate(lively_model(name), text.tokens, lengths), file)


def test_earlier_lengths_are_kept(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    written(tmp_path, text, 16, 4)
    before = read_evaluation(tmp_path, "abc")
    merged = written(tmp_path, text, 8, 4)
    assert [result.length for result in merged.lengths] == [4, 8, 16]
    assert merged.lengths[0] == before.lengths[0]
    assert merged.lengths[2] == before.lengths[1]
    assert read_evaluation(tmp_path) == read_evaluation(tmp_path, "abc") == merged
    assert read_evaluation(tmp_path, "another") is None
    assert sorted(path.name for path in tmp_path.glob("*.json*")) == ["evaluation.json"]
    assert json.loads((tmp_path / "evaluation.json").read_text())["text"] == "a text"


def test_other_texts_and_other_weights_are_not_mixed_in(tmp_path: Path) -> None:
    text, other = Text("a text", "abc", random_text(60)), Text("a text", "def", random_text(50))
    for second in ((other, ENDLESS), (text, ENDING)):
        written(tmp_path, text, 16)
        assert [result.length for result in written(tmp_path, second[0], 8, name=second[1]).lengths] == [8]


def test_the_same_length_is_measured_anew(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    for stride in (1, 4):
        found = write_evaluation(tmp_path, text, evaluate(lively_model(ENDLESS), text.tokens, [8], stride))
        assert [result.stride for result in found.lengths] == [stride]


def test_losses_of_other_last_tokens_are_not_mixed_in(tmp_path: Path) -> None:
    text, model = Text("a text", "abc", random_text(100)), lively_model(ENDLESS)
    write_evaluation(tmp_path, text, evaluate(model, text.tokens, [8, 16], last=4))
    found = write_evaluation(tmp_path, text, evaluate(model, text.tokens, [CONTEXT], last=2))
    assert [result.length for result in found.lengths] == sorted({8, 16, CONTEXT})
    assert list(found.last_losses) == [CONTEXT]
    wanted = EvaluationConfig(lengths=[8, CONTEXT], last=2)
    assert unmeasured_lengths(tmp_path, wanted) == [8]


@pytest.mark.parametrize("content", ["", "{}", "[1]", "\x00"])
def test_foreign_files_are_replaced(content: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(content)
    assert read_evaluation(tmp_path) is None
    text = Text("a text", "abc", random_text(60))
    assert written(tmp_path, text, 8) == read_evaluation(tmp_path)


def scalars(folder: Path) -> dict[str, dict[int, list[float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    found: dict[str, dict[int, list[float]]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found.setdefault(tag, {}).setdefault(event.step, []).append(event.value)
    return found


def test_tensorboard_has_each_length_once(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    written(tmp_path, text, 4, 1000)
    assert set(scalars(tmp_path)) == {"vs_length/loss_non_overlapping", "vs_length/loss_sliding"}
    (tmp_path / "events.out.tfevents.1.training").write_bytes(b"")
    for _ in range(2):
        found = {result.length: result for result in written(tmp_path, text, CONTEXT, 4).lengths}
    shown = scalars(tmp_path)
    assert (tmp_path / "events.out.tfevents.1.training").exists()
    assert set(shown["vs_length/loss_sliding"]) == {4, CONTEXT}
    for length, values in shown["vs_length/loss_non_overlapping"].items():
        assert values == [pytest.approx(found[length].loss)]
    for length, values in shown["vs_length/loss_sliding"].items():
        assert values == [pytest.approx(found[length].sliding_loss)]
    by_position = found[CONTEXT].by_position
    assert shown["vs_position/loss"] == {i: [pytest.approx(loss)] for i, loss in enumerate(by_position)}


def test_only_the_run_s_own_evaluation_goes_to_tensorboard(tmp_path: Path) -> None:
    written(tmp_path, Text("a text", "abc", random_text(60)), 4, file="evaluation-other.json")
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation-other.json"]
