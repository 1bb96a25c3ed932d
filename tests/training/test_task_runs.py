"""Runs on tasks: batches, metrics, summaries, and settings that are refused."""

import functools
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from common import BOUNDED, ENDLESS, REPOSITORY, RunScript, assert_refused, compose_config, make_scheme
from processes import run_process
from refusals import refused
from runs_to_resume import TINY_TASK, logged, resume
from torch import Tensor
from torch.nn import functional as F

import poslab
from poslab import GPT, load
from poslab.errors import SettingError
from poslab.evaluation.files import own_task
from poslab.evaluation.task_metrics import chance, measure, score_answers
from poslab.model.memory import MemoryGPT, decoder_of
from poslab.runs import code
from poslab.runs.checkpoint import load_checkpoint
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.code import task_sha256
from poslab.runs.load import read_run
from poslab.runs.summary import Summary
from poslab.tasks import Examples, Task
from poslab.tasks.addition import Addition
from poslab.tasks.base import IGNORED
from poslab.tasks.bits import Majority
from poslab.tasks.recall import DistantRecall, Recall
from poslab.tasks.transcription import Copy, Reverse
from poslab.training.data.stream import loss_in_segments
from poslab.training.data.task import TaskDataModule
from poslab.training.loss import language_model_loss
from poslab.training.train import train

REVERSE = Reverse(min_length=1, max_length=3, test_lengths=[3, 5], vocabulary=3, batch_size=32)
SUM = Addition(min_length=1, max_length=1, test_lengths=[1], coupled=True, positions=6, batch_size=32)
RECALL = Recall(min_length=6, max_length=8, test_lengths=[8], pairs=2, keys=3, values=2, noise=1, batch_size=32)


# In segments of four tokens, of each example about five.
DISTANT = DistantRecall(
    min_length=4, max_length=12, test_lengths=[9, 12], facts=2, keys=3, values=2, noise=1, lead=3, batch_size=32
)


def data_of(task: Task, seed: int) -> TaskDataModule:
    return TaskDataModule(replace(compose_config("data=copy", f"seed={seed}"), data=task))


TASKS = {"reverse": REVERSE, "addition": SUM, "recall": RECALL, "distant_recall": DISTANT}


def _loss(model: GPT, task: Task, examples: Examples) -> Tensor:
    if task.in_segments:
        return loss_in_segments(model, examples.tokens, examples.targets)[0]
    return language_model_loss(model, *examples)


@functools.cache
def _half_trained(name: str) -> GPT:
    """Return a model that gets some examples right and others wrong."""
    task = TASKS[name]
    torch.manual_seed(0)
    size = {"embed_dim": 32, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
    reads = {"context_length": 4, "memory_length": 8} if task.in_segments else {"context_length": 32}
    model = decoder_of(make_scheme("t5"), vocab_size=len(task.symbols), **reads, **size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(600):
        if step % 20 == 0 and 0.2 < _exact(model, task).float().mean() < 0.8:
            return model.eval()
        _loss(model, task, task.training(1, step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    raise AssertionError("not half trained")


def _few(task: Task) -> Examples:
    examples = task.test(task.test_lengths[0])
    return Examples(*(None if part is None else part[:128] for part in examples))  # type: ignore[arg-type]


def _exact(model: GPT, task: Task) -> Tensor:
    """Return which of the first examples have all answers right, (128,)."""
    scores = score_answers(model.eval(), torch.arange(128), _few(task))
    model.train()
    return torch.tensor([scores[row].right == scores[row].target_count for row in range(128)])


def _generated(model: GPT, examples: Examples) -> Tensor:
    """Return the model's symbols (B, T) if it reads its own answers, symbol by symbol through the cache."""
    tokens, targets, positions = examples
    cache, generated = model.new_cache(), torch.full_like(tokens, IGNORED)
    read = tokens[:, :1]
    for position in range(tokens.shape[1]):
        here = None if positions is None else positions[:, position : position + 1]
        generated[:, position] = model(read, cache, here)[:, -1].argmax(-1)
        if position + 1 < tokens.shape[1]:
            is_answer = targets[:, position] == tokens[:, position + 1]
            read = torch.where(is_answer, generated[:, position], tokens[:, position + 1])[:, None]
    return generated


@pytest.mark.parametrize("name", TASKS)
def test_exact_is_what_greedy_generation_gets_right(name: str) -> None:
    model, task = _half_trained(name), TASKS[name]
    examples = _few(task)
    generated = _generated(model.eval(), examples)
    alone = ((generated == examples.targets) | (examples.targets == IGNORED)).all(1)
    exact = _exact(model, task)
    assert torch.equal(exact, alone)
    assert 0.2 < exact.float().mean() < 0.8


def test_metrics_are_shares_of_examples_and_of_answers() -> None:
    model = _half_trained("reverse")
    found = measure(model, REVERSE)
    for length in (3, 5):
        tokens, targets, _ = REVERSE.test(length)
        with torch.no_grad():
            right = (model(tokens).argmax(-1) == targets)[:, length + 1 :]
        assert found["accuracy"][str(length)] == pytest.approx(float(right.float().mean()), abs=1e-5)
        assert found["exact"][str(length)] == pytest.approx(float(right.all(1).float().mean()), abs=1e-5)
        assert found["exact_no_eos"][str(length)] == pytest.approx(float(right[:, :-1].all(1).float().mean()), abs=1e-5)
        assert found["exact_chance"][str(length)] == 0


def test_parts_and_shifts_have_metrics_of_their_own() -> None:
    found = measure(_half_trained("recall"), RECALL)
    assert {f"accuracy_depth_{depth}" for depth in (1, 2, 3, 4)} < found.keys()
    config = compose_config("data=flip_flop")
    assert isinstance(config.data, Task)
    model = GPT(None, vocab_size=5, context_length=8, embed_dim=8, num_layers=1, num_heads=1)
    assert {"exact_sparse", "accuracy_dense", "accuracy"} < measure(model, config.data).keys()


def test_chance_is_the_most_frequent_answer() -> None:
    task = Majority(min_length=1, max_length=5, test_lengths=[5])
    ones = float((task.test(5).targets[:, -1] == 1).float().mean())
    assert chance(task, 5) == {"exact": max(ones, 1 - ones), "accuracy": max(ones, 1 - ones)}


@pytest.mark.parametrize("memory_length", [0, 4])
def test_a_document_is_read_a_context_at_a_time(memory_length: int) -> None:
    torch.manual_seed(0)
    sizes = {"context_length": 4, "embed_dim": 16, "num_layers": 2, "num_heads": 2, "dropout": 0.0}
    model = MemoryGPT(make_scheme("t5"), vocab_size=len(DISTANT.symbols), memory_length=memory_length, **sizes).double()
    examples = DISTANT.training(1, 0)
    memory, found = model.empty_memory(32), []
    for part in examples.tokens.split(4, 1):
        hidden, memory = model.hidden_with_memory(part, memory)
        found.append(F.linear(hidden, model.token_embedding.weight))
    expected = F.cross_entropy(torch.cat(found, 1).flatten(0, 1), examples.targets.flatten())
    torch.testing.assert_close(_loss(model, DISTANT, examples), expected)
    assert not torch.isclose(language_model_loss(model, *examples), expected)  # of the whole example at once
    scores = score_answers(model.eval(), torch.arange(32), examples).values()
    assert sum(score.loss for score in scores) / sum(score.target_count for score in scores) == pytest.approx(
        expected.item()
    )


@pytest.mark.parametrize("memory_length", [0, 8])
def test_a_run_on_documents_beyond_the_context(memory_length: int, tmp_path: Path) -> None:
    config = compose_config(
        "data=distant_recall", "pos=t5", "trainer=cpu", "trainer.max_steps=2", "data.validate_every=1",
        "data.batch_size=2", "data.test_lengths=[8,40]", "model.context_length=8",
        f"model.memory_length={memory_length}", f"run_dir={tmp_path / 'run'}",
    )  # fmt: skip
    train(config)
    run = read_run(tmp_path / "run")
    assert run.lengths("accuracy") == [8, 40]
    assert isinstance(load(tmp_path / "run"), MemoryGPT)
    assert run.summary.measures[0].name == "accuracy"


def test_positions_of_a_task_are_those_of_a_whole_example(tmp_path: Path) -> None:
    config = compose_config(
        "data=addition", "data.coupled=true", "pos=t5", "model.memory_length=8", f"run_dir={tmp_path / 'run'}"
    )
    with refused("data", "addition"):
        train(config)
    assert not (tmp_path / "run").exists()


def test_only_targets_are_learned() -> None:
    model = GPT(make_scheme(ENDLESS), vocab_size=14, context_length=16, embed_dim=16, num_layers=1, num_heads=2)
    model.eval()
    examples = SUM.training(1, 0)
    logits = model(examples.tokens, positions=examples.positions)
    answered = examples.targets != IGNORED
    expected = F.cross_entropy(logits[answered], examples.targets[answered])
    torch.testing.assert_close(language_model_loss(model, *examples), expected)


def test_a_run_reads_the_batches_of_its_seed_step_by_step() -> None:
    batches = data_of(SUM, seed=3).train_dataloader()
    for step, batch in enumerate(islice(batches, 5)):
        assert batch.positions is not None
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(batch, SUM.training(3, step), strict=True))


def test_validation_is_in_range_and_the_same_in_all_runs() -> None:
    first, second = (list(data_of(REVERSE, seed).val_dataloader()) for seed in (1, 2))
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert one.tokens.shape[1] <= REVERSE.tokens(REVERSE.max_length)
    assert [len(one.tokens) for one in first] == [64] * 3


@pytest.fixture(scope="module")
def finished(trained: Callable[..., Path]) -> Path:
    return trained(*TINY_TASK, "trainer=cpu", f"pos={ENDLESS}")


def test_summary_holds_the_metrics_of_the_best_weights(finished: Path) -> None:
    plain = json.loads((finished / "summary.json").read_text())
    summary = Summary.read(finished / "summary.json")
    model = poslab.load(finished)
    config = compose_config(*TINY_TASK)
    assert isinstance(config.data, Task)
    assert summary.metrics == measure(model, config.data, summary.seed)
    for name in ("exact", "accuracy", "exact_no_eos", "accuracy_chance"):
        assert list(plain[name]) == ["4", "6"]
        assert plain[name] == summary.metrics[name]
    assert (summary.data, summary.vocabulary, summary.vocabulary_size) == ("copy", "symbols", 11)
    assert summary.data_sha256 == task_sha256(config.data)
    assert summary.val_loss_tokens == 64 * sum(length + 1 for length in (1, 2, 3, 4))


def test_summary_says_what_its_metrics_mean(finished: Path) -> None:
    run = read_run(finished)
    first, second, loss = run.summary.measures
    assert (first.name, first.unit, first.higher_is_better, first.chance) == ("exact", "of the examples", True, 0.0)
    assert (second.name, second.chance) == ("accuracy", chance(compose_config(*TINY_TASK).data, 4)["accuracy"])
    assert (loss.name, loss.unit, loss.higher_is_better, loss.chance) == ("loss", "nats per answer", False, None)
    assert (run.summary.training_length, run.lengths("exact")) == (4, [4, 6])
    assert run.value("exact", 6) == run.summary.metrics["exact"]["6"]
    assert run.value("exact", 5) is run.value("nothing", 6) is run.value("loss", 6) is None
    assert (run.summary.loss, run.best_loss) == (run.summary.last_val_loss, run.summary.best_val_loss)
    assert run.metrics[:3] == ["exact", "accuracy", "loss"]
    assert {"exact_no_eos", "accuracy_no_eos"} == set(run.metrics[3:])
    assert run.summary.measure("exact_no_eos").unit == "of the examples"
    with pytest.raises(KeyError):
        run.summary.measure("nothing")


# Loss and exact of one validation after the other.
COURSE = [(3.0, 0.0), (2.0, 0.0), (2.5, 0.5), (1.0, 0.2), (2.4, 0.5), (2.6, 0.5)]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validate every step, with COURSE as the results."""
    course = iter(COURSE)

    def figures(self: TaskDataModule, sums: Tensor) -> dict[str, float]:
        loss, exact = next(course)
        return {"loss": loss, "exact": exact, "accuracy": 0.5}

    monkeypatch.setattr(TaskDataModule, "validation_figures", figures)


def scripted_run(folder: Path, *overrides: str) -> Summary:
    steps = ("data.validate_every=1", f"trainer.max_steps={len(COURSE)}", "trainer=cpu")
    return train(compose_config(*TINY_TASK, *steps, f"run_dir={folder}", *overrides))


@pytest.mark.parametrize(
    ("monitor", "patience", "best_step", "steps"),
    [("loss", "null", 4, 6), ("exact", "null", 5, 6), ("exact", 1, 3, 4), ("accuracy", 2, 4, 6)],
)
@pytest.mark.usefixtures("scripted")
def test_monitor_chooses_the_best_weights_and_when_to_stop(
    monitor: str, patience: int | str, best_step: int, steps: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ties are broken by the loss: accuracy is constant."""
    summary = scripted_run(tmp_path / "run", f"monitor={monitor}", f"early_stopping_patience={patience}")
    assert (summary.best_step, summary.steps) == (best_step, steps)
    assert summary.best_val_loss == COURSE[best_step - 1][0]
    assert read_checkpoint(tmp_path / "run" / "checkpoints" / "best.safetensors")["poslab"]["step"] == best_step
    chosen = {"loss": "", "exact": f"exact {COURSE[best_step - 1][1]:.3f}, ", "accuracy": "accuracy 0.500, "}[monitor]
    assert f"best     {chosen}validation loss {summary.best_val_loss:.4f}, at step" in capsys.readouterr().out


@pytest.mark.usefixtures("scripted")
def test_a_resumed_run_knows_its_best_figure(tmp_path: Path) -> None:
    assert scripted_run(tmp_path / "run", "monitor=exact", "trainer.max_steps=4").best_step == 3
    resumed = resume(tmp_path / "run", "trainer.max_steps=6")
    assert (resumed["best_step"], resumed["steps"]) == (5, 6)


def test_symbols_can_be_read_of_a_loaded_model(finished: Path) -> None:
    tokenizer = poslab.load(finished).tokenizer
    assert tokenizer is not None
    assert tokenizer.encode("BOS a h SEP") == [0, 3, 10, 1]
    assert tokenizer.decode([0, 3, 10, 1]) == "BOS a h SEP"
    with pytest.raises(SettingError, match=r"^text=BOS x: .*x"):
        tokenizer.encode("BOS x")


def test_tensorboard_has_the_metrics_by_length_and_of_validations(finished: Path) -> None:
    shown = logged(finished)
    exact = Summary.read(finished / "summary.json").metrics["exact"]
    assert dict(shown["vs_length/exact"]) == pytest.approx({int(length): share for length, share in exact.items()})
    assert [step for step, _ in shown["eval/accuracy"]] == [4, 9]
    assert "eval/perplexity" not in shown


def test_scripts_know_a_task_from_a_text(finished: Path, run_script: RunScript) -> None:
    code, output, _ = run_script("generate", f"ckpt={finished}", "prompt=BOS a b SEP", "max_new_tokens=2", "device=cpu")
    assert code == 0
    assert output.startswith("BOS a b SEP ")
    assert_refused(run_script("evaluate", f"ckpt={finished}", "device=cpu"), "was trained on a task")


def test_an_edited_task_is_not_taken_for_the_one_trained(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    checkpoint = load_checkpoint(run)
    assert own_task(checkpoint, allow_code=False) == compose_config(*TINY_TASK).data
    source = code.scheme_fingerprint
    monkeypatch.setattr(code, "scheme_fingerprint", lambda *of: "edited" if of == (Copy,) else source(*of))
    with pytest.raises(SettingError, match=r"poslab\.tasks\.transcription\.Copy"):
        own_task(checkpoint, allow_code=False)
    with pytest.raises(SettingError, match="code of the task"):
        resume(run, "trainer.max_steps=12")


def test_an_example_is_printed(run_script: RunScript) -> None:
    code, output, _ = run_script("train", "data=reverse", "data.min_length=4", "--example")
    assert (code, len(output.splitlines())) == (0, 3)
    assert output.startswith("reverse, length 4\nreads BOS ")
    assert_refused(run_script("train", "--example"), "--example: of a task, as in data=recall --example\n")


def test_a_task_from_outside_as_in_the_readme(tmp_path: Path) -> None:
    readme = (REPOSITORY / "src/poslab/tasks/README.md").read_text(encoding="utf-8")
    (tmp_path / "my_tasks.py").write_text(re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)[0])
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "first.yaml").write_text(re.findall(r"```yaml\n(.*?)```", readme, flags=re.DOTALL)[0])
    settings = ("data=first", "model.embed_dim=16", "trainer.max_steps=2", "data.validate_every=2", "run_dir=run")
    result = run_process("train", "--config-dir", "mine", *settings, "trainer=cpu", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summary = Summary.read(tmp_path / "run" / "summary.json")
    assert (summary.data, summary.steps) == ("first", 2)
    assert summary.metrics["exact"].keys() == {"16", "32"}
    assert poslab.load(tmp_path / "run").tokenizer is not None  # which needs none of the task's code
    again = run_process("train", "resume=run", "trainer.max_steps=3", cwd=tmp_path)
    assert again.returncode == 2
    assert "its task is my_tasks.First, which is none of poslab's parts; allow_code=true imports it" in again.stderr
    assert run_process("train", "resume=run", "trainer.max_steps=3", "allow_code=true", cwd=tmp_path).returncode == 0


def test_a_length_beyond_a_scheme_s_positions_is_refused() -> None:
    problem = r"^data.test_lengths=\[48,200\]: 200 needs 200 positions, and this scheme knows 144, no more$"
    with pytest.raises(SettingError, match=problem):
        compose_config("data=recall", f"pos={BOUNDED[0]}", "data.test_lengths=[48,200]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "pos", "length", "least"), [("recall", "absolute", 96, 0.8), ("back", "absolute_offset", 64, 0.6)]
)
def test_the_default_steps_are_enough_for_who_can_learn_it(
    tmp_path: Path, data: str, pos: str, length: int, least: float
) -> None:
    summary = train(compose_config(f"data={data}", f"pos={pos}", "trainer=cpu", "threads=1", f"run_dir={tmp_path}/run"))
    assert summary.solved_step is not None
    assert summary.metrics["exact"][str(length)] >= least


def test_the_command_line_wins_over_a_tasks_recipe() -> None:
    config = compose_config("data=recall", "model.num_layers=3", "trainer=cpu", "trainer.max_steps=7")
    assert (config.model.num_layers, config.model.embed_dim) == (3, 64)
    assert (config.trainer.max_steps, config.trainer.max_epochs, config.trainer.accelerator) == (7, None, "cpu")
