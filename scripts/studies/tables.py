"""The tables of the study "scheme or recipe?": choosing.csv.gz has the first stage, runs.csv.gz the second, a row for
each run, metric and length; README.md beside them explains the columns."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data/studies/scheme-or-recipe"
SCHEMES = ("nope", "absolute", "absolute_offset", "rope", "randomized", "alibi", "t5", "shaw", "kerple", "fire")
TWIN, COUNTED = "rope_twin", "randomized_counted"  # rope by another name; randomized that counts 0, 1, 2, ... in tests
BEYOND = {"back": 64, "copy": 60, "recall": 96, "majority": 51}  # lengths of tests, twice those of training
LONGER = ("copy", "recall")  # tasks that were also trained with twice the steps
TEXTS = ("tinyshakespeare.txt", "python_library")


def read(name: str) -> pd.DataFrame:
    """Return a table of the study; a metric without a length has length 0."""
    return pd.read_csv(FOLDER / name, low_memory=False).fillna({"length": 0})


def by_seed(table: pd.DataFrame, data: str, recipe: str, metric: str = "exact", length: int = 0) -> pd.DataFrame:
    """Return a metric by scheme and seed; of a task, by default at twice the length, `exact`: all answers are right.
    Raises ValueError for a run that is there twice, isn't there or diverged."""
    length = length or (BEYOND[data] if metric == "exact" else 0)
    own = (table["data"] == data) & (table["recipe"] == recipe) & (table["metric"] == metric)
    found = table[own & (table["length"] == length)].pivot(index="scheme", columns="seed", values="value")
    if found.isna().any(axis=None):
        raise ValueError(f"{metric} on {data} with the {recipe} recipe: a scheme lacks a seed")
    return found


def values(
    table: pd.DataFrame, data: str, recipe: str, metric: str = "exact", *, schemes: Sequence[str] = SCHEMES
) -> Array:
    """Return a metric as an array (schemes, n seeds). Raises KeyError for a scheme that has none."""
    return by_seed(table, data, recipe, metric).loc[[*schemes]].to_numpy()
