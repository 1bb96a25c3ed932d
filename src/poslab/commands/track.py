"""Command `track`: a positional encoding is tried, tuned, trained over all seeds beside the control, and judged.

Each step is a sweep of `train` in a folder of its own, so that the same command goes on from wherever it was cut off.
"""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import forkserver
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from poslab.commands.check import run_check
from poslab.commands.cli import run_program
from poslab.commands.train import run_train
from poslab.config.checking import imported
from poslab.config.command_line import argv_of
from poslab.config.files import BUNDLED_DATA, require_writable, safe_name, write_whole
from poslab.config.nodes import TARGET, with_settings
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.scripts import CheckConfig, TrackConfig
from poslab.errors import RunStopped, SettingError, as_typed
from poslab.positions import PositionScheme
from poslab.progress import Interval
from poslab.runs.code import fingerprints
from poslab.runs.folder import RUNS
from poslab.signals import deaf_to_interrupts, end_with_parent
from poslab.track.board import write_board
from poslab.track.entry import CONFIRMING, COST, LOSS, TUNING, Entry, board_values, read_entries, rows_of_runs, typed
from poslab.track.rules import Rules, read_rules
from poslab.track.verdict import own_verdict
from seedstats.page.terminal import clock, table

BOARD = "board"
LOOK = 0.5  # seconds between two looks at the runs
Recipe = Mapping[str, float]  # rate and factor
_RATE, _FACTOR = "optim.learning_rate", "optim.position_learning_rate_factor"


@dataclass(frozen=True)
class Encoding:
    """Encoding by its name in the track, and by its class and settings as they are typed."""

    name: str
    pos: Mapping[str, str]

    @cached_property
    def scheme(self) -> PositionScheme:
        return parse_scheme(with_settings({}, self.pos))

    @property
    def source(self) -> str | None:
        return fingerprints(self.scheme)["scheme_fingerprint"]

    @property
    def overrides(self) -> dict[str, str]:
        """Return the settings of train that choose it."""
        named = "own" if "." in self.pos[TARGET] else self.pos[TARGET]
        given = {f"pos.{name}": value for name, value in self.pos.items() if name != TARGET or named == "own"}
        return {"pos": named} | given


def run_track(config: TrackConfig) -> None:
    """Enter a scheme, or make the board. Raises UserError for what can't be entered, RunStopped for failed runs."""
    folder = Path(config.track).expanduser() if config.track else BUNDLED_DATA / "track"
    rules = read_rules(folder)
    entries = read_entries(folder, rules)
    target = config.pos[TARGET]
    if target == BOARD:
        print(f"board   {write_board(folder, entries, rules)}")
        return
    own = Encoding(config.name or target.split(".")[-2:][0], config.pos)
    control, yardstick = (Encoding(name, {TARGET: name}) for name in (rules.control, rules.yardstick))
    if own.name != safe_name(own.name) or any(own.name == one.name and own != one for one in (control, yardstick)):
        raise SettingError("name", own.name, "can't be this entry's; name=NAME gives it another, of letters and digits")
    if own.name in entries and not entries[own.name].is_of(own.source, typed(node_of(own.scheme))):
        raise SettingError("name", own.name, "is the name of another entry; name=NAME gives this one its own")
    require_writable("track", folder)
    print(f"check {own.name}", flush=True)
    run_check(CheckConfig(pos=dict(config.pos)))

    # The control's recipe is that of its own entry, if there is one; its runs serve all entries of this machine.
    runs = RUNS / folder.absolute().name if config.runs is None else Path(config.runs).expanduser()
    runs = runs / f"version{rules.version}{'-quick' * config.quick}"
    track = Track(rules.hurried if config.quick else rules, runs, config.jobs)
    competitors = {own.name: own, control.name: control}
    recipes: dict[str, Mapping[str, Recipe]] = {}
    if control.name in entries and control.name != own.name:
        recipes[control.name] = {data: entries[control.name].recipe(control.name, data) for data in rules.data}
    to_tune = [encoding for name, encoding in competitors.items() if name not in recipes]
    track.plan(to_tune, len(competitors))
    rows = []
    for encoding in to_tune:
        recipes[encoding.name], tuning = track.tuned(encoding)
        rows += [tuning] if encoding is own else []
    rows += [track.confirmed(encoding, recipes[name]) for name, encoding in competitors.items()]
    rows.append(track.costs(list({one.name: one for one in (own, yardstick)}.values())))
    entry = Entry(own.name, pd.concat(rows, ignore_index=True))
    entry.require_one_machine()
    print(*verdict_lines(entry, {} if config.quick else entries, track.rules), sep="\n")
    if config.quick:
        print("A quick try, of fewer steps and seeds: no entry of the track.")
        return
    entry.write(folder / f"{own.name}.csv")
    if "." in target and not target.startswith("poslab."):  # its one file stands beside the others from outside
        file = Path(str(sys.modules[imported(target, "pos").__module__].__file__))
        (folder / "entries").mkdir(exist_ok=True)
        write_whole(folder / "entries" / f"{own.name}.py", file.read_bytes())
    print(f"entry   {folder / own.name}.csv\nboard   {write_board(folder, {**entries, own.name: entry}, rules)}")


class Track:
    """Runs of a track, in a folder for each encoding and stage, and the time that they take."""

    def __init__(self, rules: Rules, runs: Path, jobs: int) -> None:
        self.rules, self.runs, self.jobs = rules, runs, jobs
        self.later = 0.0  # seconds on one processor that later steps take, as planned
        self.pace = 1 / jobs  # seconds of the clock for each of these

    def plan(self, to_tune: Sequence[Encoding], competitors: int) -> None:
        """Add up what will be trained. Edges are not known yet, and costs are short."""
        rates = sum(len(self.factors(encoding)) for encoding in to_tune) * len(self.rules.rates)
        times = rates * len(self.rules.tuning_seeds) + competitors * len(self.rules.seeds)
        self.later = times * sum(about.seconds for about in self.rules.data.values())

    def factors(self, encoding: Encoding) -> Sequence[float]:
        return self.rules.factors if encoding.scheme.overrides("tables") else [1.0]

    def tuned(self, encoding: Encoding) -> tuple[dict[str, Recipe], pd.DataFrame]:
        """Return the recipe with the lowest loss in range for each data set, and all runs. A rate at the edge that wins
        is followed one step further."""
        rates, data = self.rules.rates, self.rules.data
        tried: list[tuple[str, Recipe]] = [
            (name, {"rate": rate, "factor": factor})
            for name in data
            for factor in self.factors(encoding)
            for rate in rates
        ]
        rows = self.train("tuning", TUNING, encoding, tried)
        edges = [(name, further) for name in data if (further := beyond(chosen(rows, name), rates))]
        if edges:
            self.later += sum(data[name].seconds for name, _ in edges) * len(self.rules.tuning_seeds)
            rows = self.train("edges of", TUNING, encoding, [*tried, *edges])
        return {name: chosen(rows, name) for name in data}, rows

    def confirmed(self, encoding: Encoding, recipes: Mapping[str, Recipe]) -> pd.DataFrame:
        return self.train("confirming", CONFIRMING, encoding, list(recipes.items()))

    def costs(self, encodings: Sequence[Encoding]) -> pd.DataFrame:
        """Return runs of the encoding and the yardstick, which run side by side."""
        nodes = [encoding.overrides | self.rules.cost for encoding in encodings]
        return self.sweep("costs", COST, encodings, nodes, self.rules.cost_seeds, 0.0)

    def train(self, what: str, stage: str, encoding: Encoding, grid: Sequence[tuple[str, Recipe]]) -> pd.DataFrame:
        """Run data sets with recipes, and return their runs."""
        # Tuning looks at nothing beyond the range.
        tuning: dict[str, Any] = {"evaluation.lengths": []} if stage == TUNING else {}
        of_grid = (
            self.rules.data[name].settings | {_RATE: recipe["rate"], _FACTOR: recipe["factor"]} for name, recipe in grid
        )
        nodes = [encoding.overrides | tuning | settings for settings in of_grid]
        seeds = self.rules.tuning_seeds if stage == TUNING else self.rules.seeds
        seconds = sum(self.rules.data[name].seconds for name, _ in grid) * len(seeds)
        self.later = max(0.0, self.later - seconds)
        return self.sweep(what, stage, [encoding], nodes, seeds, seconds)

    def sweep(
        self,
        what: str,
        stage: str,
        encodings: Sequence[Encoding],
        nodes: Sequence[Mapping[str, Any]],
        seeds: Sequence[int],
        seconds: float,
    ) -> pd.DataFrame:
        """Run a sweep of training, with one line of progress, and return its runs.

        nodes: settings, each for all seeds. seconds: that all runs take on one processor.
        """
        folder, number = self.runs / encodings[0].name / stage, len(nodes) * len(seeds)
        log = folder.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        recipes = {(node["experiment"].rpartition("/")[2], node.get(_RATE), node.get(_FACTOR)) for node in nodes}

        def finished() -> pd.DataFrame:  # an earlier recipe's may be there, too
            of_each = (
                rows_of_runs(folder, stage, one.name, self.rules, node_of(one.scheme), one.source) for one in encodings
            )
            rows = pd.concat(of_each, ignore_index=True)
            keys = zip(rows["data"], rows["rate"], rows["factor"], strict=True)
            of_recipes = pd.Series([stage == COST or key in recipes for key in keys], rows.index, dtype=bool)
            return rows[of_recipes & rows["seed"].isin(seeds)]

        def over() -> int:
            return sum(1 for name in ("summary.json", "diverged.json") for _ in folder.glob(f"*/{name}"))

        there, others, begun, minute, shown = len(finished()), over(), time.monotonic(), Interval(60), -1
        with _sweeping([*_sweep_of(nodes, seeds), f"run_dir={folder}"], log, self.jobs) as processes:
            while any(process.is_alive() for process in processes):
                done = over() - others
                if done and seconds:
                    self.pace = (time.monotonic() - begun) / (seconds * done / number)
                left = self.pace * (seconds * max(0, number - there - done) / number + self.later)
                line = f"{what} {encodings[0].name}: {there + done} of {number} runs, about {clock(left)} to go"
                if sys.stdout.isatty():
                    print(f"\r\033[K{line}", end="", flush=True)
                elif done != shown or minute.is_over():
                    print(line, flush=True)
                    shown = done
                time.sleep(LOOK)
        found = finished()
        if len(found) < number:
            raise RunStopped(
                f"{number - len(found)} runs failed; {log} says why, and the same command tries them again"
            )
        start = "\r\033[K" if sys.stdout.isatty() else ""
        print(f"{start}{what} {encodings[0].name}: {number} runs", flush=True)
        return found


def _sweep_of(nodes: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[str]:
    """Return the arguments of `train` for settings, each for all seeds."""
    grids = [",".join(f"{name}:{_quoted(value)}" for name, value in node.items()) for node in nodes]
    listed = ",".join(f"{{{grid}}}" for grid in grids)
    return ["-m", f"hydra.sweeper.grids=[{listed}]", f"seed={','.join(map(str, seeds))}", "keep_last=false"]


def _quoted(value: Any) -> str:
    text = as_typed(value).replace("'", "\\'")
    return f"'{text}'"


@contextmanager
def _sweeping(arguments: list[str], log: Path, jobs: int) -> Iterator[Sequence[Any]]:
    """Give so many processes that run the same sweep: each job goes to the first of them, by the job's lock."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"  # on Windows
    context: Any = multiprocessing.get_context(method)
    context.set_forkserver_preload(["poslab.sweep.loaded"])
    if method == "forkserver":
        with deaf_to_interrupts():  # Ctrl-C is for this process alone
            forkserver.ensure_running()
    processes = [context.Process(target=_sweep, args=(arguments, log)) for _ in range(jobs)]
    try:
        for process in processes:
            process.start()
        yield processes
    except BaseException:
        for process in processes:
            process.terminate()  # its runs save what they have
        for process in processes:
            process.join(timeout=40)
            process.kill()
        print("\nthe same command goes on from here")
        raise


def _sweep(arguments: list[str], log: Path) -> None:
    """Run a sweep in a process of its own, which ends with the one that started it."""
    end_with_parent()
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C goes to the command alone, which tells this process to end
    with log.open("a", encoding="utf-8") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    sys.argv = argv_of("train", *arguments)
    run_program(run_train, arguments)


def chosen(rows: pd.DataFrame, data: str) -> Recipe:
    """Return the recipe of a data set with the lowest mean loss over seeds; a diverged run has an infinite one."""
    rate, factor = rows[rows["data"] == data].groupby(["rate", "factor"])[LOSS].mean().idxmin()
    return {"rate": float(rate), "factor": float(factor)}


def beyond(best: Recipe, rates: Sequence[float]) -> Recipe | None:
    """Return the recipe one step beyond the rates, if the best one is at their edge."""
    further = {max(rates): 2 * max(rates), min(rates): min(rates) / 2}
    return {**best, "rate": further[best["rate"]]} if best["rate"] in further else None


def verdict_lines(entry: Entry, entries: Mapping[str, Entry], rules: Rules) -> list[str]:
    """Return what is shown of an entry, and where it would stand on the board."""
    values = board_values({entry.name: entry, **{k: e for k, e in entries.items() if k != entry.name}}, rules)
    verdict, control = own_verdict(entry.name, rules.control, values, rules.margin), rules.control
    rows, places = [], []
    for (data, metric), of_names in values.items():
        means = {name: fmean(of.values()) for name, of in of_names.items()}
        ranked = sorted(means, key=lambda name: metric.sign * means[name])
        places.append(f"{1 + ranked.index(entry.name)} of {len(ranked)}")
        against = verdict[data, metric]
        best = next((other for other in against if other != control), control)
        row = [f"{data} at {metric.length}", *(metric.text(means[name]) for name in (entry.name, control))]
        row += [against.get(control, ""), best, metric.text(means[best]), against.get(best, ""), places[-1]]
        rows.append(row)
    head = ["", entry.name, control, f"than {control}", "best other", "", "than that", "place"]
    equal = f"equal: within {rules.margin:g}; Holm's correction for all {sum(map(len, verdict.values()))}"
    return ["", table(head, rows, align="<>><<><<"), f"better, worse, {equal}", ""]
