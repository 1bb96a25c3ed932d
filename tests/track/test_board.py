"""The track: recipes are chosen by the rules, verdicts are statistics, and the page is made from the entries alone."""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from common import REPOSITORY

from poslab.commands.track import beyond, chosen, verdict_lines
from poslab.config.checking import imported
from poslab.errors import UserError
from poslab.positions import PositionScheme
from poslab.runs.code import scheme_fingerprint
from poslab.track.board import PAGE, judged, page, write_board
from poslab.track.entry import COLUMNS, CONFIRMING, COST, LOSS, TUNING, Entry, board_values, read_entries, read_entry
from poslab.track.rules import FILE, Rules, read_rules
from poslab.track.verdict import EQUAL, NOT_SHOWN, own_verdict

FOLDER = REPOSITORY / "data" / "track"
RULES = read_rules(FOLDER)
NEAR, FAR, *TASKS = RULES.figures
NOISE = 0.005 * np.random.default_rng(1).normal(size=(4, len(RULES.figures), len(RULES.seeds)))
HERE = {"processor": "cpu (here)", "versions": "python 3, torch 2", "code": "c0de", "rules": RULES.version}
USUAL = (1.8, 2.4, 1.0, 0.9, 1.0, 0.9)  # of the control


def entry(name: str, *figures: float, noise: int = 0, machine: Mapping[str, Any] = HERE, shift: float = 0.0) -> Entry:
    """Return an entry whose six figures are these on average. shift: of all losses, the control's too, by a machine."""
    rows: list[dict[str, Any]] = []
    usual = (RULES.control, USUAL, 3)
    for encoding, means, which in [usual] if name == RULES.control else [(name, figures, noise), usual]:
        for number, (data, place) in enumerate(product(RULES.data, range(len(RULES.seeds)))):
            first = 2 * (number // len(RULES.seeds))
            near, far = (means[column] + NOISE[which, column, place] for column in (first, first + 1))
            own = {"in_range": near + shift, "beyond": far + shift}
            if first:
                own = {"in_range": min(near, 1.0), "beyond": min(far, 1.0)}
            run = {"stage": CONFIRMING, "name": encoding, "data": data, "rate": 0.002, "factor": 1.0}
            rows.append(run | own | {"seed": RULES.seeds[place], "status": "finished", LOSS: 1.0})
    for (encoding, speed), seed in product({name: 500.0, RULES.yardstick: 1000.0}.items(), RULES.cost_seeds):
        cost = {"tokens_per_s": speed, "peak_memory_mb": 2e6 / speed, "parameters": 7}
        rows.append({"stage": COST, "name": encoding, "data": "text", "seed": seed} | cost)
    table = pd.DataFrame(rows, columns=COLUMNS)
    return Entry(name, table.assign(source="50urce", settings="", **machine))


@pytest.fixture(scope="module")
def entries() -> dict[str, Entry]:
    made = [
        entry("good", 1.7, 1.75, 1.0, 1.0, 1.0, 1.0),
        entry("same", *USUAL, noise=1),
        entry("bad", 1.9, 3.0, 0.2, 0.2, 0.5, 0.5, noise=2),
        entry(RULES.control, *USUAL),
    ]
    return {one.name: one for one in made}


def tried(losses: Mapping[tuple[float, float], list[float]]) -> pd.DataFrame:
    rows = [{"stage": TUNING, "data": "text", "rate": rate, "factor": factor, "seed": seed, LOSS: loss}
            for (rate, factor), of in losses.items() for seed, loss in enumerate(of)]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_recipe_has_the_lowest_mean_loss_and_a_diverged_run_counts_as_the_worst() -> None:
    rows = tried({(0.002, 1): [1.8, 1.8], (0.004, 1): [1.7, 1.85], (0.004, 4): [1.6, 1.7], (0.008, 1): [1.0, math.inf]})
    assert chosen(rows, "text") == {"rate": 0.004, "factor": 4}


@pytest.mark.parametrize(("rate", "further"), [(0.002, 0.001), (0.004, None), (0.008, 0.016), (0.016, None)])
def test_a_rate_at_the_edge_that_wins_is_followed_one_step_further(rate: float, further: float | None) -> None:
    found = beyond({"rate": rate, "factor": 4}, [0.002, 0.004, 0.008])
    assert found == (further and {"rate": further, "factor": 4})


def test_each_figure_has_a_verdict_against_the_control_and_the_best(entries: dict[str, Entry]) -> None:
    values = board_values(entries, RULES)
    of_good = own_verdict("good", RULES.control, values, RULES.margin)
    assert {word for figure in (NEAR, FAR) for word in of_good[figure].values()} == {"better"}
    of_same = own_verdict("same", RULES.control, values, RULES.margin)
    assert of_same[NEAR] == {"good": "worse", RULES.control: EQUAL}
    assert of_same[TASKS[0]][RULES.control] == EQUAL
    of_bad = own_verdict("bad", RULES.control, values, RULES.margin)
    assert {word for of in of_bad.values() for word in of.values()} == {"worse"}


def test_the_best_counts_as_often_as_there_were_others_to_choose_from() -> None:
    """A difference that is shown of one other is not shown of the best of many."""
    seeds = range(6)
    spread = {seed: 0.01 * (seed - 2.5) for seed in seeds}
    values = {
        "control": {seed: 2.0 + 0.02 * (seed % 2) for seed in seeds},
        "own": {seed: 1.5 + spread[seed] for seed in seeds},
    }
    values["best"] = dict.fromkeys(seeds, 1.45)
    many = {f"other{n}": {seed: 1.9 + 0.01 * ((seed * n) % 5) for seed in seeds} for n in range(60)}
    few, all_of = (own_verdict("own", "control", {NEAR: of}, 0.001)[NEAR] for of in (values, values | many))
    assert few["best"] == "worse"
    assert all_of["best"] == NOT_SHOWN


@pytest.mark.parametrize("status", ["missing", "diverged", "no figure"])
def test_what_is_lost_counts_as_the_worst_and_is_shown(status: str, entries: dict[str, Entry]) -> None:
    rows = entries["good"].rows.copy()
    own = (rows["name"] == "good") & (rows["data"] == "text")
    if status == "missing":
        rows = rows[~(own & (rows["seed"] == RULES.seeds[0]))]
    else:
        lost = own & (rows["seed"] == RULES.seeds[0]) if status == "diverged" else own
        rows.loc[lost, "beyond"] = math.nan
    lacking = Entry("good", rows)
    values = lacking.values(FAR, "good", RULES)
    assert values[RULES.seeds[0]] == math.inf
    found, _ = judged({**entries, "good": lacking}, RULES)[FAR]
    assert found.best is not None
    assert "good" not in found.best.members
    row = next(line for line in page({**entries, "good": lacking}, RULES).splitlines() if line.startswith("| `good`"))
    assert "none" in row if status == "no figure" else "(1 lost)" in row


def test_an_entry_of_another_machine_is_compared_with_its_own_control(entries: dict[str, Entry]) -> None:
    there = {**HERE, "processor": "cpu (there)"}
    moved = {**entries, "moved": entry("moved", *USUAL, noise=1, machine=there, shift=0.3)}
    values = board_values(moved, RULES)[NEAR]
    assert values["moved"] == pytest.approx(values["same"])
    text = page(moved, RULES)
    assert "cpu (there)" in text
    assert "largest difference: 0.300" in text


def test_the_page_says_which_are_best_and_sorts_by_the_loss_in_range(entries: dict[str, Entry]) -> None:
    text = page(entries, RULES)
    in_range, beyond_it, on_tasks, costs, *_ = [line for line in text.splitlines() if line.startswith("**")]
    assert "`good`." in in_range
    assert "`good`." in beyond_it
    assert all(data in on_tasks for data, _ in TASKS)
    assert "`good` 2.00" in costs
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    names = [row.split("`")[1] for row in rows]
    assert (names[0], names[-1]) == ("good", "bad")
    assert "**1.7" in rows[0]
    assert " + |" in rows[0]
    assert " - |" in rows[-1]


def test_without_entries_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text((FOLDER / FILE).read_text())
    assert "No entries" in write_board(tmp_path, {}, RULES).read_text()


def test_a_first_entry_is_judged_against_its_control_alone(entries: dict[str, Entry]) -> None:
    lines = "\n".join(verdict_lines(entries["good"], {}, RULES))
    assert "better" in lines
    assert "1 of 2" in lines


def test_entries_are_read_as_they_were_written(tmp_path: Path, entries: dict[str, Entry]) -> None:
    for one in entries.values():
        one.write(tmp_path / f"{one.name}.csv")
    assert page(read_entries(tmp_path, RULES), RULES) == page(dict(sorted(entries.items())), RULES)


def _damages() -> Iterator[tuple[str, Any]]:
    yield "no column", lambda rows: rows.drop(columns="in_range")
    yield "a seed twice", lambda rows: pd.concat([rows, rows.iloc[:1]])
    yield "a seed of its own", lambda rows: rows.assign(seed=rows["seed"].replace(RULES.seeds[0], 999))
    yield "other rules", lambda rows: rows.assign(rules=RULES.version + 1)
    yield "two machines", lambda rows: rows.assign(processor=["a", *["b"] * (len(rows) - 1)])
    yield "no number", lambda rows: rows.assign(beyond="much")
    yield "no costs", lambda rows: rows[rows["stage"] != COST]
    yield "no control", lambda rows: rows[rows["name"] != RULES.control]


@pytest.mark.parametrize(
    ("what", "damage"), list(_damages()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_damaged_entry_is_refused_by_its_name(
    what: str, damage: Any, tmp_path: Path, entries: dict[str, Entry]
) -> None:
    file = tmp_path / "good.csv"
    Entry("good", damage(entries["good"].rows)).write(file)
    with pytest.raises(UserError, match=r"good\.csv: .+"):
        read_entry(file, RULES)


def test_a_file_that_is_no_table_is_refused_by_its_name(tmp_path: Path) -> None:
    for content in (b"", b"\x00\xff", b"a,b\n1,2,3,4\n"):
        (tmp_path / "odd.csv").write_bytes(content)
        with pytest.raises(UserError, match=r"odd\.csv: .+"):
            read_entry(tmp_path / "odd.csv", RULES)


def test_rules_that_lack_something_are_refused_by_their_file(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("version: 1\n")
    with pytest.raises(UserError, match=FILE):
        read_rules(tmp_path)


def test_a_quick_try_has_fewer_steps_and_seeds() -> None:
    quick: Rules = RULES.hurried
    assert len(quick.seeds) == 3
    assert set(quick.seeds) < set(RULES.seeds)
    assert all("trainer.max_steps" in about.settings for about in quick.data.values())


def test_the_board_is_what_its_entries_say() -> None:
    """`python scripts/track.py board` makes it."""
    assert (FOLDER / PAGE).read_text() == page(read_entries(FOLDER, RULES), RULES)


def test_a_scheme_from_outside_is_the_source_that_was_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER / "entries"))
    for name, one in read_entries(FOLDER, RULES).items():
        if (FOLDER / "entries" / f"{name}.py").exists():
            module = __import__(name)
            types = (value for value in vars(module).values() if isinstance(value, type))
            classes = [cls for cls in types if issubclass(cls, PositionScheme) and cls.__module__ == name]
            trained = one.rows.loc[one.rows["name"] == name, "source"].unique().tolist()
            assert trained == [scheme_fingerprint(cls) for cls in classes][:1]
            assert imported(f"{name}.{classes[0].__name__}", "pos") is classes[0]
