"""Picture of the README: loss beyond the training length, from a study's table: python scripts/studies/length.py

Characters of Shakespeare, two layers, trained on windows of 64; the loss is that of the last 32 characters of a window,
mean and 95 % interval over six seeds, each scheme with the default hyperparameters.
"""

from pathlib import Path
from statistics import NormalDist

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
TABLE, PICTURE = ROOT / "data/studies/scheme-or-recipe/runs.csv.gz", ROOT / ".github/pictures/length.png"
SHOWN = {
    "t5": "#8c4a2f", "rope": "#0072b2", "nope": "#cc79a7", "fire": "#6a3d9a", "shaw": "#e69f00", "alibi": "#d55e00",
    "kerple": "#009e73",
}  # fmt: skip
LENGTHS = (64, 128, 256, 512)


def main() -> None:
    table = pd.read_csv(TABLE)
    rows = table[(table["metric"] == "last_loss") & (table["recipe"] == "default") & (table["status"] == "finished")]
    rows = rows[rows["data"] == "tinyshakespeare.txt"]
    figure = Figure(figsize=(8.6, 4.3), layout="constrained")
    axes = figure.subplots()
    ends = {}
    for scheme, colour in SHOWN.items():
        own = rows[rows["scheme"] == scheme].pivot(index="seed", columns="length", values="value")
        mean, n = own.mean(), len(own)
        half = own.std() / np.sqrt(n) * stats.t.ppf(NormalDist().cdf(1.96), n - 1)
        axes.errorbar(LENGTHS, [mean[x] for x in LENGTHS], [half[x] for x in LENGTHS], color=colour, lw=2, capsize=3)
        ends[scheme] = float(mean[LENGTHS[-1]])
    place = -np.inf
    for scheme, end in sorted(ends.items(), key=lambda one: one[1]):  # names never overlap
        place = max(end, place + 0.075)
        text = (LENGTHS[-1] * 1.05, place)
        axes.annotate(scheme, (LENGTHS[-1], end), text, color=SHOWN[scheme], fontsize=11, va="center")
    axes.axvline(LENGTHS[0], color="grey", ls=":")
    axes.text(LENGTHS[0] * 1.03, axes.get_ylim()[1], "length of training", color="grey", fontsize=10, va="top")
    axes.set_xscale("log", base=2)
    axes.set_xticks(LENGTHS, map(str, LENGTHS))
    axes.set_xlim(LENGTHS[0] * 0.95, LENGTHS[-1] * 1.3)
    axes.set_xlabel("length of the window, characters", fontsize=11)
    axes.set_ylabel("loss of the last characters, nats", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, dpi=110, metadata={"Software": None})
    print(PICTURE.relative_to(ROOT))


if __name__ == "__main__":
    main()
