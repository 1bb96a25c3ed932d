"""Contrasts as settings, what a sweep's runs must have for them, and the file in which they are registered."""

import functools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from common import RunScript, assert_refused, compose_config

from poslab.config.contrasts import Contrast, checked_contrasts, named, parse_contrast, read_registrations, register
from poslab.config.train import TrainConfig
from poslab.errors import UserError
from poslab.sweep import job as job_module
from poslab.sweep.job_list import identity

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
        ("{better: shaw, lenght: 9}", "contrasts[0].lenght=9: unknown setting; did you mean length?"),
        ("{better: t5, than: t5}", "contrasts[0].than=t5: is the same scheme as better"),
        ("{better: t5, than: nope, 2: 0.3}", "contrasts[0].2=0.3: unknown setting"),
        ("{better: t5, than: all}", "contrasts[0]={better: t5, than: all}: needs schemes by name; all goes with"),
        ("{scheme: t5, at_least: 0.1, at_most: 0.9}", "must say better, than (and by), or scheme and one of"),
        ("{better: t5, than: nope, by: -1}", "contrasts[0].by=-1: must be at least 0"),
        ("{scheme: all, value: 0.1}", "contrasts[0]={scheme: all, value: 0.1}: needs schemes by name; all goes with"),
        ("{scheme: t5, value: []}", "contrasts[0]={scheme: t5, value: []}: must say better, than (and by), or scheme"),
        ("{scheme: t5, at_least: 1, within: 0.1}", "contrasts[0].within=0.1: goes with value"),
        ("{scheme: t5, value: 1, length: 9, up_to: 9}", "contrasts[0].up_to=9: must be above length"),
    ],
)
def test_what_is_no_contrast(contrast: str, problem: str) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        compose_config(f"contrasts=[{contrast}]")


def test_published_figures_as_settings() -> None:
    """They are contrasts, of scaled settings without a margin."""
    figure, order = "{scheme: t5, value: [1.0,0.9]}", "{better: t5, than: nope, length: 96}"
    given = f"published={{source: Paper,settings: exact,within: 0.1,figures: [{figure}],contrasts: [{order}]}}"
    claims = compose_config(given).settings.claims
    assert {option: str(claim) for option, claim in claims.items()} == {
        "published.figures[0]": "t5 as published, 0.95 within 0.1",
        "published.contrasts[0]": "t5 better than nope at 96",
    }
    scaled = given.replace("exact,within: 0.1", "scaled,differs: other data")
    claims = compose_config(scaled).settings.claims
    assert {claim.source for claim in claims.values()} == {"Paper; scaled settings: other data"}
    assert [claim.tested for claim in claims.values()] == [False, True]


@pytest.mark.parametrize(
    ("published", "problem"),
    [
        ("settings: exact", "published.source=: must be given (text)"),
        ("source: P,settings: excat", "published.settings=excat: unknown; did you mean exact?"),
        ("source: P,settings: scaled", "published.differs=null: must be given: what is not as published"),
        ("source: P,settings: exact,figures: [{scheme: t5, value: 1}]", "published.within=null: must be given"),
        ("source: P,settings: scaled,differs: X,within: 1,figures: [{scheme: t5, value: 1}]",
         "published.settings=scaled: only an order can agree"),
        ("source: P,settings: scaled,differs: X,contrasts: [{scheme: t5, at_least: 1}]",
         "published.settings=scaled: only an order can agree"),
        ("source: P,settings: exact,figures: [{scheme: t5, valu: 1}]", "published.figures[0].valu=1: unknown setting"),
    ],
)  # fmt: skip
def test_what_is_not_published(published: str, problem: str) -> None:
    with pytest.raises(UserError, match=re.escape(problem)):
        compose_config(f"published={{{published}}}")


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


def checked(contrast: str, *more: tuple[str, ...], jobs: list[tuple[str, ...]] = JOBS) -> list[Contrast]:
    """Check a contrast against the jobs of a sweep and some more."""
    given = parse_contrast(yaml.safe_load(contrast), "contrasts[0]")
    configs = [config_of(*overrides) for overrides in (*jobs, *more)]
    configs = [replace(config, settings=replace(config.settings, contrasts=[given])) for config in configs]
    return checked_contrasts(configs)


@pytest.mark.parametrize(
    ("contrast", "problem"),
    [
        ("{better: shaw, than: t5, data: back, length: 96}",
         "contrasts[0].better=shaw: the sweep has no such scheme on these data; valid: t5, nope"),
        ("{better: t5, than: nope, data: bakc, length: 96}",
         "contrasts[0].data=bakc: the sweep has none; did you mean back? valid: back, majority"),
        ("{better: t5, than: nope, length: 96}",
         "contrasts[0].data=null: must be given, the sweep has several: back, majority"),
        ("{better: t5, than: nope, data: back, length: 97}",
         "contrasts[0].length=97: tests of back are at 32, 64, 96"),
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


def test_published_figures_that_a_sweep_lacks() -> None:
    published = (
        "published={source: P,settings: exact,within: 0.1,figures: [{scheme: t5, value: 1, length: 97, up_to: 99}]}"
    )
    problem = "published.figures[0].length=97: tests of back are at 32, 64, 96; published=null registers none"
    with pytest.raises(UserError, match=re.escape(problem)):
        checked_contrasts([compose_config("data=back", "pos=t5", published)])


def test_contrasts_of_a_text() -> None:
    jobs = [(f"pos={pos}", "evaluation.lengths=[64,128]") for pos in ("t5", "nope")]
    checked_on_text = functools.partial(checked, jobs=jobs)
    assert checked_on_text("{better: t5, than: nope, by: 0.1}")
    assert checked_on_text("{better: t5, than: nope, data: the-verdict.txt, metric: last_loss, length: 128}")
    with pytest.raises(UserError, match=r"length=96: tests of the-verdict\.txt are at 64, 128"):
        checked_on_text("{better: t5, than: nope, metric: last_loss, length: 96}")
    with pytest.raises(UserError, match=r"length=null: tests of the-verdict\.txt are at no length"):
        checked("{better: t5, than: nope, metric: last_loss}", jobs=[(f"pos={pos}",) for pos in ("t5", "nope")])
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
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("poslab.sweep.sweep.raise_on_signals", lambda within: None)
    monkeypatch.setattr(job_module, "_run_alone", lambda config, *_: "not trained")

    def sweep(contrast: str) -> tuple[Any, str, str]:
        return run_script("train", "-m", "data=back", "pos=t5", "seed=1", "run_dir=sweep", f"contrasts=[{contrast}]")

    refused = sweep("{scheme: t5, at_least: 0.5, data: back, length: 97}")
    assert_refused(refused, "contrasts[0].length=97: tests of back are at 32, 64, 96")
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
    assert register(folder, [first], 0) == f"contrasts: 1 registered in {folder / 'contrasts.yaml'}"
    assert register(folder, [first], 0).endswith("contrasts.yaml")
    line = register(folder, [second], 1)
    assert line.endswith(", 1 of them only now, after 1 run was finished, 1 of them earlier, which stay")
    early, late = read_registrations(folder)
    assert (early.contrasts, early.finished_runs) == ([first], 0)
    assert (late.contrasts, late.finished_runs) == ([second], 1)


def test_a_file_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "contrasts.yaml").write_text("- {registered: now, finished_runs: 0, contrasts: [{better: t5}]}")
    with pytest.raises(UserError, match=r"contrasts.yaml: can't be read as registered contrasts: contrasts.0.={better"):
        read_registrations(tmp_path)
