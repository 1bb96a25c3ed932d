"""Helpers for tests of comparisons: run folders as training writes them; readers of a comparison and its page."""

import functools
import io
import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from common import SMOKE, compose_config
from omegaconf import OmegaConf
from torch.utils.tensorboard import SummaryWriter
from yaml import CSafeDumper as Dumper
from yaml import CSafeLoader as Loader

from poslab.commands.compare import run_comparison
from poslab.comparison.results import Results, compared
from poslab.config.scripts import CompareConfig
from poslab.config.train import TrainConfig
from poslab.metric import SHARES, loss_metric
from poslab.runs.error_examples import WrongAnswer, write_wrong_answers
from poslab.runs.evaluation import Evaluation, LengthLoss, read_evaluation
from poslab.runs.groups import by_data
from poslab.runs.load import Run, read_runs
from poslab.runs.plan import PlannedGroup, keys_of
from poslab.runs.table import RunTable, run_table
from seedstats.answers import caveats, findings, headline, on_baseline, pair_sentences
from seedstats.comparison import Comparison
from seedstats.table import checked

VERDICT = "b41e41a68f0398a3154ae69e2e4c0e2694e17fe0d66730536837f1b01935b31f"
SUMMARY = {
    "pos": "absolute",
    "pos_settings": {},
    "pos_target": "poslab.positions.absolute.Absolute",
    "seed": 1,
    "best_val_loss": 4.0,
    "best_val_perplexity": 54.6,
    "best_monitored": 4.0,
    "best_step": 6,
    "last_val_loss": 4.25,
    "last_val_step": None,
    "late_fall": None,
    "untrained_losses": {},
    "val_loss_tokens": 533,
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
    "init_from": None,
    "init_sha256": None,
    "documents": None,
    "vocabulary": "observed",
    "vocabulary_size": 1417,
    "train_tokens": 4612,
    "validation_tokens": 534,
    "device": "cpu (x86_64)",
    "processes": 1,
    "threads": 2,
    "precision": "32-true",
    "attention_backend": "reference",
    "versions": {"python": "3.11.7", "poslab": "0.1.0", "torch": "2.13.0"},
    "git_commit": None,
    "git_clean": None,
    "code_fingerprint": "0123456789abcdef",
    "scheme_fingerprint": "fedcba9876543210",
    "training_length": 32,
    "solved_step": None,
    "test_loss": None,
    "test_tokens": None,
    "measures": [{"name": "loss", "unit": "nats per token", "higher_is_better": False, "chance": math.log(1417)}],
}


TASK_STEPS = 500
ANSWER = ["a", "b", "c"]
MEASURES = [*(asdict(replace(metric, chance=0.2)) for metric in SHARES), asdict(loss_metric(None, unit="answer"))]


# Runs as training leaves them


@functools.cache
def smoke_config(pos: str) -> TrainConfig:
    return compose_config(*SMOKE, f"pos={pos}")


@functools.cache
def smoke_yaml(pos: str) -> str:
    """All but the seed."""
    plain = smoke_config(pos).recorded
    return OmegaConf.to_yaml({key: value for key, value in plain.items() if key != "seed"})


def write_run(root: Path, pos: str = "absolute", seed: int = 1, loss: float = 4.0, **summary: Any) -> Path:
    """A run folder with a summary and a configuration, and no more."""
    folder = root / f"{pos}-seed{seed}"
    folder.mkdir(parents=True)
    config = smoke_config(pos)
    own = {"pos": pos, "pos_settings": config.pos_settings, "pos_target": config.plain["pos"]["_target_"]}
    steps = summary.get("steps", SUMMARY["steps"])
    summary = {"best_val_loss": loss, "last_val_loss": loss, "best_step": steps} | summary
    content = SUMMARY | own | {"seed": seed} | _without_perplexities(summary)
    (folder / "summary.json").write_text(json.dumps(content))
    (folder / "config.yaml").write_text(f"{smoke_yaml(pos)}seed: {seed}\n")
    return folder


def wrong_answer(number: int, *said: str) -> WrongAnswer:
    """An answer to that test of a line of three symbols, the last of them wrong, or all as given."""
    return WrongAnswer(number, ["BOS", *ANSWER, "SEP", "a", "b"], [4, 5, 6], ANSWER, list(said) or ["a", "b", "x"])


def write_task_run(
    root: Path,
    pos: str,
    seed: int,
    exact: Mapping[int, float],
    solved_step: int | None = None,
    data: str = "copy",
    answers: Mapping[int, Sequence[WrongAnswer]] | None = None,
    **summary: Any,
) -> Path:
    shares = {str(length): share for length, share in exact.items()}
    own = {"exact": shares, "accuracy": shares, "exact_chance": dict.fromkeys(shares, 0.2), "steps": TASK_STEPS}
    own |= {"data": data, "training_length": 10, "solved_step": solved_step, "measures": MEASURES}
    folder = write_run(root / data, pos, seed, **own | summary)
    change_config(folder, "data", {"_target_": f"poslab.tasks.{data}.{data.capitalize()}", "min_length": 2})
    if answers is not None:
        by_length = {str(length): list(answers.get(length, [])) for length in exact}
        write_wrong_answers(folder / "answers.json", by_length)
    return folder


def change_summary(folder: Path, **values: Any) -> None:
    file = folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | _without_perplexities(values)))


def _without_perplexities(values: dict[str, Any]) -> dict[str, Any]:
    """Other losses have other perplexities, which a summary may lack."""
    perplexities = {"best_val_loss": "best_val_perplexity", "last_val_loss": "last_val_perplexity"}
    return {name: None for loss, name in perplexities.items() if loss in values} | values


def set_class(folder: Path, target: str) -> None:
    """Set the scheme's class in both files."""
    change_summary(folder, pos_target=target)
    change_config(folder, "pos._target_", target)


def change_config(folder: Path, setting: str, value: Any) -> None:
    """Set "group.name" in config.yaml; a dictionary is merged into the one that is there, unless it names a class."""
    config = yaml.load((folder / "config.yaml").read_text(), Loader)
    group, _, name = setting.rpartition(".")
    node = config
    for part in group.split(".") if group else ():
        node = node.setdefault(part, {})
    merges = isinstance(value, dict) and isinstance(node.get(name), dict) and "_target_" not in value
    node[name] = node[name] | value if merges else value
    (folder / "config.yaml").write_text(yaml.dump(config, Dumper=Dumper))


def set_scheme(folder: Path, **settings: Any) -> None:
    """In both files, as training writes it."""
    summary = json.loads((folder / "summary.json").read_text())
    change_summary(folder, pos_settings=summary["pos_settings"] | settings)
    change_config(folder, "pos", settings)


def write_evaluation(folder: Path, lengths: Iterable[LengthLoss] = ()) -> None:
    evaluation = Evaluation(32, 533, list(lengths), weights_sha256="")
    plain = {"text": "the-verdict.txt, validation part", "text_sha256": VERDICT} | evaluation.plain()
    (folder / "evaluation.json").write_text(json.dumps(plain))


def write_curve(folder: Path, validation: dict[int, float]) -> None:
    with SummaryWriter(str(folder)) as writer:
        for step, loss in validation.items():
            writer.add_scalar("train/loss", loss, step)
            writer.add_scalar("eval/loss", loss, step)


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


def plan_of(root: Path, seeds: range = range(1, 6)) -> list[PlannedGroup]:
    """Return the plan of a sweep that has left these runs."""
    groups = {keys_of(run): run for run in read_runs([str(root)])[0]}
    return [
        PlannedGroup(run.summary.pos, run.scheme_settings, run.summary.data, *keys, list(seeds))
        for keys, run in groups.items()
    ]


# What is said of them


def table_of(runs: Sequence[Run], *, plan: Sequence[PlannedGroup] = (), allow_differences: bool = False) -> RunTable:
    """Return the table of runs with the evaluations in their folders."""
    found = {run.folder: read_evaluation(run.folder, run.summary.data_sha256) for run in runs}
    evaluations = {folder: evaluation for folder, evaluation in found.items() if evaluation}
    return run_table(by_data(runs, allow_differences), evaluations, plan, allow_differences=allow_differences)


def table_in(*folders: Path, **settings: Any) -> RunTable:
    return table_of(read_runs([str(folder) for folder in folders])[0], **settings)


def sentences(comparison: Comparison) -> list[str]:
    """All sentences on groups and pairs, one by one."""
    lost = [caveat for caveat in caveats(comparison) if "no finished run" in caveat]
    return [*map(str, on_baseline(comparison).values()), *pair_sentences(comparison), *lost]


def compare(
    runs: Sequence[Run], *, plan: Sequence[PlannedGroup] = (), allow_differences: bool = False, **settings: Any
) -> Comparison:
    """Compare runs on one kind of data as `compare runs=` does, and see that their results.csv says the same."""
    made = table_of(runs, plan=plan, allow_differences=allow_differences)
    published = checked(pd.read_csv(io.StringIO(made.table.to_csv(index=False)), dtype=str, keep_default_na=False))
    both = (compared(Results(table, Path()), CompareConfig(**settings)) for table in (made.table, published))
    (comparison,), (again,) = (found.values() for found in both)
    said, said_again = ([*sentences(one), headline(one), *findings(one), *caveats(one)] for one in (comparison, again))
    assert said_again == said
    return comparison


def compare_folders(*folders: Path, **settings: Any) -> Comparison:
    return compare(read_runs([str(folder) for folder in folders])[0], **settings)


def runs_by_group(*folders: Path, **settings: Any) -> dict[str, list[Run]]:
    """The compared runs, by the label of their group."""
    runs = table_in(*folders, **settings).runs
    groups = compare_folders(*folders, **settings).groups
    return {group.label: [runs[folder] for folder in group.folders.values()] for group in groups}


def repeated(command: str) -> dict[str, Any]:
    """Return the configuration that the command composes, for its first seed."""
    words = shlex.split(command)
    assert words[:2] == ["poslab", "train"] or words[1].endswith("scripts/train.py")
    overrides = [re.sub(r"^(seed=\d+),.*", r"\1", word) for word in words[2:] if word != "-m"]
    return compose_config(*overrides).plain


def report_of(folder: Path, **settings: Any) -> Path:
    return run_comparison(CompareConfig([str(folder)], **settings), "python scripts/compare.py")


class Page(HTMLParser):
    """Texts of headlines, lists (the findings are the first) and table cells, and all that a page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headlines: list[str] = []
        self.lists: list[list[str]] = []
        self.rows: list[list[str]] = []
        self.tables: list[list[list[str]]] = []  # the first is that of schemes
        self.sources: list[str] = []
        self._into: list[str] | None = None
        self.feed(text)

    @property
    def results(self) -> list[list[str]]:
        """Return the rows of the first table, below its two rows of heads."""
        return self.tables[0][2:]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        if tag == "table":
            self.tables.append([])
        if tag in ("tr", "ul"):
            (self.rows if tag == "tr" else self.lists).append([])
        if tag == "tr":
            self.tables[-1].append(self.rows[-1])
        if tag in ("td", "th", "li"):
            self._into = (self.lists if tag == "li" else self.rows)[-1]
            self._into.append("")
        if "headline" in (dict(attrs).get("class") or "").split():
            self._into = self.headlines
            self._into.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "li", "p"):
            self._into = None

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into[-1] += data


def page_in(folder: Path) -> Page:
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def markdown_rows(folder: Path) -> list[list[str]]:
    lines = (folder / "report.md").read_text(encoding="utf-8").splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip().strip("*") for cell in row] for row in rows]
