"""The study "scheme or recipe?": tables, the rule that chooses recipes, and hypotheses where the truth is known."""

import json
import math
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from common import REPOSITORY, RunScript, assert_refused, composed
from runs_to_compare import change_config, write_task_run
from scipy import stats

from poslab.config.files import CONFIGS
from poslab.config.train import parse
from poslab.errors import UserError
from poslab.metric import BEST_VALIDATION_LOSS
from poslab.runs.load import read_runs
from poslab.runs.plan import PlannedGroup, add_to_plan, keys_of
from seedstats.table import DIVERGED, read_table
from studies import choice, described, figure, hypotheses, recipes, tables
from studies.hypotheses import NOT_SHOWN, NOT_TESTED, OPPOSITE, SHOWN
from studies.tables import CHOOSING, CONFIRMING, COUNTED, SCHEMES, TASKS, TEXTS, Recipe

STUDY = REPOSITORY / "data/studies/scheme-or-recipe"
Figure = Callable[[str, int], float]  # by scheme and seed


@pytest.fixture(autouse=True)
def fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypotheses, "DRAWS", 2000)


# Tables


def row(data: str, scheme: str, recipe: str, seed: int, metric: str, value: float, **more: Any) -> dict[str, Any]:
    usual = {"learning_rate": 1e-3, "init_std": 0.05, "position_factor": 1.0, "length": pd.NA, "status": "finished"}
    own = {"data": data, "scheme": scheme, "recipe": recipe, "seed": seed, "metric": metric, "value": value}
    return {**dict.fromkeys(tables.COLUMNS, ""), **usual, **own, **more}


def noise(*names: object) -> float:
    return float(np.random.default_rng([*"".join(map(str, names)).encode()]).normal())


def confirming(seeds: tuple[int, ...] = CONFIRMING, **figures: Figure) -> pd.DataFrame:
    """A second stage. figures: by what they are, "back_chosen" or "copy_solved"; others are as far apart as schemes'
    numbers, and every scheme solves."""
    rows = []
    for seed in seeds:
        for place, scheme in enumerate(SCHEMES):
            usual = {
                "back": place / 10,
                "copy": place / 12,
                "recall": 0.5 + place / 20,
                "majority": 0.99,
                "parity": 0.5,
            }
            for data, mean in usual.items():
                length = tables.BEYOND[data]
                for recipe in ("default", "chosen"):
                    of = figures.get(f"{data}_{recipe}", lambda *_, mean=mean: mean)
                    share = min(1.0, max(0.0, of(scheme, seed) + 0.01 * noise(data, scheme, recipe, seed)))
                    rows.append(row(data, scheme, recipe, seed, "exact", share, length=length))
            for data in ("copy", "recall"):
                solved = figures.get(f"{data}_solved", lambda *_: 1.0)(scheme, seed)
                step = 200 * (place + 1) + 50 * noise(data, scheme, seed) if solved else 12_000
                rows.append(row(data, scheme, "longer", seed, "solved", solved))
                rows.append(row(data, scheme, "longer", seed, "steps_to_solve", step))
        counted = figures.get("counted", lambda *_: 0.1)(COUNTED, seed) + 0.01 * noise(seed)
        rows.append(row("recall", COUNTED, "chosen", seed, "exact", counted, length=96))
    return pd.DataFrame(rows).astype({"length": "Int64"})


def choosing(of_schemes: float = 0.02, of_rates: float = 0.2) -> pd.DataFrame:
    """The texts of a first stage, with so much between schemes and between rates."""
    return pd.DataFrame(
        row(data, scheme, "grid", seed, "test loss", loss, learning_rate=rate)
        for data in TEXTS
        for place, scheme in enumerate(SCHEMES)
        for power, rate in enumerate((5e-4, 1e-3, 2e-3, 4e-3))
        for seed in CHOOSING
        for loss in [2 + of_schemes * place / 3 + of_rates * power + 0.005 * noise(data, scheme, rate, seed) + seed / 9]
    )


def said(first: pd.DataFrame, second: pd.DataFrame, final: bool = False) -> dict[str, str]:
    return {one.name: one.said for one in hypotheses.verdicts(first, second, final)}


def mixed(scheme: str, seed: int) -> float:
    """Another order than that of the places."""
    return (3 * SCHEMES.index(scheme) % 10) / 10


AS_PLACES: dict[str, Figure] = {}
OTHER_ORDER = {f"{data}_chosen": mixed for data in ("back", "copy", "recall")}
RARELY: Figure = lambda scheme, seed: float(scheme not in ("nope", "alibi", "t5"))  # noqa: E731
PURE_NOISE = {
    f"{data}_{recipe}": (lambda scheme, seed, d=data, r=recipe: 0.5 + 0.1 * noise(scheme, seed, d, r))
    for data in ("back", "copy", "recall")
    for recipe in ("default", "chosen")
}


@pytest.mark.parametrize(
    ("name", "figures", "verdict"),
    [
        ("H1", AS_PLACES, OPPOSITE),
        ("H1", OTHER_ORDER, SHOWN),
        ("H1", PURE_NOISE, NOT_SHOWN),
        ("H2", {f"{data}_chosen": lambda scheme, seed: 0.5 for data in ("back", "copy")}, SHOWN),
        ("H2", AS_PLACES, OPPOSITE),  # absolute_offset is the third, rope the fourth
        ("H2", {"back_chosen": lambda scheme, seed: 0.5 - 0.1 * (scheme == "absolute_offset") * (seed % 2)}, NOT_SHOWN),
        ("H3", {}, SHOWN),
        ("H3", {"counted": lambda scheme, seed: 0.6}, OPPOSITE),
        ("H3", {"counted": lambda scheme, seed: 0.4 + 0.1 * (seed % 3 - 1)}, NOT_SHOWN),
        ("H4", {}, SHOWN),
        ("H4", {"copy_solved": RARELY}, OPPOSITE),
        ("H4", {"copy_solved": lambda scheme, seed: float(noise(scheme, seed) > 0)}, NOT_SHOWN),
        ("H6", {}, SHOWN),
        ("H6", {"majority_chosen": lambda scheme, seed: 0.9 if scheme == "fire" else 1.0}, NOT_SHOWN),
    ],
)  # fmt: skip
def test_verdicts_where_the_truth_is_known(name: str, figures: Mapping[str, Figure], verdict: str) -> None:
    if figures is AS_PLACES and name == "H2":
        figures = {f"{data}_chosen": lambda scheme, seed: 0.3 * SCHEMES.index(scheme) for data in ("back", "copy")}
    assert said(choosing(), confirming(**figures))[name] == verdict


@pytest.mark.parametrize(("schemes", "rates", "verdict"), [(0.02, 0.2, SHOWN), (0.2, 0.02, OPPOSITE)])
def test_variances_of_schemes_and_of_rates(schemes: float, rates: float, verdict: str) -> None:
    assert said(choosing(schemes, rates), confirming())["H5"] == verdict


def test_nothing_is_tested_before_all_seeds_are_there() -> None:
    """Unless no more will come: three seeds that agree have p = 1/8."""
    some = confirming(CONFIRMING[:3])
    assert said(choosing(), some) == dict.fromkeys(("H1", "H2", "H3", "H4", "H6"), NOT_TESTED) | {"H5": SHOWN}
    assert said(choosing(), some, final=True)["H3"] == NOT_SHOWN
    assert "3 of 8" in hypotheses.report(hypotheses.verdicts(choosing(), some), some)
    empty = pd.DataFrame(columns=tables.COLUMNS)
    assert set(said(empty, empty, final=True).values()) == {NOT_TESTED}


def test_runs_of_two_choices_are_not_one_cell() -> None:
    table = confirming()
    stale = table[table["recipe"] == "chosen"].head(1).assign(learning_rate=0.5)
    with pytest.raises(UserError, match="the table has two runs of"):
        hypotheses.Cells(pd.concat([table, stale]))


def test_a_diverged_run_counts_against_its_scheme() -> None:
    table = confirming()
    lost = (table["scheme"] == "fire") & (table["seed"] == 103) & (table["data"] == "majority")
    table.loc[lost, ["value", "status"]] = [np.nan, "diverged"]
    (verdict,) = [one for one in hypotheses.verdicts(choosing(), table) if one.name == "H6"]
    assert (verdict.n, verdict.said) == (8, NOT_SHOWN)
    assert min(part.estimate for part in verdict.parts) < 0.9


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


# Recipes


def first_stage(losses: Mapping[Recipe, float], diverged: Recipe | None = None) -> pd.DataFrame:
    rows = []
    for recipe, loss in losses.items():
        for seed in CHOOSING:
            lost = {"value": np.nan, "status": "diverged"} if recipe == diverged and seed == 2 else {}
            metric = "exact" if lost else "best validation loss"
            rows.append(row("copy", "t5", "grid", seed, metric, loss) | recipe._asdict() | lost)
    return pd.DataFrame(rows)


def test_the_recipe_with_the_lowest_mean_loss_is_chosen() -> None:
    """A diverged run is the worst, and of equal recipes the nearest to the default is taken."""
    usual, fast, small = Recipe(1e-3, 0.05), Recipe(1e-3, 0.05, 8), Recipe(4e-3, 0.02)

    def chosen(table: pd.DataFrame) -> Recipe:
        (found,) = recipes.choose(table).to_dict("records")
        assert found["tried"] == 3
        return Recipe(*(found[name] for name in Recipe._fields))

    losses = {small: 0.1, fast: 0.2, usual: 0.3}
    assert chosen(first_stage(losses)) == small
    assert chosen(first_stage(losses, diverged=small)) == fast
    assert chosen(first_stage(dict.fromkeys(losses, 0.2))) == usual
    assert chosen(first_stage({small: 0.1, fast: 0.1, usual: 0.3})) == fast
    with pytest.raises(UserError, match="no seed of the first stage is complete"):
        recipes.choose(pd.DataFrame(columns=tables.COLUMNS))
    with pytest.raises(UserError, match="1 recipes lack a seed"):
        recipes.choose(first_stage(losses).iloc[1:])


def test_the_second_stage_trains_what_was_chosen(tmp_path: Path) -> None:
    """In experiments that are written; those of the repository are as the chosen recipes there say."""
    recipes.write_experiments(recipes.read_chosen(STUDY), tmp_path)
    for name in ("confirming", "texts_confirming"):
        assert (tmp_path / f"{name}.yaml").read_text() == (CONFIGS / "experiment/study" / f"{name}.yaml").read_text()
    chosen = {(data, scheme): Recipe(2e-3, 0.02) for data in (*TASKS, *TEXTS) for scheme in SCHEMES}
    chosen["copy", "t5"] = Recipe(2e-3, 0.02, 8.0)
    recipes.write_experiments(chosen, tmp_path)
    text = (tmp_path / "confirming.yaml").read_text()
    t5 = "{data: copy, optim.learning_rate: 0.002, model.init_std: 0.02, optim.position_learning_rate_factor: 8.0"
    t5 += ", pos: t5"
    assert f"{t5}}}\n" in text
    assert f"{t5}, trainer.max_steps: 6000}}\n" in text
    assert "pos: randomized, pos.count_in_evaluation: true}\n" in text


@pytest.mark.parametrize("data", [*TASKS, *TEXTS])
def test_default_recipes_are_those_of_the_yamls(data: str) -> None:
    given = [f"data={data}"] if data in TASKS else ["experiment=study/texts", f"data={TEXTS[data]}"]
    config = parse(composed(*given))
    own = config.optim.learning_rate, config.model.init_std, config.optim.position_learning_rate_factor
    assert tables.default_recipe(data) == own


# What is described beside the hypotheses


def test_what_is_described_where_the_recipe_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped labels of equal arms give a tau of 1; one scheme that gains at each seed has the lowest p of eight."""
    monkeypatch.setattr(described, "DRAWS", 2000)
    one = np.random.default_rng(0).random((3, len(SCHEMES), len(CONFIRMING)))
    registered, _, swapped = described.taus(np.stack([one, one]))
    assert registered[1] == swapped[1] == swapped[2] == swapped[3] == 1
    gains = {"back_chosen": lambda scheme, seed: SCHEMES.index(scheme) / 10 + 0.4 * (scheme == "nope")}
    _, change, p, _ = described.shift(hypotheses.Cells(confirming(**gains)), "back", "default", "chosen")
    assert (float(change) == pytest.approx(0.04, abs=0.01), float(p) < 0.01) == (True, True)
    _, _, p, _ = described.shift(hypotheses.Cells(confirming()), "back", "default", "chosen")
    assert float(p) > 0.05


# From runs to tables


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two seeds of copy, planned for two schemes: of the second seed one run is missing."""
    folder = tmp_path / "runs"
    for scheme, seed in (("nope", 101), ("t5", 101), ("nope", 102)):
        run = write_task_run(folder, scheme, seed, {30: 1.0, 60: 0.25}, 200)
        for setting, value in (("optim.learning_rate", 1e-3), ("model.init_std", 0.05)):
            change_config(run, setting, value)
        if scheme == "t5":
            longer = shutil.copytree(run, folder / "longer" / run.name)
            change_config(longer, "trainer.max_steps", 6_000)
    runs, _ = read_runs([str(folder)])
    groups = {keys_of(run): run.summary.pos for run in runs}
    add_to_plan(folder, [PlannedGroup(pos, {}, "copy", *keys, [101, 102]) for keys, pos in groups.items()])
    return folder


def test_complete_seeds_join_the_table(sweep: Path, script: RunScript, tmp_path: Path) -> None:
    """With the labels of their recipes, and again without changing a byte; the table is one that `compare` reads."""
    (tmp_path / "study").mkdir()
    chosen = {"data": "copy", "scheme": "t5", "learning_rate": 1e-3, "init_std": 0.05, "position_factor": 1.0}
    pd.DataFrame([chosen]).to_csv(tmp_path / "study" / recipes.FILE, index=False)
    code, output, errors = script(f"add={sweep}", "folder=study")
    assert (code, errors) == (0, "")
    assert "copy, seed 101: complete" in output
    assert "copy, seed 102: 2 runs are missing" in output
    file = tmp_path / "study" / "runs.csv.gz"
    content, table = file.read_bytes(), tables.read(file)
    exact = table[(table["metric"] == "exact") & (table["length"] == 60)]
    assert [*zip(exact["scheme"], exact["recipe"], exact["seed"], exact["value"], strict=True)] == [
        ("nope", "default", 101, 0.25), ("t5", "default", 101, 0.25), ("t5", "chosen", 101, 0.25),
        ("t5", "longer", 101, 0.25),
    ]  # fmt: skip
    assert set(table["processor"]) == {"cpu (x86_64)"}
    assert {"seconds", "commit"}.isdisjoint(read_table(file).columns)
    script(f"add={sweep}", "folder=study")
    assert file.read_bytes() == content
    assert_refused(script("add=study", "folder=study"), "add=study: no plan.yaml in it; name the folder of a sweep")
    assert_refused(
        script("folder=study"), "nothing to do: add=FOLDER, choose=true, verdicts=true, described=true or page=true"
    )
    assert_refused(script("page=true", "folder=study"), "page=true: of back, majority, python_library, ")
    code, output, errors = script("verdicts=true", "folder=study")
    assert output.count(NOT_TESTED) == 6


def diverge(run: Path) -> None:
    summary = run / "summary.json"
    lost = {"last_val_loss": None, "exact": {}, "accuracy": {}}
    summary.write_text(json.dumps(json.loads(summary.read_text()) | lost))
    summary.rename(run / "diverged.json")


def test_a_diverged_run_is_in_the_table(sweep: Path) -> None:
    diverge(sweep / "copy" / "t5-seed101")
    tables.add([str(sweep)], sweep.parent, {})
    table = tables.read(sweep.parent / "runs.csv.gz")
    lost = table[(table["scheme"] == "t5") & (table["metric"] == "exact")]
    assert (lost["status"] == "diverged").all()
    assert len(lost) == 2


def test_a_diverged_run_whose_settings_no_other_has_is_not_dropped_in_silence(sweep: Path) -> None:
    diverge(sweep / "longer" / "t5-seed101")
    with pytest.raises(UserError, match=r"no rows can be made of .*longer/t5-seed101"):
        tables.add([str(sweep)], sweep.parent, {("copy", "t5"): Recipe(1e-3, 0.05)})


def test_one_seed_chooses_for_tasks_but_not_for_texts() -> None:
    losses = [row(data, "t5", "grid", 1, BEST_VALIDATION_LOSS, 1.0) for data in ("back", *TEXTS)]
    assert [*recipes.choose(pd.DataFrame(losses))["data"]] == ["back"]


# The page and the figure for who has to pick a scheme


@pytest.fixture
def second() -> pd.DataFrame:
    """The study's own second stage."""
    return tables.read(STUDY / "runs.csv.gz")


def mean_of(table: pd.DataFrame, recipe: str = "chosen") -> "pd.Series[float]":
    """By scheme, task or text, metric and length."""
    return table[table["recipe"] == recipe].groupby(["scheme", "data", "metric", "length"])["value"].mean()


def test_the_page_says_what_the_tables_say(second: pd.DataFrame, tmp_path: Path) -> None:
    shutil.copy(STUDY / choice.COSTS, tmp_path)
    page = choice.write_choice(second, recipes.read_chosen(STUDY), tmp_path).read_text()
    means = mean_of(second)
    for file in (choice.FILE, choice.ALL):
        assert (tmp_path / file).read_text() == (STUDY / file).read_text()
    rows = {line.split(" | ")[0]: line.split(" | ")[1:] for line in page.splitlines() if line.startswith("| ")}
    for scheme in SCHEMES:
        for column, cell in zip(choice._SHOWN, rows[f"| {scheme}"], strict=True):  # of the last table
            shown = math.nan if "can't" in cell else float(re.search(r"[\d.]+", cell)[0])
            expected = means.get((scheme, *column[:3]), math.nan)
            assert shown == pytest.approx(expected, abs=0.006, nan_ok=True)
    costs = json.loads((STUDY / choice.COSTS).read_text())["tables"]
    rows = {one["title"]: one["rows"]["poslab fire"] for one in costs if "poslab fire" in one["rows"]}
    step = next(row for title, row in rows.items() if "characters" in title)["x the bare loop's time"]
    attention = rows["Attention, forward and backward, float32, (B, H, T, Dh) = (1, 4, 2048, 64)"]["x flash"]
    assert re.search(rf"\| fire (\| \d+ )+\| {step} \| {attention} \|", page)


def test_a_diverged_run_has_the_highest_loss_of_its_text(second: pd.DataFrame) -> None:
    column = choice._LOSSES[-1]
    same = (second["data"] == column.data) & (second["metric"] == column.metric) & (second["length"] == column.length)
    lost = same & (second["scheme"] == "alibi") & (second["recipe"] == "chosen") & (second["seed"] == 101)
    highest = second.loc[same & ~lost, "value"].max()
    second.loc[lost, ["value", "status"]] = [np.nan, DIVERGED]
    by_seed = choice._of_seeds(hypotheses.Cells(second), "alibi", column)
    assert by_seed[101] == highest
    assert choice._with_worst(by_seed, column).endswith(f" ({highest:.3f})")


def test_the_figure_shows_both_recipes(second: pd.DataFrame, tmp_path: Path) -> None:
    second.loc[(second["scheme"] == "fire") & (second["data"] == "back"), ["value", "status"]] = [np.nan, DIVERGED]
    panels = {axes.get_title(): axes for axes in figure.draw(second).axes}
    assert [*panels] == [title for title, *_ in figure._panels()]
    lines = panels["back, 2 x: examples right"].lines
    for recipe, line in zip(("default", "chosen"), (line for line in lines if line.get_marker() == "o"), strict=True):
        means = mean_of(second, recipe)
        for scheme, shown in zip(SCHEMES, line.get_xdata(), strict=False):
            assert shown == (0 if scheme == "fire" else pytest.approx(means[scheme, "back", "exact", 64]))
    assert figure.write_figure(second, tmp_path).read_bytes() == figure.write_figure(second, tmp_path).read_bytes()
