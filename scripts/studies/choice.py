"""Page for an engineer who has to pick a scheme, and the table behind it, from the study's tables.

Quality is that of the chosen recipes, a mean over seeds; a run that diverged has the highest loss on its text, or has
solved nothing. Costs beside flash attention are those of benchmark.json beside the tables, which
`python scripts/benchmark.py groups=small,attention out=FOLDER` has made. Limits are facts of the schemes.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pandas as pd

from poslab.config.files import write_whole
from poslab.config.schemes import parse_scheme
from poslab.metric import LAST_TOKENS_LOSS
from poslab.positions import ModelShape
from poslab.positions.sizes import initial_tables
from seedstats.page.blocks import Block, Bullets, Cell, Heading, Table, Text
from seedstats.page.markdown import page as markdown
from seedstats.statistics.best import best_set
from studies.hypotheses import Cells
from studies.recipes import Chosen
from studies.tables import BEYOND, SCHEMES, TASKS, TEXTS, trained_length

FILE, COSTS, ALL = "choose.md", "benchmark.json", "choose.csv"
WINDOW = 64  # tokens of the texts' training
SHAPE = ModelShape(context_length=WINDOW, embed_dim=128, num_layers=2, num_heads=4)  # of their model
_scheme = cache(parse_scheme)
_LOSS = LAST_TOKENS_LOSS  # a mean over the window would dilute what comes after the trained length
_APART = 0.05  # of a share of examples, and nats: of the worst seed


class Column(NamedTuple):
    """Column of quality: a figure of a task or text at a length."""

    data: str
    metric: str
    length: int
    heading: str


_TASKS = [
    Column(data, "exact", length, f"{data}, {'in range' if place == 0 else '2 x'}")
    for data in TASKS
    for place, length in enumerate((trained_length(data), BEYOND[data]))
]
_LOSSES = [
    Column(data, _LOSS, WINDOW * times, f"{option.split('_')[0]}, {'in range' if times == 1 else f'{times} x'}")
    for data, option in TEXTS.items()
    for times in (1, 2, 8)
]
_SHOWN = [column for column in _TASKS if column.data != "majority" and column.length == BEYOND[column.data]]
_SHOWN += [column for column in _LOSSES if column.length != 2 * WINDOW]
_TIE = 1e-4  # between means
_MEANS = (
    "Tasks: examples with all answers right. Texts: loss of the last 32 characters, nats. Means over seeds; the worst "
    "seed in brackets where it is 0.05 or more off. Bold: best set. Can't: beyond its longest input."
)
_CAN_NOT = (
    "**Which encoding a large model needs.** These models have one or two layers, and train for minutes.",
    "**The best hyperparameters.** Each recipe had the lowest validation loss in range. One seed chose for "
    "tasks, and some choices are [worse than the default](README.md) on new seeds.",
    "**Learning rates above 0.004**, the last of the grid, which most schemes chose.",
    "**Cost on your machine.** Times are of [one machine](benchmark.json) and poslab's kernels.",
)
# Titles of the benchmark's tables, and the columns that are taken from them.
_COSTS = (
    (r"step on one thread, characters", "x the bare loop's time"),
    (r"float32, .* = \(1, 4, 2048, 64\)", "x flash"),
    (r"Peak memory", "T = 2048"),
)


def write_choice(table: pd.DataFrame, chosen: Chosen, folder: Path) -> Path:
    """Write the page and its table beside the table of the second stage, and return the page's file."""
    page = blocks(table, chosen, read_costs(folder / COSTS))
    write_whole(folder / ALL, all_means(Cells(table)).to_csv(index=False, lineterminator="\n"))
    write_whole(folder / FILE, markdown("Which positional encoding did best here?", page))
    return folder / FILE


def read_costs(file: Path) -> dict[str, list[str]]:
    """Return of each scheme the times of a training step and of its attention over those of flash, and its peak memory
    in megabytes; "" for what was not measured."""
    costs: dict[str, list[str]] = {}
    for one in json.loads(file.read_text())["tables"]:
        for place, (title, column) in enumerate(_COSTS):
            if re.search(title, one["title"]):
                for entrant, row in one["rows"].items():
                    costs.setdefault(entrant.removeprefix("poslab "), [""] * len(_COSTS))[place] = row[column]
    return costs


def blocks(table: pd.DataFrame, chosen: Chosen, costs: Mapping[str, Sequence[str]]) -> list[Block]:
    """Return the page. costs: by scheme, as `read_costs` returns."""
    cells = Cells(table)
    best = {column: _best(cells, column) for column in (*_TASKS, *_LOSSES)}
    counted = [column for column in best if column.data != "majority"]
    may_be = {scheme: sum(scheme in best[column] for column in counted) for scheme in SCHEMES}
    leads = {recipe: Counter(_leaders(cells, counted, recipe)) for recipe in ("default", "chosen")}
    right = {scheme: _mean_right(cells, scheme) for scheme in SCHEMES}
    order = sorted(SCHEMES, key=lambda scheme: (-leads["chosen"][scheme], -may_be[scheme], -right[scheme]))
    first = max(SCHEMES, key=lambda scheme: leads["chosen"][scheme])
    seeds = table[table["recipe"] == "chosen"].groupby("data")["seed"].nunique()
    tasks, texts = ({int(seeds[data]) for data in group} for group in (TASKS, TEXTS))
    return [
        Text(
            f"**{first}** has the best mean, or ties, on {leads['chosen'][first]} of {len(counted)} metrics with the "
            f"hyperparameters chosen for each scheme, and on {leads['default'][first]} with the default ones. "
            "This holds for small models only: see [what this page can't say](#what-this-page-cant-say)."
        ),
        Text(
            "The metrics are three tasks at two lengths and two texts at three. "
            f"n = {_several(tasks)} seeds on tasks, {_several(texts)} on texts. "
            "[All means](choose.csv), [chosen hyperparameters](recipes.csv), [the study](README.md)."
        ),
        _facts(order, costs, {**leads, "best set": may_be}),
        _quality("How good is each?", cells, order, best),
        Heading("What this page can't say", [Bullets(_CAN_NOT)]),
    ]


def _several(counts: Collection[int]) -> str:
    return " or ".join(map(str, sorted(counts)))


def all_means(cells: Cells) -> pd.DataFrame:
    """Return mean and worst seed of each scheme with both recipes on every metric, and whether it may be the best."""
    rows = []
    for column in (*_TASKS, *_LOSSES):
        worst = max if column.metric == _LOSS else min
        for recipe in ("default", "chosen"):
            best = _best(cells, column, recipe)
            for scheme in SCHEMES:
                if _reads(scheme, column):
                    of_seeds = _of_seeds(cells, scheme, column, recipe).values()
                    about = {"data": column.data, "metric": column.metric, "length": column.length, "scheme": scheme}
                    means = {"mean": round(fmean(of_seeds), 4), "worst_seed": round(worst(of_seeds), 4)}
                    rows.append(about | {"recipe": recipe} | means | {"may_be_best": scheme in best})
    return pd.DataFrame(rows)


def _leaders(cells: Cells, columns: Sequence[Column], recipe: str) -> Iterator[str]:
    """Yield the scheme with the best mean of each column, and those within _TIE of it."""
    for column in columns:
        sign = -1 if column.metric == _LOSS else 1
        readers = [scheme for scheme in SCHEMES if _reads(scheme, column)]
        means = {scheme: sign * fmean(_of_seeds(cells, scheme, column, recipe).values()) for scheme in readers}
        yield from (scheme for scheme, mean in means.items() if mean >= max(means.values()) - _TIE)


def _mean_right(cells: Cells, scheme: str) -> float:
    """Return the mean share of right examples over the columns of tasks, which decides between equals."""
    return fmean(fmean(_of_seeds(cells, scheme, column).values()) for column in _TASKS)


def _best(cells: Cells, column: Column, recipe: str = "chosen") -> tuple[str, ...]:
    """Return the schemes of which each may be the best one of those that read the length."""
    figures = {scheme: _of_seeds(cells, scheme, column, recipe) for scheme in SCHEMES if _reads(scheme, column)}
    return best_set(figures, lower=column.metric == _LOSS, proportion=column.metric != _LOSS).members


def _reads(scheme: str, column: Column) -> bool:
    """Return whether the scheme takes inputs of the length at all; of tasks, whose models are built for it, all do."""
    longest = _scheme(scheme).max_length(SHAPE)
    return column.metric != _LOSS or longest is None or column.length <= longest


def _of_seeds(cells: Cells, scheme: str, column: Column, recipe: str = "chosen") -> dict[int, float]:
    """Return the figure of each seed."""
    data, metric, length, _ = column
    of, lost = cells.table, 0.0
    if metric == _LOSS:
        losses = of.loc[(of["data"] == data) & (of["metric"] == metric) & (of["length"] == length), "value"]
        lost = float(losses.max())
    return cells.seeds((data, scheme, recipe), metric, length, lost=lost)


def _quality(title: str, cells: Cells, order: Sequence[str], best: Mapping[Column, Sequence[str]]) -> Table:
    """Return a table with a row for each scheme, in that order."""
    rows: list[list[str | Cell]] = []
    for scheme in order:
        row: list[str | Cell] = [scheme]
        for column in _SHOWN:
            text = _with_worst(_of_seeds(cells, scheme, column), column) if _reads(scheme, column) else "can't"
            row.append(Cell(text, marked=scheme in best[column]))
        rows.append(row)
    return Table(title, ["scheme", *(column.heading for column in _SHOWN)], rows, _MEANS)


def _with_worst(by_seed: Mapping[int, float], column: Column) -> str:
    """Return the mean, and that of the worst seed where it is another one."""
    figures, digits = by_seed.values(), ".3f" if column.metric == _LOSS else ".2f"
    mean, worst = fmean(figures), max(figures) if column.metric == _LOSS else min(figures)
    return format(mean, digits) + f" ({worst:{digits}})" * (abs(worst - mean) >= _APART)


def _facts(order: Sequence[str], costs: Mapping[str, Sequence[str]], counts: Mapping[str, Mapping[str, int]]) -> Table:
    rows: list[list[str | Cell]] = []
    for name in order:
        scheme = _scheme(name)
        same = scheme.hf_equivalent(initial_tables(scheme, SHAPE), SHAPE)
        exported = same.model_type if same else "-"
        rows.append([name, *(str(of[name]) for of in counts.values()), *costs[name], exported])
    return Table("How often the best, and at what cost?", [*_FACTS], rows, " ".join(filter(None, _FACTS.values())))


_FACTS = {  # columns, and what is said of them
    "scheme": "",
    "default": "Default, chosen: on how many metrics its mean is best.",
    "chosen": "",
    "best set": "Best set: on how many it may be the best, 95 % each. Seeds that differ much are harder to exclude.",
    "step": "Step: time of a training step over a bare loop's.",
    "attention": "Attention: time at 2,048 tokens over flash. A tenth is noise.",
    "MB": "MB: its peak memory.",
    "export": "Export: as a Hugging Face model.",
}
