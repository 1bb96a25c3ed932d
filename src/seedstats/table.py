"""Results as a table: a row for each run, metric and length.

| column | meaning |
|---|---|
| name | what is compared: a method, a model, a setting; `method`, `model` or `scheme` will do |
| seed | whole number; runs of one seed are compared in pairs. Empty: a reference, such as a published value |
| value | the number; empty of a run that is missing |
| data | task or text: each is compared by itself |
| metric, length | which number it is |
| status | finished, diverged, missing, reference or, of a seed that others were to have, unplanned |
| better, unit | of the metric: lower or higher; its unit |
| look | 1, or for a seed that was added after a comparison 2, after another one 3 |
| caveat | what weakens answers from this row on, a line each; of a reference: what it means to be worse |
| folder | of the run |
| source | version of the code, where the runs have several: groups differ in it, but it is no setting |
| commit, versions, threads, processor, seconds | how and where the run was made: of no effect |
| any other | a setting: rows of one name that differ in it are of different groups |

Only the first three are needed. The first row has the usual metric and length, and the baseline. Without a status, an
empty value is of a missing run, nan or an infinite one of a run that diverged. A seed that some group has is missing
wherever it has no row.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seedstats.errors import BadTable
from seedstats.exports import NEEDED, read_exports

_WHOLE_NUMBERS = ("length", "look")
KNOWN = (*NEEDED, "data", "metric", "length", "status", "better", "unit", "look", "caveat", "folder")
SOURCE = "source"
ORIGIN = ("commit", "versions", "threads", "processor", "seconds")  # columns that are no settings
FINISHED, DIVERGED, MISSING, UNPLANNED, REFERENCE = "finished", "diverged", "missing", "unplanned", "reference"
_STATUSES = (FINISHED, DIVERGED, MISSING, UNPLANNED, REFERENCE)
_LARGEST = 1e100  # value: sums of squares of larger ones are infinite
_KEY = ("name", "seed", "data", "metric", "length")


def read_table(*files: Path | str, columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Read results from files and return them as one checked table, with all columns of KNOWN and settings as text.

    files: csv or tsv (Excel's as well, also compressed), parquet, or what wandb, TensorBoard and lm-evaluation-harness
    export. columns: where a file's columns have other names, those that are meant,
    {"name": "Model", "seed": "run", "value": "val_loss,val_acc", "settings": "lr"}; others are then ignored.

    Raises BadTable, with a line that names file, row and column, and OSError for a file that can't be opened.
    """
    return checked(read_exports([Path(file).expanduser() for file in files], columns or {}))


def checked(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table, which has the columns NEEDED, with all of KNOWN. Raises BadTable, with the first wrong row and
    column; its index has the row's number from 0, or (file, number)."""
    text = table.drop(columns=[*ORIGIN], errors="ignore").apply(_as_text)
    rows = text.assign(seed=_numbers(text, "seed"), value=_numbers(text, "value"))
    for name in _WHOLE_NUMBERS:
        rows[name] = _numbers(text, name) if name in text else np.nan
        _require((rows[name] % 1 == 0) | rows[name].isna(), name, text, "is no whole number")
    defaults = {"data": "results", "metric": "value", "better": "", "unit": "", "caveat": "", "folder": ""}
    for name, default in defaults.items():
        rows[name] = text[name].replace("", default) if name in text else default
    rows["status"] = _statuses(text, rows["value"])
    too_large = np.isfinite(rows["value"]) & (rows["value"].abs() > _LARGEST)
    _require(~too_large, "value", text, "is too large to be compared; nan stands for a run that diverged")
    _require(rows["name"] != "", "name", text, "is empty")
    if "stretch" in text:  # which reports of version 0.1 had
        _require(text["stretch"] == "", "stretch", text, "is of a passage of text, not of a run; leave such rows out")
    reference = rows["status"] == REFERENCE
    has_runs = rows["name"].isin(rows.loc[~reference, "name"])
    _require((rows["seed"] % 1 == 0) | (reference & ~has_runs), "seed", text, "is no whole number")
    _require(~(rows["seed"].abs() >= 2**53), "seed", text, "is too large to be told from its neighbours")
    _require(rows["better"].isin(["", "lower", "higher"]), "better", text, "is neither lower nor higher")
    _require_once(rows)
    _require_one(rows, text, "unit")
    _require_one(rows, text, "better")
    _require(~reference | (not reference.all()), "seed", text, "is a reference's, as all are: nothing to compare")
    shares = rows["unit"].str.startswith("of ") & (rows["status"] == FINISHED)
    _require(~shares | rows["value"].between(0, 1), "value", text, "is no proportion, as the unit says")
    rows["look"] = rows["look"].fillna(1)
    rows = rows.astype(dict.fromkeys(_WHOLE_NUMBERS, "Int64") | {"seed": "Int64", "look": "int64"})
    return _with_missing(rows.reset_index(drop=True))


def _require_one(table: pd.DataFrame, text: pd.DataFrame, name: str) -> None:
    """Raise BadTable for the first row with another unit or direction than the first one of its data and metric."""
    first = table.groupby(["data", "metric"], sort=False)[name].transform("first")
    if name in text:
        _require(table[name] == first, name, text, "is another one than in an earlier row of the same metric")


def _with_missing(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a row for each seed that a group lacks and another group on the same data has."""
    directed = table["better"] != ""  # of other metrics, such as times, no seed is missed
    run_rows = table[(directed | ~directed.any()) & (table["status"] != REFERENCE)]
    settings = [name for name in table if name not in KNOWN]
    keys = run_rows[["data", "metric", "length", "name", *settings]].astype(object).fillna("")
    seeds: dict[tuple[Any, ...], dict[tuple[Any, ...], set[int]]] = {}  # by data, metric and length, then by group
    first: dict[tuple[Any, ...], Any] = {}  # row of each group
    for index, key, seed in zip(keys.index, keys.itertuples(index=False, name=None), run_rows["seed"], strict=True):
        seeds.setdefault(key[:3], {}).setdefault(key, set()).add(seed)
        first.setdefault(key, index)
    rows, missing = [], []
    for seeds_by_group in seeds.values():
        all_seeds = set[int]().union(*seeds_by_group.values())
        for key, group_seeds in seeds_by_group.items():
            for seed in sorted(all_seeds - group_seeds):
                rows.append(first[key])
                missing.append(seed)
    added = table.loc[rows].assign(seed=missing, value=np.nan, status=MISSING, caveat="", folder="")
    return pd.concat([table, added.astype(table.dtypes)], ignore_index=True) if rows else table


def settings_of(table: pd.DataFrame) -> list[str]:
    """Return the columns that are settings.

    Raises BadTable for one that differs in every row of a name, as a time of measurement does: no two rows would be
    seeds of one group.
    """
    settings = [name for name in table if name not in KNOWN]
    there = table[table["status"].isin([FINISHED, DIVERGED])]  # rows of missing seeds repeat the settings of others
    for name in (name for name in settings if there[name].nunique() > 1):
        seeds = there.groupby(["name", name])["seed"].nunique()
        never_shared = there["seed"].nunique() > 1 and (seeds == 1).all()
        if never_shared and there[name].nunique() > len(there) / 2 > 1:
            problem = "nearly every row has a value of its own, so it can't be a setting; leave it out"
            raise BadTable(f"column {name}: {problem}")
    return settings


def _as_text(column: "pd.Series[str]") -> "pd.Series[str]":
    """Return the column as text, without spaces around it, empty where nothing stands."""
    return column.map(lambda value: "" if value is None or value is pd.NA or value != value else str(value).strip())


def _numbers(text: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return a column as numbers, NaN where it is empty."""
    blank = text[name] == ""
    numbers = text[name].map(_number).astype(float)
    _require(numbers.notna() | blank | text[name].str.lower().isin(["nan", "+nan", "-nan"]), name, text, "is no number")
    return numbers


def _number(text: str) -> float:
    try:
        return float("" if "_" in text else text)  # exactly, as pandas' own parser doesn't
    except ValueError:
        return np.nan


def _statuses(text: pd.DataFrame, values: "pd.Series[float]") -> "pd.Series[str]":
    conditions = [text["value"] == "", ~np.isfinite(values), text["seed"] == ""]
    by_value = np.select(conditions, [MISSING, DIVERGED, REFERENCE], FINISHED)
    inferred = pd.Series(by_value, text.index)
    if "status" not in text:
        return inferred
    statuses = text["status"].where(text["status"] != "", inferred)
    _require(statuses.isin(_STATUSES), "status", text, f"is none of {', '.join(_STATUSES)}")
    _require((statuses != FINISHED) | np.isfinite(values), "value", text, "is no number, of a run that is finished")
    return statuses


def _require(holds: "pd.Series[bool]", name: str, text: pd.DataFrame, problem: str) -> None:
    """Raise BadTable for the first row for which it doesn't hold."""
    if not holds.all():
        place = int((~holds).to_numpy().argmax())
        raise BadTable(f"{_row(text.index[place])}, column {name}: {text[name].iloc[place]!r} {problem}")


def _row(index: Any) -> str:
    """Return a row in words, counted as the lines of a csv file."""
    file, number = index if isinstance(index, tuple) else ("", index)
    return f"{file}: row {number + 2}".removeprefix(": ")


def _require_once(table: pd.DataFrame) -> None:
    """Raise BadTable for the first row that has the key and the settings of an earlier one."""
    key = [*_KEY, *(name for name in table if name not in KNOWN)]
    again = table.duplicated(key)
    if again.any():
        second = int(again.to_numpy().argmax())
        row = table.iloc[second]
        same = (table[key] == row[key]) | (table[key].isna() & row[key].isna())
        first = int(same.all(axis=1).to_numpy().argmax())
        seed = "without a seed" if np.isnan(row["seed"]) else f"with seed {row['seed']:.0f}"
        both = f"{_row(table.index[first])} and {_row(table.index[second])} are both {row['name']} {seed}"
        raise BadTable(f"{both}, {row['metric']}: a column that tells them apart is missing")
