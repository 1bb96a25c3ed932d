"""Contrasts: registered before a sweep, and what became of each."""

import functools
import itertools
import math
import operator
import re
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from common import RunScript, compose_config
from runs_to_compare import change_summary, compare_folders, page_in, plan_of, report_of, write_sweep, write_task_run

from poslab.comparison.compare import compare
from poslab.comparison.contrasts import Verdict, verdict_table, verdicts
from poslab.comparison.statistics import seeds_to_claim
from poslab.config.contrasts import Contrast, named, parse_contrast
from poslab.config.train import TrainConfig
from poslab.errors import UserError
from poslab.runs.load import read_runs
from poslab.runs.preregistration import read_registrations, register
from poslab.sweep import job as job_module
from poslab.sweep.contrasts import checked_contrasts
from poslab.sweep.plan import Job, identity

SHAW = "{better: shaw, than: nope, data: back, length: 96, by: 0.2}"


def test_contrasts_as_a_setting() -> None:
    config = compose_config(f"contrasts=[{SHAW},{{scheme: all, at_least: 0.9, data: majority, length: 51}}]")
    assert [str(contrast) for contrast in config.settings.contrasts] == [
        "shaw better than nope by at least 0.2 on back at 96",
        "every scheme at least 0.9 on majority at 51",
    ]
    assert identity(config) == identity(compose_config())
    assert "contrasts" not in config.recorded


@pytest.mark.parametrize(
    ("contrast", "problem"),
    [
        ("5", "contrasts[0]=5: must be a contrast, such as {better: NAME, than: NAME, by: 0.2, length: 96}"),
        ("{better: shaw}", "contrasts[0]={better: shaw}: must say better, than (and by), or scheme and one of"),
        ("{better: shaw, then: t5}", "contrasts[0].then=t5: unknown setting; did you mean than?"),
        ("{better: t5, than: t5}", "contrasts[0].than=t5: is the same scheme as better"),
        ("{better: t5, than: all}", "contrasts[0]={better: t5, than: all}: compares two schemes; all goes with"),
        ("{scheme: t5, at_least: 0.1, at_most: 0.9}", "must say better, than (and by), or scheme and one of"),
        ("{scheme: t5, at_least: 0.1, by: 0.2}", "must say better, than (and by), or scheme and one of"),
        ("{better: t5, than: nope, by: -1}", "contrasts[0].by=-1: must be at least 0"),
        ("{scheme: t5, at_least: most}", "contrasts[0].at_least=most: must be a number or null"),
    ],
)
def test_what_is_no_contrast(contrast: str, problem: str) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        compose_config(f"contrasts=[{contrast}]")


def test_names_of_schemes() -> None:
    def is_meant(name: str) -> bool:
        return named(name, "t5", {"scale": 32.0, "share_layers": True, "retrieval": None})

    assert all(map(is_meant, ("t5", "t5 scale=32", "t5 scale=32.0 share_layers=true", "t5 retrieval=null")))
    assert not any(map(is_meant, ("shaw", "t5 scale=31", "t5 share_layers=false", "t5 width=32", "t5 retrieval=1")))


JOBS = [("data=back", "pos=t5"), ("data=back", "pos=nope"), ("data=majority", "pos=t5"), ("data=majority", "pos=nope")]
FACTOR = "optim.position_learning_rate_factor=8"


@functools.cache
def config_of(*overrides: str) -> TrainConfig:
    return compose_config(*overrides)


def checked(contrast: str, *jobs: tuple[str, ...]) -> list[Contrast]:
    """Of a sweep over JOBS and some more."""
    given = parse_contrast(yaml.safe_load(contrast), "contrasts[0]")
    configs = [config_of(*overrides) for overrides in (*JOBS, *jobs)]
    configs = [replace(config, settings=replace(config.settings, contrasts=[given])) for config in configs]
    return checked_contrasts([Job([], Path(), config) for config in configs])


@pytest.mark.parametrize(
    ("contrast", "problem"),
    [
        ("{better: shaw, than: t5, data: back, length: 96}",
         "contrasts[0].better=shaw: the sweep has no such scheme on these data; valid: t5, nope"),
        ("{better: 't5 scale=2', than: nope, data: back, length: 96}",
         "contrasts[0].better=t5 scale=2: the sweep has no such scheme on these data"),
        ("{better: t5, than: nope, data: bakc, length: 96}",
         "contrasts[0].data=bakc: the sweep has none; did you mean back? valid: back, majority"),
        ("{better: t5, than: nope, length: 96}",
         "contrasts[0].data=null: must be given, the sweep has several: back, majority"),
        ("{better: t5, than: nope, data: back, length: 97}",
         "contrasts[0].length=97: tests of back are at 32, 64, 96"),
        ("{better: t5, than: nope, data: back}", "contrasts[0].length=null: tests of back are at 32, 64, 96"),
        ("{better: t5, than: nope, data: back, metric: loss, length: 96}",
         "contrasts[0].length=96: its figure has none"),
        ("{better: t5, than: nope, data: back, length: 96, metric: exakt}",
         "contrasts[0].metric=exakt: unknown; did you mean exact? valid: loss, exact, accuracy"),
    ],
)  # fmt: skip
def test_contrasts_that_a_sweep_lacks(contrast: str, problem: str) -> None:
    with pytest.raises(UserError) as refusal:
        checked(contrast)
    assert str(refusal.value).startswith(problem)
    assert str(refusal.value).endswith("; contrasts=[] registers none")


def test_contrasts_of_a_text() -> None:
    """By its losses: of the validation, or of the part held out; and of the last tokens, by the length of windows."""

    def checked_on_text(contrast: str) -> list[Contrast]:
        given = parse_contrast(yaml.safe_load(contrast), "")
        configs = [config_of(f"pos={pos}", "evaluation.lengths=[64,128]") for pos in ("t5", "nope")]
        configs = [replace(config, settings=replace(config.settings, contrasts=[given])) for config in configs]
        return checked_contrasts([Job([], Path(), config) for config in configs])

    assert checked_on_text("{better: t5, than: nope, by: 0.1}")
    assert checked_on_text("{better: t5, than: nope, data: the-verdict.txt, metric: last_loss, length: 128}")
    with pytest.raises(UserError, match=r"length=96: tests of the-verdict\.txt are at 64, 128"):
        checked_on_text("{better: t5, than: nope, metric: last_loss, length: 96}")
    with pytest.raises(UserError, match="metric=exact: unknown; valid: loss, last_loss"):
        checked_on_text("{better: t5, than: nope, metric: exact, length: 96}")


def test_a_scheme_of_several_groups_must_be_told() -> None:
    contrast = "{better: t5, than: nope, data: back, length: 96}"
    assert checked(contrast)
    labels = "t5 position_learning_rate_factor=1.0, t5 position_learning_rate_factor=8.0"
    with pytest.raises(UserError, match=f"better=t5: is several schemes of the sweep; say which: {labels};"):
        checked(contrast, ("data=back", "pos=t5", FACTOR))
    assert checked(contrast.replace("t5", "t5 position_learning_rate_factor=8"), ("data=back", "pos=t5", FACTOR))


def test_a_sweep_registers_its_contrasts(
    run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its jobs, and refuses what it lacks before anything is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("poslab.sweep.sweep.raise_on_signals", lambda within: None)
    monkeypatch.setattr(job_module, "_run_alone", lambda config, *_: "not trained")

    def sweep(contrast: str) -> tuple[Any, str, str]:
        return run_script("train", "-m", "data=back", "pos=t5", "seed=1", "run_dir=sweep", f"contrasts=[{contrast}]")

    code, output, errors = sweep("{scheme: t5, at_least: 0.5, data: back, length: 97}")
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("error: contrasts[0].length=97: tests of back are at 32, 64, 96")
    assert not (tmp_path / "sweep").exists()
    code, output, _ = sweep("{scheme: t5, at_least: 0.5, data: back, metric: accuracy, length: 96}")
    assert code == 1  # the job hasn't trained
    assert "contrasts: 1 registered in sweep/contrasts.yaml\n" in output
    (registration,) = yaml.safe_load((tmp_path / "sweep" / "contrasts.yaml").read_text())
    assert registration["finished_runs"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", registration["registered"])
    assert registration["contrasts"] == [
        {"scheme": "t5", "at_least": 0.5, "data": "back", "metric": "accuracy", "length": 96}
    ]


def test_what_is_registered_stays(tmp_path: Path) -> None:
    first, second = Contrast(better="t5", than="nope"), Contrast(scheme="t5", at_least=0.5)
    folder = tmp_path / "sweep"
    assert register(folder, [first]) == f"contrasts: 1 registered in {folder / 'contrasts.yaml'}"
    assert register(folder, [first]).endswith("contrasts.yaml")
    (folder / "run").mkdir()
    (folder / "run" / "summary.json").write_text("{}")
    line = register(folder, [second])
    assert line.endswith(", 1 of them only now, after 1 run was finished, 1 of them earlier, which stay")
    early, late = read_registrations(folder)
    assert (early.contrasts, early.finished_runs) == ([first], 0)
    assert (late.contrasts, late.finished_runs) == ([second], 1)


def test_a_file_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "contrasts.yaml").write_text("- {registered: now, finished_runs: 0, contrasts: [{better: t5}]}")
    with pytest.raises(UserError, match=r"contrasts.yaml: can't be read as registered contrasts: contrasts.0.={better"):
        read_registrations(tmp_path)


# What became of them


def verdicts_in(root: Path, *contrasts: str) -> list[Verdict]:
    register(root, [parse_contrast(yaml.safe_load(contrast), "contrast") for contrast in contrasts])
    return verdicts([root], [compare_folders(folder) for folder in sorted(root.iterdir()) if folder.is_dir()])


def write_seeds(root: Path, pos: str, shares: Iterable[float], data: str = "copy") -> None:
    for seed, share in enumerate(shares, start=1):
        write_task_run(root, pos, seed, {10: share}, data=data)


BETTER = "{better: shaw, than: nope, data: copy, length: 10, by: 0.2}"
EIGHT = [1.0, 0.99, 0.98, 1.0, 0.97, 1.0, 1.0, 0.99]


def test_a_contrast_that_is_shown(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 8)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert verdict.said == "shown"
    assert verdict.p == 1 / 2**8
    claim = "shaw better than nope by at least 0.2 in exact on copy at 10"
    assert verdict.sentence == f"shown: {claim} (shaw 0.991, nope 0.100; n = 8, p = 0.0039)"
    assert verdict.row[:6] == [claim, "shown", "8", "+0.691", "0.0039", "1"]


def test_a_missing_seed_is_no_reason_to_show_anything(tmp_path: Path) -> None:
    """Nor is a group that is gone, where all are claimed to do something."""
    every = "{scheme: all, at_least: 0.05, data: copy, length: 10}"
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 6 + [0.0] * 2)
    plan = plan_of(tmp_path, range(1, 9))

    def said() -> list[tuple[str, str]]:
        found = [compare(*read_runs([str(tmp_path / "copy")]), plan=plan)]
        return [(verdict.said, "; ".join(verdict.remarks)) for verdict in verdicts([tmp_path], found)]

    register(tmp_path, [parse_contrast(yaml.safe_load(contrast), "contrast") for contrast in (BETTER, every)])
    assert said() == [("shown", ""), ("not shown", "6 of 8 seeds agree")]
    shutil.rmtree(tmp_path / "copy" / "nope-seed8")
    assert said() == [
        ("not tested", "1 of 8 seeds of shaw and nope is missing (8)"),
        ("not tested", "1 of 8 seeds of nope is missing (8)"),
    ]
    for seed in range(1, 8):
        shutil.rmtree(tmp_path / "copy" / f"nope-seed{seed}")
    assert said() == [("not tested", "no finished run of nope"), ("not tested", "no finished run of nope")]


def test_a_seed_that_diverged_speaks_against_its_scheme(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", EIGHT)
    write_seeds(tmp_path, "nope", [0.1] * 8)
    change_summary(tmp_path / "copy" / "nope-seed2", best_val_loss=math.inf)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert (verdict.said, verdict.remarks) == ("shown", ["1 of 8 seeds of nope diverged"])
    change_summary(tmp_path / "copy" / "nope-seed2", best_val_loss=4.0)
    change_summary(tmp_path / "copy" / "shaw-seed2", best_val_loss=math.inf)
    (verdict,) = verdicts([tmp_path], [compare_folders(tmp_path / "copy")])
    assert verdict.said == "not shown"
    assert verdict.remarks == ["7 of 8 seeds agree", "1 of 8 seeds of shaw diverged"]
    assert verdict.row[2:4] == ["8", "+0.691"]


def test_the_test_is_exact(tmp_path: Path) -> None:
    """Against all ways to choose the signs of what is left of the differences."""
    better, than = [0.9, 0.5, 0.8, 0.7], [0.3, 0.2, 0.7, 0.3]
    write_seeds(tmp_path, "shaw", better)
    write_seeds(tmp_path, "nope", than)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    margins = [a - b - 0.2 for a, b in zip(better, than, strict=True)]
    sums = [sum(map(operator.mul, margins, signs)) for signs in itertools.product((1, -1), repeat=4)]
    assert verdict.p == sum(total >= sum(margins) - 1e-9 for total in sums) / 16
    assert (verdict.said, verdict.remarks) == ("not shown", ["3 of 4 seeds agree"])


def test_too_few_seeds_are_told(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [1.0, 1.0, 1.0])
    write_seeds(tmp_path, "nope", [0.0, 0.0, 0.0])
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert (verdict.said, verdict.p) == ("not shown", 1 / 2**3)
    assert verdict.remarks == ["all 3 seeds agree, but 3 can't show one, 5 can: go on with seed=1,2,3,4,5"]
    others = [f"{{scheme: shaw, at_least: 0.{n}, data: copy, length: 10}}" for n in range(1, 10)]
    verdict, *_ = verdicts_in(tmp_path, *others)
    among = "all 3 seeds agree, but 3 can't show one of 10 contrasts, 8 can: go on with seed=1,2,3,4,5,6,7,8"
    assert (verdict.p, verdict.remarks) == (1.0, [among])
    assert [seeds_to_claim(family, sides=1) for family in (1, 2, 10, 12, 13)] == [5, 6, 8, 8, 9]


def test_the_opposite_of_a_contrast(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [0.2] * 5)
    write_seeds(tmp_path, "nope", [0.3] * 5)
    (verdict,) = verdicts_in(tmp_path, BETTER)
    assert verdict.said == "the opposite shown"
    assert verdict.sentence.endswith("(shaw 0.200, nope 0.300; n = 5, p = 0.031)")
    write_seeds(tmp_path / "other", "shaw", [0.31] * 5)
    write_seeds(tmp_path / "other", "nope", [0.3] * 5)
    (verdict,) = verdicts_in(tmp_path / "other", BETTER)
    assert (verdict.said, verdict.remarks) == ("not shown", ["0 of 5 seeds agree"])  # better, but by less


def test_a_null_is_as_sure_as_of_the_worst_scheme(tmp_path: Path) -> None:
    null = "{scheme: all, at_least: 0.9, data: copy, length: 10}"
    write_seeds(tmp_path, "shaw", [1.0] * 5)
    write_seeds(tmp_path, "nope", [0.95] * 5)
    (verdict,) = verdicts_in(tmp_path, null)
    assert (verdict.said, verdict.p) == ("shown", 1 / 2**5)
    assert "(least sure of nope 0.950; n = 5, p = 0.031)" in verdict.sentence
    write_seeds(tmp_path, "t5", [0.95, 0.95, 0.95, 0.95, 0.5])
    (verdict,) = verdicts_in(tmp_path, null)
    assert verdict.said == "not shown"
    assert "every scheme at least 0.9 in exact on copy at 10 (least sure of t5 0.860;" in verdict.sentence
    assert verdict.remarks == ["4 of 5 seeds agree"]
    control = "{scheme: all, at_most: 0.1, data: copy, length: 10}"
    *_, verdict = verdicts_in(tmp_path, control)
    assert verdict.tested.p_opposite == 3 / 2**5  # it may be false of any of three
    assert "5 can't show one of 2 contrasts, 7 can" in verdict.remarks[0]


def test_of_losses_less_is_better(tmp_path: Path) -> None:
    write_sweep(tmp_path / "text", seeds=5, shaw=-0.5, t5=0.0)
    better, worse = verdicts_in(tmp_path, "{better: shaw, than: t5, by: 0.1}", "{better: t5, than: shaw}")
    assert (better.said, worse.said) == ("not shown", "not shown")
    assert (better.tested.p, worse.tested.p_opposite) == (1 / 2**5, 1 / 2**5)
    assert "5 can't show one of 2 contrasts, 6 can: go on with seed=1,2,3,4,5,6" in better.sentence


def test_contrasts_without_runs(tmp_path: Path) -> None:
    write_seeds(tmp_path, "shaw", [1.0])
    write_seeds(tmp_path, "nope", [1.0])
    contrasts = (
        BETTER, "{scheme: t5, at_least: 0.5, data: copy, length: 10}",
        "{scheme: shaw, at_least: 0.5, data: copy, length: 11}",
        "{scheme: shaw, at_least: 0.5, data: sort, length: 10}",
    )  # fmt: skip
    found = verdicts_in(tmp_path, *contrasts)
    assert {verdict.said for verdict in found} == {"not tested"}
    assert [verdict.remarks for verdict in found] == [
        ["one seed of shaw and nope says nothing about chance"],
        ["no finished run of t5"],
        ["no figures of shaw"],
        ["no finished run on sort"],
    ]
    assert all(len(verdict.row) == len(verdict_table(found).columns) for verdict in found)


@pytest.mark.usefixtures("no_figures", "blank_pictures")
def test_contrasts_stand_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that were registered late say so."""
    for data in ("copy", "reverse"):
        write_seeds(tmp_path, "shaw", [1.0] * 5, data)
        write_seeds(tmp_path, "nope", [0.1] * 5, data)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    register(tmp_path, [parse_contrast(yaml.safe_load(BETTER), "")])
    page = page_in(report_of(tmp_path))
    sentence = (
        "shown: shaw better than nope by at least 0.2 in exact on copy at 10 (shaw 1.000, nope 0.100; n = 5, "
        "p = 0.031); registered after 1 run was finished"
    )
    assert page.lists[0] == [sentence]
    assert page.rows[0][:2] == ["contrast", "verdict"]
    screen = capsys.readouterr().out
    assert 0 < screen.index(f"- {sentence}\n") < screen.index("\ncopy\n")
    assert f"- {sentence}\n" in (tmp_path / "report" / "report.md").read_text()
