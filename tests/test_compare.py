"""What a comparison says of runs whose truth is known, and of folders that hold something else than runs."""

import csv
import functools
import io
import json
import math
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure
from omegaconf import OmegaConf
from torch.utils.tensorboard import SummaryWriter

from conftest import ALIBI, REPOSITORY, RunScript, compose_config
from poslab import GPT
from poslab.analysis import figures
from poslab.analysis.compare_script import run_comparison
from poslab.analysis.comparison import Comparison, Group, compare, token_sentences
from poslab.analysis.curves import Curve, read_curve
from poslab.analysis.evaluation import Evaluation, LengthLoss
from poslab.analysis.report import command_of
from poslab.analysis.runs import LeftOut, read_runs
from poslab.analysis.statistics import differences, estimate, seeds_needed
from poslab.arguments import quoted
from poslab.checkpoint import describe
from poslab.config import CONFIGS, TrainConfig, parse
from poslab.data.module import TextDataModule
from poslab.errors import SettingError, UserError
from poslab.script_config import CompareConfig
from poslab.training import train

SMOKE = ("experiment=smoke", "trainer=cpu", "data.vocabulary=observed")
VERDICT = "b41e41a68f0398a3154ae69e2e4c0e2694e17fe0d66730536837f1b01935b31f"
SUMMARY = {
    "pos": "absolute",
    "pos_settings": {},
    "pos_target": "poslab.positions.absolute.Absolute",
    "seed": 1,
    "best_val_loss": 4.0,
    "best_val_perplexity": 54.6,
    "best_step": 6,
    "last_val_loss": 4.25,
    "last_val_perplexity": 70.1,
    "epochs": 2,
    "steps": 6,
    "tokens": 384,
    "tokens_per_s": 1500.0,
    "wall_time_s": 2.5,
    "peak_memory_mb": 512.0,
    "params_total": 72000,
    "params_trunk": 71000,
    "params_scheme": 1000,
    "context_length": 32,
    "data": "the-verdict.txt",
    "data_sha256": VERDICT,
    "vocabulary": "observed",
    "vocabulary_size": 1417,
    "train_tokens": 4612,
    "validation_tokens": 534,
    "device": "cpu (x86_64)",
    "threads": 2,
    "precision": "32-true",
    "attention_backend": "reference",
    "versions": {"python": "3.11.7", "poslab": "0.1.0", "torch": "2.13.0"},
    "git_commit": None,
}


# Runs as training leaves them


@functools.cache
def smoke_config(pos: str) -> TrainConfig:
    return compose_config(*SMOKE, f"pos={pos}")


@functools.cache
def smoke_yaml(pos: str) -> str:
    """All but the seed."""
    plain = {"pos_name": pos} | smoke_config(pos).plain
    return OmegaConf.to_yaml({key: value for key, value in plain.items() if key != "seed"})


def write_run(root: Path, pos: str = "absolute", seed: int = 1, loss: float = 4.0, **summary: Any) -> Path:
    """A run folder with a summary and a configuration, and no more."""
    folder = root / f"{pos}-seed{seed}"
    folder.mkdir(parents=True)
    config = smoke_config(pos)
    own = {"pos": pos, "pos_settings": config.pos_settings, "pos_target": config.plain["pos"]["_target_"]}
    content = SUMMARY | own | {"seed": seed, "best_val_loss": loss} | summary
    (folder / "summary.json").write_text(json.dumps(content))
    (folder / "config.yaml").write_text(f"{smoke_yaml(pos)}seed: {seed}\n")
    return folder


def change_summary(folder: Path, **values: Any) -> None:
    file = folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def change_config(folder: Path, setting: str, value: Any) -> None:
    config = OmegaConf.load(folder / "config.yaml")
    OmegaConf.update(config, setting, value)
    OmegaConf.save(config, folder / "config.yaml")


def set_scheme(folder: Path, **settings: Any) -> None:
    """In both files, as training writes it."""
    summary = json.loads((folder / "summary.json").read_text())
    change_summary(folder, pos_settings=summary["pos_settings"] | settings)
    for name, value in settings.items():
        change_config(folder, f"pos.{name}", value)


def write_evaluation(folder: Path, token_losses: Iterable[float] = (), lengths: Iterable[LengthLoss] = ()) -> None:
    evaluation = Evaluation(32, 533, list(lengths), [float(loss) for loss in token_losses])
    plain = {"text": "the-verdict.txt, validation part", "text_sha256": VERDICT} | evaluation.plain()
    (folder / "evaluation.json").write_text(json.dumps(plain))


def write_curve(folder: Path, validation: dict[int, float]) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step, loss in validation.items():
            writer.add_scalar("train/loss", loss, step)
            writer.add_scalar("val/loss", loss, step)


@functools.cache
def checkpoint_of(pos: str) -> bytes:
    """Of an untrained model."""
    config = smoke_config(pos)
    data = TextDataModule(config.data, config.model.context_length, seed=1)
    model = GPT(config.pos, vocab_size=data.vocabulary.size, context_length=32, embed_dim=32, num_layers=2, num_heads=2)
    state = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    content = io.BytesIO()
    torch.save({"state_dict": state, "poslab": describe(config, data.corpus)}, content)
    return content.getvalue()


def write_sweep(root: Path, seeds: int = 5, noise: float = 0.01, **effects: float) -> dict[str, dict[int, float]]:
    """Runs of schemes that differ from a common course by `effects`; what a seed does to all is ten times the noise."""
    generator = np.random.default_rng(1)
    of_seed = generator.normal(4, 10 * noise, seeds)
    losses = {
        pos: {seed + 1: float(loss) for seed, loss in enumerate(of_seed + effect + generator.normal(0, noise, seeds))}
        for pos, effect in effects.items()
    }
    for pos, of_group in losses.items():
        for seed, loss in of_group.items():
            write_run(root, pos, seed, loss)
    return losses


def compare_folders(*folders: Path, **settings: Any) -> Comparison:
    runs, left_out = read_runs([str(folder) for folder in folders])
    return compare(runs, left_out, **settings)


def reasons(comparison: Comparison) -> dict[str, str]:
    return {left.folder.name: left.reason for left in comparison.left_out}


def report_of(folder: Path, **settings: Any) -> Path:
    return run_comparison(CompareConfig([str(folder)], **settings), "python scripts/compare.py")


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models as small as these gain nothing from more."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out what takes most of the time of a report."""
    monkeypatch.setattr("poslab.analysis.compare_script._draw", lambda *given: None)


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("poslab.analysis.report.svg", lambda figure: "<svg/>")


class Page(HTMLParser):
    """Texts of lists (the answers are the first) and table cells, and all that a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lists: list[list[str]] = []
        self.rows: list[list[str]] = []
        self.sources: list[str] = []
        self._into: list[str] | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag in ("tr", "ul"):
            (self.rows if tag == "tr" else self.lists).append([])
        if tag in ("td", "th", "li"):
            self._into = (self.lists if tag == "li" else self.rows)[-1]
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def page_in(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def markdown_rows(folder: Path) -> list[list[str]]:
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows]


# What is answered


def test_a_known_difference_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = write_sweep(tmp_path, absolute=0.0, shaw=-0.08, t5=0.12)
    folder = report_of(tmp_path)
    found = differences(losses, "absolute")["shaw"]
    assert found.n == 5
    better = f"shaw is better than absolute by {-found.mean:.2f} nats [{-found.high:.2f}, {-found.low:.2f}], n = 5"
    assert found.low < -0.08 < found.high
    page, markdown, screen = page_in(folder), (folder / "report.md").read_text(), capsys.readouterr().out
    assert page.lists[0][0] == better
    assert page.lists[0][1].startswith("t5 is worse than absolute by 0.1")
    assert f"- {better}\n" in markdown
    assert f"- {better}\n" in screen
    assert "can be shown" not in "".join([*page.lists[0], markdown, screen])


@pytest.mark.usefixtures("no_pictures")
def test_where_there_is_no_difference_none_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = write_sweep(tmp_path, absolute=0.0, shaw=0.0, t5=0.0)
    folder = report_of(tmp_path)
    found = differences(losses, "absolute")
    assert max(abs(d.mean) for d in found.values()) > 0.002  # there is something to be taken in by
    answers = page_in(folder).lists[0]
    assert sorted(answer.split(" (")[0] for answer in answers) == [
        f"No difference between {pos} and absolute can be shown with n = 5" for pos in ("shaw", "t5")
    ]
    text = (folder / "report.md").read_text() + capsys.readouterr().out
    assert not re.search(r"(better|worse) than", text + "".join(answers))


def test_seeds_that_would_be_needed(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=3, noise=0.03, absolute=0.0, t5=0.0)
    found = differences(losses, "absolute")["t5"]
    for effect in (0.02, 0.05):
        needed = seeds_needed(found.sd, effect)
        (said,) = compare_folders(tmp_path, effect=effect).sentences
        assert said.startswith("No difference between t5 and absolute can be shown with n = 3")
        assert said.endswith(f"about {needed} seeds would be needed to see {effect}")


def test_only_common_seeds_are_compared(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path, "absolute", seed, 4.0 + seed)
        write_run(tmp_path, "shaw", seed + 2, 3.9 + seed + 2)
    found = compare_folders(tmp_path).differences["shaw"]
    assert (found.n, found.mean) == (1, pytest.approx(-0.1))
    (said,) = compare_folders(tmp_path).sentences
    assert said == "shaw was 0.10 nats better than absolute in one run each; one run says nothing about chance"


def test_no_seed_in_common(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "shaw", 2)
    assert compare_folders(tmp_path).sentences == ["shaw and absolute have no seed in common"]


def test_baseline(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, shaw=0.0, t5=-1.0)
    assert compare_folders(tmp_path).baseline == "shaw"
    assert compare_folders(tmp_path, baseline="t5").sentences[0].startswith("shaw is worse than t5 by 0.99")
    write_run(tmp_path, "absolute", 1)
    assert compare_folders(tmp_path).baseline == "absolute"
    with pytest.raises(UserError, match="baseline=t6: unknown; did you mean t5"):
        compare_folders(tmp_path, baseline="t6")


def test_groups_are_in_order_of_their_loss(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=4, absolute=0.0, shaw=-0.5, t5=0.5)
    groups = compare_folders(tmp_path).groups
    assert [group.label for group in groups] == ["shaw", "absolute", "t5"]
    for group in groups:
        assert group.losses == losses[group.label]
        assert group.median_run.loss == sorted(group.losses.values())[1]


def one_run_each(root: Path, difference: float, spread: float) -> list[str]:
    """What is said of two runs whose losses on the same 640 tokens differ so."""
    generator = np.random.default_rng(2)
    base = generator.normal(4, 1, 640)
    write_evaluation(write_run(root, "absolute", 1, 4.0), base)
    write_evaluation(write_run(root, "t5", 2, 4.0), base + generator.normal(difference, spread, 640))
    comparison = compare_folders(root)
    return token_sentences(comparison, evaluations_of(comparison))


def evaluations_of(comparison: Comparison) -> dict[str, Evaluation]:
    files = {str(run.folder): json.loads((run.folder / "evaluation.json").read_text()) for run in comparison.runs}
    return {folder: Evaluation.of_plain(plain) for folder, plain in files.items()}


def test_one_run_each_says_something_of_the_tokens(tmp_path: Path) -> None:
    (said,) = one_run_each(tmp_path, -0.1, 0.2)
    numbers = r"by 0\.1\d* nats \[0\.0\d+, 0\.1\d+\]"
    assert re.fullmatch(
        rf"on the 640 validation tokens, the checkpoints of t5 and absolute differ: t5's is better {numbers}; "
        "another seed may turn this round",
        said,
    )


def test_one_run_each_whose_tokens_are_alike(tmp_path: Path) -> None:
    (said,) = one_run_each(tmp_path, 0.0, 0.2)
    assert "checkpoints of t5 and absolute can't be told apart: " in said


def test_tokens_are_compared_only_where_they_are_the_same(tmp_path: Path) -> None:
    assert one_run_each(tmp_path, -0.1, 0.2)
    change_summary(tmp_path / "t5-seed2", data_sha256="0" * 64)
    comparison = compare_folders(tmp_path, allow_differences=True)
    assert token_sentences(comparison, evaluations_of(comparison)) == []


@pytest.mark.parametrize("losses", [[math.nan] * 640, [4.0] * 639, []])
def test_token_losses_that_are_not_there(losses: list[float], tmp_path: Path) -> None:
    assert one_run_each(tmp_path, -0.1, 0.2)
    write_evaluation(tmp_path / "t5-seed2", losses)
    if not losses:
        write_evaluation(tmp_path / "absolute-seed1", [])
    comparison = compare_folders(tmp_path)
    assert token_sentences(comparison, evaluations_of(comparison)) == []


def test_several_seeds_need_no_tokens(tmp_path: Path) -> None:
    assert one_run_each(tmp_path, -0.1, 0.2)
    write_evaluation(write_run(tmp_path, "t5", 3), np.ones(640))
    comparison = compare_folders(tmp_path)
    assert token_sentences(comparison, evaluations_of(comparison)) == []


def test_one_scheme_alone(tmp_path: Path) -> None:
    write_run(tmp_path)
    only = "only absolute is here (n = 1), so there is nothing to compare it with"
    assert compare_folders(tmp_path).sentences == [only]


# What is grouped, and what can't be compared


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("data.vocabulary", "full"),
        ("data.stride", 16),
        ("data.batch_size", 4),
        ("model.embed_dim", 64),
        ("model.dropout", 0.2),
        ("optim.learning_rate", 0.01),
        ("trainer.max_epochs", 3),
        ("trainer.precision", "bf16-mixed"),
        ("early_stopping_patience", 2),
    ],
)
def test_runs_that_differ_in_more_than_the_scheme(setting: str, value: Any, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    change_config(write_run(tmp_path, "t5"), setting, value)
    with pytest.raises(UserError) as refusal:
        compare_folders(tmp_path)
    assert re.search(rf"{setting}: \S+ \(as in absolute-seed1\), {value} \(as in t5-seed1\)", str(refusal.value))
    assert "allow_differences=true" in str(refusal.value)
    comparison = compare_folders(tmp_path, allow_differences=True)
    assert len(comparison.groups) == 2
    assert any(note.startswith(f"{setting} differs: ") for note in comparison.notes)


@pytest.mark.parametrize(
    ("fact", "value"), [("data_sha256", "0" * 64), ("params_trunk", 5), ("vocabulary_size", 5), ("steps", 7)]
)
def test_facts_that_differ(fact: str, value: Any, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    write_run(tmp_path, "t5", **{fact: value})
    with pytest.raises(UserError, match=f"differ in more than the scheme.*{fact}: "):
        compare_folders(tmp_path)


def test_one_scheme_under_several_conditions(tmp_path: Path) -> None:
    for seed in (1, 2):
        for dropout in (0.0, 0.3):
            change_config(write_run(tmp_path / str(dropout), "t5", seed), "model.dropout", dropout)
    labels = {group.label: len(group.runs) for group in compare_folders(tmp_path, allow_differences=True).groups}
    assert labels == {"t5 model.dropout=0.0": 2, "t5 model.dropout=0.3": 2}


def test_what_does_not_matter_makes_no_groups(tmp_path: Path) -> None:
    settings = {
        "run_dir": "elsewhere", "threads": 7, "data.path": "a copy", "data.cache_dir": "cache", "data.num_workers": 1,
        "model.attention_backend": "reference", "trainer.log_every_n_steps": 3, "sample.new_tokens": 99,
        "evaluation.lengths": [1, 2],
    }  # fmt: skip
    write_run(tmp_path, seed=1)
    other = write_run(tmp_path, seed=2, attention_backend="sdpa", wall_time_s=99.0)
    for setting, value in settings.items():
        change_config(other, setting, value)
    (group,) = compare_folders(tmp_path).groups
    assert [run.seed for run in group.runs] == [1, 2]


def test_early_stopping_ends_runs_at_different_steps(tmp_path: Path) -> None:
    for pos, steps in (("absolute", 6), ("t5", 4)):
        change_config(write_run(tmp_path, pos, steps=steps), "early_stopping_patience", 2)
    assert len(compare_folders(tmp_path).groups) == 2


def test_settings_of_a_scheme_make_groups(tmp_path: Path) -> None:
    for distance in (2, 16):
        for seed in (1, 2):
            set_scheme(write_run(tmp_path / str(distance), "shaw", seed), max_distance=distance)
    write_run(tmp_path, "absolute")
    groups = {group.label: len(group.runs) for group in compare_folders(tmp_path).groups}
    assert groups == {"absolute": 1, "shaw max_distance=2": 2, "shaw max_distance=16": 2}
    assert compare_folders(tmp_path, baseline="shaw max_distance=2").baseline == "shaw max_distance=2"


@pytest.mark.parametrize("values", [(1, 1.0, True), (None, "None"), ([1], [1.0])])
def test_values_that_python_takes_for_equal(values: tuple, tmp_path: Path) -> None:
    for number, value in enumerate(values):
        set_scheme(write_run(tmp_path / str(number), "t5"), scale=value)
    comparison = compare_folders(tmp_path)
    assert len({group.label for group in comparison.groups}) == len(comparison.groups) == len(values)
    assert not comparison.left_out


def test_a_setting_that_older_runs_lack(tmp_path: Path) -> None:
    write_run(tmp_path / "new", "t5")
    old = write_run(tmp_path / "old", "t5")
    settings = json.loads((old / "summary.json").read_text())["pos_settings"]
    change_summary(old, pos_settings={key: value for key, value in settings.items() if key != "scale"})
    assert {group.label for group in compare_folders(tmp_path).groups} == {"t5", "t5 scale=1.0"}


def test_without_a_configuration_the_summary_speaks(tmp_path: Path) -> None:
    write_sweep(tmp_path, absolute=0.0, t5=-0.5)
    for folder in tmp_path.glob("*-seed*"):
        (folder / "config.yaml").unlink()
    comparison = compare(*read_runs([str(tmp_path)]))
    assert comparison.sentences[0].startswith("t5 is better than absolute by 0.5")
    assert sum("has no config.yaml" in note for note in comparison.notes) == 10
    change_summary(tmp_path / "t5-seed1", data_sha256="0" * 64)
    with pytest.raises(UserError, match="data_sha256"):
        compare(*read_runs([str(tmp_path)]))


@pytest.mark.usefixtures("no_pictures")
def test_nothing_repeats_what_no_configuration_describes(tmp_path: Path) -> None:
    (write_run(tmp_path, "absolute", pos_target="a b=c") / "config.yaml").unlink()
    (write_run(tmp_path, "t5", 1) / "config.yaml").unlink()
    change_config(write_run(tmp_path, "t5", 2), "model.dropout", 0.3)
    text = (report_of(tmp_path) / "report.md").read_text()
    assert "absolute:\n\n    unknown, as there is no config.yaml\n" in text
    assert re.search(r"t5:\n\n    python .* model.dropout=0.3 .*seed=1,2\n", text)


def test_two_schemes_of_one_name_are_not_mixed(tmp_path: Path) -> None:
    write_run(tmp_path / "own", "t5", 1)
    change_config(write_run(tmp_path / "other", "t5", 2), "pos._target_", "mine.T5")
    labels = {group.label for group in compare_folders(tmp_path).groups}
    assert labels == {"t5 _target_=poslab.positions.t5.T5", "t5 _target_=mine.T5"}


def test_repeated_seeds_count_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "t5", 1, 4.0)
    write_run(tmp_path / "b", "t5", 1, 5.0)
    comparison = compare_folders(tmp_path)
    assert comparison.groups[0].losses == {1: 4.0}
    (left,) = comparison.left_out
    assert left == LeftOut(tmp_path / "b" / "t5-seed1", f"repeats seed 1 of {tmp_path / 'a' / 't5-seed1'}, with the "
                           "same settings")  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"versions": {"poslab": "0.0.9", "torch": "2.13.0"}}, "several versions of poslab: 0.0.9, 0.1.0; "),
        ({"versions": {}}, "several versions of torch: 2.13.0, None; "),
        ({"device": "cuda:0"}, "several devices: cpu (x86_64), cuda:0; times can't be compared"),
        ({"threads": 1}, "several numbers of threads: 1, 2; "),
    ],
)
def test_what_weakens_a_comparison_is_noted(changes: dict, note: str, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute")
    write_run(tmp_path, "t5", **changes)
    comparison = compare_folders(tmp_path)
    assert len(comparison.groups) == 2
    assert any(found.startswith(note) for found in comparison.notes)


# Folders that hold something else


def replace_text(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)


def into_folder(folder: Path, file: str) -> None:
    (folder / file).unlink()
    (folder / file).mkdir()


def summary_without(*keys: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        summary = json.loads((folder / "summary.json").read_text())
        replace_text(folder, "summary.json", json.dumps({k: v for k, v in summary.items() if k not in keys}))

    return spoil


def summary_is(text: str) -> Callable[[Path], None]:
    return lambda folder: replace_text(folder, "summary.json", text)


def summary_has(**values: Any) -> Callable[[Path], None]:
    return lambda folder: change_summary(folder, **values)


def config_is(text: str) -> Callable[[Path], None]:
    return lambda folder: replace_text(folder, "config.yaml", text)


def config_has(setting: str, value: Any) -> Callable[[Path], None]:
    return lambda folder: change_config(folder, setting, value)


SPOILT: list[tuple[str, Callable[[Path], None], str]] = [
    ("unfinished", lambda folder: (folder / "summary.json").unlink(), "unfinished: it has no summary.json"),
    ("truncated", lambda f: replace_text(f, "summary.json", json.dumps(SUMMARY)[:200]), "summary.json can't be read"),
    ("empty", summary_is(""), "summary.json can't be read"),
    ("endless", summary_is("[" * 100_000), "summary.json can't be read"),
    ("binary", lambda folder: (folder / "summary.json").write_bytes(b"\xff\xfe\x00"), "summary.json can't be read"),
    ("folder", lambda folder: into_folder(folder, "summary.json"), "summary.json can't be read"),
    ("list", summary_is("[1, 2]"), "summary.json is not a run's"),
    ("text", summary_is('"best_val_loss"'), "summary.json is not a run's"),
    ("foreign", summary_is('{"accuracy": 1}'), "says nothing of best_val_loss, last_val_loss, steps"),
    ("older", summary_without("pos_settings"), "says nothing of pos_settings: not a run's, or another version's"),
    ("seed of text", summary_has(seed="x"), "seed='x', which is no whole number"),
    ("half a seed", summary_has(seed=1.5), "seed=1.5, which is no whole number"),
    ("true seed", summary_has(seed=True), "seed=True, which is no whole number"),
    ("no seed", summary_has(seed=None), "seed=None, which is no whole number"),
    ("loss of text", summary_has(best_val_loss="4.0"), "best_val_loss='4.0', which is no number"),
    ("true loss", summary_has(best_val_loss=True), "best_val_loss=True, which is no number"),
    ("list of losses", summary_has(best_val_loss=[4.0] * 99), "best_val_loss=[4.0, 4.0, 4.0, 4.0, 4.0, 4.0, ...]"),
    ("huge loss", summary_has(best_val_loss=10**400), "best_val_loss=1000"),
    ("huge steps", summary_has(steps=10**400), "steps=1000"),
    ("no steps", summary_has(steps=None), "steps=None, which is no number"),
    ("null", summary_has(best_val_loss=None), "its validation loss was never a finite number"),
    ("nan", summary_has(best_val_loss=math.nan), "its validation loss was never a finite number"),
    ("nearly infinite", summary_has(best_val_loss=1e308), "its validation loss was never a finite number"),
    ("infinite", summary_has(best_val_loss=math.inf), "its validation loss was never a finite number"),
    ("no scheme", summary_has(pos=None), "pos=None, which is no name"),
    ("nameless", summary_has(pos=" "), "pos=' ', which is no name"),
    ("null byte", summary_has(pos="a\0b"), r"pos='a\x00b', which is no name"),
    ("two lines", summary_has(pos="a\nb"), r"pos='a\nb', which is no name"),
    ("half a character", summary_has(pos="\ud800"), r"pos='\ud800', which is no name"),
    ("list of texts", summary_has(data=["a"]), "data=['a'], which is no name"),
    ("settings in a list", summary_has(pos_settings=[]), "pos_settings=[], which is no group of values"),
    ("version of text", summary_has(versions="0.1.0"), "versions='0.1.0', which is no group of values"),
    ("broken config", config_is("a: [1"), "config.yaml can't be read"),
    (
        "binary config",
        lambda folder: (folder / "config.yaml").write_bytes(b"\xff\xfe\x00"),
        "config.yaml can't be read",
    ),
    ("endless config", config_is("[" * 500), "config.yaml can't be read"),
    ("config folder", lambda folder: into_folder(folder, "config.yaml"), "config.yaml can't be read"),
    ("empty config", config_is(""), "config.yaml is not a run's"),
    ("list config", config_is("- 1"), "config.yaml is not a run's"),
    ("foreign config", config_is("pos: shaw"), "config.yaml is not a run's"),
    ("no data", config_has("data", None), "config.yaml is not a run's"),
    ("no class", config_has("pos._target_", None), "pos._target_=None, which is no class"),
    ("odd class", config_has("pos._target_", "a b=c"), "pos._target_='a b=c', which is no class"),
]


@pytest.mark.parametrize(("spoil", "reason"), [case[1:] for case in SPOILT], ids=[case[0] for case in SPOILT])
def test_a_spoilt_run_is_named_and_left_out(spoil: Callable[[Path], None], reason: str, tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", 1)
    write_run(tmp_path, "t5", 1)
    spoil(write_run(tmp_path, "t5", 2, 1.0))
    comparison = compare_folders(tmp_path)
    assert [run.name for run in comparison.runs] == ["absolute-seed1", "t5-seed1"]
    assert list(reasons(comparison)) == ["t5-seed2"]
    assert reason in reasons(comparison)["t5-seed2"]
    assert len(reasons(comparison)["t5-seed2"]) < 300
    assert "\n" not in reasons(comparison)["t5-seed2"]


def test_a_last_loss_may_be_missing(tmp_path: Path) -> None:
    write_run(tmp_path, last_val_loss=None)
    assert len(compare_folders(tmp_path).runs) == 1


def test_nothing_left_to_compare(tmp_path: Path) -> None:
    for seed in (1, 2):
        (write_run(tmp_path, seed=seed) / "summary.json").unlink()
    with pytest.raises(UserError, match=r"no finished run to compare"):
        compare_folders(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no finished run to compare$"):
        compare_folders(tmp_path / "empty")


@pytest.mark.parametrize("missing", ["nowhere", "file", ""])
def test_folders_that_are_none(missing: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SettingError, match="no such folder"):
        read_runs([str(tmp_path / missing) if missing else ""])


def test_what_is_no_run_is_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    for name in ("photos", ".hidden", "report"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.jpg").write_text("")
    (tmp_path / "report" / "report.html").write_text("an earlier one")
    assert reasons(compare_folders(tmp_path)) == {"photos": "no run in it"}


def test_runs_at_any_depth(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "b" / "c", "t5", 1)
    write_run(tmp_path / "a", "t5", 2)
    write_run(tmp_path, "t5", 3)
    comparison = compare_folders(tmp_path)
    assert sorted(run.seed for run in comparison.runs) == [1, 2, 3]
    assert not comparison.left_out


def test_a_stray_file_hides_no_runs(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "config.yaml").write_text("mine: true")
    comparison = compare_folders(tmp_path)
    assert [run.name for run in comparison.runs] == ["absolute-seed1"]
    assert list(reasons(comparison)) == [tmp_path.name]


def test_a_folder_named_twice_counts_once(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    comparison = compare_folders(tmp_path, folder, tmp_path)
    assert len(comparison.runs) == 1
    assert not comparison.left_out


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / "again").symlink_to(tmp_path)
    comparison = compare_folders(tmp_path)
    assert len(comparison.runs) == 1
    assert reasons(comparison) == {"again": "no run in it"}


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path)
    (tmp_path / "locked").mkdir()
    plain = {name: getattr(Path, name) for name in ("iterdir", "exists", "read_text")}

    def refusing(name: str) -> Callable[..., Any]:
        def checked(self: Path, *arguments: Any, **named: Any) -> Any:
            if "locked" in self.parts:
                raise PermissionError(13, "Permission denied", str(self))
            return plain[name](self, *arguments, **named)

        return checked

    for name in plain:
        monkeypatch.setattr(Path, name, refusing(name))
    assert "Permission denied" in reasons(compare_folders(tmp_path))["locked"]


def test_jobs_that_failed_before_they_had_a_folder(tmp_path: Path) -> None:
    write_run(tmp_path)
    (tmp_path / ".sweep").mkdir()
    states = {
        "t5-seed1": json.dumps({"state": "failed", "seconds": 1, "reason": "killed by SIGKILL"}),
        "absolute-seed1": json.dumps({"state": "failed", "seconds": 1, "reason": "an earlier attempt"}),
        "shaw-seed1": json.dumps({"state": "running"}),
        "damaged": '{"state": "fai',
        "foreign": "[]",
    }
    for name, text in states.items():
        (tmp_path / ".sweep" / f"{name}.json").write_text(text)
    assert reasons(compare_folders(tmp_path)) == {"t5-seed1": "failed: killed by SIGKILL"}


# What is written


@pytest.mark.usefixtures("no_pictures")
def test_table_has_a_row_per_scheme(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, absolute=0.0, shaw=-0.3, t5=-0.6)
    folder = report_of(tmp_path)
    header, *rows = page_in(folder).rows
    assert [row[0] for row in rows] == ["t5", "shaw", "absolute"]
    assert [header, *rows] == [row for row in markdown_rows(folder) if set(row) != {"---"}]
    for row in rows:
        loss = estimate(losses[row[0]].values())
        assert row[1:5] == ["5", f"{loss.mean:.4f}", f"{loss.low:.4f} to {loss.high:.4f}", f"{loss.sd:.4f}"]
        assert row[8:11] == ["1,000", "1,500", "512"]
    found = differences(losses, "absolute")["t5"]
    assert rows[0][5:8] == [f"{found.mean:+.4f}", f"{found.low:+.4f} to {found.high:+.4f}", f"{found.p_value:.2g}"]
    assert rows[2][5:8] == ["baseline", "", ""]


@pytest.mark.usefixtures("no_pictures")
def test_results_have_a_row_per_run(tmp_path: Path) -> None:
    losses = write_sweep(tmp_path, seeds=3, absolute=0.0, t5=-0.1)
    for folder in tmp_path.glob("t5-*"):
        lengths = [LengthLoss(16, 8, 4.5, 4.25, [4.0] * 16, 3), LengthLoss(64, 32, note="trained to 32")]
        write_evaluation(folder, lengths=lengths)
    change_summary(tmp_path / "absolute-seed2", last_val_loss=None, wall_time_s=7.5)
    folder = report_of(tmp_path)
    with (folder / "results.csv").open(newline="") as opened:
        rows = {(row["scheme"], int(row["seed"])): row for row in csv.DictReader(opened)}
    assert set(rows) == {(scheme, seed) for scheme in losses for seed in (1, 2, 3)}
    for (scheme, seed), row in rows.items():
        assert float(row["best_val_loss"]) == losses[scheme][seed]
        assert row["folder"] == str(tmp_path / f"{scheme}-seed{seed}")
        assert row["data_sha256"] == VERDICT
        assert (row["steps"], row["params_scheme"], row["peak_memory_mb"]) == ("6", "1000", "512.0")
        assert (row["loss_16"], row["sliding_loss_16"]) == (("4.5", "4.25") if scheme == "t5" else ("", ""))
        assert (row["loss_64"], row["sliding_loss_64"]) == ("", "")
    odd = rows["absolute", 2]
    assert (odd["last_val_loss"], odd["wall_time_s"], rows["t5", 2]["last_val_loss"]) == ("", "7.5", "4.25")
    assert {row[0]: row[-1] for row in page_in(folder).rows[1:]} == {"t5": "trained to 32", "absolute": "n/a"}


def test_report_fetches_nothing_and_is_whole(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=0.0)
    for number, folder in enumerate(sorted(tmp_path.glob("*-seed*"))):
        write_curve(folder, {1: 5.0, 2: 4.5, 3: math.inf if number else 4.0})  # as in runs that diverge in the end
        lengths = [LengthLoss(n, n // 2, 4.0, math.nan, [4.0] * n, 3) for n in (16, 32, 64)]
        write_evaluation(folder, lengths=lengths)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = report_of(tmp_path)
    page = page_in(folder)
    assert all(source.startswith("data:") for source in page.sources)
    text = (folder / "report.html").read_text()
    assert not re.search(r"https?://|@import|url\(|<script", re.sub(r"data:image[^\"]+", "", text))
    shown = [Path(name).stem for name in re.findall(r"\]\((figures/.*)\)", (folder / "report.md").read_text())]
    assert shown == ["losses", "curves", "by_position", "by_length"]
    for name in shown:
        assert ElementTree.parse(folder / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
    assert len(page.sources) == 1 + len(shown)  # the icon


@pytest.mark.usefixtures("no_pictures")
def test_twice_gives_the_same(tmp_path: Path) -> None:
    write_sweep(tmp_path, seeds=2, absolute=0.0, t5=0.0)
    folder = report_of(tmp_path)
    first = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert report_of(tmp_path) == folder
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == first
    assert {path.name for path in first} >= {"report.html", "report.md", "results.csv"}


def test_figures_repeat() -> None:
    styles = figures.Styles(["a"])
    curves = {"a": [Curve([(1, 2.0), (2, 1.0)], [(2, 1.5)])]}
    assert len({figures.svg(figures.curves_figure(curves, styles)) for _ in range(2)}) == 1


@pytest.mark.usefixtures("no_pictures")
def test_names_are_text_not_markup(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path, "absolute", seed)
        change_summary(write_run(tmp_path, "t5", seed), pos="<img src=x>|$x^{$")
    os.rename(tmp_path / "t5-seed2", tmp_path / "<b>&amp;")
    (tmp_path / "<i>left").mkdir()
    folder = report_of(tmp_path)
    page = page_in(folder)
    assert {row[0] for row in page.rows[1:]} == {"absolute", "<img src=x>|$x^{$"}
    assert "x" not in page.sources
    assert any("<i>left: no run in it" in item for item in page.lists[-1])
    assert {len(row) for row in markdown_rows(folder)} == {len(page.rows[0])}


@pytest.mark.usefixtures("blank_pictures")
def test_folders_whose_names_are_no_text(tmp_path: Path) -> None:
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    try:
        write_run(root, "t5")
    except OSError:
        pytest.skip("this file system takes no such names")
    folder = report_of(root, out=str(tmp_path / "out"))
    assert "t5-seed1" in (folder / "report.html").read_text(encoding="utf-8")


NASTY = ["\x0c", "a\x07b", "$x^{$", "--", "<&>", "\ud800", "\n", " ", "漢", "_", "�"]


def test_figures_take_any_word() -> None:
    maps = {word: torch.eye(len(NASTY)).expand(1, 1, -1, -1) for word in ("$x^{$", "a\x07", "漢")}
    styles = figures.Styles(NASTY)
    drawn = [
        figures.attention_figure(maps, NASTY),
        figures.curves_figure({word: [Curve([], [(1, 2.0), (2, 1.0)])] for word in NASTY}, styles),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in drawn:
            ElementTree.fromstring(figures.svg(figure))


def test_figures_take_long_names() -> None:
    names = [f"scheme_with a_setting={'0123456789' * 12} number={number}" for number in range(24)]
    styles = figures.Styles(names)
    curve = Curve([(1, 3.0), (2, 2.0)], [(1, 2.0), (2, 1.0)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's, of axes that have no room
        figures.svg(figures.curves_figure({name: [curve] for name in names}, styles))
        figures.svg(figures.attention_figure({name: torch.eye(2).expand(1, 1, 2, 2) for name in names[:4]}, ["a", "b"]))


def test_two_groups_never_look_alike() -> None:
    labels = [f"scheme {number}" for number in range(30)]
    styles = figures.Styles(labels)
    assert len({tuple(sorted(styles[label].items())) for label in labels}) == 30
    assert figures.Styles(labels[::-1])["scheme 7"] == styles["scheme 7"]


def lines_of(figure: Figure, axes: int = 0) -> dict[str, np.ndarray]:
    return {str(line.get_label()): line.get_xydata() for line in figure.axes[axes].lines}


def test_curves_are_means_over_seeds() -> None:
    seeds = [Curve([], [(2, 4.0), (4, 3.0), (6, 2.0)]), Curve([], [(2, 5.0), (4, 5.0)])]
    lines = lines_of(figures.curves_figure({"a": seeds, "b": []}, figures.Styles(["a", "b"])))
    assert lines["a"].tolist() == [[2, 4.5], [4, 4.0]]  # the steps that both have
    assert set(lines) == {"a"}


def test_loss_by_length_needs_all_seeds() -> None:
    def measured(**losses: float) -> Evaluation:
        return Evaluation(32, 533, [LengthLoss(int(n[1:]), 1, loss, loss) for n, loss in losses.items()], [])

    evaluations = {"a": [measured(n16=4.0, n32=3.0), measured(n16=5.0)]}
    lines = lines_of(figures.by_length_figure(evaluations, figures.Styles(["a"])), axes=1)
    assert lines["a"].tolist() == [[16, 4.5]]
    assert lines["trained to 32"][:, 0].tolist() == [32, 32]


def test_loss_by_position_counts_every_place_once() -> None:
    losses = np.random.default_rng(3).normal(4, 1, 100)
    evaluation = Evaluation(100, 533, [LengthLoss(100, 50, 4.0, 4.0, losses.tolist(), 9)], [])
    line = lines_of(figures.by_position_figure({"a": [evaluation]}, figures.Styles(["a"])))["a"]
    assert line[0].tolist() == [1, pytest.approx(losses[0])]
    # The places in each bin, from its middle: as many as the bin is wide.
    ends = np.cumsum([2 * (middle - start) for middle, start in bins_of(line[:, 0])])
    assert ends[-1] == 100
    assert line[-1, 1] == pytest.approx(losses[int(ends[-2]) :].mean())


def bins_of(middles: np.ndarray) -> Iterable[tuple[float, float]]:
    """(middle, start) of neighbouring bins of places from 1 on, both in steps from 0.5."""
    start = 0.5
    for middle in middles:
        yield middle, start
        start = 2 * middle - start


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 4000, "folder", "undecodable"])
def test_events_that_hold_nothing(content: Any, tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1.here.1.0"
    if content == "folder":
        file.mkdir()
    elif content == "undecodable":
        from tensorboard.summary.writer.record_writer import RecordWriter

        with file.open("wb") as opened:
            RecordWriter(opened).write(b"\xff\xff nonsense")
    elif content is not None:
        file.write_bytes(content)
    assert read_curve(tmp_path) == Curve([], [])


def test_truncated_events_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    write_curve(tmp_path, dict.fromkeys(range(50), 4.0))
    (file,) = tmp_path.glob("events*")
    assert len(read_curve(tmp_path).validation) == 50
    file.write_bytes(file.read_bytes()[:-200])
    assert 20 < len(read_curve(tmp_path).validation) < 50


# What repeats it


def repeated(command: str, cwd: Path | None = None) -> dict[str, Any]:
    """The configuration that the command composes, for its first seed."""
    words = shlex.split(command)
    assert words[:2] == ["python", "scripts/train.py"]
    overrides = [re.sub(r"^(seed=\d+),.*", r"\1", word) for word in words[2:] if word != "-m"]
    overrides = quoted(overrides, "sample.prompt")
    with initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = compose("train", overrides)
    return parse(config).plain


def group_of(folder: Path) -> Group:
    (group,) = compare_folders(folder).groups
    return group


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"data.stride": 16, "trainer.max_steps": 7, "optim.learning_rate": 3e-05, "early_stopping_patience": 3},
        {"evaluation.lengths": [8, 16], "trainer.gradient_clip_val": None, "trainer.deterministic": True},
        {"sample.prompt": "It's a \"test\", isn't it? (a=b) \\' # [1]", "trainer.max_time": "00:12:00:00"},
        {"sample.prompt": " \\", "trainer.precision": "32", "trainer.limit_val_batches": 1.0},
        {"sample.prompt": "null"},
        {"sample.prompt": "'in quotes', ${not_a_name} \\${x}"},
        {"sample.prompt": "漢字\n$HOME `x`"},
    ],
)
def test_command_repeats_the_run(settings: dict[str, Any], tmp_path: Path) -> None:
    folder = write_run(tmp_path, "t5", 3)
    plain = yaml_with(folder, settings)
    set_scheme(folder, num_buckets=8)
    plain["pos"]["num_buckets"] = 8
    again = repeated(command_of(group_of(tmp_path)))
    assert again | {"pos_name": "t5", "run_dir": None, "seed": 3} == plain | {"run_dir": None}
    assert again["seed"] == 3


def yaml_with(folder: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Changes config.yaml; returns what it then says."""
    plain: Any = OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
    for setting, value in settings.items():
        *groups, name = setting.split(".")
        (plain[groups[0]] if groups else plain)[name] = value
    (folder / "config.yaml").write_text(json.dumps(plain))  # which is YAML, too
    return plain


def test_command_for_all_seeds(tmp_path: Path) -> None:
    for seed in (2, 1, 11):
        write_run(tmp_path, "shaw", seed)
    words = shlex.split(command_of(group_of(tmp_path)))
    assert words[2:4] == ["-m", "pos=shaw"]
    assert words[-1] == "seed=1,2,11"


def test_command_for_another_text(tmp_path: Path) -> None:
    text = tmp_path / "my 'texts', all" / "the-verdict.txt"  # a name that a bundled text has
    text.parent.mkdir()
    text.write_text("other words\n")
    folder = write_run(tmp_path / "runs", "absolute", data_sha256="0" * 64)
    change_config(folder, "data.path", str(text))
    command = command_of(group_of(tmp_path / "runs"))
    assert "data=text" in command
    assert repeated(command)["data"]["path"] == str(text)


def test_command_for_a_bundled_text_names_no_folder(tmp_path: Path) -> None:
    change_config(write_run(tmp_path), "data.path", "/somebody/elses/the-verdict.txt")
    command = command_of(group_of(tmp_path))
    assert "data=verdict" in command
    assert "elses" not in command


def test_command_for_a_scheme_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ALIBI
    (tmp_path / "scheme_of_somebody.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("alibi", "t5"):  # also under a name that configs/pos knows
        folder = write_run(tmp_path / name, "absolute")
        change_summary(folder, pos=name, pos_settings={"steepest": 0.5})
        plain = yaml_with(folder, {"pos": {"_target_": "scheme_of_somebody.ALiBi", "steepest": 0.5}})
        again = repeated(command_of(group_of(tmp_path / name)))
        assert again["pos"] == plain["pos"]


@pytest.mark.usefixtures("no_pictures")
def test_facts_of_runs_that_differ(tmp_path: Path) -> None:
    write_run(tmp_path, "absolute", git_commit="aaa", train_tokens=None)
    write_run(tmp_path, "t5", git_commit="bbb", vocabulary_size="many")
    text = (report_of(tmp_path, allow_differences=True) / "report.md").read_text()
    assert "git commit aaa or bbb" in text
    assert "1,417 or many tokens" in text
    assert "n/a or 4,612 training tokens" in text


# With checkpoints


@pytest.fixture
def models(tmp_path: Path) -> dict[str, Path]:
    """Run folders of two schemes, with weights and evaluations."""
    folders = {pos: write_run(tmp_path / "runs", pos) for pos in ("absolute", "t5")}
    for pos, folder in folders.items():
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "best.ckpt").write_bytes(checkpoint_of(pos))
        write_evaluation(folder)
    return folders


@pytest.mark.usefixtures("blank_pictures")
def test_weights_are_evaluated_and_drawn(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    for run in models.values():
        (run / "evaluation.json").unlink()
    folder = report_of(models["t5"].parent)
    shown = re.findall(r"figures/(\w+)\.svg", (folder / "report.md").read_text())
    assert shown[:4] == ["losses", "curves", "by_position", "by_length"]
    assert shown[-1] == "attention"
    assert {"learned_t5_bias", "learned_absolute_similarity"} <= set(shown)
    out, err = capsys.readouterr()
    assert [line for line in err.splitlines() if "no loss curve" not in line] == []
    assert out.count("evaluating ") == 2
    assert "on the 533 validation tokens, the checkpoints of" in out
    with (folder / "results.csv").open(newline="") as opened:
        rows = {row["scheme"]: row for row in csv.DictReader(opened)}
    assert 7 < float(rows["t5"]["sliding_loss_128"]) < 8  # log of 1,417, as nothing was learned
    assert rows["absolute"]["sliding_loss_128"] == ""
    evaluated = {path: path.read_bytes() for path in models["t5"].parent.glob("*/evaluation.json")}
    assert len(evaluated) == 2
    report_of(models["t5"].parent)
    assert "evaluating" not in capsys.readouterr().out
    assert {path: path.read_bytes() for path in evaluated} == evaluated


@pytest.mark.usefixtures("blank_pictures")
def test_learned_pictures_with_any_name(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Slashes, as TensorBoard's tags have them; and names that differ in nothing a file's name can hold."""
    from poslab.positions.t5 import T5

    pictures = T5.pictures
    monkeypatch.setattr(
        T5, "pictures", lambda self, *given: dict.fromkeys(("../a/b", "../a:b"), pictures(self, *given)["bias"])
    )
    folder = report_of(models["t5"].parent)
    names = {path.name for path in (folder / "figures").iterdir()}
    assert {"learned_t5____a_b.svg", "learned_t5____a_b_.svg"} <= names


def evaluations_spoilt() -> list[Any]:
    good = {"text_sha256": VERDICT} | Evaluation(32, 9, [LengthLoss(16, 8, 4.0, 4.0, [4.0] * 16, 3)], [4.0]).plain()
    length = good["lengths"][0]
    return [
        {},
        [],
        good | {"lengths": {"16": 4.0}},
        good | {"lengths": [length | {"length": "16"}]},
        good | {"lengths": [length | {"length": 0}]},
        good | {"lengths": [length | {"loss": "high"}]},
        good | {"lengths": [length | {"by_position": [None]}]},
        good | {"lengths": [length | {"by_position": 4.0}]},
        good | {"lengths": [length | {"note": 5}]},
        good | {"lengths": [length | {"surprise": 5}]},
        good | {"context_length": None},
        good | {"token_losses": None},
        good | {"token_losses": ["4.0"]},
    ]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("content", [*map(json.dumps, evaluations_spoilt()), "{", "[" * 100_000])
def test_a_damaged_evaluation(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a checkpoint, so that it can't be measured anew."""
    (write_run(tmp_path, "t5") / "evaluation.json").write_text(content)
    folder = report_of(tmp_path)
    assert "t5-seed1 is not evaluated by length and position: " in capsys.readouterr().err
    assert "t5-seed1 is not evaluated" in page_in(folder).lists[1][0]
    assert page_in(folder).rows[1][-1] == "n/a"


@pytest.mark.usefixtures("blank_pictures")
def test_damaged_weights(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    (models["t5"] / "evaluation.json").unlink()
    file = models["t5"] / "checkpoints" / "best.ckpt"
    file.write_bytes(file.read_bytes()[:5000])
    folder = report_of(models["t5"].parent)
    notes = capsys.readouterr().err
    assert f"{models['t5']} is not evaluated by length and position: ckpt={file}: " in notes
    assert f"t5 has no pictures of what it learned: ckpt={file}: " in notes
    assert [row[0] for row in page_in(folder).rows[1:]] == ["absolute", "t5"]


@pytest.mark.usefixtures("blank_pictures")
def test_code_from_outside_needs_permission(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = models["t5"].parent
    (root.parent / "their_scheme.py").write_text("from poslab.positions.t5 import T5 as Theirs\n")
    monkeypatch.syspath_prepend(str(root.parent))
    (models["t5"] / "evaluation.json").unlink()
    file = models["t5"] / "checkpoints" / "best.ckpt"
    content = torch.load(file, weights_only=True)
    content["poslab"]["config"]["pos"]["_target_"] = "their_scheme.Theirs"
    torch.save(content, file)
    report_of(root)
    assert capsys.readouterr().err.count("allow_code=true") == 2  # neither evaluated nor drawn
    assert "their_scheme" not in sys.modules
    report_of(root, allow_code=True)
    assert "allow_code" not in capsys.readouterr().err
    assert "their_scheme" in sys.modules


@pytest.mark.usefixtures("blank_pictures")
def test_attention_on_a_sentence(models: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = report_of(models["t5"].parent, sentence="I had always thought Jack Gisburn")
    assert "attention" in (folder / "report.md").read_text()
    capsys.readouterr()
    (folder / "figures" / "attention.svg").unlink()
    for sentence in ("quarks and gluons", ""):
        report_of(models["t5"].parent, sentence=sentence)
        assert f"t5 has no picture of its attention: sentence={sentence}: " in capsys.readouterr().err
    assert not (folder / "figures" / "attention.svg").exists()
    assert (folder / "figures" / "learned_t5_bias.svg").exists()


@pytest.mark.usefixtures("blank_pictures")
def test_attention_is_drawn_on_the_same_words_only(
    models: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the texts differ."""
    drawn = []
    monkeypatch.setattr(figures, "attention_figure", lambda maps, words: drawn.append([*maps]) or Figure())
    words = {"absolute": [1, 2, 3], "t5": [1, 2]}
    monkeypatch.setattr(
        "poslab.analysis.compare_script._sentence", lambda checkpoint, _: torch.tensor(words[checkpoint.pos_name])
    )
    report_of(models["t5"].parent)
    assert drawn == [["absolute"]]
    assert "t5 has no picture of its attention: it would be on other words" in capsys.readouterr().err


# As a user runs it


@pytest.fixture
def script(run_script: RunScript) -> RunScript:
    """scripts/compare.py."""
    return functools.partial(run_script, "compare")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "runs=runs: no such folder; name run folders, or a folder that holds some"),
        (["runs={0}/nowhere"], "runs={0}/nowhere: no such folder"),
        (["runs="], "runs=: no such folder"),
        (["runs=[]"], "runs=[]: name at least one folder"),
        (["runs=null"], "runs=null: must be"),
        (["runs={0}/empty"], "no finished run to compare"),
        (["runs={0}/photos"], "runs={0}/photos: no finished run to compare ({0}/photos/summer: no run in it)"),
        (
            ["runs={0}/broken"],
            "runs={0}/broken: no finished run to compare ({0}/broken/t5-seed1: summary.json can't be read",
        ),
        (["runs={0}/good", "baseline=t6"], "baseline=t6: unknown; did you mean t5"),
        (["runs={0}/good", "out={0}/file"], "out={0}/file: can't be written"),
        (["runs={0}/good", "out={0}/file/below"], "out={0}/file/below: can't be written"),
        (["runs=[{0}/good,{0}/other]"], "differ in more than the scheme"),
        (["runs={0}/good", "effect=0"], "effect=0.0: must be above 0"),
        (["run={0}/good"], "run={0}/good: unknown setting; did you mean runs"),
    ],
)
@pytest.mark.usefixtures("no_pictures")
def test_refusals(
    arguments: list[str], said: str, tmp_path: Path, script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "file").write_text("mine")
    (write_run(tmp_path / "broken", "t5") / "summary.json").write_text("{")
    write_run(tmp_path / "good", "t5")
    change_config(write_run(tmp_path / "other", "absolute"), "model.num_layers", 5)
    code, _, err = script(*(argument.format(tmp_path) for argument in arguments))
    assert code == 2
    last = err.splitlines()[-1]
    assert last.startswith(f"error: {said.format(tmp_path)}") or said in last
    assert "Traceback" not in err
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.usefixtures("no_pictures")
def test_a_single_run_and_two(tmp_path: Path, script: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (write_run(tmp_path / "runs", pos, loss=loss) for pos, loss in (("absolute", 4.0), ("t5", 3.75)))
    code, out, _ = script(f"runs={first}")
    assert code == 0
    assert "- only absolute is here (n = 1)" in out
    code, out, _ = script(f"runs=[{first},{second}]")
    assert code == 0
    assert "- t5 was 0.25 nats better than absolute in one run each; one run says nothing about chance" in out
    monkeypatch.chdir(first)
    assert script("runs=.")[0] == 0
    reports = list(tmp_path.rglob("report.html"))
    assert len(reports) >= 1
    assert all(path.parents[1] == tmp_path / "runs" and path.parent.name.startswith("report-") for path in reports)


@pytest.mark.usefixtures("no_pictures")
def test_command_on_the_page(tmp_path: Path, script: Callable[..., Any]) -> None:
    write_run(tmp_path / "my runs", "t5")
    argument = f"runs='{tmp_path}/my runs'"
    code, _, _ = script(argument, "effect=0.05")
    assert code == 0
    page = (tmp_path / "my runs" / "report" / "report.md").read_text()
    (line,) = [line for line in page.splitlines() if "scripts/compare.py" in line]
    assert shlex.split(line) == ["python", "scripts/compare.py", argument, "effect=0.05"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run as training leaves it."""
    root = tmp_path_factory.mktemp("trained")
    train(compose_config(*SMOKE, "pos=t5", f"run_dir={root / 'runs' / 't5'}"))
    return root


def test_the_runs_written_here_are_like_real_ones(trained: Path, tmp_path: Path) -> None:
    real = json.loads((trained / "runs" / "t5" / "summary.json").read_text())
    assert set(real) == set(SUMMARY)
    ours, theirs = group_of(write_run(tmp_path, "t5", seed=2)), group_of(trained / "runs" / "t5")
    assert ours.label == theirs.label == "t5"
    assert {"pos_name": "t5"} | repeated(command_of(theirs)) == theirs.runs[0].config | {"run_dir": None}
    real = read_curve(trained / "runs" / "t5")
    assert (len(real.train), len(real.validation)) == (6, 2)


def test_from_a_shell(trained: Path) -> None:
    """All sorts of folders beside a real run: a report, every folder named, and no traceback."""
    runs = trained / "runs"
    (write_run(runs / "unfinished") / "summary.json").unlink()
    (runs / "photos").mkdir()
    (write_run(runs / "truncated", "shaw") / "summary.json").write_text('{"pos": "sh')
    command = [sys.executable, str(REPOSITORY / "scripts" / "compare.py")]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=trained, env=one_thread, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    for line in ("photos: no run in it", "absolute-seed1: unfinished", "shaw-seed1: summary.json can't be read"):
        assert re.search(rf"^left out  runs/.*{line}", result.stdout, re.MULTILINE)
    assert "only t5 is here (n = 1)" in result.stdout
    assert {path.name for path in (runs / "report").iterdir()} == {"figures", "report.html", "report.md", "results.csv"}
    assert not set(trained.iterdir()) - {runs}
