"""Records of a run on a task beside its metrics: when it was solved, and examples of errors."""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from common import ENDLESS, compose_config
from runs_to_resume import TINY_TASK, resume
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

import poslab
from poslab.evaluation.task_metrics import measure, wrong_answers
from poslab.runs.error_examples import LOOKED_AT, read_wrong_answers
from poslab.runs.summary import Summary
from poslab.tasks import Task
from poslab.tasks.transcription import Reverse
from poslab.training.data.task import TaskDataModule
from poslab.training.train import train

REVERSE = Reverse(min_length=1, max_length=3, test_lengths=[3, 5], vocabulary=3)


class SaysFirstSymbol(nn.Module):
    """Says the task's first common symbol at every place but the last, where it is right: EOS."""

    position = SimpleNamespace(drawing=nullcontext)
    evaluating = staticmethod(nullcontext)

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding.from_pretrained(torch.eye(len(task.symbols)))
        self.head_weight = self.token_embedding.weight
        self.eos, self.first = task.symbols.index("EOS"), task.symbols.index("a")

    def read(self, tokens: torch.Tensor, positions: None = None) -> torch.Tensor:
        """Return hidden states whose products with the embedding are their own numbers."""
        said = torch.full_like(tokens, self.first)
        said[:, -1] = self.eos
        return nn.functional.one_hot(said, self.token_embedding.num_embeddings).float()


@pytest.fixture(scope="module")
def finished(trained: Callable[..., Path]) -> Path:
    return trained(*TINY_TASK, "trainer=cpu", f"pos={ENDLESS}")


def test_wrong_answers_are_those_of_the_first_tests() -> None:
    model: Any = SaysFirstSymbol(REVERSE)
    found = wrong_answers(model, REVERSE)
    tokens, targets, _ = REVERSE.test(3)
    right = ((targets[:LOOKED_AT, 4:7] == model.first).all(1)).tolist()
    assert [answer.number for answer in found["3"]] == [row for row in range(LOOKED_AT) if not right[row]]
    assert found.keys() == {"3", "5"}
    answer = found["3"][0]
    names = [REVERSE.symbols[i] for i in tokens[answer.number].tolist()]
    assert answer.reads == names
    assert answer.places == [4, 5, 6, 7]
    assert answer.right == [*names[3:0:-1], "EOS"]
    assert answer.said == ["a", "a", "a", "EOS"]
    assert answer.errors == [n for n in range(3) if names[3 - n] != "a"]


def test_a_run_leaves_what_it_got_wrong(finished: Path) -> None:
    read = read_wrong_answers(finished)
    model, task = poslab.load(finished), compose_config(*TINY_TASK).data
    assert isinstance(task, Task)
    assert read == wrong_answers(model, task)
    for length, answers in read.items():
        exact = measure(model, task)["exact"][length]
        assert len(answers) <= LOOKED_AT
        assert bool(answers) or exact > 0.9
    written = (finished / "answers.json").read_text()
    assert json.loads(written)["looked_at"] == LOOKED_AT
    assert len(written) < 100_000


def test_solved_is_the_first_validation_that_is_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = iter([0.98, 0.99, 1.0])
    figures = lambda *_: {"loss": 1.0, "exact": next(exact), "accuracy": 0.5}  # noqa: E731
    monkeypatch.setattr(TaskDataModule, "validation_figures", figures)
    summary = train(compose_config(*TINY_TASK, "trainer=cpu", "trainer.max_steps=15", f"run_dir={tmp_path}/run"))
    assert summary.solved_step == 10
    assert summary.training_length == 4
    assert Summary.read(tmp_path / "run" / "summary.json") == summary


def test_a_finished_run_that_resumes_keeps_its_answers(trained: Callable[..., Path], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained(*TINY_TASK, "trainer=cpu", f"pos={ENDLESS}"), folder)
    before = (folder / "answers.json").read_text()
    resume(folder, "trainer.max_steps=12")
    assert (folder / "answers-step10.json").read_text() == before
    assert read_wrong_answers(folder).keys() == {"4", "6"}
    for of_another_version in ({}, {"wrong": []}, {"wrong": {"4": [{"number": 1}]}}):
        (folder / "answers.json").write_text(json.dumps(of_another_version))
        with pytest.raises(ValueError, match=r"^answers\.json "):
            read_wrong_answers(folder)


@pytest.mark.parametrize("changed", [{"places": [1, 9]}, {"places": [1, -1]}, {"said": ["b"]}, {"right": ["b", "EOS"]}])
def test_answers_that_contradict_each_other_are_not_shown(changed: dict[str, Any], tmp_path: Path) -> None:
    answer = {"number": 1, "reads": ["BOS", "a", "SEP"], "places": [1, 2], "right": ["a", "EOS"], "said": ["b", "EOS"]}
    (tmp_path / "answers.json").write_text(json.dumps({"wrong": {"4": [answer]}}))
    assert len(read_wrong_answers(tmp_path)["4"]) == 1
    (tmp_path / "answers.json").write_text(json.dumps({"wrong": {"4": [answer | changed]}}))
    with pytest.raises(ValueError, match=r"^answers\.json "):
        read_wrong_answers(tmp_path)


@pytest.mark.pictures
def test_tensorboard_shows_an_example_in_columns(tmp_path: Path) -> None:
    task = ("data=addition", "data.coupled=true", "data.validate_every=1", "data.batch_size=2")
    settings = ("model.embed_dim=16", "trainer.max_steps=1", "trainer=cpu", "threads=1")
    train(compose_config(*task, *settings, f"run_dir={tmp_path}/run"))
    events = EventAccumulator(str(tmp_path / "run"), size_guidance={"tensors": 0}).Reload()
    (sample,) = events.Tensors("sample/text_summary")
    lines = sample.tensor_proto.string_val[0].decode().splitlines()
    assert [line.split()[0] for line in lines] == ["reads", "right", "says"]  # which Markdown takes for code
    assert all(line.startswith("    ") for line in lines)
    assert len({len(line.split()) for line in lines}) == 1
    assert len(lines[0].split()) <= 21
    assert "val_pictures/attention" in events.Tags()["images"]


def test_pictures_of_attention_know_where_tokens_stand() -> None:
    config = compose_config("data=addition", "data.coupled=true")
    assert isinstance(config.data, Task)
    sample = TaskDataModule(config)
    assert sample.positions is not None
    assert len(sample.positions) == len(sample.prompt) <= 20
    assert sample.positions.tolist() != list(range(len(sample.prompt)))
