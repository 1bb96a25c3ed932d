"""Page for an engineer who has to pick a scheme: quality, cost, limits and recipe of each, from the study's tables.

Quality is that of the chosen recipes, a mean over seeds; a run that diverged has the highest loss on its text, or has
solved nothing. Costs beside flash attention are those of benchmark.json beside the tables, which
`python scripts/benchmark.py groups=small,attention out=FOLDER` has made. Limits are facts of the schemes.
"""

import json
import re
from collections.abc import Mapping, Sequence
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

FILE, COSTS = "choose.md", "benchmark.json"
WINDOW = 64  # tokens of the texts' training
SHAPE = ModelShape(context_length=WINDOW, embed_dim=128, num_layers=2, num_heads=4)  # of their model
_scheme = cache(parse_scheme)
_LOSS = LAST_TOKENS_LOSS  # a mean over the window would dilute what comes after the trained length
_CLEARLY, _APART = 0.1, 0.05  # of a share of examples, and nats: between recipes, and of the worst seed


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
    Column(data, _LOSS, WINDOW * times, f"{option.replace('_', ' ')}, {'in range' if times == 1 else f'{times} x'}")
    for data, option in TEXTS.items()
    for times in (1, 2, 8)
]
_MEANS = (
    "Means over seeds; in brackets the worst seed, where it is off by 0.05 or more. Bold: may be the best one, as a "
    "scheme may be whose seeds differ much."
)
_CAN_NOT = (
    "The models are small (one or two layers, 64 or 128 dimensions) and trained for minutes: which scheme a large "
    "model needs is another question, and the published answers to it differ.",
    "Quality is that of the recipe with the lowest validation loss in the training range, on tasks of one seed: it "
    "need not be the best one at other seeds or longer inputs, and one beyond those that were tried may be better.",
    "Times and memory were measured on one machine, by poslab's kernels, and at other sizes differ ([all "
    "measurements](benchmark.json)); on another machine measure them.",
)
# Titles of the benchmark's tables, and the columns that are taken from them.
_COSTS = (
    (r"step on one thread, characters", "x the bare loop's time"),
    (r"float32, .* = \(1, 4, 2048, 64\)", "x flash"),
    (r"Peak memory", "T = 2048"),
)


def write_choice(table: pd.DataFrame, chosen: Chosen, folder: Path) -> Path:
    """Write the page beside the table of the second stage, and return its file."""
    page = blocks(table, chosen, read_costs(folder / COSTS))
    write_whole(folder / FILE, markdown("Which scheme should I take?", page))
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
    counted = [members for column, members in best.items() if column.data != "majority"]
    right = {scheme: _mean_right(cells, scheme) for scheme in SCHEMES}
    order = sorted(SCHEMES, key=lambda scheme: (-sum(scheme in members for members in counted), -right[scheme]))
    wins = [f"{scheme} {sum(scheme in members for members in counted)}" for scheme in order]
    seeds = table[table["recipe"] == "chosen"].groupby("data")["seed"].nunique()
    there = ", ".join(f"{TEXTS.get(data, data)} (n = {seeds[data]})" for data in (*TASKS, *TEXTS))
    of_texts = "Texts: loss of the last 32 characters of a window, nats per character"
    return [
        Text(f"By each scheme's chosen recipe ([how](README.md), [which](recipes.csv)): {there}."),
        Text(
            f"Of {len(counted)} columns below, without those of `majority`, where position decides nothing, a scheme "
            f"may be the best one in (95 % confidence for each column): {', '.join(wins)}."
        ),
        _quality("Tasks: share of examples with all answers right", _TASKS, cells, order, best, _MEANS),
        _quality(of_texts, _LOSSES, cells, order, best, f"{_MEANS} Can't: beyond the longest input."),
        _both_recipes(cells),
        _facts(order, chosen, costs),
        Heading("What these tables can't say", [Bullets(_CAN_NOT)]),
    ]


def _mean_right(cells: Cells, scheme: str) -> float:
    """Return the mean share of right examples over the columns of tasks, which decides between equals."""
    return fmean(fmean(_of_seeds(cells, scheme, column).values()) for column in _TASKS)


def _best(cells: Cells, column: Column) -> tuple[str, ...]:
    """Return the schemes of which each may be the best one of those that read the length."""
    figures = {scheme: _of_seeds(cells, scheme, column) for scheme in SCHEMES if _reads(scheme, column)}
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


def _quality(
    title: str,
    columns: Sequence[Column],
    cells: Cells,
    order: Sequence[str],
    best: Mapping[Column, Sequence[str]],
    note: str,
) -> Table:
    """Return a table with a row for each scheme, in that order."""
    rows: list[list[str | Cell]] = []
    for scheme in order:
        row: list[str | Cell] = [scheme]
        for column in columns:
            text = _with_worst(_of_seeds(cells, scheme, column), column) if _reads(scheme, column) else "can't"
            row.append(Cell(text, marked=scheme in best[column]))
        rows.append(row)
    return Table(title, ["scheme", *(column.heading for column in columns)], rows, note)


def _both_recipes(cells: Cells) -> Table:
    """Return a table of where the means by the two recipes differ by `_CLEARLY` or more."""
    rows: list[list[str | Cell]] = []
    for column in (*_TASKS, *_LOSSES):
        for scheme in SCHEMES:
            if not _reads(scheme, column):
                continue
            both = [_of_seeds(cells, scheme, column, recipe) for recipe in ("default", "chosen")]
            gain = fmean(both[1].values()) - fmean(both[0].values())
            if abs(gain) >= _CLEARLY:
                default_wins = (gain > 0) == (column.metric == _LOSS)
                default, chosen = (_with_worst(figures, column) for figures in both)
                cells_of_both = Cell(default, marked=default_wins), Cell(chosen, marked=not default_wins)
                rows.append([scheme, column.heading, *cells_of_both])
    title = f"Where the two recipes differ by {_CLEARLY} or more"
    return Table(title, ["scheme", "", "default", "chosen"], rows, "Bold: the better mean.")


def _with_worst(by_seed: Mapping[int, float], column: Column) -> str:
    """Return the mean, and that of the worst seed where it is another one."""
    figures, digits = by_seed.values(), ".3f" if column.metric == _LOSS else ".2f"
    mean, worst = fmean(figures), max(figures) if column.metric == _LOSS else min(figures)
    return format(mean, digits) + f" ({worst:{digits}})" * (abs(worst - mean) >= _APART)


def _facts(order: Sequence[str], chosen: Chosen, costs: Mapping[str, Sequence[str]]) -> Table:
    rows: list[list[str | Cell]] = []
    for name in order:
        scheme = _scheme(name)
        tables = initial_tables(scheme, SHAPE)
        longest, same = scheme.max_length(SHAPE), scheme.hf_equivalent(tables, SHAPE)
        rows.append(
            [
                name,
                *costs[name],
                f"{sum(table.numel() for table in tables.values()):,}",
                "any" if longest is None else f"{longest:,}",
                "slides" if scheme.shift_invariant else "begins anew",
                same.model_type if same else "with poslab",
                *_recipes(name, chosen),
            ]
        )
    return Table("Cost, limits and recipe", [*_FACTS], rows, " ".join(filter(None, _FACTS.values())))


def _recipes(scheme: str, chosen: Chosen) -> list[str]:
    """Return the learning rates that were chosen on tasks and on texts, and where tables have the higher one."""
    own = {data: recipe for (data, of), recipe in chosen.items() if of == scheme}
    rates: tuple[set[float], set[float]] = set(), set()
    for data, recipe in own.items():
        rates[data in TEXTS].add(recipe.learning_rate)
    faster = [TEXTS.get(data, data) for data, recipe in own.items() if recipe.position_factor > 1]
    return [*(", ".join(f"{rate:g}" for rate in sorted(of)) for of in rates), ", ".join(faster)]


_FACTS = {  # columns, and what is said of them
    "scheme": "",
    "step / flash": "Step: of training 4 layers of 128 on 12 x 64 tokens, one thread, beside a bare loop with flash.",
    "attention / flash": "Attention: forward and backward pass of one layer at (1, 4, 2048, 64); a tenth is noise.",
    "MB": "MB: memory of that above its inputs, at its peak.",
    "parameters": "Parameters: for positions, of the texts' model (2 layers of 128).",
    "longest input": "Longest input: of that model, built for 64 tokens.",
    "cache": "Cache, past the training length: that of keys and values slides along, or begins anew with every token.",
    "export": "Export: the Hugging Face model that it becomes; else its weights load with poslab.",
    "rate, tasks": "Rates: the learning rates that were chosen, over all tasks, or texts.",
    "rate, texts": "",
    "faster tables": "Faster tables: where what a scheme learns of positions has 8 times the rate of the rest.",
}
