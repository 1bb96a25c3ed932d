"""Study of blocks: the rule that chose its learning rates and, afterwards, factors for tables, what these change, and
its figure.

The rule: for each scheme, block and text the rate with the lowest mean, over the seeds, of the best validation loss. A
rate with which a run diverged counts as infinitely bad. The same holds for factors.
"""

from itertools import product
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from seedstats import compare, read_table
from seedstats.claims import read_claims
from seedstats.verdict import Verdict, verdicts
from studies.figures import COLOURS, name_ends
from studies.tables import ROOT, TEXTS

FOLDER = ROOT / "data/studies/blocks"
BLOCKS = ("gpt2-muon", "gpt2", "gpt2-qknorm", "modern")  # neighbours have all else in common
_CELL = ["data", "block", "name"]
_FACTOR_CLAIMS = ("C2", "C3", "C4", "C5", "C6")


def choose(rows: pd.DataFrame, setting: str = "rate") -> pd.DataFrame:
    """Return the chosen value of a setting in each cell, its mean loss, and the values that were tried."""
    losses = rows[rows["metric"] == "best validation loss"]
    losses = losses.assign(value=losses["value"].where(losses["status"] == "finished", float("inf")))
    by_value = losses.groupby([*_CELL, setting])["value"].agg(["mean", "size"])
    if by_value["size"].nunique() > 1:
        raise SystemExit(f"a seed is missing: {by_value['size'].idxmin()}")
    means = by_value["mean"].reset_index(name="loss")
    best = means.loc[means.groupby(_CELL)["loss"].idxmin()].reset_index(drop=True)
    best["tried"] = means.groupby(_CELL)[setting].agg(lambda values: " ".join(map(str, values))).to_numpy()
    return best.round(4)


def with_factors(runs: pd.DataFrame, tuned: pd.DataFrame) -> pd.DataFrame:
    """Return the second stage's table with the runs of `tuned` in place of their cells' own."""
    tuned_cells = pd.MultiIndex.from_frame(tuned[_CELL])
    replaced = pd.MultiIndex.from_frame(runs[_CELL]).isin(tuned_cells)
    return pd.concat([runs[~replaced], tuned], ignore_index=True)


def means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean loss in range and the mean excess of each cell."""
    losses = runs[runs["metric"] == "last_loss"].pivot(index=[*_CELL, "seed"], columns="length", values="value")
    return pd.DataFrame({"in range": losses[64], "excess": losses[512] - losses[64]}).groupby(_CELL).mean()


def changes(runs: pd.DataFrame, tuned: pd.DataFrame) -> pd.DataFrame:
    """Return for the cells whose factor won the means with it, after those without."""
    both = {"one rate": means(runs), "with a factor": means(tuned)}
    return pd.concat(both, axis=1, join="inner").swaplevel(axis=1).sort_index(axis=1, level=0, sort_remaining=False)


def verdicts_with_factors(runs: pd.DataFrame, tuned: pd.DataFrame) -> list[Verdict]:
    """Return the verdicts, not registered, on those registered claims that name schemes with tables in these blocks."""
    claims = [claim for claim in read_claims(FOLDER / "claims.yaml") if str(claim)[:2] in _FACTOR_CLAIMS]
    return verdicts(claims, compare(with_factors(runs, tuned)))


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
    """Print and write the chosen rates and factors, print what factors change, and draw the figure."""
    for stage, setting in {"choosing": "rate", "factors": "factor"}.items():
        chosen = choose(pd.read_csv(FOLDER / f"{stage}.csv.gz"), setting)
        chosen.to_csv(FOLDER / f"{setting}s.csv", index=False, lineterminator="\n")
        print(chosen.to_string(index=False), end="\n\n")
    runs, tuned = (read_table(FOLDER / name) for name in ("runs.csv.gz", "tuned.csv.gz"))
    print(changes(runs, tuned).to_string(float_format="{:.3f}".format), end="\n\n")
    for verdict in verdicts_with_factors(runs, tuned):
        print(*verdict.row, sep="; ")
    figure(pd.read_csv(FOLDER / "runs.csv.gz")).savefig(FOLDER / "figure.png", dpi=100, metadata={"Software": None})
