"""Interactions: whether a difference from the baseline depends on another setting."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from seedstats import compare, findings, report
from seedstats.comparison import Comparison
from seedstats.table import checked

NOISE = 0.01


def table(effects: dict[tuple[str, str], float], seeds: int = 5, seed: int = 0) -> pd.DataFrame:
    """Values of every name with both settings: what a seed does to all, an effect of each cell, and noise."""
    generator = np.random.default_rng(seed)
    of_seed = generator.normal(3, 0.1, seeds)
    rows = [
        {"name": name, "block": block, "seed": number, "value": of_seed[number] + effect + generator.normal(0, NOISE)}
        for (name, block), effect in effects.items()
        for number in range(seeds)
    ]
    return pd.DataFrame(rows)


def compared(frame: pd.DataFrame) -> Comparison:
    (one,) = compare(checked(frame), better="lower", baseline="plain").values()
    return one


CROSSED = {
    ("plain", "old"): 0.0, ("plain", "new"): -0.1,
    ("same", "old"): -0.2, ("same", "new"): -0.3,
    ("turns", "old"): -0.2, ("turns", "new"): 0.1,
}  # fmt: skip


def test_a_difference_of_differences_is_found_and_no_other() -> None:
    frame = table(CROSSED)
    one = compared(frame)
    found = {each.name: each for each in one.interactions}
    assert found.keys() == {"same", "turns"}
    wide = frame.pivot(index="seed", columns=["name", "block"], values="value")
    of_seed = wide["turns", "old"] - wide["plain", "old"] - wide["turns", "new"] + wide["plain", "new"]
    turns = found["turns"]
    assert (turns.level, turns.other) == ("block=old", "block=new")
    assert turns.difference.mean == pytest.approx(of_seed.mean())
    assert turns.difference.significant
    assert not found["same"].difference.significant
    assert any(
        text.startswith("With block=old instead of block=new, turns does better against") for text in findings(one)
    )


def test_where_none_is_shown_one_sentence_says_so() -> None:
    one = compared(table({cell: effect for cell, effect in CROSSED.items() if cell[0] != "turns"}))
    assert "No difference from plain is shown to depend on block (1 interaction)." in findings(one)


def test_a_name_with_one_setting_has_none_and_a_missing_seed_is_left_out() -> None:
    alone = table({cell: effect for cell, effect in CROSSED.items() if cell != ("turns", "new")})
    assert [each.name for each in compared(alone).interactions] == ["same"]
    frame = table(CROSSED)
    lost = (frame["name"] == "turns") & (frame["block"] == "new") & (frame["seed"] == 2)
    frame.loc[lost, "value"] = None
    frame["status"] = np.where(lost, "missing", "finished")
    turns = next(each for each in compared(frame).interactions if each.name == "turns")
    assert (turns.difference.n, turns.difference.outcomes.missing) == (len(frame["seed"].unique()) - 1, (2,))


def test_of_many_pages_without_any_few_claim_one() -> None:
    """200 pages of two names beside the baseline, with effects of names and of settings and none of both."""
    effects = {(name, block): 0.1 * (name == "same") - 0.1 * (block == "new") for name, block in CROSSED}
    false = sum(
        any(each.difference.significant for each in compared(table(effects, seed=seed)).interactions)
        for seed in range(200)
    )
    assert false <= 20  # 10 are expected at most; more than 20 have a chance of 0.1 %


def test_interactions_of_all_data_are_one_family_and_looks_count() -> None:
    frames = [table(CROSSED, seed=seed).assign(data=f"text{seed}") for seed in range(3)]
    frame = checked(pd.concat(frames, ignore_index=True))
    one, *_ = compare(frame, better="lower", baseline="plain", looks=4).values()
    assert {each.difference.comparisons for each in one.interactions} == {3 * 2 * 4}
    alone = compared(frames[0])
    for each, of_page in zip(alone.interactions, one.interactions, strict=True):
        assert each.difference.comparisons == 2
        assert each.difference.p_value <= of_page.difference.p_value
        assert each.difference.interval.high - each.difference.interval.low < np.ptp(of_page.difference.interval)


def test_the_page_has_their_table(tmp_path: Path) -> None:
    frame = checked(table(CROSSED))
    page = report(compare(frame, better="lower", baseline="plain"), tmp_path, frame)
    assert "Does the difference from plain depend on a setting?" in page.read_text()
    assert "| turns | block=old against block=new |" in page.with_name("report.md").read_text()
