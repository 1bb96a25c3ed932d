"""The study "scheme or recipe?": its hypotheses where the truth is known, and its pages beside its tables."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from poslab.metric import BEST_VALIDATION_LOSS, LAST_TOKENS_LOSS
from seedstats.statistics.best import best_set, shown
from seedstats.statistics.families import one_family
from seedstats.statistics.paired import paired
from studies import described, figures, hypotheses, tables
from studies.tables import BEYOND, COUNTED, FOLDER, SCHEMES, TEXTS

Figure = Callable[[str, int], float]  # by scheme and seed
SEEDS = range(101, 109)
COSTS = {  # tables of benchmark.json, and their columns that choose.md has
    r"step on one thread, characters": "x the bare loop's time",
    r"float32, .* = \(1, 4, 2048, 64\)": "x flash",
    r"Peak memory": "T = 2048",
}
RECIPE = ["learning_rate", "init_std", "position_factor"]


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypotheses, "DRAWS", 2000)
    monkeypatch.setattr(described, "DRAWS", 2000)


# Hypotheses where the truth is known


def row(data: str, scheme: str, recipe: str, seed: int, metric: str, value: float, **more: Any) -> dict[str, Any]:
    own = {"data": data, "scheme": scheme, "recipe": recipe, "seed": seed, "metric": metric, "value": value}
    return {"length": BEYOND[data] if metric == "exact" else 0, **own, **more}


def noise(*names: object) -> float:
    return float(np.random.default_rng([*"".join(map(str, names)).encode()]).normal())


def confirming(**figures: Figure) -> pd.DataFrame:
    """A second stage. figures: by what they are, "back_chosen" or "copy_solved"; others are as far apart as schemes'
    numbers, and every scheme solves."""
    rows = []
    for seed in SEEDS:
        for place, scheme in enumerate(SCHEMES):
            usual = {"back": place / 10, "copy": place / 12, "recall": 0.5 + place / 20, "majority": 0.99}
            for data, mean in usual.items():
                for recipe in ("default", "chosen"):
                    of = figures.get(f"{data}_{recipe}", lambda *_, mean=mean: mean)
                    share = min(1.0, max(0.0, of(scheme, seed) + 0.01 * noise(data, scheme, recipe, seed)))
                    rows.append(row(data, scheme, recipe, seed, "exact", share))
            for data in ("copy", "recall"):
                solved = figures.get(f"{data}_solved", lambda *_: 1.0)(scheme, seed)
                step = 200 * (place + 1) + 50 * noise(data, scheme, seed) if solved else 12_000
                rows.append(row(data, scheme, "longer", seed, "solved", solved))
                rows.append(row(data, scheme, "longer", seed, "steps_to_solve", step))
        counted = figures.get("counted", lambda *_: 0.1)(COUNTED, seed) + 0.01 * noise(seed)
        rows.append(row("recall", COUNTED, "chosen", seed, "exact", counted))
    return pd.DataFrame(rows)


def choosing(of_schemes: float = 0.02, of_rates: float = 0.2) -> pd.DataFrame:
    """The texts of a first stage, with so much between schemes and between rates."""
    return pd.DataFrame(
        row(data, scheme, "grid", seed, "test loss", loss, learning_rate=rate)
        for data in TEXTS
        for place, scheme in enumerate(SCHEMES)
        for power, rate in enumerate((5e-4, 1e-3, 2e-3, 4e-3))
        for seed in (1, 2)
        for loss in [2 + of_schemes * place / 3 + of_rates * power + 0.005 * noise(data, scheme, rate, seed) + seed / 9]
    )


def mixed(scheme: str, seed: int) -> float:
    """Another order than that of the places."""
    return (3 * SCHEMES.index(scheme) % 10) / 10


OTHER_ORDER = {f"{data}_chosen": mixed for data in ("back", "copy", "recall")}
FAR_APART = {f"{data}_chosen": lambda scheme, seed: 0.3 * SCHEMES.index(scheme) for data in ("back", "copy")}
RARELY: Figure = lambda scheme, seed: float(scheme not in ("nope", "alibi", "t5"))  # noqa: E731
PURE_NOISE = {
    f"{data}_{recipe}": (lambda scheme, seed, d=data, r=recipe: 0.5 + 0.1 * noise(scheme, seed, d, r))
    for data in ("back", "copy", "recall")
    for recipe in ("default", "chosen")
}


@pytest.mark.parametrize(
    ("name", "figures", "verdict"),
    [
        ("H1", {}, "opposite"),
        ("H1", OTHER_ORDER, "shown"),
        ("H1", PURE_NOISE, "neither"),
        ("H2", {f"{data}_chosen": lambda scheme, seed: 0.5 for data in ("back", "copy")}, "shown"),
        ("H2", FAR_APART, "opposite"),  # absolute_offset is the third, rope the fourth
        ("H2", {"back_chosen": lambda scheme, seed: 0.5 - 0.1 * (scheme == "absolute_offset") * (seed % 2)}, "neither"),
        ("H3", {}, "shown"),
        ("H3", {"counted": lambda scheme, seed: 0.6}, "opposite"),
        ("H3", {"counted": lambda scheme, seed: 0.4 + 0.1 * (seed % 3 - 1)}, "neither"),
        ("H4", {}, "shown"),
        ("H4", {"copy_solved": RARELY}, "opposite"),
        ("H4", {"copy_solved": lambda scheme, seed: float(noise(scheme, seed) > 0)}, "neither"),
        ("H6", {}, "shown"),
        ("H6", {"majority_chosen": lambda scheme, seed: 0.9 if scheme == "fire" else 1.0}, "neither"),
    ],
)  # fmt: skip
def test_verdicts_where_the_truth_is_known(name: str, figures: Mapping[str, Figure], verdict: str) -> None:
    _, family = hypotheses.verdicts(choosing(), confirming(**figures))
    assert family.loc[name, "verdict"] == verdict


@pytest.mark.parametrize(("schemes", "rates", "verdict"), [(0.02, 0.2, "shown"), (0.2, 0.02, "opposite")])
def test_variances_of_schemes_and_of_rates(schemes: float, rates: float, verdict: str) -> None:
    _, family = hypotheses.verdicts(choosing(schemes, rates), confirming())
    assert family.loc["H5", "verdict"] == verdict


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (lambda table: pd.concat([table, table.head(1)]), "duplicate entries"),
        (lambda table: table.iloc[1:], "a scheme lacks a seed"),
        (lambda table: table.assign(value=table["value"].where(table.index > 0)), "a scheme lacks a seed"),  # diverged
    ],
)  # fmt: skip
def test_nothing_is_tested_with_too_many_or_too_few_runs(
    changed: Callable[[pd.DataFrame], pd.DataFrame], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        hypotheses.verdicts(choosing(), changed(confirming()))


def test_tau_is_that_of_scipy() -> None:
    first, second = np.random.default_rng(0).integers(0, 5, size=(2, 3, 10)) / 10
    expected = np.mean([stats.kendalltau(a, b).statistic for a, b in zip(first, second, strict=True)])
    assert hypotheses.mean_tau(first, second) == pytest.approx(expected)


def test_the_log_rank_test_of_two_groups_flips_signs_of_scores() -> None:
    """Its scores, but labels stay within seeds: of two groups, signs of differences."""
    times = np.array([[100.0, 250, 300, 900], [120.0, 200, 800, 900]])
    solved = times < 900
    p = hypotheses.log_rank_of_all(times, solved)
    at_risk = np.array([(times >= t).sum() for t in times.ravel()])
    hazard = [
        sum(1 / n for u, n, d in zip(times.ravel(), at_risk, solved.ravel(), strict=True) if d and u <= t)
        for t in times.ravel()
    ]
    first, second = (solved.ravel() - hazard).reshape(2, 4)
    flips = np.array(np.meshgrid(*[[1, -1]] * 4)).reshape(4, -1).T @ (first - second)
    assert p == pytest.approx(np.mean(np.abs(flips) >= abs((first - second).sum()) - 1e-9), abs=0.02)


def test_what_is_described_where_the_recipe_does_nothing() -> None:
    """Swapped labels of equal arms give a tau of 1; one scheme that gains at each seed has the lowest p of eight."""
    one = np.random.default_rng(0).random((3, len(SCHEMES), len(SEEDS)))
    registered, _, swapped = described.taus(np.stack([one, one]))
    assert registered[1] == swapped[1] == swapped[2] == swapped[3] == 1
    gains = {"back_chosen": lambda scheme, seed: SCHEMES.index(scheme) / 10 + 0.4 * (scheme == "nope")}
    for table, change, most in ((confirming(**gains), 0.04, 0.01), (confirming(), 0.0, 1.0)):
        both = np.array([tables.values(table, "back", recipe) for recipe in ("default", "chosen")])
        found, p, _ = described.shift(both)
        assert found == pytest.approx(change, abs=0.01)
        assert most / 20 < float(p) <= most


# Pages and tables of the study


@pytest.fixture(scope="module")
def second() -> pd.DataFrame:
    return tables.read("runs.csv.gz")


def rows_of(name: str) -> list[list[str]]:
    """Return the cells of the tables of a page."""
    lines = (FOLDER / name).read_text().splitlines()
    return [re.split(r" *\| *", line.strip("| ")) for line in lines if line.startswith("| ")]


def test_the_recipes_have_the_lowest_validation_loss_of_the_first_stage(second: pd.DataFrame) -> None:
    """And the second stage was trained with them."""
    recipes, first = pd.read_csv(FOLDER / "recipes.csv").set_index(["data", "scheme"]), tables.read("choosing.csv.gz")
    losses = first[first["metric"] == BEST_VALIDATION_LOSS].groupby(["data", "scheme", *RECIPE])["value"].mean()
    lowest = pd.DataFrame(losses[losses.groupby(["data", "scheme"]).idxmin()].rename("loss")).reset_index(RECIPE)
    pd.testing.assert_frame_equal(lowest, recipes.loc[lowest.index, [*RECIPE, "loss"]])
    recipes = recipes[RECIPE]
    trained = second[second["recipe"].isin(["chosen", "longer"]) & (second["scheme"] != COUNTED)]
    trained = trained[["data", "scheme", *RECIPE]].drop_duplicates().set_index(["data", "scheme"])
    pd.testing.assert_frame_equal(trained.sort_index(), recipes.sort_index())


def test_the_page_has_the_verdicts_of_the_tables(second: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypotheses, "DRAWS", 10_000)
    parts, family = hypotheses.verdicts(tables.read("choosing.csv.gz"), second)
    rows = {cells[0][:2]: cells[1:] for cells in rows_of("README.md") if re.match(r"H\d:", cells[0])}
    assert [*rows] == [*family.index]
    for name, (estimates, *p, verdict) in rows.items():
        assert verdict.startswith(family.loc[name, "verdict"])
        assert [*map(float, p)] == [float(f"{family.loc[name, side]:.2g}") for side in ("p", "opposite")]
        shown = parts.loc[[name], ["estimate", "low", "high"]].dropna()
        shown = shown.nsmallest(1, "estimate") if name == "H6" else shown
        found = [float(number) for number in re.findall(r"-?\d\.?\d*", estimates)]
        near = 0.02 if name == "H1" else 0.006  # as the page's limits of H1 have more draws
        assert found == pytest.approx([*shown.to_numpy().ravel()], abs=near), name


def test_the_page_for_who_picks_a_scheme_says_what_the_tables_say(second: pd.DataFrame) -> None:
    """choose.csv has means, worst seeds and best sets of the runs; choose.md shows some, and counts the best ones."""
    means, leads = pd.read_csv(FOLDER / "choose.csv"), Counter[tuple[str, str]]()
    for (data, metric, length, recipe), own in means.groupby(["data", "metric", "length", "recipe"]):
        of, loss = tables.by_seed(second, data, recipe, metric, length).loc[own["scheme"]], metric == LAST_TOKENS_LOSS
        seeds = {name: dict(values) for name, values in of.iterrows()}
        pairs = {pair: (seeds[pair[0]], seeds[pair[1]]) for pair in combinations(seeds, 2)}
        (all_pairs,) = one_family([paired(pairs, proportion=not loss)])
        best = best_set(seeds, shown(all_pairs, lower=loss), lower=loss)
        mean, worst = of.mean(axis=1), of.max(axis=1) if loss else of.min(axis=1)
        assert [*own["mean"]] == pytest.approx([*mean], abs=1e-4)
        assert [*own["worst_seed"]] == pytest.approx([*worst], abs=1e-4)
        assert {*own["scheme"][own["may_be_best"]]} == {*best.members}
        if data != "majority":
            far = mean - mean.min() if loss else mean.max() - mean
            leads += Counter((scheme, recipe) for scheme in mean.index[far <= 1e-4])
            leads += Counter((scheme, "best set") for scheme in best.members if recipe == "chosen")
    of_chosen = means[means["recipe"] == "chosen"].set_index(["data", "length", "scheme"])
    columns = [("back", 64), ("recall", 96), ("copy", 60), *((text, length) for text in TEXTS for length in (64, 512))]
    costs = {one["title"]: one["rows"] for one in json.loads((FOLDER / "benchmark.json").read_text())["tables"]}
    for scheme in SCHEMES:
        facts, quality = (cells[1:] for cells in rows_of("choose.md") if cells[0] == scheme)
        assert [*map(int, facts[:3])] == [leads[scheme, which] for which in ("default", "chosen", "best set")]
        for (title, column), cost in zip(COSTS.items(), facts[3:6], strict=True):
            (of,) = (of for name, of in costs.items() if re.search(title, name))
            assert {of[name][column] for name in (scheme, f"poslab {scheme}") if name in of} == {cost}
        for place, cell in zip(columns, quality, strict=True):
            assert ((*place, scheme) in of_chosen.index) == (cell != "can't")
            if cell != "can't":
                own, found = of_chosen.loc[(*place, scheme)], [*map(float, re.findall(r"[\d.]+", cell))]
                assert ("**" in cell) == own["may_be_best"]
                assert found == pytest.approx([own["mean"], own["worst_seed"]][: len(found)], abs=0.006)


def test_the_figures_show_the_means(second: pd.DataFrame) -> None:
    panels = {axes.get_title(): axes for axes in figures.recipes(second).axes}
    assert [*panels] == [title for *_, title in figures.PANELS]
    dots = [line for line in panels["back, 2 x: examples right"].lines if line.get_marker() == "o"]
    for recipe, line in zip(("default", "chosen"), dots, strict=True):
        assert [*line.get_xdata()][:-1] == pytest.approx([*tables.values(second, "back", recipe).mean(1)])
    axes = figures.lengths(second).axes[0]
    ends = {line.get_color(): line.get_ydata()[-1] for line in axes.lines if line.get_linestyle() == "-"}
    last = tables.by_seed(second, TEXTS[0], "default", "last_loss", 512).mean(axis=1)
    assert ends == pytest.approx({colour: last[scheme] for scheme, colour in figures.COLOURS.items()})
    names = {text.get_text(): text.get_color() for text in axes.texts}
    assert names == figures.COLOURS
