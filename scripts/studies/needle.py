"""Needles found by depth and length, the picture of data/studies/context_extension.md:

    python scripts/studies/needle.py                                                         from the study's table
    python scripts/studies/needle.py runs/context_extension_needle/report/results.csv my.png  from runs of one's own

A panel for each change of rope, as it is (a learning rate of 0) and after further steps; mean over seeds.
"""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

FOLDER = Path(__file__).resolve().parents[2] / "data/studies"
TABLE, PICTURE = FOLDER / "context_extension_needle.csv.gz", FOLDER / "context_extension_needle.png"
TRAINED = 32  # the longest text of training


def main(table: Path = TABLE, picture: Path = PICTURE) -> None:
    rows = pd.read_csv(table)
    rows = rows[rows["metric"].str.startswith("accuracy_depth_") & (rows["status"] == "finished")]
    rows["depth"] = rows["metric"].str.rpartition("_")[2].astype(int)
    rows["change"] = rows["scaling"].mask(rows["base"] != 10000, "base=" + rows["base"].astype(int).map("{:,}".format))
    rows["further"] = rows["optim.learning_rate"] > 0
    changes = list(rows["change"].drop_duplicates())
    figure = Figure(figsize=(8.6, 4.6), layout="constrained")
    panels = figure.subplots(2, len(changes), sharex=True, sharey=True, squeeze=False)
    for (further, change), own in rows.groupby(["further", "change"]):
        axes = panels[int(further), changes.index(change)]
        shares = own.pivot_table(index="depth", columns="length", values="value")  # the mean over seeds
        lengths = list(shares.columns)
        image = axes.imshow(shares, vmin=0, vmax=1, cmap="viridis", aspect="auto")
        axes.axvline(lengths.index(TRAINED) + 0.5, color="white", lw=2)
        shown = [lengths.index(length) for length in lengths if length.bit_count() == 1]
        axes.set_xticks(shown, [str(lengths[i]) for i in shown], fontsize=10)
        axes.set_yticks([-0.5, len(shares) / 2 - 0.5, len(shares) - 0.5], ["0 %", "50 %", "100 %"], fontsize=10)
        if not further:
            axes.set_title(change, fontsize=12)
    for axes, name in zip(panels[:, 0], ("as it is", "after 200 steps"), strict=True):
        axes.set_ylabel(f"{name}\ndepth of the needle", fontsize=11)
    figure.supxlabel(f"length of the text, tokens; left of the line as in training, up to {TRAINED}", fontsize=11)
    figure.colorbar(image, ax=panels, label="share of needles found", aspect=30).ax.tick_params(labelsize=10)
    figure.savefig(picture, dpi=110, metadata={"Software": None})
    print(picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
