"""Study of blocks: the rule that chose its learning rates, and its figure, from its tables alone.

The rule: for each scheme, block and text the rate with the lowest mean, over the seeds, of the best validation loss. A
rate with which a run diverged counts as infinitely bad.
"""

from itertools import product
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from studies.figures import COLOURS, name_ends
from studies.tables import ROOT, TEXTS

FOLDER = ROOT / "data/studies/blocks"
BLOCKS = ("gpt2-muon", "gpt2", "gpt2-qknorm", "modern")  # neighbours have all else in common
_CELL = ["data", "block", "name"]


def choose(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the chosen rate of each cell, its mean loss, and the rates that were tried."""
    losses = rows[rows["metric"] == "best validation loss"]
    losses = losses.assign(value=losses["value"].where(losses["status"] == "finished", float("inf")))
    of_rate = losses.groupby([*_CELL, "rate"])["value"].agg(["mean", "size"])
    if of_rate["size"].nunique() > 1:
        raise SystemExit(f"a seed is missing: {of_rate['size'].idxmin()}")
    means = of_rate["mean"].reset_index(name="loss")
    best = means.loc[means.groupby(_CELL)["loss"].idxmin()].reset_index(drop=True)
    best["tried"] = means.groupby(_CELL)["rate"].agg(lambda rates: " ".join(map(str, rates))).to_numpy()
    return best.round(4)


def figure(table: pd.DataFrame) -> Figure:
    """Draw each scheme's loss in range and excess by block, a line through the means, each seed a dot."""
    drawn = Figure(figsize=(12, 7), layout="constrained")
    losses = table[table["metric"] == "last_loss"].pivot(
        index=["data", "name", "seed"], columns=["length", "block"], values="value"
    )
    panels = {"loss in range": losses[64], "excess, loss at 512 less at 64": losses[512] - losses[64]}
    for axes, (data, (title, found)) in zip(drawn.subplots(2, 2).flat, product(TEXTS, panels.items()), strict=True):
        of = found.loc[data].reindex(columns=BLOCKS).dropna(axis=1)
        means = of.groupby("name").mean().reindex(list(COLOURS)).dropna()
        for scheme, mean in means.iterrows():
            style: dict[str, Any] = {"color": COLOURS[scheme], "clip_on": False}
            axes.plot(of.columns, mean, lw=2, **style)
            axes.plot(of.columns, of.loc[scheme].T, ".", ms=4, alpha=0.5, **style)
        name_ends(axes, len(of.columns) * 1.04 - 1, means.iloc[:, -1], of.max(axis=None) - of.min(axis=None))
        axes.set_title(f"{data}: {title}", fontsize=12)
        axes.set_ylabel("nats")
        axes.set_xmargin(0.02)
    return drawn


def main() -> None:
    """Print and write the chosen rates, and draw the figure."""
    chosen = choose(pd.read_csv(FOLDER / "choosing.csv.gz"))
    chosen.to_csv(FOLDER / "rates.csv", index=False, lineterminator="\n")
    print(chosen.to_string(index=False))
    figure(pd.read_csv(FOLDER / "runs.csv.gz")).savefig(FOLDER / "figure.png", dpi=100, metadata={"Software": None})
