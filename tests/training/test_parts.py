"""Parts that a command line chooses: optimizer, schedule, callbacks, loggers, poslab's or those of a user."""

import importlib
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning.callbacks
import torch
import yaml
from common import SMOKE, RunScript, compose_config
from refusals import refused
from runs_to_resume import TINY, content_of, logged, resume

from poslab.config.fields import NOT_COMPARED, NOT_IDENTITY
from poslab.config.groups import flat
from poslab.config.train import TrainConfig
from poslab.errors import SettingError, UserError
from poslab.runs.checkpoint import load_checkpoint
from poslab.sweep.job_list import identity
from poslab.training.train import train

BROUGHT = (
    "optim._target_=brought.Doubled", "optim.power=1.0", "schedule._target_=brought.quartered", "schedule.further=2",
    "callbacks.noise._target_=brought.Noise", "callbacks.noise.every=3",
)  # fmt: skip


def own_parts(config: Any) -> list[dict[str, Any]]:
    return [config.optimizer, config.schedule, config.callbacks, config.logger]


def test_a_class_that_is_typed_has_the_settings_that_are_typed_and_no_others() -> None:
    assert own_parts(compose_config(*BROUGHT, "optim.weight_decay=0.3")) == [
        {"_target_": "brought.Doubled", "power": 1.0},
        {"_target_": "brought.quartered", "further": 2},
        {"noise": {"_target_": "brought.Noise", "every": 3}},
        {},
    ]
    optim = compose_config(*BROUGHT, "optim.weight_decay=0.3").optim
    assert (optim.learning_rate, optim.weight_decay) == (1e-3, 0.3)  # what all optimizers have stays
    again = compose_config("optim=muon", "optim._target_=torch.optim.RAdam", "logger=csv", "logger.csv.name=mine")
    assert again.optimizer == {"_target_": "torch.optim.RAdam"}
    assert again.logger == {"csv": {"_target_": "pytorch_lightning.loggers.CSVLogger", "name": "mine"}}


def test_a_callback_of_ones_own_has_the_loss_that_is_logged(tmp_path: Path) -> None:
    train(compose_config(*TINY, "callbacks.mine._target_=brought.Losses", f"run_dir={tmp_path / 'run'}"))
    found = logged(tmp_path / "run")
    assert found["train/mine"] == found["train/loss"]
    assert len(found["train/mine"]) == 10


def test_annotations_of_a_class_of_ones_own_may_be_prose() -> None:
    node = {"_target_": "brought.Halved", "by": 4, "how": "well"}
    settings = [f"schedule.{name}={value}" for name, value in node.items()]
    assert compose_config(*settings).schedule == node


def test_a_task_s_recipe_is_for_the_optimizer_that_has_it() -> None:
    recipe = compose_config("data=recall")
    assert (recipe.optimizer["betas"], recipe.schedule["_target_"]) == (
        [0.9, 0.999], "poslab.training.schedules.Constant",
    )  # fmt: skip
    assert compose_config("data=recall", "optim=sgd").optimizer == {"_target_": "torch.optim.SGD", "momentum": 0.9}
    assert compose_config("data=recall", "schedule=cosine").schedule["final_share"] == 0.1
    with refused("optim.betas", "[0.9,0.99]"):
        compose_config("data=recall", "optim=sgd", "optim.betas=[0.9,0.99]")


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("optim.lr=3e-4", "optim.lr=0.0003: unknown setting; did you mean optim.learning_rate?"),
        ("optim.schedule=wsd", "optim.schedule=wsd: unknown setting; did you mean schedule?"),
        ("optim.warmup_share=0", "optim.warmup_share=0: unknown setting; did you mean schedule.warmup_share?"),
        ("optim.beta1=0.9", "optim.beta1=0.9: unknown setting; did you mean optim.betas?"),
        ("optim=sgd optim.momentum=much", "optim.momentum=much: must be a number"),
        ("optim=sgd optim.nesterov=maybe", "optim.nesterov=maybe: must be true or false"),
        ("schedule._target_=brought.Halvd", "brought.py has no Halvd; did you mean Halved?"),
        ("optim.params=3", "optim.params=3: unknown setting; valid: learning_rate"),
        ("schedule.warmup=0.1", "schedule.warmup=0.1: unknown setting; did you mean schedule.warmup_share?"),
        ("optim._target_=math.sqrt", "optim._target_=math.sqrt: must be a class derived from torch.optim.Optimizer"),
        ("schedule._target_=math.pi", "schedule._target_=math.pi: must be a class or a function"),
        ("schedule._target_=poslab.config.files.write_whole", "must be a class derived from poslab.training.schedules"),
        ("callbacks.a._target_=brought.Halved", "must be a class derived from pytorch_lightning.Callback"),
        ("callbacks.a.every=3", "callbacks.a._target_=: must be given, a class such as my_file.Mine, or an option"),
        ("callbacks.a=3", "callbacks.a=3: must be a class as _target_ and its settings"),
        ("logger.a._target_=brought.Noise", "must be a class derived from pytorch_lightning.loggers.Logger"),
        ("trainer.precision=16-true optim.eps=1e-8", "optim.eps=1e-08: must be at least 1e-05 with trainer.precision"),
    ],
)
def test_what_is_refused_by_its_name(typed: str, problem: str) -> None:
    with pytest.raises(SettingError) as refusal:
        compose_config(*typed.split())
    assert problem in str(refusal.value)


# Lightning's callbacks with the settings that they need, and what is named where one can't work here.
OF_LIGHTNING = dict.fromkeys(pytorch_lightning.callbacks.__all__, ((), "")) | {
    "BackboneFinetuning": ((), "init_from"),
    "BaseFinetuning": ((), "init_from"),
    "BatchSizeFinder": ((), "data.batch_size"),
    "EarlyStopping": (("callbacks.a.monitor=val/loss",), ""),
    "GradientAccumulationScheduler": (("callbacks.a.scheduling={0:1,1:2}",), ""),
    "LambdaCallback": ((), "callbacks.NAME._target_"),
    "LearningRateFinder": ((), "optim.learning_rate"),
    "ModelPruning": (("callbacks.a.pruning_fn=l1_unstructured",), "model.embed_dim"),
    "OnExceptionCheckpoint": (("callbacks.a.dirpath=kept",), ""),
    "StochasticWeightAveraging": (("callbacks.a.swa_lrs=0.01",), ""),
    "ThroughputMonitor": (("callbacks.a.batch_size_fn=len",), "train/tokens_per_s"),
    **dict.fromkeys(("ProgressBar", "RichProgressBar", "TQDMProgressBar"), ((), "trainer.log_every_n_steps")),
}


@pytest.mark.parametrize("name", [name for name, (_, instead) in OF_LIGHTNING.items() if instead])
def test_callbacks_of_lightning_that_can_not_work_here_say_what_does(name: str, tmp_path: Path) -> None:
    given, instead = OF_LIGHTNING[name]
    target = f"callbacks.a._target_=pytorch_lightning.callbacks.{name}"
    with pytest.raises(SettingError, match=re.escape(instead)) as refusal:
        train(compose_config(*TINY, target, *given, f"run_dir={tmp_path / 'run'}"))
    assert refusal.value.option == "callbacks.a"
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, (_, instead) in OF_LIGHTNING.items() if not instead])
def test_all_other_callbacks_of_lightning_work(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    target = f"callbacks.a._target_=pytorch_lightning.callbacks.{name}"
    assert train(compose_config(*TINY, target, *OF_LIGHTNING[name][0], f"run_dir={tmp_path / 'run'}")).steps >= 8


def test_a_callback_that_watches_nothing_of_the_run_ends_it_with_one_line(tmp_path: Path) -> None:
    target = "callbacks.a._target_=pytorch_lightning.callbacks.EarlyStopping"
    with pytest.raises(UserError, match="val/loss") as refusal:
        train(compose_config(*TINY, target, "callbacks.a.monitor=nothing", f"run_dir={tmp_path / 'run'}"))
    assert "\n" not in str(refusal.value)


STOPS = "callbacks.a._target_=pytorch_lightning.callbacks.EarlyStopping callbacks.a.monitor=val/loss"


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("optim.betas=[0.9]", "optim=torch.optim.AdamW: refuses its settings (betas=[0.9], eps=1e-08): list index out"),
        ("optim.betas=many", "optim=torch.optim.AdamW: refuses its settings (betas=many, eps=1e-08): "),
        ("optim=muon optim.momentum=-1", "optim=poslab.training.muon.Muon: refuses its settings (betas=[0.9,0.99], "),
        ("schedule._target_=brought.wordy", "must return a factor of the learning rate, not 'half'"),
        ("schedule._target_=brought.Noise", "must have instances that are called with (step, total_steps)"),
        ("callbacks.a._target_=brought.Noise callbacks.b._target_=brought.Noise", "saves its state as Noise"),
        ("callbacks.a._target_=pytorch_lightning.callbacks.Timer callbacks.a.duration=x", "callbacks.a=pytorch_l"),
        (
            f"early_stopping_patience=2 {STOPS}",
            "another callback saves its state as EarlyStopping{'monitor': 'val/loss'",
        ),
    ],
)
def test_what_a_class_refuses_before_anything_is_written(typed: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError) as refusal:
        train(compose_config(*SMOKE, *typed.split(), f"run_dir={tmp_path / 'run'}"))
    assert problem in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_a_patience_of_nothing_stops_at_the_first_validation_that_is_no_better(tmp_path: Path) -> None:
    settings = [*SMOKE, *STOPS.split(), "callbacks.a.patience=0", "optim.learning_rate=0", "trainer.max_epochs=4"]
    assert train(compose_config(*settings, f"run_dir={tmp_path / 'run'}")).epochs == 2


def test_parts_of_a_user(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    summary = train(compose_config(*SMOKE, *BROUGHT, "optim.learning_rate=0.1", f"run_dir={run}"))
    figures = logged(run)
    assert [value for _, value in figures["train/learning_rate"]] == pytest.approx([0.1 / 8] * summary.steps)
    assert [value for _, value in figures["train/noises"]] == [0, 0, 1, 1, 1, 2]
    assert "warning: optim.weight_decay=0.1: brought.Doubled may have no weight decay" in capsys.readouterr().err


LOGGED = """
from pytorch_lightning import Callback

class Mine(Callback):
    def __init__(self, every):
        self.every = every

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_index):
        pl_module.log("train/mine", float((batch_index + 1) // self.every))
"""


def test_a_file_and_a_yaml_of_one_s_own(run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_file_of_mine.py").write_text(LOGGED)
    (tmp_path / "conf" / "callbacks").mkdir(parents=True)
    (tmp_path / "conf" / "callbacks" / "mine.yaml").write_text("mine:\n  _target_: a_file_of_mine.Mine\n  every: 2\n")
    monkeypatch.chdir(tmp_path)
    code, _, errors = run_script("train", *SMOKE, "--config-dir", "conf", "callbacks=mine", "run_dir=run")
    assert (code, errors) == (0, "")
    assert [value for _, value in logged(tmp_path / "run")["train/mine"]] == [0, 1, 1, 0, 1, 1]


def test_what_decides_a_result_is_part_of_a_run_s_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        (), ("optim=muon",), ("optim.betas=[0.9,0.95]",), ("schedule=wsd",), ("schedule.warmup_share=0.2",),
        ("callbacks.noise._target_=brought.Noise",), BROUGHT,
        ("callbacks.noise._target_=brought.Noise", "callbacks.noise.every=2"),
    ]  # fmt: skip
    assert len({identity(compose_config(*line)) for line in lines}) == len(lines)
    assert identity(compose_config("logger=csv")) == identity(compose_config())
    plain = compose_config(*BROUGHT, "logger=csv").plain
    compared = {name for name in flat(plain, without=NOT_COMPARED) if name.startswith(("optim", "callbacks", "logger"))}
    assert compared == {
        "optim._target_", "optim.power", "optim.learning_rate", "optim.weight_decay", "callbacks.noise._target_",
        "callbacks.noise.every",
    }  # fmt: skip
    assert "logger.csv.name" not in flat(plain, without=NOT_IDENTITY)


def test_edited_code_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def configured(by: int) -> TrainConfig:
        """Return the configuration with a function, as a new process would load it."""
        (tmp_path / "edited.py").write_text(f"def edited(step, total_steps):\n    return step / {by}\n")
        monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within one second would not be seen
        monkeypatch.delitem(sys.modules, "edited", raising=False)
        importlib.invalidate_caches()
        return compose_config(
            *TINY, "trainer.max_epochs=1", "schedule._target_=edited.edited", f"run_dir={tmp_path / 'run'}"
        )

    monkeypatch.syspath_prepend(tmp_path)
    train(before := configured(by=2))
    decisive = identity(before)
    assert decisive != identity(configured(by=3))
    recorded = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert len(recorded["parts_fingerprint"]) == 16
    with pytest.raises(UserError, match=r"edited\.edited.*step 5"):
        resume(tmp_path / "run", "trainer.max_epochs=2", "allow_code=true")
    assert decisive == identity(configured(by=2))
    assert resume(tmp_path / "run", "trainer.max_epochs=2", "allow_code=true")["steps"] == 10


@pytest.mark.parametrize("group", ["optim", "schedule", "callbacks", "logger"])
def test_what_a_run_folder_names_runs_if_the_user_says_so(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: Callable[..., Path]
) -> None:
    (tmp_path / "planted.py").write_text(
        f"import os\nos.mkdir({str(tmp_path / 'trace')!r})\n"
        "from brought import Doubled as optim, Halved as schedule, Noise as callbacks\n"
        "from pytorch_lightning.loggers import CSVLogger as logger\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted", raising=False)
    run, node = tmp_path / "run", {"_target_": f"planted.{group}"}
    train(compose_config(*TINY, "trainer.max_epochs=1", f"run_dir={run}"))
    settings = yaml.safe_load((run / "config.yaml").read_text())
    if group == "optim":
        settings[group] = {"learning_rate": 1e-3, **node}
    else:
        settings[group] = {"one": node} if group in ("callbacks", "logger") else node
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    with pytest.raises(UserError, match=rf"^resume=\S+: .*planted\.{group}.*allow_code"):
        resume(run, "trainer.max_epochs=2")
    load_checkpoint(run)
    assert not (tmp_path / "trace").exists()
    if group == "logger":
        resume(run, "trainer.max_epochs=2", "allow_code=true")
        assert (tmp_path / "trace").exists()


def test_what_a_setting_names_is_a_value(tmp_path: Path) -> None:
    """Hydra would call it, whatever it is."""
    run, trace = tmp_path / "run", tmp_path / "trace"
    train(compose_config(*TINY, "trainer.max_epochs=1", f"run_dir={run}"))
    settings = yaml.safe_load((run / "config.yaml").read_text())
    settings["optim"]["betas"] = [{"_target_": "os.mkdir", "path": str(trace)}, 0.99]
    (run / "config.yaml").write_text(yaml.safe_dump(settings))
    for allowed in ([], ["allow_code=true"]):
        with pytest.raises(UserError, match=r"optim\.betas\.0\._target_"):
            resume(run, "trainer.max_epochs=2", *allowed)
    assert not trace.exists()


def test_float16_trains(tmp_path: Path) -> None:
    settings = [*SMOKE, "trainer.precision=16-true", "trainer.limit_train_batches=null", "optim.learning_rate=5e-3"]
    for optim in ("adamw", "muon"):
        config = compose_config(*settings, f"optim={optim}", f"run_dir={tmp_path / optim}")
        assert config.optimizer["eps"] == 1e-4
        summary = train(config)
        assert summary.last_val_loss is not None
        assert summary.last_val_loss < 6.5  # equal chances give 7.3, and AdamW's eps of 1e-8 several hundred


def test_a_run_that_is_worse_than_guessing_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [*SMOKE, "optim.learning_rate=0", "trainer.max_epochs=1"]
    train(compose_config(*settings, "model.init_std=0.2", f"run_dir={tmp_path / 'run'}"))
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("warning: the last validation loss, ")
    assert line.endswith("which equal chances for all 1,417 tokens give: it has learned nothing, or too fast")


def test_averaged_weights_are_those_that_were_validated(tmp_path: Path) -> None:
    ema = ["callbacks.e._target_=pytorch_lightning.callbacks.EMAWeightAveraging", "callbacks.e.decay=0.9"]
    summary = train(compose_config(*TINY, *ema, "optim.learning_rate=0.01", f"run_dir={tmp_path / 'run'}"))
    assert summary.best_step == summary.steps
    last, best = content_of(tmp_path / "run"), load_checkpoint(tmp_path / "run").model.state_dict()
    for name, weight in best.items():
        assert torch.equal(weight, last["state_dict"][f"model.{name}"])
    assert not torch.equal(best["token_embedding.weight"], last["current_model_state"]["model.token_embedding.weight"])


LOGGER = """
from pytorch_lightning.loggers.logger import Logger

class Mine(Logger):
    name, version, seen = "mine", 0, []

    def log_metrics(self, metrics, step=None):
        self.seen.append(metrics)

    def log_hyperparams(self, params, *rest, **others):
        pass
"""


def test_a_logger_needs_only_what_lightning_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_logger_of_mine.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(tmp_path)
    train(compose_config(*SMOKE, "logger.mine._target_=a_logger_of_mine.Mine", f"run_dir={tmp_path / 'run'}"))
    assert any("val/loss" in metrics for metrics in sys.modules["a_logger_of_mine"].Mine.seen)


def test_what_lightning_refuses_is_one_line(tmp_path: Path) -> None:
    bar = "callbacks.bar._target_=pytorch_lightning.callbacks.TQDMProgressBar"
    with pytest.raises(UserError, match="callbacks"):
        train(compose_config(*SMOKE, bar, f"run_dir={tmp_path / 'run'}"))


def test_a_mapping_from_numbers_arrives_as_typed(tmp_path: Path) -> None:
    scheduler = "callbacks.a._target_=pytorch_lightning.callbacks.GradientAccumulationScheduler"
    more = ("trainer.limit_train_batches=4", "trainer.max_epochs=2", "trainer.log_every_n_steps=50")
    settings = (*SMOKE, scheduler, "callbacks.a.scheduling={0:1,1:2}", *more)
    assert train(compose_config(*settings, f"run_dir={tmp_path / 'run'}")).steps == 4 + 2
    assert [step for step, _ in logged(tmp_path / "run")["train/loss"]] == [3, 5]  # a figure in each epoch


def test_a_profiler_has_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(logging.Logger, "handle", lambda logger, record: said.append(record.getMessage()))
    train(compose_config(*SMOKE, "trainer.profiler=simple", f"run_dir={tmp_path / 'run'}"))
    assert any("run_training_batch" in text for text in said)
    assert not any("GPU available" in text for text in said)


BUG = """
from pytorch_lightning import Callback

class Bug(Callback):
    def on_train_batch_end(self, trainer, *rest):
        {}["missing"]
"""


def test_a_bug_in_a_part_of_one_s_own_says_how_to_resume(
    run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_bug_of_mine.py").write_text(BUG)
    monkeypatch.chdir(tmp_path)
    bug = "callbacks.bug._target_=a_bug_of_mine.Bug"
    with pytest.raises(KeyError, match="missing") as raised:
        run_script("train", *SMOKE, bug, "run_dir=run")
    assert any("resume=run allow_code=true" in note for note in raised.value.__notes__)
    code, output, errors = run_script("train", "-m", *SMOKE, bug, "seed=1,2", "run_dir=sweep")
    assert (code, output.count("failed        KeyError: 'missing' (log: ")) == (1, 2), errors
