"""The report of a comparison: report.html, report.md, results.csv and figures."""

import base64
import csv
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from poslab.comparison.figures import svg
from poslab.comparison.groups import Comparison, Group
from poslab.comparison.panels import Panel
from poslab.runs.evaluation import Evaluation
from poslab.runs.finished import Run
from poslab.settings.roles import NOT_REPEATED, Role
from poslab.settings.train import role_of, training_of_scheme


@dataclass(frozen=True)
class Report:
    """The content of a report.

    evaluations: by label, of groups that are evaluated whole. notes: what is missing in the report, and why.
    command: what was typed to get it.
    """

    comparison: Comparison
    evaluations: Mapping[str, list[Evaluation]]
    answers: list[str]
    notes: list[str]
    panels: list[Panel]
    command: str

    @property
    def in_short(self) -> list[str]:
        """Of many answers: who is better than the baseline, who worse, and of whom neither can be shown."""
        groups, baseline, differences = self.comparison.groups, self.comparison.baseline, self.comparison.differences
        better, worse = f"better than {baseline}", f"worse than {baseline}"
        unclear = f"no difference from {baseline} can be shown"
        verdicts: dict[str, list[str]] = {better: [], unclear: [], worse: []}
        for label in (group.label for group in groups if group.label != baseline):
            claimed = better if (differences[label].mean or 0) < 0 else worse
            verdicts[claimed if differences[label].significant else unclear].append(label)
        lines = [f"lowest loss: {groups[0].label}, {groups[0].loss.mean:.4f} nats"]
        lines += [f"{said}, {len(of)} of {len(differences)}: {', '.join(of)}" for said, of in verdicts.items() if of]
        return lines if len(self.answers) > 6 else []

    def write(self, folder: Path) -> None:
        """Writes report.html, report.md, results.csv and figures/ into `folder`, over an earlier report there."""
        pictures = {name: svg(panel.figure) for name, panel in self._by_file_name().items()}
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            _write(folder / "figures" / f"{name}.svg", picture)
        environment = Environment(
            loader=PackageLoader("poslab.comparison"),
            autoescape=select_autoescape(["html.j2", "html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        content = self._content() | {"data_uris": {name: _data_uri(picture) for name, picture in pictures.items()}}
        for name in ("report.html", "report.md"):
            _write(folder / name, environment.get_template(f"{name}.j2").render(content))
        _write_results(folder / "results.csv", self.comparison, self.evaluations)

    def _by_file_name(self) -> dict[str, Panel]:
        """The panels by names that any file system takes, each different."""
        panels: dict[str, Panel] = {}
        for panel in self.panels:
            name = re.sub(r"[^A-Za-z0-9_]", "_", panel.name)[:80]
            while name in panels:
                name += "_"
            panels[name] = panel
        return panels

    def _content(self) -> dict[str, Any]:
        groups = self.comparison.groups
        return {
            "answers": self.answers,
            "in_short": self.in_short,
            "caveats": self.comparison.caveats,
            "notes": self.notes,
            "left_out": self.comparison.left_out,
            "baseline": self.comparison.baseline,
            "columns": COLUMNS,
            "rows": [self.row(group) for group in groups],
            "panels": self._by_file_name(),
            "command": self.command,
            "repeats": [(group.label, command_of(group)) for group in groups],
            "configurations": _configurations(groups),
            "facts": _facts(self.comparison.runs),
            "runs": self.comparison.runs,
        }

    def row(self, group: Group) -> list[str]:
        """Gives what the table says of a group, from its label and number of seeds to its loss in longer windows."""
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


COLUMNS = (
    "scheme", "n", "loss", "95 % interval", "sd", "difference", "95 % interval", "p (Holm)", "parameters added",
    "tokens/s", "peak memory, MB", "longer windows",
)  # fmt: skip


def command_of(group: Group) -> str:
    """The command that repeats a group: what was typed for one of its runs, with the seeds of all."""
    recorded = [run.config.get("overrides") for run in group.runs]
    typed = next((overrides for overrides in recorded if isinstance(overrides, list)), None)
    if typed is None:
        return "not recorded"
    settings = [str(o) for o in typed if role_of(_name(str(o))) not in NOT_REPEATED | {Role.SEED}]
    many = ["-m"] if len(group.runs) > 1 else []
    seeds = ",".join(str(seed) for seed in group.losses)
    return shlex.join(["python", "scripts/train.py", *many, *settings, f"seed={seeds}"])


def _name(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _configurations(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """(whose it is, yaml): each scheme's settings, and all others, once where they are the same."""
    schemes: dict[str, Any] = {}
    others: dict[str, list[str]] = {}
    without = NOT_REPEATED | {Role.SEED, Role.SCHEME}
    for group in groups:
        config = group.runs[0].config
        training = training_of_scheme(config)
        shown = {key: value for key, value in config.items() if role_of(key) not in without}
        schemes[group.label] = shown.pop("pos") | training
        shown["optim"] = {key: value for key, value in shown["optim"].items() if key not in training}
        others.setdefault(_yaml(shown), []).append(group.label)
    shared = [("all others" if len(others) == 1 else f"others, {', '.join(of)}", text) for text, of in others.items()]
    return [("of the schemes", _yaml(schemes)), *shared]


def _yaml(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def _facts(runs: Sequence[Run]) -> dict[str, str]:
    """Facts that all runs have in common, or the values that they have."""

    def all_of(key: str) -> str:
        values = [getattr(run.summary, key) for run in runs]
        return " or ".join(dict.fromkeys(f"{v:,}" if isinstance(v, int) else str(v or "unknown") for v in values))

    packages = dict.fromkeys(name for run in runs for name in run.summary.versions)
    versions = {name: dict.fromkeys(str(run.summary.versions.get(name)) for run in runs) for name in packages}
    return {
        "text": f"{all_of('data')}, {all_of('train_tokens')} training tokens and "
        f"{all_of('validation_tokens')} validation tokens",
        "sha256 of the text": all_of("data_sha256"),
        "vocabulary": f"{all_of('vocabulary')}, {all_of('vocabulary_size')} tokens",
        "model": f"{all_of('params_trunk')} parameters without positions, trained to {all_of('context_length')} tokens",
        "training": f"{all_of('steps')} steps",
        "device": f"{all_of('device')}, {all_of('threads')} threads",
        "code": f"git commit {all_of('git_commit')}, fingerprint {all_of('code_fingerprint')}",
        "packages": ", ".join(f"{name} {' or '.join(numbers)}" for name, numbers in versions.items()),
    }


def _data_uri(picture: str) -> str:
    """A picture within the page: nothing is fetched, and the ids within two pictures can't get mixed up."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.encode()).decode()


def _write(file: Path, text: str) -> None:
    """Writes text in which the name of a folder may hold bytes that are no text."""
    file.write_text(text, encoding="utf-8", errors="replace")


def _write_results(file: Path, comparison: Comparison, evaluations: Mapping[str, list[Evaluation]]) -> None:
    """Writes a row for each run: what its summary says, and its losses by length in a column each."""
    rows: list[dict[str, Any]] = []
    for group in comparison.groups:
        for run, evaluation in zip_longest(group.runs, evaluations.get(group.label, [])):
            summary = {key: value for key, value in vars(run.summary).items() if not isinstance(value, dict)}
            rows.append({"scheme": group.label, "folder": run.folder, **summary})
            for result in evaluation.lengths if evaluation else []:
                rows[-1] |= {f"loss_{result.length}": result.loss, f"sliding_loss_{result.length}": result.sliding_loss}
    with file.open("w", newline="", encoding="utf-8", errors="replace") as opened:
        writer = csv.DictWriter(opened, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


def _beyond(of_seeds: list[Evaluation]) -> str:
    """The mean sliding loss at the longest window beyond the training length, or why none was measured."""
    results = [result for e in of_seeds for result in e.lengths if result.length > e.context_length]
    measured = [(result.length, result.sliding_loss) for result in results if result.sliding_loss is not None]
    if not measured:
        return next((result.note for result in results if result.note), "n/a")
    longest = max(length for length, _ in measured)
    return f"{fmean(loss for length, loss in measured if length == longest):.4f} at {longest:,}"


def _interval(low: float | None, high: float | None, sign: str = "") -> str:
    return "n/a" if low is None or high is None else f"{low:{sign}.4f} to {high:{sign}.4f}"


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"
