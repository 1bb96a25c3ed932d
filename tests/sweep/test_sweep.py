"""Sweeps: every job once, each by itself, also where some fail or are cut off."""

import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from common import ALIBI, REPOSITORY, RunScript, assert_refused, compose_config, composed
from filelock import FileLock
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from processes import PRELOADED, run_process
from runs_to_compare import SUMMARY, change_config, change_summary, compare
from runs_to_resume import TINY_TASK, assert_same_weights

from hydra_plugins.poslab_sweeper.sweeper import overrides_of_jobs
from poslab.config.corpora import fingerprint
from poslab.config.fields import NOT_IDENTITY
from poslab.config.files import CLAIMS, CONFIGS
from poslab.config.train import TrainConfig
from poslab.errors import UserError
from poslab.runs.code import fingerprints
from poslab.runs.evaluation import read_evaluation
from poslab.runs.initial import initial_fields
from poslab.runs.load import read_runs
from poslab.runs.plan import keys_of, read_plan, settings_sha256
from poslab.runs.summary import Summary
from poslab.sweep import job as job_module
from poslab.sweep.job import JobFiles, run_job
from poslab.sweep.job_list import Job, identity, list_jobs
from poslab.sweep.sweep import _divide_threads, _result, seconds_to_go
from seedstats.claims import ALL, read_claims

TRAIN = [sys.executable, str(REPOSITORY / "scripts" / "train.py")]
TINY = ("experiment=smoke", "trainer=cpu", "data.vocabulary=observed", "trainer.max_epochs=1", "model.dropout=0.1")

# `python scripts/train.py -m ...` in the folder of the test: exit code, what it says, what it complains of.
Sweep = Callable[..., tuple[Any, str, str]]


def in_this_process(config: TrainConfig, overrides: list[str], log: Path) -> str:
    """Stands in for a job's own process."""
    with log.open("w") as opened, redirect_stdout(opened), redirect_stderr(opened):
        try:
            job_module.train_or_evaluate(config, job_module.code_of(config))
        except UserError as error:
            return str(error)
    return ""


def without_training(config: TrainConfig, overrides: list[str], log: Path) -> str:
    """Leaves what a finished run leaves, but for its checkpoints."""
    folder = Path(str(config.settings.run_dir))
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump({"pos_name": config.pos_name} | config.plain))
    about = {"pos": config.pos_name, "seed": config.settings.seed, "data_sha256": fingerprint(config.data.path)}
    about |= {"pos_settings": config.pos_settings, "pos_target": config.plain["pos"]["_target_"]}
    Summary(**SUMMARY | about | fingerprints(config.pos)).write(folder / "summary.json")
    return ""


@pytest.fixture
def sweep(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Sweep with a process for each job, from the fork server."""
    monkeypatch.setattr("poslab.sweep.sweep.raise_on_signals", lambda within: None)
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    return lambda *arguments: run_script("train", "-m", *TINY, *arguments)


@pytest.fixture
def swept_here(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Sweep without training."""
    monkeypatch.setattr(job_module, "_run_alone", without_training)
    return sweep


def table(output: str) -> dict[str, str]:
    """Return the lines of the table at the end of a sweep, by job."""
    lines = output.split("\njob ")[1].split("\n\n")[0].splitlines()[1:]
    return {line.split()[0]: line for line in lines}


def folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


@pytest.fixture(autouse=True)
def away_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose runs, if somebody has trained there, a sweep would find."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def composed_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are composed of yamls that are put together once, but in slow tests."""

    def load_sweep_config(loader: ConfigLoader, config: DictConfig, given: list[str]) -> DictConfig:
        job = composed(*given, hydra=True)
        job.hydra.mode = RunMode.MULTIRUN
        return job

    if "slow" not in request.keywords:
        monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", load_sweep_config)


def hydra_s_loader() -> ConfigLoader:
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return GlobalHydra.instance().config_loader()


def planned(*arguments: str) -> list[Job]:
    """Return the jobs of a sweep, without running them."""
    config, loader = composed(*(a for a in arguments if a.startswith("experiment=")), hydra=True), hydra_s_loader()
    return list_jobs(overrides_of_jobs(config, loader, arguments), config, loader)


def overrides_of_grids(params: dict[str, Any], grids: list[dict[str, Any]], *arguments: str) -> list[list[str]]:
    config = OmegaConf.create({"hydra": {"sweeper": {"params": params, "grids": grids}}})
    return overrides_of_jobs(config, hydra_s_loader(), arguments)


def test_lists_of_schemes_are_values_of_a_sweep() -> None:
    jobs = planned("pos=layers", "pos.layers=[{_target_:rope,base:500},nope],[rope,rope,nope]")
    assert [len(job.config.pos_settings["layers"]) for job in jobs if job.config] == [2, 3]
    assert [job.config.pos_settings["layers"][0]["base"] for job in jobs if job.config] == [500.0, 10000.0]


def test_settings_of_a_scheme_within_are_swept_with_its_name() -> None:
    jobs = planned("pos=randomized", "pos.of=t5,alibi", "pos.of.num_buckets=16")
    assert [job.config and job.config.pos_settings["of"]["num_buckets"] for job in jobs] == [16, None]


def test_every_job_is_the_same_run_alone(sweep: Sweep, tmp_path: Path) -> None:
    code, output, errors = sweep("pos=t5,absolute", "seed=2")
    assert (code, errors) == (0, "")
    found = folders(tmp_path / "runs" / "smoke")
    assert [folder.name.rsplit("-", 1)[0] for folder in found] == ["absolute-seed2", "t5-seed2"]
    assert sorted(table(output)) == [folder.name for folder in found]
    assert "\n2 of 2 jobs done\n" in output
    assert f"compare  python {REPOSITORY}/scripts/compare.py runs=runs/smoke" in output
    result = run_process("train", *TINY, "pos=absolute", "seed=2", "run_dir=alone", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    summaries = [json.loads((f / "summary.json").read_text()) for f in (tmp_path / "alone", found[0])]
    assert summaries[0]["best_val_loss"] == summaries[1]["best_val_loss"]
    assert_same_weights(tmp_path / "alone", found[0])


def test_only_what_is_not_finished_runs_again(swept_here: Sweep, tmp_path: Path) -> None:
    code, output, errors = swept_here("pos=t5,absolute", "seed=1,2")
    assert (code, errors) == (0, "")
    assert "smoke: 4 jobs, 4 to run; runs in runs/smoke" in output
    assert "was finished before" not in output
    plan = [(group.scheme, group.seeds) for group in read_plan(tmp_path / "runs" / "smoke")]
    assert plan == [("t5", [1, 2]), ("absolute", [1, 2])]
    keys = {group.group for group in read_plan(tmp_path / "runs" / "smoke")}
    assert {keys_of(run)[0] for run in read_runs(["runs/smoke"])[0]} == keys
    (cut,) = (tmp_path / "runs" / "smoke").glob("t5-seed1-*")
    (cut / "summary.json").unlink()  # as if it had been killed
    for folder in (tmp_path / "runs" / "smoke").glob("absolute-seed*"):
        folder.rename(folder.with_name(f"{folder.name[:14]}-0ldname"))  # a run is found by its contents
    code, output, errors = swept_here("pos=t5,absolute", "seed=1,2")
    assert (code, errors) == (0, "")
    assert "smoke: 4 jobs, 1 to run; runs in runs/smoke" in output
    assert [name for name, line in table(output).items() if not line.endswith("was finished before")] == [cut.name]
    assert sum("-0ldname" in name for name in table(output)) == 2
    change_summary(cut, code_fingerprint="another")
    code, output, _ = swept_here("pos=t5,absolute", "seed=1,2")
    assert code == 0
    notes = [line.split("finished before")[1] for line in table(output).values()]
    assert sorted(notes) == ["", "", "", ", by other code"]
    assert "without their folders, or in another run_dir=..., they are trained anew" in output


def test_an_extended_run_is_no_job_s(swept_here: Sweep, tmp_path: Path) -> None:
    """An extended run lies in the folder of its first length's job, but is no result of either length."""
    swept_here("pos=t5", "seed=1,2")
    run, _ = folders(tmp_path / "runs" / "smoke")
    change_config(run, "trainer.max_epochs", 2)
    change_config(run, "extended", ["trainer.max_epochs=1 to step 3"])
    code, output, _ = swept_here("pos=t5", "seed=1,2")
    assert code == 1
    assert "2 jobs, 0 to run" in output
    (reused,) = table(output).values()
    assert re.search(
        r"\n1 of 2 combinations left out: .*: holds another run by now, as one that was extended; move", output
    )
    assert reused.endswith("was finished before")
    (longer,) = planned(*TINY, "pos=t5", "trainer.max_epochs=2")
    assert not longer.trained
    run.rename(run.with_name("extended"))
    assert [job.problem or job.trained for job in planned(*TINY, "pos=t5", "seed=1,2")] == [False, True]


def test_another_length_is_only_evaluated(swept_here: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    code, output, _ = swept_here("pos=t5", "seed=1,2", "sample.new_tokens=0", "evaluation.lengths=[16]")
    assert code == 0, output
    folders_of_runs = folders(tmp_path / "runs" / "smoke")
    before = {file: file.read_bytes() for folder in folders_of_runs for file in folder.rglob("*.*") if file.is_file()}
    kept = {file for file in before if "evaluation" not in file.name and file.name != "summary.json"}
    code, output, errors = swept_here("pos=t5", "seed=1,2", "evaluation.lengths=[16,32]")
    assert (code, errors) == (0, "")
    assert "smoke: 2 jobs, 0 to run, 2 to evaluate; runs in" in output
    assert all(line.endswith("was finished before") for line in table(output).values())
    assert all(file.read_bytes() == before[file] for file in kept)
    for folder in folders_of_runs:
        evaluation = read_evaluation(folder)
        assert evaluation is not None
        assert [result.length for result in evaluation.lengths] == [16, 32]
        was, now = json.loads(before[folder / "summary.json"]), json.loads((folder / "summary.json").read_text())
        assert list(was.pop("last_loss")) == ["16"]
        assert now.pop("last_loss") == {str(n): loss for n, loss in evaluation.last_losses.items()}
        assert was == now
    _, output, _ = swept_here("pos=t5", "seed=1,2", "evaluation.lengths=[16]")
    assert "smoke: 2 jobs, 0 to run; runs in" in output
    for checkpoint in folders_of_runs[0].glob("checkpoints/*"):
        checkpoint.unlink()
    code, output, _ = swept_here("pos=t5", "seed=1,2", "evaluation.lengths=[4]")
    assert code == 1
    failed, evaluated = table(output).values()
    assert "was finished before; not evaluated at 4: ckpt=" in failed
    assert evaluated.endswith("was finished before")


def test_an_edited_scheme_is_another_job_and_another_group(
    swept_here: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "swept_scheme.py"
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # an edit within one second would not be seen
    monkeypatch.syspath_prepend(tmp_path)

    def swept_as(source: str, seeds: str) -> str:
        file.write_text(source)
        monkeypatch.delitem(sys.modules, "swept_scheme", raising=False)
        return swept_here("pos=own", "pos._target_=swept_scheme.MyALiBi", f"seed={seeds}", "run_dir=s")[1]

    first = swept_as(ALIBI, "1,2")
    assert "2 jobs, 2 to run" in first
    commands = [line for line in first.splitlines() if line.startswith(("compare", "explain"))]
    assert [line.split()[-1] for line in commands] == ["allow_code=true"] * 2  # its own class did run just now
    assert "2 jobs, 0 to run" in swept_as(ALIBI, "1,2")
    edited = ALIBI.replace("bias = -slopes", "bias = slopes")
    assert "3 jobs, 3 to run" in (output := swept_as(edited, "1,2,3"))
    assert "was finished before" not in output
    monkeypatch.delitem(sys.modules, "swept_scheme")
    groups = compare(read_runs(["s"])[0]).groups
    assert sorted(len(group.values) for group in groups) == [2, 3]


def test_settings_that_only_the_class_has_are_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "swept_class.py").write_text(ALIBI)
    whole = ("pos=own", "pos._target_=swept_class.MyALiBi")
    jobs = planned(*whole, "pos.steepest=1.0,2.0", "pos.num_heads=4", "seed=1")
    assert {job.problem for job in jobs} == {"pos.num_heads=4: unknown setting; valid: steepest"}
    one, two = planned(*whole, "pos.steepest=1.0,2.0", "seed=1")
    assert (one.problem, two.problem) == ("", "")
    assert two.folder.name.startswith("myalibi-steepest_2.0-seed1-")


def test_code_that_changes_during_a_sweep_trains_nothing(tmp_path: Path) -> None:
    config, planned_code = compose_config(*TINY, f"run_dir={tmp_path}/job"), {"code_fingerprint": "another"}
    with pytest.raises(UserError, match="code"):
        job_module.train_or_evaluate(config, planned_code)
    assert not (tmp_path / "job").exists()


def test_a_job_that_another_process_runs_is_left_to_it(swept_here: Sweep, tmp_path: Path) -> None:
    swept_here("pos=t5", "seed=1,2")
    runs = folders(tmp_path / "runs" / "smoke")
    logs = [JobFiles(run).log for run in runs]
    for run, log in zip(runs, logs, strict=True):
        (run / "summary.json").unlink()
        log.write_text("error: of another day\n")
    with JobFiles(runs[0]).claim():
        swept_here("pos=t5", "seed=1,2")
        assert [log.exists() for log in logs] == [True, False]
        assert [(run / "summary.json").exists() for run in runs] == [False, True]


def test_failures_stop_no_other_job(sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9 " * 3000)
    (tmp_path / "good.txt").write_bytes((REPOSITORY / "data" / "the-verdict.txt").read_bytes())
    texts = ("data=text", "data.path=bad.txt,good.txt,none.txt")
    code, output, errors = sweep("pos=absolute,t5", "pos.num_buckets=8", *texts)
    assert (code, "Traceback" in errors + output) == (1, False)
    lines = [line for job, line in table(output).items() if job.startswith("t5-path_bad")]
    assert ["bad.txt is not UTF-8 text" in line for line in lines] == [True]
    (finished,) = folders(tmp_path / "runs" / "smoke")
    assert json.loads((finished / "summary.json").read_text())["data"] == "good.txt"


def test_a_target_that_is_missed_is_a_failure(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    for again in (False, True):
        code, output, _ = sweep("pos=nope", "target_loss=1e-6", "trainer.max_steps=1")
        (line,) = table(output).values()
        assert code == 1
        assert "target_loss=1e-06: not reached in 1 steps" in line
        assert ("was finished before" in line) == again


def test_a_sweep_s_time_left_is_by_the_median_job_and_the_jobs_at_a_time() -> None:
    assert seconds_to_go([10, 12, 1000], [], waiting=5, at_a_time=1) == 5 * 12
    assert seconds_to_go([10, 12, 1000], [2, 4], waiting=4, at_a_time=2) == (4 * 12 + 10 + 8) / 2
    assert seconds_to_go([10], [25], waiting=0, at_a_time=1) == 0  # a job that takes longer than others


def test_an_experiment_that_is_a_sweep_is_one_without_m_and_with_one_value_each_a_run(
    run_script: RunScript, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runs: list[TrainConfig] = []
    monkeypatch.setattr("poslab.training.train.train", runs.append)
    monkeypatch.setattr("poslab.sweep.sweep.raise_on_signals", lambda within: None)
    monkeypatch.setattr(job_module, "_run_alone", without_training)
    monkeypatch.chdir(tmp_path)
    _, output, _ = run_script("train", "experiment=ablation", "seed=3")
    assert "pos=VALUE" in output
    assert "seed=VALUE" not in output
    assert len(table(output)) == 3  # schemes
    assert runs == []
    run_script("train", "experiment=ablation", "seed=3", "pos=t5")
    run_script("train", "experiment=smoke")
    assert [(config.pos_name, config.settings.seed) for config in runs] == [("t5", 3), ("absolute", 1)]


def test_a_line_a_minute(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each look takes a minute, of which there are many while the job runs."""
    monkeypatch.setattr("poslab.sweep.sweep.Interval.is_over", lambda interval: True)
    monkeypatch.setattr("poslab.sweep.sweep.LOOK", 0.01)
    _, output, _ = sweep("seed=1")
    assert output.count("0 of 1 jobs done, 1 running\n") > 1


@pytest.mark.parametrize(
    ("given", "reasons", "code"),
    [
        (("pos=rope,t5", "pos.num_buckets=8,16"), ["4 of 8 combinations left out: rope has no num_buckets"], 1),
        (("pos=t5", "pos.num_buckets=8,0"), ["2 of 4 combinations left out: pos.num_buckets=0: must be at least 2"], 1),
        (("pos=t5,t6",), ["2 of 4 combinations left out: pos=t6: unknown; did you mean t5?"], 1),
        # All that was asked for is trained: each value with some of the others.
        (("pos=shaw", "pos.keys=true,false", "pos.values=true,false"), ["2 of 8 combinations left out: pos.keys="], 0),
        (("pos=rope,t5",), [], 0),
    ],
)  # fmt: skip
def test_combinations_that_can_t_run_are_said_before_the_first_job(
    given: tuple[str, ...], reasons: list[str], code: int, swept_here: Sweep
) -> None:
    """And again at the end."""
    found, output, _ = swept_here(*given, "seed=1,2")
    before, _, after = output.partition("jobs done")
    for part in (before, after):
        lines = [line for line in part.splitlines() if "left out" in line]
        assert len(lines) == len(reasons)
        assert all(line.startswith(reason) for line, reason in zip(lines, reasons, strict=True))
    assert found == code == ("\ntrained by no job: " in after)
    assert "++" not in after


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("pos.num_buckets=1,0", "pos.num_buckets=1: must be at least 2"),
        ("seed=range(0)", "seed=range(0): has no values, so there are no jobs"),
        ("pos=glob(zzz*)", "pos=glob(zzz*): has no values, so there are no jobs"),
        ("run_dir=/proc/runs", "run_dir=/proc/runs: can't be written: "),
    ],
)
def test_a_sweep_that_can_not_begin_is_one_error(given: str, problem: str, swept_here: Sweep, tmp_path: Path) -> None:
    assert_refused(swept_here("pos=t5", "model.dropout=0.1,0.2", given), problem)
    assert list(tmp_path.iterdir()) == []


SEVERAL_TASKS = [("length_generalization", 3), ("length_generalization_desk", 8)]  # with the number of their seeds
SWEPT = {
    path.relative_to(CONFIGS / "experiment").with_suffix("").as_posix()
    for path in CONFIGS.glob("experiment/**/*.yaml")
    if "sweeper" in path.read_text()
}


@pytest.mark.parametrize("experiment", sorted(SWEPT - dict(SEVERAL_TASKS).keys()))
def test_every_job_of_an_experiment_is_possible(experiment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one seed, and of one scheme where it takes all; but for those that the combinations themselves rule out. Of
    the largest study, of one task or text by one recipe."""
    monkeypatch.setattr("poslab.sweep.job_list._initial_fields", lambda given: {"init_sha256": given})
    params = OmegaConf.load(CONFIGS / "experiment" / f"{experiment}.yaml").hydra.sweeper.params
    given = ["pos=t5"] if "glob" in params.get("pos", "") else []
    if experiment in ("study/choosing", "study/confirming", "study/texts", "study/texts_confirming"):
        data = "shakespeare_characters" if "texts" in experiment else "back"
        given = [f"data={data}", "optim.learning_rate=1e-3", "model.init_std=0.05", f"{FACTOR}=8"]
    jobs = planned(f"experiment={experiment}", "seed=1", *given)
    assert len(jobs) > 0
    assert [job.problem for job in jobs if not job.impossible and job.problem] == []
    assert sum(job.impossible for job in jobs) == (6 if experiment == "shaw_clip" else 0)


def test_grids_stand_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the overrides of all; a job is named after what it has and others lack."""
    monkeypatch.setattr("poslab.sweep.job_list._initial_fields", lambda given: {"init_sha256": given})
    names = [job.folder.name.rpartition("-seed")[0] for job in planned("experiment=context_extension", "seed=1,2")]
    assert len(names) == 2 * len(set(names))
    assert "scaled-learning_rate_0-of_rope" in names
    assert [name.partition("-still_")[2] for name in names if "-scaling_" not in name].count("context") == 4


def test_the_seed_varies_slowest_over_all_grids() -> None:
    """So that a machine's load that drifts favours no scheme, and a sweep that is cut off has whole seeds."""
    grids = [{"data": "back"}, {"data": "copy", "seed": "2,3"}]
    jobs = overrides_of_grids({"pos": "t5,rope", "seed": "1,2"}, grids, "model.init_std=0.05")
    assert [" ".join(job[:3]) for job in jobs] == [
        "pos=t5 seed=1 data=back", "pos=rope seed=1 data=back",
        "pos=t5 seed=2 data=back", "pos=rope seed=2 data=back", "pos=t5 seed=2 data=copy", "pos=rope seed=2 data=copy",
        "pos=t5 seed=3 data=copy", "pos=rope seed=3 data=copy",
    ]  # fmt: skip
    typed = overrides_of_grids({}, [], "pos=t5,rope", "seed=2,1")
    assert typed == [["pos=t5", "seed=2"], ["pos=rope", "seed=2"], ["pos=t5", "seed=1"], ["pos=rope", "seed=1"]]


def test_values_of_a_yaml_are_those_of_a_command_line() -> None:
    values = {"trainer.max_epochs": None, "data.match": True, "evaluation.lengths": [64, 128], "pos.base": 1e4}
    (job,) = overrides_of_grids({"seed": 1}, [values])
    read = ["trainer.max_epochs=null", "data.match=True", "evaluation.lengths=[64,128]", "pos.base=10000.0"]
    assert job == ["seed=1", *read]


@pytest.mark.parametrize("experiment", ["ablation", "position_rate", "study/texts"])
def test_experiments_train_seed_after_seed(experiment: str) -> None:
    jobs = overrides_of_jobs(composed(f"experiment={experiment}", hydra=True), hydra_s_loader(), [])
    seeds = [override for job in jobs for override in job if override.startswith("seed=")]
    assert seeds == sorted(seeds)
    assert len({*seeds}) > 1


def test_a_job_goes_on_from_the_run_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.sweep.job_list._initial_fields", lambda given: {"init_sha256": given})
    settings = [job.config.settings for job in planned("experiment=drop_positions") if job.config]
    found = sorted((each.seed, Path(each.init_from or "").name) for each in settings)
    expected = [(seed, f"{of}-seed{seed}-*") for seed in (1, 2, 3) for of in ("nope", "rope") for _ in range(2)]
    assert found == expected


@pytest.mark.parametrize(("experiment", "seeds"), SEVERAL_TASKS)
def test_experiments_of_several_tasks(experiment: str, seeds: int) -> None:
    yaml = OmegaConf.load(CONFIGS / "experiment" / f"{experiment}.yaml")
    tasks = {path.stem for path in CONFIGS.glob("data/*.yaml") if "poslab.tasks." in path.read_text()}
    params = yaml.hydra.sweeper.params
    apart = {"distant_recall", "needle"}  # have experiments of their own
    assert set(params.data.split(",")) == tasks - apart or experiment == "length_generalization"
    assert params.seed == f"range(1,{seeds + 1})"
    schemes: dict[str, set[str]] = defaultdict(lambda: {"t5"})  # by data, those of claims; "all" are any
    lengths: dict[str, set[int]] = defaultdict(set)
    for claim in read_claims(CLAIMS / f"{experiment}.yaml"):
        schemes[str(claim.data)] |= {*claim.compared, claim.name} - {ALL, None}
        lengths[str(claim.data)] |= {claim.length}
    for data, names in schemes.items():
        jobs = planned(f"experiment={experiment}", "seed=1", f"data={data}", f"pos={','.join(names)}")
        assert not any(job.problem for job in jobs)
        assert lengths[data] <= {*jobs[0].config.data.test_lengths}


def test_jobs_that_repeat_each_other_run_once() -> None:
    assert len(planned("pos=t5", "seed=1,1,2")) == 2
    names = [job.folder.name for job in planned("pos=nope,t5", f"{FACTOR}=1,8", "seed=1")]
    assert [name.rsplit("-", 2)[0].replace("position_learning_rate_factor", "factor") for name in names] == [
        "nope-factor_1", "t5-factor_1", "t5-factor_8",
    ]  # fmt: skip


def test_jobs_of_several_seeds_are_those_of_each() -> None:
    """Jobs after the first are made of the first's configuration, unless that depends on the seed."""
    for others in (("pos=t5",), ("pos=t5", "sample.new_tokens=${seed}")):
        together, alone = planned(*others, "seed=1,2")[1], planned(*others, "seed=2")[0]
        assert together == alone
        assert together.config is not None
        assert together.config.settings.seed == 2
        assert together.config.sample.new_tokens == (32 if len(others) == 1 else 2)
    problems = [job.problem for job in planned("pos=t5", "seed=1,-2,x")]
    assert problems == ["", "seed=-2: must be at least 0", "seed=x: must be a whole number"]


FACTOR = "optim.position_learning_rate_factor"


def test_identity_is_settings_and_text(tmp_path: Path) -> None:
    def of(*overrides: str) -> str:
        return identity(compose_config(*overrides))

    (tmp_path / "copy.txt").write_bytes((REPOSITORY / "data" / "the-verdict.txt").read_bytes())
    (tmp_path / "other.txt").write_bytes((REPOSITORY / "data" / "the-verdict.txt").read_bytes() + b".")
    base = of("pos=t5")
    unimportant = ("evaluation.lengths=[8]", "trainer.log_every_n_steps=1", f"run_dir={tmp_path}", "threads=1")
    assert of("pos=t5", *unimportant, f"data.path={tmp_path}/copy.txt") == base
    assert of("pos=nope") == of("pos=nope", f"{FACTOR}=8")  # learns nothing that could move faster
    important = (f"{FACTOR}=8", "seed=2", "pos.num_buckets=16", "trainer.max_epochs=5", "model.dropout=0.2")
    different = {of("pos=t5", setting) for setting in (*important, f"data.path={tmp_path}/other.txt")}
    assert len({base, of("pos=absolute"), *different}) == 8


def test_weights_to_begin_with_are_part_of_a_job_by_their_contents(tmp_path: Path) -> None:
    files = {"one": ("{}", "weights"), "copy": ("{}", "weights"), "other": ("{}", "other weights"),
             "deeper": ('{"n_layer": 2}', "weights")}  # fmt: skip
    for name, contents in files.items():
        (tmp_path / name).mkdir()
        for file, content in zip(("config.json", "model.safetensors"), contents, strict=True):
            (tmp_path / name / file).write_text(content)
    config = compose_config("pos=t5")

    def beginning_with(name: str) -> TrainConfig:
        return replace(config, settings=replace(config.settings, init_from=str(tmp_path / name)))

    known = identity(beginning_with("one"))
    assert known == identity(beginning_with("copy")) != identity(config)
    recorded = replace(beginning_with("copy"), **initial_fields(str(tmp_path / "one"))).plain
    source = fingerprints(config.pos)["scheme_fingerprint"]
    assert settings_sha256(config.pos_name, recorded, fingerprint(config.data.path), source, NOT_IDENTITY) == known
    assert len({known, identity(beginning_with("other")), identity(beginning_with("deeper"))}) == 3
    with pytest.raises(UserError, match=r"^init_from=\S*/nowhere: "):
        identity(beginning_with("nowhere"))


def test_a_job_that_never_began_was_not_interrupted(tmp_path: Path) -> None:
    job = Job([], tmp_path / "never", compose_config(*TINY))
    assert _result(job) == ("unfinished", "", "not started")
    (tmp_path / "never").mkdir()
    JobFiles(job.folder).log.parent.mkdir(parents=True, exist_ok=True)
    JobFiles(job.folder).log.write_text("step 1")
    assert _result(job)[2].startswith("interrupted")


def test_an_interrupted_job_resumes_or_starts_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    folder = tmp_path / "sweep" / "job"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 1")
    run_job(compose_config(*TINY, f"run_dir={folder}"), [])
    assert "starts over" in JobFiles(folder).log.read_text()
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").unlink()
    (folder / "notes.txt").write_text("mine")
    run_job(compose_config(*TINY, f"run_dir={folder}"), [])
    assert f"resumes from step {summary['steps']}" in JobFiles(folder).log.read_text()
    assert json.loads((folder / "summary.json").read_text())["best_val_loss"] == summary["best_val_loss"]
    assert (folder / "notes.txt").read_text() == "mine"


def another_process(folder: Path) -> FileLock:
    """Lock the folder as `resume=FOLDER` by hand does."""
    lock = FileLock(folder / ".lock")
    lock.acquire()
    return lock


def unreadable(folder: Path) -> None:
    """Make the system fail to read the checkpoint, as on a failing disk."""
    (folder / "checkpoints" / "last.ckpt").unlink()
    (folder / "checkpoints" / "last.ckpt").mkdir()


def foreign(folder: Path) -> None:
    """Leave a file of the user's, and no run."""
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (another_process, "another process is running it"),
        (unreadable, "last.ckpt: can't be read: Is a directory"),
        (foreign, "is not empty"),
    ],
)
def test_a_job_that_is_refused_leaves_its_folder_alone(
    spoil: Callable[[Path], Any],
    problem: str,
    trained: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    folder = tmp_path / "sweep" / "job"
    shutil.copytree(trained(*TINY, "threads=1"), folder)
    (folder / "summary.json").unlink()
    held = spoil(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path != folder / ".lock"}
    run_job(compose_config(*TINY, f"run_dir={folder}"), [])
    assert problem in JobFiles(folder).failure
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path != folder / ".lock"} == before
    if held is not None:
        held.release()


def test_threads_are_divided_among_jobs_on_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def threads(jobs: int, **launcher: object) -> int | None:
        return _divide_threads(OmegaConf.create({"hydra": {"launcher": launcher}}), jobs)

    joblib = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"
    assert threads(20, _target_=joblib, n_jobs=-1) == 1
    assert threads(20, _target_=joblib, n_jobs=4) == 2
    assert threads(3, _target_=joblib, n_jobs=-1) == 2
    assert threads(20, _target_=joblib, n_jobs=100) == 1
    assert threads(20, _target_="hydra._internal.core_plugins.basic_launcher.BasicLauncher") is None


@pytest.mark.slow
def test_side_by_side_and_alone_give_the_same_bits(sweep: Sweep, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="needs the extra 'sweep'")
    code, _, errors = sweep("pos=shaw,t5", "seed=1,2", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    assert code == 0, errors
    found = folders(tmp_path / "runs" / "smoke")
    assert len(found) == 4
    threads = json.loads((found[0] / "summary.json").read_text())["threads"]
    alone = [*TRAIN, *TINY, "pos=shaw", "seed=1", "run_dir=alone", f"threads={threads}"]
    subprocess.run(alone, capture_output=True, cwd=tmp_path, check=True)
    assert_same_weights(tmp_path / "alone", found[0])


@pytest.mark.slow
@pytest.mark.parametrize("kill", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_sweep_resumes(kill: signal.Signals, sweep: Sweep, tmp_path: Path) -> None:
    arguments = ("pos=absolute", "seed=1,2,3", "trainer.max_epochs=4")
    command = [*TRAIN, "-m", *TINY, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True, **pipes) as process:
        while not list(tmp_path.glob("runs/smoke/absolute-seed2-*/config.yaml")):
            assert process.poll() is None
            time.sleep(0.05)
        if kill == signal.SIGINT:
            os.killpg(process.pid, kill)  # as Ctrl-C does
        else:
            process.kill()
        output, errors = process.communicate(timeout=120)
    if kill == signal.SIGINT:
        assert process.returncode == 130
        assert errors.strip() == "interrupted"
        assert "the same command goes on from here" in output
    for _ in range(100):  # the job's own process ends with its sweep
        if not any(JobFiles(folder).claimed for folder in tmp_path.glob("runs/smoke/absolute-*")):
            break
        time.sleep(0.1)
    code, output, errors = sweep(*arguments)
    assert code == 0, errors
    assert "3 jobs, 2 to run" in output
    assert len(list(tmp_path.glob("runs/smoke/absolute-*/summary.json"))) == 3


@pytest.mark.slow
def test_a_preempted_job_is_requeued_and_resumes_to_the_bit(tmp_path: Path) -> None:
    """submitit answers the signal that SLURM sends ahead of the end: it alone requeues the job."""
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher", reason="needs the extra 'sweep'")
    settings = [*TINY, "pos=t5", "model.dropout=0.2", "trainer.max_epochs=60", "checkpoint_every_n_steps=1000"]
    command = [*TRAIN, "-m", *settings, "hydra/launcher=submitit_local"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        while not list(tmp_path.glob("runs/smoke/t5-*/checkpoints/last.ckpt")):
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.05)
        (folder,) = folders(tmp_path / "runs" / "smoke")
        # Of the process that the queue has started, not of the one that trains.
        found = subprocess.run(["pgrep", "-f", f"submitit.core._submit {tmp_path}"], capture_output=True, text=True)
        tasks = [int(pid) for pid in found.stdout.split()]
        os.kill(max(tasks), signal.SIGUSR2)
        assert process.wait(timeout=200) == 0, process.stderr.read() if process.stderr else ""
    log = (tmp_path / "runs" / "smoke" / ".sweep" / f"{folder.name}.log").read_text()
    assert "resumes from step" in log
    subprocess.run([*TRAIN, *settings, "run_dir=alone"], capture_output=True, cwd=tmp_path, check=True)
    assert_same_weights(folder, tmp_path / "alone")


@pytest.mark.parametrize("monitor", ["loss", "exact"])
def test_a_job_returns_the_figure_that_it_monitors(
    monitor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "_run_alone", in_this_process)
    settings = [*TINY_TASK, f"monitor={monitor}"]
    figure = run_job(compose_config(*settings, f"run_dir={tmp_path / 'run'}"), [])
    summary = Summary.read(tmp_path / "run" / "summary.json")
    assert figure == summary.best_monitored
    assert figure == (summary.best_val_loss if monitor == "loss" else pytest.approx(0.0, abs=0.5))
    broken = compose_config(*settings, "optim.learning_rate=1e30", f"run_dir={tmp_path / 'broken'}")
    assert run_job(broken, []) == (math.inf if monitor == "loss" else -math.inf)


@pytest.mark.slow
def test_hydra_s_own_sweeper_gives_each_job_a_folder(sweep: Sweep) -> None:
    rates = "optim.learning_rate=1e-3,1e30"
    code, output, errors = sweep("hydra/sweeper=basic", "seed=1,2", rates, "trainer.max_epochs=2", "run_dir=mine")
    assert (code, errors) == (0, "")
    by_folder = dict(line.split(": ", 1) for line in output.splitlines() if line.startswith("mine/"))
    runs, _ = read_runs(["mine"])
    assert sorted(run.seed for run in runs if not run.diverged) == [1, 2]
    assert by_folder.keys() == {str(run.folder) for run in runs}
    for run in runs:
        shown = by_folder[str(run.folder)]
        assert "is nan; " in shown if run.diverged else shown == f"loss {run.best_loss:.6g}"


@pytest.mark.slow
def test_optuna_searches(sweep: Sweep) -> None:
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="needs the extra 'sweep'")
    optuna = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.n_jobs=1")
    searched = ("optim.learning_rate=tag(log,interval(1e-4,1e-1))", "optim=adamw,muon")
    code, _, errors = sweep(*optuna, "hydra.sweeper.sampler.seed=1", *searched)
    assert code == 0, errors
    runs, _ = read_runs(["runs/smoke"])
    assert len(runs) == 4
    best = min(runs, key=lambda run: run.best_loss)
    found = yaml.safe_load(Path("optimization_results.yaml").read_text())
    assert found["best_value"] == best.best_loss
    assert found["best_params"]["optim.learning_rate"] == best.config["optim"]["learning_rate"]
