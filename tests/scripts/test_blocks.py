"""Study of blocks: the rule that chooses learning rates, the stages that follow from it, and the registered claims."""

import re

import pandas as pd
import pytest
import yaml
from common import REPOSITORY

from seedstats import compare, read_table
from seedstats.claims import read_claims
from seedstats.finding import p_text
from seedstats.verdict import Verdict, verdicts
from studies import blocks
from studies.tables import TEXTS, TWIN

SETTINGS = {  # of the blocks, beside GPT-2's
    "gpt2-qknorm": {"model.qk_norm": "rms"},
    "gpt2-muon": {"optim": "muon"},
    "modern": {"model": "modern", "model.tied": True},
    "gpt2": {},
}


def rows(losses: dict[float, list[float | None]]) -> pd.DataFrame:
    """Best validation losses of two seeds by learning rate, None where a run diverged, as the table has them."""
    usual = {"name": "rope", "block": "gpt2", "data": "tinyshakespeare.txt", "metric": "best validation loss"}
    runs = ((rate, seed, loss) for rate, of_rate in losses.items() for seed, loss in enumerate(of_rate, start=1))
    return pd.DataFrame(
        usual | {"rate": rate, "seed": seed, "value": loss, "status": "finished" if loss else "diverged"}
        for rate, seed, loss in runs
    )


@pytest.mark.parametrize(
    ("losses", "rate"),
    [
        ({0.002: [1.9, 1.8], 0.004: [1.7, 1.9], 0.008: [2.0, 2.0]}, 0.004),  # of the mean, not of the best seed
        ({0.002: [1.9, 1.8], 0.004: [1.5, None]}, 0.002),
    ],
)
def test_the_rate_with_the_lowest_mean_loss_is_chosen(losses: dict[float, list[float | None]], rate: float) -> None:
    (chosen,) = blocks.choose(rows(losses)).to_dict("records")
    assert (chosen["block"], chosen["name"], chosen["rate"]) == ("gpt2", "rope", rate)


def test_nothing_is_chosen_while_a_seed_is_missing() -> None:
    with pytest.raises(SystemExit, match="seed"):
        blocks.choose(rows({0.002: [1.9, 1.8], 0.004: [1.7]}))


def test_the_rates_are_those_that_the_rule_chooses_and_no_last_ones() -> None:
    chosen = blocks.choose(pd.read_csv(blocks.FOLDER / "choosing.csv.gz"))
    pd.testing.assert_frame_equal(chosen, pd.read_csv(blocks.FOLDER / "rates.csv"))
    for rate, tried in zip(chosen["rate"], chosen["tried"], strict=True):
        assert min(map(float, tried.split())) < rate < max(map(float, tried.split()))


def test_the_factors_are_those_that_the_rule_chooses_at_the_chosen_rates() -> None:
    runs, rates = (pd.read_csv(blocks.FOLDER / name) for name in ("factors.csv.gz", "rates.csv"))
    pd.testing.assert_frame_equal(blocks.choose(runs, "factor"), pd.read_csv(blocks.FOLDER / "factors.csv"))
    cell = ["data", "block", "name", "rate"]
    assert len(runs[cell].drop_duplicates().merge(rates, on=cell)) == 12  # three schemes, two blocks, two texts


def test_the_cells_whose_factor_won_are_trained_with_it() -> None:
    cell = ["data", "block", "name"]
    chosen = pd.read_csv(blocks.FOLDER / "factors.csv").merge(pd.read_csv(blocks.FOLDER / "rates.csv"), on=cell)
    asked = {(*row[:3], row.rate, row.factor) for row in chosen.itertuples(index=False) if row.factor != 1}
    file = REPOSITORY / "configs/experiment/study/blocks_tuned.yaml"
    trained = set()
    for grid in yaml.safe_load(file.read_text())["hydra"]["sweeper"]["grids"]:
        data = TEXTS[0] if grid["data"] == "shakespeare_characters" else TEXTS[1]
        block = "modern" if "model" in grid else "gpt2"
        factor = grid["optim.position_learning_rate_factor"]
        trained |= {(data, block, name, grid["optim.learning_rate"], factor) for name in grid["pos"].split(",")}
    assert trained == asked
    tuned = pd.read_csv(blocks.FOLDER / "tuned.csv.gz")
    runs = tuned[(tuned["metric"] == "last_loss") & (tuned["length"] == 512)]
    assert {*runs[[*cell, "rate", "factor"]].itertuples(index=False, name=None)} == asked
    assert set(runs.groupby(cell)["seed"].agg(lambda seeds: tuple(sorted(seeds)))) == {tuple(range(201, 209))}


@pytest.mark.parametrize(("stage", "texts"), [("blocks", TEXTS), ("ladder", TEXTS[:1])])
def test_the_stages_have_the_chosen_rates(stage: str, texts: tuple[str, ...]) -> None:
    """The twin has rope's; another width has the rate times 128 / width."""
    rates = pd.read_csv(blocks.FOLDER / "rates.csv").set_index(["data", "block", "name"])["rate"]
    file = REPOSITORY / f"configs/experiment/study/{stage}.yaml"
    trained = {}
    for grid in yaml.safe_load(file.read_text())["hydra"]["sweeper"]["grids"]:
        data = TEXTS[0] if grid["data"] == "shakespeare_characters" else TEXTS[1]
        block = next(name for name, own in SETTINGS.items() if own.items() <= grid.items())
        for scheme in grid["pos"].split(","):
            name, width = TWIN if grid.get("pos.interleaved") else scheme, grid.get("model.embed_dim", 128)
            trained[data, block, name, width] = grid["optim.learning_rate"]
            assert grid["optim.learning_rate"] == rates[data, block, scheme] * 128 / width
    widths, twins = ((128,), [TWIN]) if stage == "blocks" else ((64, 256), [])
    cells = {
        (*cell[:2], name, width)
        for cell in rates.index
        if cell[0] in texts and (stage == "blocks" or cell[1] in ("gpt2", "modern"))
        for name in [cell[2], *(twins if cell[2] == "rope" else [])]
        for width in widths
    }
    assert trained.keys() == cells


def test_the_claims_are_of_the_blocks_of_the_study() -> None:
    claims = read_claims(REPOSITORY / "data/studies/blocks/claims.yaml")
    assert [str(claim)[:2] for claim in claims] == [f"C{n}" for n in range(1, 8)]
    named = {name for claim in claims for part in claim.all_of or [] for name in [*part.compared, part.name or ""]}
    levels = {level for claim in claims for part in claim.all_of or [] for level in part.between or []}
    assert {name.partition("block=")[2] for name in named} | {level[6:] for level in levels} <= {"", *blocks.BLOCKS}


@pytest.fixture(scope="module")
def verdicts_of_runs() -> list[Verdict]:
    claims = read_claims(blocks.FOLDER / "claims.yaml")
    return verdicts(claims, compare(read_table(blocks.FOLDER / "runs.csv.gz")))


def test_the_page_has_the_verdicts_of_the_table(verdicts_of_runs: list[Verdict]) -> None:
    lines = (blocks.FOLDER / "README.md").read_text().splitlines()
    rows = [re.split(r" *\| *", line.strip("| ")) for line in lines if re.match(r"\| C\d: ", line)]
    assert len(rows) == len(verdicts_of_runs) == 7
    for (claim, beyond, p, result), (told, verdict, n, *numbers) in zip(
        rows, (verdict.row[:6] for verdict in verdicts_of_runs), strict=True
    ):
        assert claim[:3] == told[:3]
        assert (beyond, p, result, n) == (numbers[0], f"{numbers[1]}, {numbers[2]}", verdict, "8")


def test_the_page_has_what_factors_change() -> None:
    page = (blocks.FOLDER / "README.md").read_text()
    runs, tuned = (read_table(blocks.FOLDER / name) for name in ("runs.csv.gz", "tuned.csv.gz"))
    factors = pd.read_csv(blocks.FOLDER / "factors.csv").set_index(["data", "block", "name"])["factor"]
    before, after = blocks.means(runs), blocks.means(tuned)
    assert len(after) == 9
    for cell, row in after.iterrows():
        text = "Python" if cell[0] == TEXTS[1] else "Shakespeare"
        block = "modern" if cell[1] == "modern" else "GPT-2's"
        changes = "; ".join(f"{before.loc[cell, column]:.3f}, {row[column]:.3f}" for column in ("in range", "excess"))
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {text}, {block} |")]
        column = 2 + ["kerple", "shaw", "t5"].index(cell[2])
        assert line.split("|")[column].strip() == f"{factors[cell]}; {changes}"
    results = {str(verdict.claim)[:2]: verdict for verdict in blocks.verdicts_with_factors(runs, tuned)}
    assert {name: verdict.result for name, verdict in results.items()} == {
        "C2": "not shown",
        "C3": "shown",
        "C4": "the opposite shown",
        "C5": "shown",
        "C6": "not shown",
    }
    for p in (results["C5"].p, results["C3"].p, results["C2"].p, results["C4"].p_opposite):
        assert f"p = {p_text(p)})" in page


def test_the_figure_shows_the_means() -> None:
    table = pd.read_csv(blocks.FOLDER / "runs.csv.gz")
    panels = {axes.get_title(): axes for axes in blocks.figure(table).axes}
    assert len(panels) == 4
    losses = table[(table["metric"] == "last_loss") & (table["data"] == "python_library") & (table["name"] == "rope")]
    means = losses.groupby(["length", "block"])["value"].mean()
    expected = (means[512] - means[64])[["gpt2", "modern"]].tolist()
    lines = [line.get_ydata().tolist() for line in panels["python_library: excess, loss at 512 less at 64"].lines]
    assert any(of == pytest.approx(expected) for of in lines)


def test_the_ladder_keeps_the_signs_that_the_page_names() -> None:
    """On Shakespeare, at 64 and 256 dimensions as at 128: by how much the means exceed the claims."""
    found = verdicts(read_claims(blocks.FOLDER / "ladder.yaml"), compare(read_table(blocks.FOLDER / "ladder.csv.gz")))
    agree = {str(verdict.claim) for verdict in found if all(part.mean > 0 for part in verdict.margin_tests)}
    widths = ("64", "256")
    of_c3 = {f"C3 at {width}, {name}" for width in widths for name in ("kerple", "alibi")}
    assert agree == {f"{claim} at {width}" for claim in ("C1", "C5") for width in widths} | of_c3 | {"C6 at 64"}
    assert all(len(part.margins) == 3 for verdict in found for part in verdict.margin_tests)
