"""Entry of a track: NAME.csv, a row for each run, with the encoding's settings and source, versions and processor."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from poslab.config.files import write_whole
from poslab.config.nodes import TARGET, given_settings, shown
from poslab.errors import UserError, as_typed, first_line
from poslab.runs.load import Run, read_runs
from poslab.track.rules import Rules
from poslab.track.verdict import Figure
from seedstats.statistics.paired import Figures

TUNING, CONFIRMING, COST = "tuning", "confirming", "cost"  # stages of an entry, a sweep each
LOSS = "best_validation_loss"
_PLACES = ("in_range", "beyond")  # columns of the figures at a data set's lengths
_MACHINE = ["processor", "versions", "code"]  # the same in all rows of an entry
_RUN = ("seed", "status", LOSS, *_PLACES, "parameters", "tokens_per_s", "peak_memory_mb")
COLUMNS = ["stage", "name", "data", "rate", "factor", *_RUN, "settings", "source", *_MACHINE, "rules"]


@dataclass(frozen=True)
class Entry:
    """Entry: its name, and the rows of its runs, the control's and the yardstick's among them."""

    name: str
    rows: pd.DataFrame

    @property
    def machine(self) -> str:
        return ", ".join(self.rows[_MACHINE[:2]].iloc[0])

    def is_of(self, source: str | None, settings: str) -> bool:
        """Return whether it is of an encoding with this source and these settings."""
        own = self.rows[self.rows["name"] == self.name].fillna("")
        return {*zip(own["source"], own["settings"], strict=True)} == {(source or "", settings)}

    def of(self, stage: str, name: str, data: str) -> pd.DataFrame:
        """Return the rows of an encoding on a data set, by seed."""
        rows = self.rows
        return rows[(rows["stage"] == stage) & (rows["name"] == name) & (rows["data"] == data)].set_index("seed")

    def values(self, figure: Figure, name: str, rules: Rules) -> Figures:
        """Return the figures of the encoding or its control by seed, infinitely bad where a run has none."""
        data, metric = figure
        column = _PLACES[rules.data[data].lengths.index(metric.length or 0)]
        known = self.of(CONFIRMING, name, data)[column].dropna()
        return {seed: float(known.get(seed, metric.sign * math.inf)) for seed in rules.seeds}

    def recipe(self, name: str, data: str) -> dict[str, float]:
        """Return the rate and the factor with which a data set was confirmed."""
        first = self.of(CONFIRMING, name, data).iloc[0]
        return {key: float(first[key]) for key in ("rate", "factor")}

    def cost(self, rules: Rules) -> tuple[int, float, float]:
        """Return parameters for position, and a step's time and the peak memory as multiples of the yardstick's."""
        (data,) = self.rows.loc[self.rows["stage"] == COST, "data"].unique()
        own, other = (self.of(COST, name, data) for name in (self.name, rules.yardstick))
        slower, larger = other["tokens_per_s"] / own["tokens_per_s"], own["peak_memory_mb"] / other["peak_memory_mb"]
        return int(own["parameters"].iloc[0]), float(slower.median()), float(larger.median())

    def write(self, file: Path) -> None:
        write_whole(file, self.rows.to_csv(index=False, lineterminator="\n"))

    def require_one_machine(self) -> None:
        """Raise UserError unless all runs are of one machine, and of the same versions."""
        if len(self.rows[_MACHINE].drop_duplicates()) != 1:
            raise UserError(
                f"{self.name}: has runs of several machines or versions; without those, they are trained anew"
            )


def read_entry(file: Path, rules: Rules) -> Entry:
    """Return an entry. Raises UserError, with the file, for one that is damaged, lacks a seed or has other rules."""
    try:
        entry = Entry(file.stem, pd.read_csv(file))
        seeds = {tuple(entry.of(CONFIRMING, name, data).index.sort_values())
                 for name in (entry.name, rules.control) for data in rules.data}  # fmt: skip
        if {*entry.rows["rules"]} != {rules.version} or seeds != {tuple(sorted(rules.seeds))}:
            raise ValueError(f"has other rules than version {rules.version}, or not all of its seeds, each once")
        entry.require_one_machine()
        entry.cost(rules)
        for figure in rules.figures:
            entry.values(figure, entry.name, rules)
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise UserError(f"{file}: {first_line(error)}; it is no entry of this track") from error
    return entry


def read_entries(folder: Path, rules: Rules) -> dict[str, Entry]:
    """Return the entries in the folder of a track, by name."""
    return {file.stem: read_entry(file, rules) for file in sorted(folder.glob("*.csv"))}


def board_values(entries: Mapping[str, Entry], rules: Rules) -> dict[Figure, dict[str, Figures]]:
    """Return the figures by name and seed, of several machines as if on the first entry's, and those of its control."""
    values: dict[Figure, dict[str, Figures]] = {}
    first = next(iter(entries.values()))
    for figure in rules.figures:
        shared = first.values(figure, rules.control, rules)
        values[figure] = {rules.control: shared}
        for name, entry in entries.items():
            own = entry.values(figure, name, rules)
            control, least, most = entry.values(figure, rules.control, rules), -math.inf, math.inf
            if figure[1].is_proportion:
                least, most = 0.0, 1.0
            # The same machine's control is the same to the bit, so that nothing moves.
            moved = {seed: min(most, max(least, x + (shared[seed] - control[seed]))) for seed, x in own.items()}
            own = {
                seed: moved[seed] if math.isfinite(x + shared[seed] - control[seed]) else x for seed, x in own.items()
            }
            values[figure][name] = shared if name == rules.control else own
    return values


def rows_of_runs(folder: Path, stage: str, name: str, rules: Rules, node: Any, source: str | None) -> pd.DataFrame:
    """Return a row for each run in the folder of a stage, but those of another encoding, as before an edit.

    node, source: of this one.
    """
    runs = read_runs([str(folder)])[0] if folder.is_dir() else []
    rows = [
        {"stage": stage, "name": name, "rules": rules.version} | _row(run, data, rules)
        for run in runs
        if run.config["pos"] == node and run.summary.scheme_fingerprint == source and (data := _data(run)) in rules.data
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def typed(node: Mapping[Any, Any]) -> str:
    """Return the settings of an encoding, defaults included, as one types them."""
    return " ".join(f"{name}={as_typed(value)}" for name, value in shown(node).items() if name != TARGET)


def _data(run: Run) -> str:
    """Return the name of a run's data set, that of its experiment."""
    return given_settings(run.config.get("overrides") or ()).get("experiment", "").rpartition("/")[2]


def _row(run: Run, data: str, rules: Rules) -> dict[str, Any]:
    summary, optim, about = run.summary, run.config["optim"], rules.data[data]
    figures = [None if run.diverged else run.value(about.metric, length) for length in about.lengths]
    return dict(zip(_PLACES, figures, strict=True)) | {
        "data": data,
        "rate": optim["learning_rate"],
        "factor": optim["position_learning_rate_factor"],
        "seed": run.seed,
        "status": "diverged" if run.diverged else "finished",
        LOSS: math.inf if run.diverged else summary.best_val_loss,
        "parameters": summary.params_scheme,
        "tokens_per_s": summary.tokens_per_s,
        "peak_memory_mb": summary.peak_memory_mb,
        "settings": typed(run.config["pos"]),
        "source": summary.scheme_fingerprint,
        "versions": f"python {summary.versions['python']}, torch {summary.versions['torch']}",
        "processor": summary.device,
        "code": summary.code_fingerprint,
    }
