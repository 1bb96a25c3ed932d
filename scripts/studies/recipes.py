"""The rule that chooses recipes, and the second stage that it makes.

For each scheme and task or text: the recipe with the lowest mean, over the seeds of the first stage, of the best
validation loss in the training range, which is that of the weights that are kept. A recipe of which any run diverged
counts as infinitely bad. Of equal ones the nearest to the default is taken: first by how many settings differ, then by
their ratios.
"""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from poslab.config.files import CONFIGS, write_whole
from poslab.errors import UserError
from poslab.metric import BEST_VALIDATION_LOSS
from seedstats.table import DIVERGED
from studies.tables import (
    CONFIRMING,
    CONFIRMING_TEXTS,
    CONTROL,
    COUNTED,
    LONGER,
    SCHEMES,
    TASKS,
    TEXTS,
    TWIN,
    Recipe,
    default_recipe,
    usual_steps,
)

FILE = "recipes.csv"
_RUN = ["data", "scheme", *Recipe._fields]
_OPTIONS = dict(
    zip(Recipe._fields, ("optim.learning_rate", "model.init_std", "optim.position_learning_rate_factor"), strict=True)
)
_SHARES = {"tinyshakespeare.txt": 0.04, "python_library": 0.009}  # of the text, for validation and for tests
Chosen = dict[tuple[str, str], Recipe]


def choose(table: pd.DataFrame) -> pd.DataFrame:
    """Return the chosen recipe of each scheme, by data: its mean loss, how many recipes were tried, and in how many a
    run diverged; nothing of a text with one seed. Raises UserError where a recipe lacks a seed that any other of the
    data has."""
    runs = table[[*_RUN, "seed"]].drop_duplicates()
    losses = table[table["metric"] == BEST_VALIDATION_LOSS][[*_RUN, "seed", "value"]]
    diverged = table[table["status"] == DIVERGED][[*_RUN, "seed"]].drop_duplicates().assign(diverged=True)
    runs = runs.merge(losses, "left", [*_RUN, "seed"]).merge(diverged, "left", [*_RUN, "seed"])
    runs["diverged"] = runs["diverged"].notna()
    runs["value"] = runs["value"].mask(runs["diverged"] | runs["value"].isna(), math.inf)
    seeds = runs.groupby(_RUN)["seed"].nunique()
    if not len(runs):
        raise UserError("no seed of the first stage is complete; add=FOLDER adds those of a sweep")
    if (short := seeds[seeds < runs.groupby("data")["seed"].nunique().reindex(seeds.index, level="data")]).size:
        raise UserError(f"{len(short)} recipes lack a seed, the first of {short.index[0]}: the first stage is not over")
    runs = runs[~runs["data"].isin([text for text in TEXTS if runs.loc[runs["data"] == text, "seed"].nunique() < 2])]
    means = runs.groupby(_RUN, as_index=False).agg(loss=("value", "mean"), diverged=("diverged", "any"))
    chosen = []
    for (data, scheme), of_scheme in means.groupby(["data", "scheme"]):
        best = min(of_scheme.to_dict("records"), key=lambda row: (row["loss"], *_distance(data, row)))
        counts = {"tried": len(of_scheme), "diverged": int(of_scheme["diverged"].sum())}
        own = {name: best[name] for name in (*Recipe._fields, "loss")}
        chosen.append({"data": data, "scheme": scheme} | own | counts)
    return pd.DataFrame(chosen)


def _distance(data: str, row: Mapping[str, Any]) -> tuple[int, float, tuple[float, ...]]:
    recipe = Recipe(*(row[name] for name in Recipe._fields))
    ratios = [abs(math.log(own / usual)) for own, usual in zip(recipe, default_recipe(data), strict=True)]
    return sum(ratio > 0 for ratio in ratios), sum(ratios), recipe


def read_chosen(folder: Path) -> Chosen:
    """Return the chosen recipes by data and scheme, empty as long as none are chosen."""
    file = folder / FILE
    rows = pd.read_csv(file).to_dict("records") if file.exists() else []
    return {(row["data"], row["scheme"]): Recipe(*(row[name] for name in Recipe._fields)) for row in rows}


def write_chosen(table: pd.DataFrame, folder: Path, confirmed: Collection[str] = ()) -> Chosen:
    """Choose from the table of the first stage; write the recipes beside it, and the experiments of the second.

    confirmed: tasks and texts of which the second stage has begun, whose recipes stay.
    """
    found = choose(table)
    if confirmed and (folder / FILE).exists():
        known = pd.read_csv(folder / FILE)
        found = pd.concat([known[known["data"].isin(confirmed)], found[~found["data"].isin(confirmed)]])
    found.to_csv(folder / FILE, index=False)
    chosen = read_chosen(folder)
    write_experiments(chosen)
    return chosen


def write_experiments(chosen: Chosen, folder: Path = CONFIGS / "experiment" / "study") -> None:
    """Write the experiments of the second stage."""
    about = (
        "# @package _global_\n"
        "# Scheme or recipe? Second stage: default and chosen recipes, seed after seed, with -m.\n"
        "# Written by scripts/study.py choose=true; recipes are chosen.\n"
    )
    for name, content in (("confirming", _tasks(chosen)), ("texts_confirming", _texts(chosen))):
        plain = yaml.safe_dump(content, sort_keys=False, width=1000, default_flow_style=None)
        write_whole(folder / f"{name}.yaml", about + plain)


def _tasks(chosen: Chosen) -> dict[str, Any]:
    grids = [{"data": data} | grid for data in (*TASKS, CONTROL) for grid in _default()]
    for data in TASKS:
        of_data = [{"data": data} | grid for grid in _chosen(data, chosen)]
        grids += of_data
        if data in ("copy", "recall"):
            steps = {"trainer.max_steps": LONGER * usual_steps(data)}
            grids += [grid | steps for grid in of_data if "pos.count_in_evaluation" not in grid]
    return {
        "defaults": [{"override /data": "back"}],
        "hydra": {"sweeper": {"params": {"seed": ",".join(map(str, CONFIRMING))}, "grids": grids}},
        "threads": 1,
    }


def _texts(chosen: Chosen) -> dict[str, Any]:
    grids = []
    for data, option in TEXTS.items():
        shares = {"data": option, "data.validation_share": _SHARES[data], "data.test_share": _SHARES[data]}
        grids += [shares | grid for grid in (*_default(), *_chosen(data, chosen))]
    return {
        "defaults": ["/experiment/extrapolation"],
        "hydra": {"sweeper": {"params": {"seed": ",".join(map(str, CONFIRMING_TEXTS))}, "grids": grids}},
    }


def _default() -> list[dict[str, Any]]:
    return [{"pos": ",".join(SCHEMES)}, _scheme(TWIN)]


def _chosen(data: str, chosen: Chosen) -> list[dict[str, Any]]:
    """Return grids of the chosen recipes: schemes with the same one together."""
    by_recipe: dict[Recipe, list[str]] = {}
    for (known, scheme), recipe in chosen.items():
        if known == data:
            by_recipe.setdefault(recipe, []).append(scheme)
    grids: list[dict[str, Any]] = []
    for recipe, names in by_recipe.items():
        shared = {_OPTIONS[name]: value for name, value in recipe._asdict().items()}
        if usual := [name for name in names if name != TWIN]:
            grids.append(shared | {"pos": ",".join(usual)})
        grids += [shared | _scheme(TWIN)] * (TWIN in names)
        grids += [shared | _scheme(COUNTED)] * ("randomized" in names and data == "recall")
    return grids


def _scheme(name: str) -> dict[str, Any]:
    if name == TWIN:
        return {"pos": "rope", "pos.interleaved": True}
    return {"pos": "randomized", "pos.count_in_evaluation": True}
