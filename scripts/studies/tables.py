"""Tables of the study "scheme or recipe?": complete seeds of its sweeps, a row for each run, metric and length.

choosing.csv.gz has the first stage, runs.csv.gz the second; their README is the dictionary of the columns. Rows are
added and replaced, never removed, so seeds may come from several machines. A seed of a task or text is complete once
each of its planned runs is finished or diverged.
"""

import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from omegaconf import OmegaConf

from poslab.config.files import CONFIGS
from poslab.errors import SettingError, UserError
from poslab.metric import TEST_LOSS
from poslab.runs.evaluation import read_evaluation
from poslab.runs.groups import by_data
from poslab.runs.load import Run, read_runs
from poslab.runs.plan import PlannedGroup, keys_of, read_plan
from poslab.runs.table import run_table

TASKS, CONTROL = ("back", "majority", "recall", "copy"), "parity"
TEXTS = {"tinyshakespeare.txt": "shakespeare_characters", "python_library": "python_library"}  # names in runs: options
SCHEMES = ("nope", "absolute", "absolute_offset", "rope", "randomized", "alibi", "t5", "shaw", "kerple", "fire")
TWIN, COUNTED = "rope_twin", "randomized_counted"  # rope by another name; randomized that counts 0, 1, 2, ... in tests
CHOOSING, CONFIRMING, CONFIRMING_TEXTS = (1, 2), tuple(range(101, 109)), tuple(range(101, 107))  # seeds
LONGER = 2  # times the steps, of which copy and recall have as many as most seeds need
BEYOND = {"back": 64, "copy": 60, "recall": 96, "majority": 51, CONTROL: 40}  # lengths of tests: 2 x that of training
FILES = {"choosing": "choosing.csv.gz", "confirming": "runs.csv.gz"}
_ORDER = ["data", "metric", "length", "scheme", "recipe", "learning_rate", "init_std", "position_factor", "seed"]
_FIGURE = ["data", "metric", "length", "seed", "value", "status", "unit", "better"]
COLUMNS = [*_ORDER, *_FIGURE[4:], "steps", "seconds", "threads", "processor", "commit", "versions"]


class Recipe(NamedTuple):
    """Recipe of a training."""

    learning_rate: float
    init_std: float
    position_factor: float = 1.0


def default_recipe(data: str) -> Recipe:
    """Return the recipe of configs/data/task.yaml, or for a text that of experiment=extrapolation."""
    return Recipe(2e-3, 0.02) if data in TEXTS else Recipe(1e-3, 0.05)


def usual_steps(data: str) -> int:
    """Return the optimiser steps of a task by its yaml."""
    return int(OmegaConf.load(CONFIGS / "data" / f"{data}.yaml").trainer.max_steps)


def trained_length(data: str) -> int:
    """Return the longest examples that a task is trained with, by its yaml: the first length of its tests."""
    return int(OmegaConf.load(CONFIGS / "data" / f"{data}.yaml").data.test_lengths[0])


def recipe_of(run: Run) -> Recipe:
    optim, model = run.config["optim"], run.config["model"]
    return Recipe(optim["learning_rate"], model["init_std"], optim["position_learning_rate_factor"])


def scheme_of(run: Run) -> str:
    """Return the name of a run's scheme in the study."""
    settings = run.summary.pos_settings
    if run.summary.pos == "rope" and settings["interleaved"]:
        return TWIN
    return COUNTED if settings.get("count_in_evaluation") else run.summary.pos


def labels_of(run: Run, chosen: Mapping[tuple[str, str], Recipe]) -> list[str]:
    """Return which recipes of the second stage a run has: default, chosen, or both; longer, the chosen one for LONGER
    times the steps. A run of the first stage has "grid". chosen: by data and scheme."""
    data, own = run.summary.data, recipe_of(run)
    if run.seed in CHOOSING:
        return ["grid"]
    is_chosen = chosen.get((data, scheme_of(run).replace(COUNTED, "randomized"))) == own
    if data not in TEXTS and run.config["trainer"]["max_steps"] == LONGER * usual_steps(data):
        return ["longer"] * is_chosen
    is_default = own == default_recipe(data) and scheme_of(run) != COUNTED
    return ["default"] * is_default + ["chosen"] * is_chosen


def missing_runs(runs: Iterable[Run], plan: Iterable[PlannedGroup]) -> Counter[tuple[str, int]]:
    """Return how many planned runs each seed of each task or text lacks, by (data, seed); a complete one lacks none."""
    there = {(keys_of(run)[0], run.seed) for run in runs}
    missing: Counter[tuple[str, int]] = Counter()
    for group in plan:
        for seed in group.seeds:
            missing[group.data, seed] += (group.group, seed) not in there
    return missing


def rows_of(runs: Sequence[Run], chosen: Mapping[tuple[str, str], Recipe]) -> pd.DataFrame:
    """Return the rows of runs, with COLUMNS. A run with two recipes, as the chosen one is the default, has rows of
    each. Raises UserError for a diverged run whose settings no finished run has, as nothing says what it lacks."""
    known = {run.folder: read_evaluation(run.folder) for run in runs}
    evaluations = {folder: evaluation for folder, evaluation in known.items() if evaluation is not None}
    found = run_table(by_data(runs, together=True), evaluations, allow_differences=True)
    about = {folder: _about(run) for folder, run in found.runs.items()}
    if lost := [str(run.folder) for run in runs if str(run.folder) not in about]:
        raise UserError(f"no rows can be made of {', '.join(lost)}")
    rows: list[dict[str, Any]] = []
    of_stretches = found.table["stretch"].notna() if "stretch" in found.table else False
    figures = found.table[found.table["folder"].isin(about) & ~of_stretches]
    for row in figures[[*_FIGURE, "folder"]].to_dict("records"):
        folder = row.pop("folder")
        rows += [row | about[folder] | {"recipe": label} for label in labels_of(found.runs[folder], chosen)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _about(run: Run) -> dict[str, Any]:
    summary = run.summary
    versions = " ".join(f"{name}={version}" for name, version in summary.versions.items())
    commit = f"{summary.git_commit}{'' if summary.git_clean else ', changed since'}"
    about = {"scheme": scheme_of(run), "steps": summary.steps, "seconds": round(summary.wall_time_s, 1)}
    about |= {"threads": summary.threads, "processor": summary.device, "commit": commit, "versions": versions}
    return about | recipe_of(run)._asdict()


def read(file: Path) -> pd.DataFrame:
    """Return a table of the study, empty if it is not there yet."""
    return _parsed(file) if file.exists() else pd.DataFrame(columns=COLUMNS)


def _parsed(text: Path | io.StringIO) -> pd.DataFrame:
    table = pd.read_csv(text, dtype=str, keep_default_na=False)
    numbers = [*Recipe._fields, "value", "seconds"]
    table[numbers] = table[numbers].replace("", "nan").astype(float)  # exactly, as pandas' own parser doesn't
    return table.assign(length=pd.to_numeric(table["length"])).astype(
        {"length": "Int64", "seed": int, "steps": int, "threads": int}
    )


def add(folders: Collection[str], data_folder: Path, chosen: Mapping[tuple[str, str], Recipe]) -> list[str]:
    """Add the complete seeds of the sweeps in these folders to the tables, and return what was done in words. Raises
    SettingError for a folder without a plan."""
    said = []
    for folder in folders:
        plan = read_plan(Path(folder))
        if not plan:
            raise SettingError("add", folder, "no plan.yaml in it; name the folder of a sweep")
        runs, left_out = read_runs([folder])
        missing = missing_runs(runs, plan)
        for (data, seed), count in sorted(missing.items()):
            said.append(f"{folder}: {data}, seed {seed}: {f'{count} runs are missing' if count else 'complete'}")
        said += [f"{left.folder}: {left.reason}" for left in left_out]
        whole = [run for run in runs if missing.get((run.summary.data, run.seed)) == 0]
        for stage, file in FILES.items():
            of_stage = [run for run in whole if (run.seed in CHOOSING) == (stage == "choosing")]
            if of_stage:
                write(data_folder / file, rows_of(of_stage, chosen))
    return said


def write(file: Path, rows: pd.DataFrame) -> None:
    """Add rows to a table; those of the same run, metric and length are replaced. Equal tables give equal bytes."""
    new = _parsed(io.StringIO(rows.to_csv(index=False)))  # of the same types
    table = pd.concat([known, new], ignore_index=True) if len(known := read(file)) else new
    table = table.drop_duplicates(_ORDER, keep="last").sort_values(_ORDER, kind="stable")
    usual = table["metric"].isin(["exact", TEST_LOSS]), table["length"].fillna(0).isin([0, *BEYOND.values()])
    first = table["recipe"].map({"default": 0, "chosen": 1}).fillna(2) + 4 * ~usual[1].astype(bool) + 8 * ~usual[0]
    table = table.iloc[first.argsort(kind="stable")]  # what a comparison takes first: metric, length and baseline
    file.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(file, index=False, columns=COLUMNS, compression={"method": "gzip", "mtime": 0})
