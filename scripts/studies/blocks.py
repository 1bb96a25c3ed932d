"""Study of blocks: learning rates from the first stage, the next stages' experiments, and the tables that it publishes.

    python scripts/compare.py runs=runs/study/blocks_choosing measure=false out=report
    python scripts/studies/blocks.py choose report/results.csv
    python scripts/studies/blocks.py confirm report/results.csv

The rule: for each scheme, block and text the rate with the lowest mean, over the seeds, of the best validation loss. A
rate with which a run diverged counts as infinitely bad.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER, EXPERIMENTS = ROOT / "data/studies/blocks", ROOT / "configs/experiment/study"
BLOCKS: dict[str, dict[str, Any]] = {  # the settings of each
    "gpt2": {},
    "modern": {"model": "modern", "model.tied": True},
    "gpt2-qknorm": {"model.qk_norm": "rms"},
    "gpt2-muon": {"optim": "muon"},
}
TEXTS: dict[str, dict[str, Any]] = {
    "tinyshakespeare.txt": {"data": "shakespeare_characters", "data.validation_share": 0.04, "data.test_share": 0.04},
    "python_library": {"data": "python_library", "data.validation_share": 0.009, "data.test_share": 0.009},
}
TWIN = "rope_twin"  # rope with pairs of other dimensions: equal in distribution, in no bit
_CELL = ["data", "block", "name"]
_METRICS = ("last_loss", "test loss", "best validation loss")  # that are published
_SIZES = (64, 256)  # of the ladder, beside 128


def read_results(file: Path) -> pd.DataFrame:
    """Return the rows of whole texts in what a comparison has written, with their block and rate."""
    rows = pd.read_csv(file, dtype={"model.qk_norm": str, "interleaved": str})
    rows = rows[rows["stretch"].isna() & rows["seed"].notna()]
    block = rows["model"].where(rows["model"] != "mini", "gpt2")
    for column, usual in (("model.qk_norm", "none"), ("optim", "adamw")):
        if column in rows:  # of one text there are two blocks only
            special = (rows[column].fillna(usual) != usual) & (block == "gpt2")
            block = block.mask(special, "gpt2-qknorm" if usual == "none" else "gpt2-muon")
    name = rows["name"].mask(rows["interleaved"] == "true", TWIN)
    return rows.assign(block=block, name=name, seed=rows["seed"].astype(int), rate=rows["optim.learning_rate"])


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


def write_experiments(chosen: pd.DataFrame) -> None:
    """Write the second stage, and the ladder of sizes, whose rates are scaled by 128 / embed_dim (Yang et al. 2022)."""
    confirming = [grid for of in _by_rate(chosen) for grid in _grids(of)]
    of_text = chosen[(chosen["data"] == "tinyshakespeare.txt") & chosen["block"].isin(["gpt2", "modern"])]
    sizes = [of_text.assign(rate=of_text["rate"] * 128 / size, size=size) for size in _SIZES]
    ladder = [
        grid | {"model.embed_dim": int(of["size"].iloc[0])}
        for of_size in sizes
        for of in _by_rate(of_size)
        for grid in _grids(of)
        if "pos.interleaved" not in grid
    ]
    _write("blocks", "Second stage: each scheme in each block at its chosen rate", range(201, 209), confirming)
    _write("ladder", "Two further sizes: do contrasts keep their sign?", range(201, 204), ladder)


def _by_rate(chosen: pd.DataFrame) -> list[pd.DataFrame]:
    return [of for _, of in chosen.groupby(["data", "block", "rate"], sort=False)]


def _grids(of: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the grids of cells that share text, block and rate."""
    data, block, rate = of.iloc[0][["data", "block", "rate"]]
    shared = TEXTS[data] | BLOCKS[block] | {"optim.learning_rate": float(rate)}
    usual = shared | {"pos": ",".join(of["name"])}
    return [usual] + [shared | {"pos": "rope", "pos.interleaved": True}] * ("rope" in set(of["name"]))


def _write(name: str, about: str, seeds: range, grids: Sequence[Mapping[str, Any]]) -> None:
    content = {
        "defaults": ["/experiment/extrapolation"],
        "hydra": {"sweeper": {"params": {"seed": ",".join(map(str, seeds))}, "grids": [*grids]}},
        "evaluation": {"lengths": [64, 512]},
    }
    plain = yaml.safe_dump(content, sort_keys=False, width=1000, default_flow_style=None)
    head = f"# @package _global_\n# Does a modern block keep the order? {about}, seed after seed, with -m.\n"
    (EXPERIMENTS / f"{name}.yaml").write_text(f"{head}# Written by scripts/studies/blocks.py.\n{plain}")


def publish(rows: pd.DataFrame, name: str, further: Sequence[str]) -> Path:
    """Add rows to a published table, whose order does not depend on when they came. further: columns of its own."""
    file = FOLDER / f"{name}.csv.gz"
    columns = ["data", "metric", "length", "name", "block", *further, "seed", "value", "status", "unit", "better"]
    kept = rows[rows["metric"].isin(_METRICS)][columns]
    known = pd.read_csv(file) if file.exists() else kept[:0]
    table = pd.concat([known, kept]).drop_duplicates(columns[:-4], keep="last")
    place = table["metric"].map(_METRICS.index)  # because a comparison takes the first metric
    table = table.assign(place=place).sort_values(["data", "place", *columns[2:-4]]).drop(columns="place")
    table.to_csv(file, index=False, compression={"method": "gzip", "mtime": 0})
    return file


def main(stage: str, *files: str) -> None:
    rows = pd.concat([read_results(Path(file)) for file in files])
    name, further = {
        "choose": ("choosing", ["rate"]),
        "confirm": ("runs", []),
        "ladder": ("ladder", ["model.embed_dim"]),
    }[stage]
    print(publish(rows, name, further))
    if stage == "choose":
        chosen = choose(pd.read_csv(FOLDER / "choosing.csv.gz"))
        chosen.to_csv(FOLDER / "rates.csv", index=False, lineterminator="\n")
        write_experiments(chosen)
        print(chosen.to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
