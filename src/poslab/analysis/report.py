"""One page for a comparison: report.html, report.md and results.csv."""

import base64
import csv
import shlex
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from matplotlib.figure import Figure
from omegaconf import OmegaConf, open_dict

from poslab.analysis.comparison import Comparison, Group
from poslab.analysis.evaluation import Evaluation
from poslab.analysis.figures import svg
from poslab.analysis.runs import Run
from poslab.config import CONFIGS

_LEFT_TO_CHANCE = {"seed", "run_dir", "threads"}  # not part of what a group repeats


@dataclass(frozen=True)
class Picture:
    """A figure with what it shows; `name` is that of its file."""

    name: str
    title: str
    caption: str
    svg: str

    @property
    def source(self) -> str:
        """As a data URI: nothing is fetched, and the ids within two pictures can't get mixed up."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


@dataclass
class Report:
    """Everything that a report says."""

    comparison: Comparison
    evaluations: Mapping[str, list[Evaluation]]  # by label
    answers: list[str]
    notes: list[str]
    command: str
    pictures: list[Picture] = field(default_factory=list)

    def add(self, name: str, title: str, caption: str, figure: Figure) -> None:
        self.pictures.append(Picture(name, title, caption, svg(figure)))

    def write(self, folder: Path) -> None:
        """Into `folder`, over an earlier report there."""
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for picture in self.pictures:
            (folder / "figures" / f"{picture.name}.svg").write_text(picture.svg, encoding="utf-8")
        environment = Environment(
            loader=PackageLoader("poslab.analysis"),
            autoescape=select_autoescape(["html.j2", "html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        content = self._content()
        for name in ("report.html", "report.md"):
            page = environment.get_template(f"{name}.j2").render(content)
            (folder / name).write_text(page, encoding="utf-8")
        _write_results(folder / "results.csv", self.comparison, self.evaluations)

    def _content(self) -> dict[str, Any]:
        groups = self.comparison.groups
        first = groups[0].runs[0]
        return {
            "answers": self.answers,
            "notes": self.notes,
            "left_out": self.comparison.left_out,
            "baseline": self.comparison.baseline,
            "columns": _COLUMNS,
            "rows": [self._row(group) for group in groups],
            "pictures": self.pictures,
            "command": self.command,
            "repeats": [(group.label, command_of(group), _yaml(group.runs[0])) for group in groups],
            "facts": _facts(first),
            "versions": first.summary["versions"],
            "runs": self.comparison.runs,
        }

    def _row(self, group: Group) -> list[str]:
        loss, difference = group.loss, self.comparison.differences.get(group.label)
        return [
            group.label,
            str(len(group.runs)),
            f"{loss.mean:.4f}",
            _interval(loss.low, loss.high),
            "n/a" if loss.sd is None else f"{loss.sd:.4f}",
            "baseline" if difference is None else "n/a" if difference.mean is None else f"{difference.mean:+.4f}",
            "" if difference is None else _interval(difference.low, difference.high, sign="+"),
            "" if difference is None else "n/a" if difference.p_value is None else f"{difference.p_value:.2g}",
            _whole(group.mean("params_scheme")),
            _whole(group.mean("tokens_per_s")),
            _whole(group.mean("peak_memory_mb")),
            _beyond(self.evaluations.get(group.label, [])),
        ]


_COLUMNS = (
    "scheme", "n", "loss", "95 % interval", "sd", "difference", "95 % interval", "p (Holm)", "parameters added",
    "tokens/s", "peak memory, MB", "longer windows",
)  # fmt: skip


def command_of(group: Group) -> str:
    """What repeats the group: the settings that differ from the defaults, for all of its seeds."""
    run = group.runs[0]
    named = (CONFIGS / "pos" / f"{run.pos}.yaml").exists()
    choice = [f"pos={run.pos}"] if named else [f"pos._target_={run.config['pos'].get('_target_')}"]
    running = GlobalHydra.instance().is_initialized()  # as in a script, whose configurations are the same folder's
    with nullcontext() if running else hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        defaults = hydra.compose("train", choice)
        with open_dict(defaults):
            defaults.data.path = ""
    known = _flat(OmegaConf.to_container(defaults, resolve=True))
    data = run.summary["data"]
    texts = {"the-verdict.txt": "verdict", "tinyshakespeare.txt": "shakespeare"}
    settings = [f"data={texts[data]}"] if data in texts else [f"data=text data.path={run.config['data']['path']}"]
    for key, value in _flat(run.config).items():
        if key in _LEFT_TO_CHANCE or key in ("data.path", "data.cache_dir", "pos._target_"):
            continue
        if key not in known:
            settings.append(f"+{key}={_typed(value)}")
        elif known[key] != value or key == "data.stride":
            settings.append(f"{key}={_typed(value)}")
    seeds = ",".join(str(seed) for seed in group.losses)
    many = ["-m"] if len(group.runs) > 1 else []
    return " ".join(
        [
            "python scripts/train.py",
            *many,
            *map(shlex.quote, [*choice, *" ".join(settings).split(" ")]),
            f"seed={seeds}",
        ]
    )


def _flat(config: Any, prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _typed(value: Any) -> str:
    """As the command line takes it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value).replace(" ", "")


def _yaml(run: Run) -> str:
    return OmegaConf.to_yaml({key: value for key, value in run.config.items() if key not in _LEFT_TO_CHANCE})


def _facts(run: Run) -> dict[str, str]:
    summary = run.summary
    return {
        "text": f"{summary['data']}, {summary.get('train_tokens', 'n/a'):,} training tokens and "
        f"{summary.get('validation_tokens', 'n/a'):,} validation tokens",
        "sha256 of the text": str(summary["data_sha256"]),
        "vocabulary": f"{summary.get('vocabulary', 'full')}, {summary.get('vocabulary_size', 50257):,} tokens",
        "model": f"{summary.get('params_trunk', summary['params_total']):,} parameters without positions, "
        f"trained to {summary['context_length']} tokens",
        "training": f"{summary['steps']:,} steps",
        "device": f"{summary.get('device', 'n/a')}, {summary.get('threads', 'n/a')} threads",
        "code": f"git commit {summary.get('git_commit') or 'unknown'}",
    }


def _write_results(file: Path, comparison: Comparison, evaluations: Mapping[str, list[Evaluation]]) -> None:
    """One row per run; losses by length in a column each."""
    lengths = sorted({r.length for found in evaluations.values() for e in found for r in e.lengths})
    keys = ("best_val_loss", "last_val_loss", "steps", "params_total", "params_scheme", "tokens_per_s", "wall_time_s")
    header = ["scheme", "seed", *keys, "peak_memory_mb", "data_sha256", "folder"]
    header += [f"{kind}_{length}" for length in lengths for kind in ("loss", "sliding_loss")]
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(header)
        for group in comparison.groups:
            for run, evaluation in zip_longest(group.runs, evaluations.get(group.label, [])):
                measured = {r.length: r for r in evaluation.lengths} if evaluation else {}
                row = [group.label, run.seed, *(run.summary[key] for key in keys)]
                row += [run.summary.get("peak_memory_mb"), run.summary["data_sha256"], run.folder]
                for length in lengths:
                    result = measured.get(length)
                    row += [result.loss, result.sliding_loss] if result else [None, None]
                writer.writerow(row)


def _beyond(of_seeds: list[Evaluation]) -> str:
    """The mean sliding loss at the longest window that the text allows, against that at the training length."""
    if not of_seeds:
        return "n/a"
    first = of_seeds[0]
    tried = [r for r in first.lengths if r.length > first.context_length and not r.note.startswith("the text")]
    if not tried:
        return "n/a"
    longest = max(tried, key=lambda result: result.length)
    if longest.note:
        return longest.note
    values = [r.sliding_loss for e in of_seeds for r in e.lengths if r.length == longest.length]
    numbers = [value for value in values if value is not None]
    return f"{sum(numbers) / len(numbers):.4f} at {longest.length:,}" if numbers else "n/a"


def _interval(low: float | None, high: float | None, sign: str = "") -> str:
    return "n/a" if low is None or high is None else f"{low:{sign}.4f} to {high:{sign}.4f}"


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"
