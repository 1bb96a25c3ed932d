"""Study of blocks: the rule that chose its learning rates, its tables and its figure.

The rule: for each scheme, block and text the rate with the lowest mean, over the seeds, of the best validation loss. A
rate with which a run diverged counts as infinitely bad.
"""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from studies.figures import COLOURS
from studies.tables import TEXTS, TWIN

FOLDER = Path(__file__).resolve().parents[2] / "data/studies/blocks"
BLOCKS = ("gpt2-muon", "gpt2", "gpt2-qknorm", "modern")  # neighbours have all else in common
TABLES = {"choosing": ["rate"], "runs": [], "ladder": ["model.embed_dim"]}  # and columns that only one of them has
_CELL = ["data", "block", "name"]
_METRICS = ("last_loss", "test loss", "best validation loss")  # that are published


def read_results(file: Path) -> pd.DataFrame:
    """Return the rows of trained runs on whole texts in what a comparison has written, with their block and rate."""
    rows = pd.read_csv(file, dtype={"model.qk_norm": str, "interleaved": str})
    rows = rows[rows["stretch"].isna() & rows["status"].isin(["finished", "diverged"])]
    block = rows["model"].where(rows["model"] != "mini", "gpt2")
    for column, usual in (("model.qk_norm", "none"), ("optim", "adamw")):
        if column in rows:  # of one text there are two blocks only
            special = (rows[column].fillna(usual) != usual) & (block == "gpt2")
            block = block.mask(special, "gpt2-qknorm" if usual == "none" else "gpt2-muon")
    name = rows["name"].mask(rows["interleaved"] == "true", TWIN)
    return rows.assign(block=block, name=name, seed=rows["seed"].astype(int), rate=rows["optim.learning_rate"])


def publish(rows: pd.DataFrame, name: str) -> Path:
    """Add rows to a published table, whose order does not depend on when they came."""
    file = FOLDER / f"{name}.csv.gz"
    columns = ["data", "metric", "length", "name", "block", *TABLES[name], "seed", "value", "status", "unit", "better"]
    kept = rows[rows["metric"].isin(_METRICS)][columns]
    known = pd.read_csv(file) if file.exists() else kept[:0]
    table = pd.concat([known, kept]).drop_duplicates(columns[:-4], keep="last")
    place = table["metric"].map(_METRICS.index)  # because a comparison takes the first metric
    table = table.assign(place=place).sort_values(["data", "place", *columns[2:-4]]).drop(columns="place")
    table.to_csv(file, index=False, compression={"method": "gzip", "mtime": 0})
    return file


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the chosen rate of each cell, its mean loss, and the rates that were tried."""
    losses = rows[rows["metric"] == "best validation loss"]
    losses = losses.assign(value=losses["value"].where(losses["status"] == "finished", float("inf")))
    if (uneven := losses.groupby([*_CELL, "rate"])["seed"].nunique()).nunique() > 1:
        raise SystemExit(f"a seed is missing: {uneven.idxmin()} has {uneven.min()} of {uneven.max()}")
    means = losses.groupby([*_CELL, "rate"], as_index=False)["value"].mean()
    best = means.loc[means.groupby(_CELL)["value"].idxmin()].reset_index(drop=True)
    best["tried"] = means.groupby(_CELL)["rate"].agg(lambda rates: " ".join(map(str, rates))).to_numpy()
    return best.rename(columns={"value": "loss"}).round(4)


def figure(table: pd.DataFrame) -> Figure:
    """Draw each scheme's loss in range and excess by block, a line through the means, each seed a dot."""
    drawn = Figure(figsize=(12, 7), layout="constrained")
    losses = table[table["metric"] == "last_loss"].pivot(
        index=["data", "name", "seed"], columns=["length", "block"], values="value"
    )
    panels = {"loss in range": losses[64], "excess, loss at 512 less at 64": losses[512] - losses[64]}
    for place, (data, (title, found)) in enumerate(product(TEXTS, panels.items()), start=1):
        axes, last = drawn.add_subplot(2, 2, place), -np.inf
        of = found.loc[data].reindex(columns=BLOCKS).dropna(axis=1)
        means = of.groupby("name").mean()
        for scheme in means.index[means.iloc[:, -1].argsort()].intersection([*COLOURS], sort=False):
            style: dict[str, Any] = {"color": COLOURS[scheme], "clip_on": False}
            axes.plot(of.columns, means.loc[scheme], lw=2, **style)
            axes.plot(of.columns, of.loc[scheme].T, ".", ms=4, alpha=0.5, **style)
            last = max(means.loc[scheme].iloc[-1], last + np.ptp(of) / 18)  # so that names never overlap
            axes.text(len(of.columns) * 1.04 - 1, last, scheme, color=COLOURS[scheme], fontsize=12, va="center")
        axes.set_title(f"{data}: {title}", fontsize=12)
        axes.set_ylabel("nats")
        axes.set_xmargin(0.02)
        axes.spines[["top", "right"]].set_visible(False)
    return drawn


def main(name: str = "", results: str = "") -> None:
    """Add the results of a comparison to the table of a name, if given. Make rates and figure from the tables."""
    if name:
        publish(read_results(Path(results)), name)
    chosen = choose(pd.read_csv(FOLDER / "choosing.csv.gz"))
    chosen.to_csv(FOLDER / "rates.csv", index=False, lineterminator="\n")
    print(chosen.to_string(index=False))
    figure(pd.read_csv(FOLDER / "runs.csv.gz")).savefig(FOLDER / "figure.png", dpi=100, metadata={"Software": None})
