"""Training as a whole, at sizes that take seconds: what a run computes, leaves behind, and refuses."""

import dataclasses
import json
import math
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from itertools import count
from pathlib import Path

import pytest
import torch
from common import ALIBI, FULL_CAMPAIGN, REPOSITORY, RICHEST, SMOKE, SOUND, compose_config, make_scheme
from matplotlib.figure import Figure
from processes import grown_by, measured_training, run_process
from refusals import refused
from runs_to_compare import runs_by_group
from runs_to_resume import assert_same_weights, content_of, logged, resume
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from poslab import GPT
from poslab.comparison.repeat import command_of
from poslab.evaluation.files import evaluate_run
from poslab.model.memory import decoder_of
from poslab.positions import PositionScheme
from poslab.processors import compiler_problem
from poslab.progress import Interval
from poslab.runs.folder import new_run_folder
from poslab.runs.load import read_run
from poslab.training.train import train


def run(folder: Path, *overrides: str) -> dict:
    return vars(train(compose_config(*SMOKE, f"run_dir={folder}", *overrides)))


@pytest.fixture(scope="module")
def finished(trained: Callable[..., Path]) -> Path:
    return trained(*SMOKE, f"pos={RICHEST}")


def test_run_folder(finished: Path) -> None:
    files = {str(p.relative_to(finished)) for p in finished.rglob("*") if p.is_file()}
    events = {path for path in files if path.startswith("events.out.tfevents")}
    weights = {"checkpoints/best.safetensors", "checkpoints/last.ckpt"}
    assert files - events == {"config.yaml", "summary.json"} | weights
    assert len(events) == 1
    assert not any(character in path for path in files for character in '<>:"|?*=')


def test_summary(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    expected = {"pos": RICHEST, "seed": 1, "steps": 6, "epochs": 2, "tokens": 6 * 2 * 32, "last_val_step": 6}
    expected |= {"vocabulary": "observed", "vocabulary_size": 1417, "training_length": 32, "solved_step": None}
    expected |= {"attention_backend": "reference"}  # a context of 32 fills no block
    expected |= {"data_sha256": "b41e41a68f0398a3154ae69e2e4c0e2694e17fe0d66730536837f1b01935b31f"}
    assert summary | expected == summary
    assert 7 < summary["best_val_loss"] <= summary["last_val_loss"] < 8  # ln 1,417 = 7.3
    assert summary["best_val_perplexity"] == pytest.approx(math.exp(summary["best_val_loss"]))
    assert summary["wall_time_s"] > 0
    assert summary["tokens_per_s"] > 0
    assert summary["params_total"] == summary["params_trunk"] + summary["params_scheme"]
    assert summary["params_trunk"] == 1417 * 32 + 2 * (12 * 32**2 + 13 * 32) + 2 * 32
    assert summary["versions"]["torch"] == version("torch")
    assert set(summary) >= {"pos_settings", "last_val_perplexity", "git_commit", "git_clean", "device"}
    (loss,) = summary["measures"]
    assert loss == {"name": "loss", "unit": "nats per token", "higher_is_better": False, "chance": math.log(1417)}
    run = read_run(finished)
    assert run.summary.loss == summary["last_val_loss"]
    assert (run.value("loss", 32), run.value("exact", 32), run.lengths("loss")) == (None, None, [])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")  # which the compiler itself calls
def test_compiled_training_loads_without(tmp_path: Path) -> None:
    overrides = ("model.compile=true", "model.context_length=288", "data.batch_size=2")
    config = compose_config(*SMOKE, f"pos={RICHEST}", *overrides, f"run_dir={tmp_path}/run")
    summary = vars(train(config))
    assert summary["attention_backend"] != "reference"
    assert 7 < summary["best_val_loss"] < 8
    state = content_of(tmp_path / "run")["state_dict"]
    model = decoder_of(make_scheme(RICHEST), vocab_size=1417, **(config.model.arguments | {"compile": False}))
    model.load_state_dict({key.removeprefix("model."): value for key, value in state.items()})


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method")
def test_where_there_is_no_compiler_a_run_says_so_and_trains(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch._inductor.config as inductor

    monkeypatch.setattr(inductor.cpp, "cxx", (None, "no-such-compiler"))
    torch._dynamo.reset()  # of what tests before have compiled
    compiler_problem.cache_clear()
    try:
        run(tmp_path / "run", f"pos={RICHEST}", "model.compile=true")
    finally:
        compiler_problem.cache_clear()
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: model.compile=true")]
    assert len(warnings) == 1
    assert "no-such-compiler" in warnings[0]
    assert_same_weights(tmp_path / "run", finished)


def events_of(folder: Path) -> EventAccumulator:
    accumulator = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0})
    accumulator.Reload()
    return accumulator


@pytest.mark.pictures
def test_tensorboard_has_curves_text_and_pictures(tmp_path: Path) -> None:
    run(tmp_path / "run", f"pos={RICHEST}")
    events = events_of(tmp_path / "run")
    every_step = {"train/loss", "train/learning_rate", "train/gradient_norm", "train/tokens_per_s"}
    every_epoch = {"eval/loss", "eval/perplexity", "eval/loss_best"}
    assert every_step | every_epoch <= set(events.Tags()["scalars"])
    assert all(len(events.Scalars(tag)) == 6 for tag in every_step)
    assert all(len(events.Scalars(tag)) == 2 for tag in every_epoch)
    model = GPT(make_scheme(RICHEST), vocab_size=9, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    learned = {f"val_pictures/{picture}" for picture in model.position.pictures()}
    assert learned
    assert set(events.Tags()["images"]) == {*learned, "val_pictures/attention"}
    (sample,) = (events.Tensors(tag) for tag in events.Tags()["tensors"] if tag.startswith("sample"))
    assert len(sample) == 2


@pytest.mark.pictures
def test_pictures_are_drawn_ever_more_rarely_and_of_the_last_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("poslab.training.loggers.attention_figure", lambda *_: Figure(figsize=(0.1, 0.1)))
    folder = tmp_path / "run"
    run(folder, "pos=nope", "trainer.max_epochs=3")
    assert [image.step for image in events_of(folder).Images("val_pictures/attention")] == [3, 6, 9]
    resume(folder, "trainer.max_epochs=5")
    assert [image.step for image in events_of(folder).Images("val_pictures/attention")] == [3, 6, 12, 15]
    run(tmp_path / "last", "pos=nope", "trainer.max_epochs=3", "sample.pictures=last")
    assert [image.step for image in events_of(tmp_path / "last").Images("val_pictures/attention")] == [9]


def hparams_of(folder: Path) -> tuple[str, dict[str, object]]:
    """Return the name of the run's group in TensorBoard's HPARAMS tab, and its settings."""
    metadata = events_of(folder).summary_metadata["_hparams_/session_start_info"]
    start = HParamsPluginData.FromString(metadata.plugin_data.content).session_start_info
    return start.group_name, {key: getattr(value, value.WhichOneof("kind")) for key, value in start.hparams.items()}


def test_hparams_have_one_flat_key_set(trained: Callable[..., Path]) -> None:
    names = [RICHEST, next(name for name in SOUND if name != RICHEST)]
    settings = {name: hparams_of(trained(*SMOKE, f"pos={name}"))[1] for name in names}
    assert len({tuple(sorted(keys)) for keys in settings.values()}) == 1
    for name, values in settings.items():
        assert values["pos"] == name
        assert values["model.embed_dim"] == 32
        scheme = make_scheme(name)
        within = [f.name for f in dataclasses.fields(scheme) if isinstance(getattr(scheme, f.name), PositionScheme)]
        given = {f"pos.{field.name}" for field in dataclasses.fields(scheme)} - {f"pos.{field}" for field in within}
        shown = {key for key in values if key.startswith("pos.") and values[key] != "n/a"}
        assert shown - {"pos.other"} == given  # where those of the schemes within stand


def test_columns_of_hparams_are_few(tmp_path: Path) -> None:
    """So that the losses stand beside them on a screen; each run has all settings, as any may give the columns."""
    run(tmp_path / "run", f"pos={RICHEST}", "optim.weight_decay=0", "sample.new_tokens=1")
    content = events_of(tmp_path / "run").summary_metadata["_hparams_/experiment"].plugin_data.content
    experiment = HParamsPluginData.FromString(content).experiment
    columns = {info.name for info in experiment.hparam_infos}
    assert columns == {"pos", "optim.learning_rate", "model.context_length", "optim.weight_decay", "data.vocabulary"}
    assert columns < hparams_of(tmp_path / "run")[1].keys()
    assert [info.name.tag for info in experiment.metric_infos][:2] == ["eval/loss", "eval/loss_best"]


def test_what_a_sweep_varies_comes_first_among_hparams(tmp_path: Path) -> None:
    """Its jobs have folders that are named after that."""
    folder = tmp_path / "pos-weight_decay_0.1-seed1-abc"
    run(folder, f"pos={RICHEST}", "optim.weight_decay=0.1", "sample.new_tokens=1")
    content = events_of(folder).summary_metadata["_hparams_/experiment"].plugin_data.content
    infos = HParamsPluginData.FromString(content).experiment.hparam_infos
    assert {info.name for info in infos if info.differs} == {"pos", "optim.weight_decay"}


def test_the_screen_says_how_seeds_get_one_colour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a regex that fits the names of runs."""
    monkeypatch.chdir(tmp_path)
    run(tmp_path / "run", f"pos={RICHEST}", "sample.new_tokens=1")
    (regex,) = re.findall(r"Regex: (\S+)", capsys.readouterr().out)
    with new_run_folder(None, "t5", 1) as one, new_run_folder(None, "t5", 2) as other:
        assert {re.search(regex, str(folder))[1] for folder in (one, other)} == {"t5"}


def test_seeds_of_one_configuration_are_one_group_of_hparams(finished: Path, tmp_path: Path) -> None:
    group, settings = hparams_of(finished)
    for folder, change, same in (("seed", "seed=2", True), ("rate", "optim.learning_rate=0.002", False)):
        run(tmp_path / folder, f"pos={RICHEST}", change)
        assert (hparams_of(tmp_path / folder)[0] == group) is same
    assert group.startswith(RICHEST)
    assert "seed" not in settings


def test_same_seed_same_bits_and_another_seed_others(finished: Path, tmp_path: Path) -> None:
    run(tmp_path / "again", f"pos={RICHEST}")
    assert_same_weights(tmp_path / "again", finished)
    old, new = (json.loads((f / "summary.json").read_text()) for f in (finished, tmp_path / "again"))
    assert old["last_val_loss"] == new["last_val_loss"]
    losses = [[e.value for e in events_of(f).Scalars("train/loss")] for f in (finished, tmp_path / "again")]
    assert losses[0] == losses[1]
    other = run(tmp_path / "other", f"pos={RICHEST}", "seed=2")
    assert other["last_val_loss"] != old["last_val_loss"]


def test_a_model_has_one_validation_loss(tmp_path: Path) -> None:
    """That of its best weights, as scripts/evaluate.py measures it at the training length."""
    summary = run(tmp_path / "run", "trainer.limit_val_batches=null", "trainer.max_epochs=1")
    (result,) = evaluate_run(tmp_path / "run", [summary["context_length"]]).lengths
    assert summary["best_val_loss"] == pytest.approx(result.loss, rel=1e-7)
    assert summary["val_loss_tokens"] == summary["validation_tokens"] - 1 == 533


def test_a_share_of_the_validation(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "trainer.limit_val_batches=0.5", "trainer.max_epochs=1")
    assert summary["val_loss_tokens"] == 4 * 2 * 32  # of 9 batches 4, of two windows each


def test_gradients_are_clipped(tmp_path: Path) -> None:
    moved = {}
    for limit in ("1e-9", "null"):
        run(tmp_path / limit, f"trainer.gradient_clip_val={limit}", "optim.weight_decay=0", "trainer.max_steps=1")
        norm = events_of(tmp_path / limit).Scalars("train/gradient_norm")[0].value
        assert norm > 0.1  # as it was before clipping
        moved[limit] = content_of(tmp_path / limit)["state_dict"]["model.final_norm.bias"].abs().max().item()
    assert moved["null"] > 2 * moved["1e-9"]


def test_a_step_is_the_mean_of_its_batches_however_many(tmp_path: Path) -> None:
    """An epoch has three batches: Lightning divides those of a shorter last step by accumulate_grad_batches."""
    norms = {}
    for batches in (1, 2, 3, 500):
        settings = ("model.dropout=0", "trainer.max_epochs=1", f"trainer.accumulate_grad_batches={batches}")
        run(tmp_path / str(batches), *settings, "optim.learning_rate=0")
        norms[batches] = [event.value for event in events_of(tmp_path / str(batches)).Scalars("train/gradient_norm")]
    assert [len(of_steps) for of_steps in norms.values()] == [3, 2, 1, 1]
    assert norms[500] == pytest.approx(norms[3], rel=1e-6)
    assert norms[2][1] == pytest.approx(norms[1][2], rel=1e-6)  # of the third batch alone


@pytest.mark.parametrize("same_batch", ["false", "true"])
def test_a_step_is_the_mean_of_its_windows_however_many_a_batch_has(same_batch: str, tmp_path: Path) -> None:
    """An epoch has 7 windows: 2 + 2 + 2 + 1, or always the first 2."""
    norms = {}
    for size, batches in ((2, 4), (2, 3), (7, 1), (1, 1)):
        given = (
            f"data.batch_size={size}",
            f"trainer.accumulate_grad_batches={batches}",
            f"data.same_batch={same_batch}",
        )
        whole = ("data.stride=700", "trainer.limit_train_batches=null", "model.dropout=0", "trainer.max_epochs=1")
        folder = tmp_path / f"{size} {batches}"
        run(folder, *given, *whole, "optim.learning_rate=0", "trainer.log_every_n_steps=1", "seed=2")
        norms[size, batches] = [event.value for event in events_of(folder).Scalars("train/gradient_norm")]
    if same_batch == "true":
        assert norms[2, 4] == pytest.approx(norms[2, 3][1:], rel=1e-6)
        return
    assert norms[2, 4] == pytest.approx(norms[7, 1], rel=1e-5)
    assert norms[2, 3][1] == pytest.approx(norms[1, 1][6], rel=1e-5)


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions(precision: str, tmp_path: Path) -> None:
    summary = run(tmp_path / "run", f"pos={RICHEST}", f"trainer.precision={precision}")
    assert summary["precision"] == precision
    assert 7 < summary["last_val_loss"] < 8


def test_last_step_is_validated_wherever_it_falls(tmp_path: Path) -> None:
    summary = run(tmp_path / "run", "trainer.max_steps=4", "trainer.max_epochs=100")
    assert summary["steps"] == 4
    assert [e.step for e in events_of(tmp_path / "run").Scalars("eval/loss")] == [2, 3]  # after steps 3 and 4
    assert summary["last_val_loss"] < 8


def test_run_without_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "run", "trainer.limit_val_batches=0")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["best_val_loss"] is None
    assert "none: nothing was validated" in capsys.readouterr().out


@pytest.mark.usefixtures("no_network")
def test_trains_without_network(tmp_path: Path) -> None:
    assert run(tmp_path / "run", f"data.cache_dir={tmp_path / 'cache'}")["steps"] == 6


def test_scheme_from_outside_by_its_yaml(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text(ALIBI)
    (tmp_path / "mine" / "pos").mkdir(parents=True)
    (tmp_path / "mine" / "pos" / "slopes.yaml").write_text("_target_: outside.MyALiBi\nsteepest: 0.5\n")
    result = run_process("train", "--config-dir", "mine", *SMOKE, "pos=slopes", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("slopes-seed1-")
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["pos"], summary["pos_settings"], summary["params_scheme"]) == ("slopes", {"steepest": 0.5}, 0)
    assert command_of(*runs_by_group(folder).values()).startswith(f"poslab train --config-dir={tmp_path / 'mine'} ")


def test_console(tmp_path: Path) -> None:
    """Plain lines where there is no terminal; nothing on stderr but what concerns the user."""
    result = run_process("train", *SMOKE, "pos=t5", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("warning: pos.num_buckets=32, pos.max_distance=128: a context of 32 never trains")
    assert "\r" not in result.stdout
    for text in ("scheme   t5 (", "epoch ", "best     validation loss", "sample   "):
        assert text in result.stdout
    # What to type next, as it stands there.
    (run,) = (tmp_path / "runs").iterdir()
    *_, curves, _, explain, generate = result.stdout.splitlines()
    assert curves == "curves   tensorboard --logdir runs"
    assert explain.startswith("explain  ")
    assert explain.endswith(f"explain.py runs/{run.name}")
    arguments = shlex.split(generate.partition("generate.py ")[2])
    assert arguments[0] == f"runs/{run.name}"
    again = run_process("generate", *arguments, "max_new_tokens=1", cwd=tmp_path)
    assert again.stdout.startswith(arguments[1].removeprefix("prompt="))


def test_terminal_without_the_characters(tmp_path: Path) -> None:
    settings = ("sample.prompt=café 漢字", "data.vocabulary=full", "pos=shaw", "pos.max_distance=8")
    result = run_process("train", *SMOKE, *settings, cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert result.returncode == 0
    assert result.stderr == ""  # and no warning, as the context reaches every row
    assert "caf? ??" in result.stdout


@pytest.mark.slow
def test_from_a_shell(tmp_path: Path) -> None:
    """In a process that has loaded nothing yet: scripts say nothing of what they import."""
    command = [sys.executable, str(REPOSITORY / "scripts" / "train.py"), *SMOKE, "pos=shaw", "pos.max_distance=8"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("loading torch and Lightning ...\nscheme ")


@pytest.mark.slow
def test_a_large_text_trains_in_little_memory(tmp_path: Path) -> None:
    """40 MB of text, in a full campaign 200: much less than a gigabyte, most of which is torch's own."""
    copies = 180 if FULL_CAMPAIGN else 36
    shakespeare = (REPOSITORY / "data" / "tinyshakespeare.txt").read_text()
    with (tmp_path / "large.txt").open("w") as file:
        for number in range(copies):
            file.write(f"Part {number}\n{shakespeare}")
    assert (tmp_path / "large.txt").stat().st_size > 1_115_000 * copies
    written = {}
    for name in ("first", "second"):
        output, grown = grown_by(measured_training(tmp_path, "data.path=large.txt", f"run_dir={name}", "data.stride=1"))
        print(f"campaign: {copies * 1.115:.0f} MB of text, memory grown by {grown / 1024:.0f} MB")
        assert grown < (1_000_000 if FULL_CAMPAIGN else 400_000)
        written[name] = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
        assert ("tokenising" in output) == (name == "first")
    assert {path.suffix for path in written["first"]} == {".npy"}
    assert written["first"] == written["second"]


def test_a_line_every_ten_seconds_where_there_is_no_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock on which each look takes five seconds: a look for each of 6 steps, and each of 4 batches of a
    validation, after which the ten seconds begin anew."""
    clock = count(0, 5)
    monkeypatch.setattr(Interval.__init__, "__defaults__", (10, lambda: next(clock)))
    run(tmp_path / "run", "trainer.max_epochs=1", "trainer.limit_train_batches=6", "trainer.limit_val_batches=4")
    output = capsys.readouterr().out
    assert "\r" not in output
    lines = [line for line in output.splitlines() if line.startswith(("step ", "validation: "))]
    assert [line.partition(",")[0] for line in lines] == [
        "step 2 of 6", "step 4 of 6", "step 6 of 6", "validation: batch 2 of 4", "validation: batch 4 of 4",
    ]  # fmt: skip
    assert re.fullmatch(r"step 2 of 6, loss \d\.\d{4}, [\d,]+ tokens/s, \d+:\d\d left", lines[0])


@pytest.mark.parametrize(
    ("settings", "steps", "said", "ended"),
    [
        # Epochs of three steps; the yamls say that there are two.
        ("trainer.max_steps=7", 7, "7", ""),
        ("trainer.max_epochs=1", 3, "3", ""),
        ("trainer.max_steps=7 trainer.max_epochs=2", 6, "max_epochs=2 ends the run before", "trainer.max_epochs=2"),
        ("trainer.max_steps=5 trainer.max_epochs=2", 5, "max_steps=5 ends the run before", "trainer.max_steps=5"),
        ("trainer.max_steps=9 early_stopping_patience=1 optim.learning_rate=0", 6,
         "unless early_stopping_patience=1", "early_stopping_patience=1"),
        ("target_loss=100", 1, "unless target_loss=100", "target_loss=100"),
        ("trainer.max_steps=4 trainer.max_time=01:00:00:00", 4, "unless trainer.max_time=01:00:00:00",
         "trainer.max_steps=4"),
        ("trainer.max_time=null", 6, "6", ""),  # which limits nothing
    ],
)  # fmt: skip
def test_a_limit_that_is_typed_is_the_length_and_of_several_a_run_says_which_ends_it(
    settings: str, steps: int, said: str, ended: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(tmp_path / "run", *settings.split())
    lines = {line[:9].strip(): line[9:] for line in capsys.readouterr().out.splitlines()}
    assert summary["steps"] == steps
    assert said in lines["steps"]
    assert (said == lines["steps"]) == (not ended)
    assert lines.get("ended", "").endswith(ended)
    assert bool(ended) == ("ended" in lines)


def test_a_finished_run_says_how_much_disk_only_a_longer_training_needs_and_can_do_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("poslab.runs.folder._MUCH", 1000)
    run(tmp_path / "kept", "trainer.max_steps=1")
    assert "keep_last=false" in capsys.readouterr().out
    run(tmp_path / "freed", "trainer.max_steps=1", "keep_last=false")
    assert "keep_last" not in capsys.readouterr().out
    assert {file.name for file in (tmp_path / "freed" / "checkpoints").iterdir()} == {"best.safetensors"}
    freed, kept = (content_of(tmp_path / name, "best.safetensors")["state_dict"] for name in ("freed", "kept"))
    assert all(torch.equal(freed[name], kept[name]) for name in freed.keys() | kept.keys())
    with refused("resume", str(tmp_path / "freed"), "last.ckpt"):
        resume(tmp_path / "freed", "trainer.max_steps=2")
    assert resume(tmp_path / "kept", "trainer.max_steps=2")["steps"] == 2


def test_time_alone_is_a_length_and_its_learning_rate_falls_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock of Lightning's on which each look takes a second."""
    seconds = count()
    monkeypatch.setattr("pytorch_lightning.callbacks.timer.time.monotonic", lambda: float(next(seconds)))
    settings = ("trainer.max_time=00:00:02:00", "trainer.val_check_interval=1.0", "trainer.log_every_n_steps=1")
    summary = run(tmp_path / "run", *settings, "schedule=linear", "sample.new_tokens=0")
    output = capsys.readouterr().out
    assert "steps    as many as trainer.max_time=00:00:02:00 takes" in output
    assert summary["steps"] > 6  # more than the two epochs of the yaml
    assert summary["last_val_step"] == summary["steps"]
    values = [rate for _, rate in logged(tmp_path / "run")["train/learning_rate"]]
    assert values[-1] < 0.2 * max(values)
    assert values.index(max(values)) < len(values) / 2


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ("", "trainer.val_check_interval=1 "),  # of 6 steps
        ("trainer.accumulate_grad_batches=2 early_stopping_patience=3", "early_stopping_patience=3 stops nothing"),
        ("trainer.max_epochs=2 trainer.check_val_every_n_epoch=2", "trainer.check_val_every_n_epoch=1 "),
        ("trainer.max_epochs=2", ""),
        ("trainer.val_check_interval=3", ""),
        ("trainer.limit_val_batches=0", ""),
    ],
)
def test_a_run_whose_only_validation_is_its_last_step_says_so(
    settings: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    length = ("trainer.max_epochs=1", "trainer.limit_train_batches=6", "sample.new_tokens=0")
    run(tmp_path / "run", *length, *settings.split())
    warned = capsys.readouterr().err
    assert ("warning: the only validation is after the last step" in warned) == bool(advice)
    assert advice in warned


def test_a_run_without_a_validation_says_so_and_logs_its_last_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    length = ("trainer.max_epochs=2", "trainer.limit_train_batches=3", "sample.new_tokens=0", "trainer.max_steps=5")
    run(tmp_path / "run", *length, "trainer.check_val_every_n_epoch=3", "trainer.log_every_n_steps=50")
    assert "warning: nothing is validated, because the run has 2 epochs" in capsys.readouterr().err
    assert 4 in [step for step, _ in logged(tmp_path / "run")["train/loss"]]


def test_figures_are_logged_in_each_epoch_however_few_its_steps(tmp_path: Path) -> None:
    few = ("trainer.limit_train_batches=5", "trainer.accumulate_grad_batches=2", "trainer.log_every_n_steps=50")
    run(tmp_path / "run", *few, "trainer.max_epochs=2", "trainer.max_steps=-1")
    assert [step for step, _ in logged(tmp_path / "run")["train/loss"]] == [2, 5]
