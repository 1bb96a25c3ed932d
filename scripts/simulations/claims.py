"""Tables of false claims, of intervals that miss and of what is shown, over simulated sweeps (sweeps.py)."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from simulations.sweeps import (
    EXCEPTIONS,
    NOISES,
    WORLDS,
    Draw,
    Size,
    false_after_plan,
    false_among_claims,
    false_at_looks,
    false_claims_of_graded,
    false_claims_of_grids,
    false_claims_of_survivors,
    false_interactions,
    half_differ,
    power,
    rates,
    rates_of_solved,
    shown,
)

FOLDER = Path(__file__).resolve().parents[2] / "data/studies/simulated_claims"

Cell = str | float | tuple[float, ...]


def table(name: str, head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a table of the page as NAME.csv, proportions as per cent; print each row once it is computed."""
    written = [list(head)]
    for row in rows:
        written.append([cell_text(cell) for cell in row])
        print(name, *written[-1], sep=" | ", flush=True)
    with (FOLDER / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(written)


def cell_text(cell: Cell) -> str:
    if isinstance(cell, tuple):
        return " / ".join(map(cell_text, cell))
    return cell if isinstance(cell, str) else f"{100 * cell:.1f}"


def pages_of(all_pairs: bool = False) -> list[list[Size]]:
    """Return for each column of a table the sizes of pages in its cells: 1, 4 and 12 sections."""
    columns = [(n, schemes) for schemes in (4, 18) for n in (3, 5, 10)]
    return [[Size(n, schemes, sections, all_pairs) for sections in (1, 4, 12)] for n, schemes in columns]


HEADS = [f"{size[0].schemes} schemes, n = {size[0].seeds}" for size in pages_of()]


def count_for(size: Size, count: int) -> int:
    """Return fewer pages of those that take long."""
    return max(count // 5, min(count, count * 400 // (size.sections * size.schemes * size.seeds)))


def cells_of(
    draw: Draw, which: int, count: int, *, differ: bool = False, all_pairs: bool = False, limited: bool = True
) -> list[tuple[float, ...]]:
    """Return a row of `rates`. which: 0 for false claims, 1 for intervals."""

    def rate(size: Size) -> float:
        effects = half_differ(size.schemes) if differ else ()
        return rates(draw, size, count_for(size, count), effects, limited=limited)[which]

    return [tuple(map(rate, sizes)) for sizes in pages_of(all_pairs)]


def of_equal_schemes(count: int = 20_000) -> None:
    def rows() -> Iterator[Sequence[Cell]]:
        for name, draw in WORLDS.items():
            yield [name, *cells_of(draw, 0, count)]
        worst = "bimodal, modes 10 sd apart"
        yield [f"{worst}, if the sd were not limited", *cells_of(WORLDS[worst], 0, count, limited=False)]
        for name in ("normal", "t(3)"):
            yield [f"{name}, all pairs", *cells_of(WORLDS[name], 0, count, all_pairs=True)]

    table("equal", ["any false claim, %: 1 / 4 / 12 sections", *HEADS], rows())
    exceptions: Iterator[Sequence[Cell]] = ([name, *cells_of(draw, 0, count)] for name, draw in EXCEPTIONS.items())
    table("exceptions", ["any false claim, %: the exception", *HEADS], exceptions)


def of_different_schemes(count: int = 20_000) -> None:
    titles = "any false claim, %: half of the schemes differ", "an interval beside a claim misses, %"
    for which, title in enumerate(titles):
        table(
            ("different", "intervals")[which],
            [title, *HEADS],
            ([name, *cells_of(draw, which, count, differ=True)] for name, draw in WORLDS.items()),
        )
    effects = (0.5, 1.0, 2.0, 4.0)
    table(
        "few_seeds",
        ["of claims, % false, if they began at", *(f"two of four schemes differ by {x:g} sd" for x in effects)],
        (
            [
                f"{n} seeds{'' if limited else ', if the sd were not limited'}",
                *(false_among_claims(n, effect, 5 * count, limited=limited) for effect in effects),
            ]
            for n in (2, 3, 5)
            for limited in (True, False)
        ),
    )


def of_what_is_shown(count: int = 20_000) -> None:
    table(
        "shown",
        ["shown, %", *HEADS],
        (
            [
                f"a scheme differs by {effect:g} sd, {name}",
                *(tuple(shown(WORLDS[name], size, count // 5, effect) for size in sizes) for sizes in pages_of()),
            ]
            for name in ("normal", "t(3)")
            for effect in (2.0, 4.0, 8.0)
        ),
    )


def of_looks(count: int = 20_000) -> None:
    def at_looks(seeds: Sequence[int], corrections: Sequence[int]) -> list[tuple[float, ...]]:
        both = (corrections, [1] * len(seeds))
        return [tuple(false_at_looks(draw, seeds, of, count) for of in both) for draw in NOISES.values()]

    def rows() -> Iterator[Sequence[Cell]]:
        for seeds in ((3, 10), (5, 10), (3, 5, 10)):
            yield [f"planned: {', '.join(map(str, seeds))} seeds", *at_looks(seeds, [len(seeds)] * len(seeds))]
        for pilot in (3, 5):
            after = (tuple(false_after_plan(draw, pilot, of, count // 2) for of in (2, 1)) for draw in NOISES.values())
            yield [f"unplanned: {pilot} seeds, then the number that the page plans with", *after]
        for first in (3, 5):
            yield [f"unplanned: a seed at a time, {first} to 20", *at_looks(range(first, 21), range(1, 22 - first))]

    table("looks", ["4 equal schemes, a false claim at any look, %: corrected by `looks` / not", *NOISES], rows())


def of_tasks(count: int = 20_000) -> None:
    seeds = (3, 5, 8, 10)
    table(
        "tasks",
        ["tasks that are solved or not, %: any false claim / an interval misses", *(f"n = {n}" for n in seeds)],
        (
            [f"{k} comparisons, {name}", *(rates_of_solved((of * (k + 1))[: k + 1], n, count, r)[:2] for n in seeds)]
            for k in (7, 17)
            for name, of, r in (
                ("all solve it with a chance of .05", [0.05], 0.0),
                ("of .5", [0.5], 0.0),
                ("of .9", [0.9], 0.0),
                ("of .5, correlation over seeds .5", [0.5], 0.5),
                ("every other one .05 and .95", [0.05, 0.95], 0.0),
                ("every other one .3 and .7", [0.3, 0.7], 0.0),
            )
        ),
    )

    def rows() -> Iterator[Sequence[Cell]]:
        graded = (false_claims_of_graded(8, n, count // 10) for n in seeds)
        yield ["partly solved, equal schemes: any false claim of 7", *graded]
        for k in (1, 7, 17, 84):
            found = (rates_of_solved([0.05] * k + [0.95], n, count)[2] for n in seeds)
            yield [f"solved .95 against .05, {k} comparisons: shown", *found]

    table("tasks_shown", ["tasks, %", *(f"n = {n}" for n in seeds)], rows())


def of_the_rest(count: int = 20_000) -> None:
    noises = NOISES.values()

    def rows() -> Iterator[Sequence[Cell]]:
        yield ["power where 80 % are stated, 10 seeds", *(power(draw, count) for draw in noises)]
        for name, counted in (
            ("any false claim, 8 seeds, one scheme diverges where its loss is high", True),
            ("... if the runs that are there were compared", False),
        ):
            yield [name, *(false_claims_of_survivors(draw, count // 20, counted=counted) for draw in noises)]

    table("rest", ["4 schemes against a baseline, %", *NOISES], rows())


def of_interactions(count: int = 20_000) -> None:
    worlds, seeds = WORLDS | EXCEPTIONS, (5, 8, 12)
    rows: Iterator[Sequence[Cell]]
    rows = ([name, *(false_interactions(draw, n, count // 2) for n in seeds)] for name, draw in worlds.items())
    table("interaction", ["an interaction that there isn't is shown, %", *(f"n = {n}" for n in seeds)], rows)


def of_grids(count: int = 20_000) -> None:
    def rows() -> Iterator[Sequence[Cell]]:
        for name in ("normal", "t(3)", "skewed"):
            sizes = ((3, 3), 3), ((3, 3), 5), ((4, 4, 4), 5), ((5, 5), 10), ((1, 10), 5), ((1, 3, 10), 5)
            for settings, seeds in sizes:
                false = false_claims_of_grids(NOISES[name], settings, seeds, count // 40)
                yield name, " ".join(map(str, settings)), str(seeds), false

    table("grids", ["noise", "settings of each name", "n", "any false claim, %"], rows())


TABLES: dict[str, Callable[[], None]] = {
    "equal": of_equal_schemes,
    "different": of_different_schemes,
    "shown": of_what_is_shown,
    "looks": of_looks,
    "tasks": of_tasks,
    "rest": of_the_rest,
    "interaction": of_interactions,
    "grids": of_grids,
}
