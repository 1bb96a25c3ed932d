"""Needles found by depth and length, the picture of data/studies/context_extension.md:

    python scripts/studies/needle.py                                                         from the study's table
    python scripts/studies/needle.py runs/context_extension_needle/report/results.csv my.png  from your own runs

The runs are those of experiment=context_extension_needle. A panel for each change of rope, as it is (a learning rate of
0) and after further steps: means over seeds.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[2] / "data/studies"
TABLE, PICTURE = FOLDER / "context_extension_needle.csv.gz", FOLDER / "context_extension_needle.png"
LONGEST = (32, 128)  # texts of training and of the further steps
GUESSING = 0.3  # the share that is right by guessing among the four values


def main(table: Path = TABLE, picture: Path = PICTURE) -> None:
    rows = pd.read_csv(table).dropna(subset="value")
    rows = rows[rows["metric"].str.startswith("accuracy_depth_")].astype({"length": int})
    rows["depth"] = rows["metric"].str.rpartition("_")[2].astype(int)
    rows["change"] = rows["scaling"].mask(rows["base"] != 10000, rows["base"].map("base {:,.0f}".format))
    rows["further"] = rows["optim.learning_rate"] > 0
    changes = sorted(rows["change"].unique(), key=lambda change: (change != "none", change))
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    panels = figure.subplots(2, len(changes), sharex=True, sharey=True, squeeze=False)
    for (further, change), own in rows.groupby(["further", "change"]):
        axes = panels[int(further), changes.index(change)]
        shares = own.pivot_table(index="depth", columns="length", values="value").dropna(axis=1)  # 16 lacks a depth
        image = axes.imshow(shares, vmin=GUESSING, vmax=1, cmap="viridis", aspect="auto")
        for longest in LONGEST[: 1 + further]:
            axes.axvline(list(shares.columns).index(longest) + 0.5, color="white", lw=2)
        axes.set_xticks(range(shares.shape[1]), list(map(str, shares.columns)), fontsize=10)
        axes.set_yticks([-0.5, len(shares) / 2 - 0.5, len(shares) - 0.5], ["0 %", "50 %", "100 %"], fontsize=10)
        if not further:
            axes.set_title(change, fontsize=12)
    for axes, name in zip(panels[:, 0], ("as it is", "after 200 steps"), strict=True):
        axes.set_ylabel(f"{name}\ndepth of the needle", fontsize=11)
    lines = "white lines: the longest of training and of the further steps"
    figure.supxlabel(f"length of the text, tokens ({lines})", fontsize=11)
    bar = figure.colorbar(image, ax=panels, aspect=30)
    bar.set_label("needles found, from guessing (0.3) on", fontsize=11)
    bar.ax.tick_params(labelsize=10)
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    print(picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
