"""Study of blocks: the rule that chooses learning rates, what it writes, and the claims that are registered."""

from pathlib import Path

import pandas as pd
import pytest
import yaml
from common import REPOSITORY

from seedstats.claims import read_claims
from studies import blocks


def results(file: Path, losses: dict[float, list[float | str]], **columns: str) -> Path:
    """What a comparison writes of rope in GPT-2's block: best validation losses of two seeds by learning rate."""
    usual = {"name": "rope", "data": "tinyshakespeare.txt", "metric": "best validation loss", "model": "mini"}
    usual |= {"interleaved": "false"} | columns
    rows = [
        usual
        | {"seed": seed, "value": "" if loss == "diverged" else loss, "optim.learning_rate": rate, "stretch": ""}
        | {"status": "diverged" if loss == "diverged" else "finished", "unit": "nats per token", "better": "lower"}
        for rate, of_rate in losses.items()
        for seed, loss in enumerate(of_rate, start=1)
    ]
    pd.DataFrame(rows).to_csv(file, index=False)
    return file


@pytest.mark.parametrize(
    ("losses", "rate"),
    [
        ({0.002: [1.9, 1.8], 0.004: [1.7, 1.9], 0.008: [2.0, 2.0]}, 0.004),  # of the mean, not of the best seed
        ({0.002: [1.9, 1.8], 0.004: [1.5, "diverged"]}, 0.002),
    ],
)
def test_the_rate_with_the_lowest_mean_loss_is_chosen(
    losses: dict[float, list[float | str]], rate: float, tmp_path: Path
) -> None:
    (chosen,) = blocks.choose(blocks.read_results(results(tmp_path / "r.csv", losses))).to_dict("records")
    assert (chosen["block"], chosen["name"], chosen["rate"]) == ("gpt2", "rope", rate)


def test_nothing_is_chosen_while_a_seed_is_missing(tmp_path: Path) -> None:
    rows = blocks.read_results(results(tmp_path / "r.csv", {0.002: [1.9, 1.8], 0.004: [1.7]}))
    with pytest.raises(SystemExit, match="a seed is missing"):
        blocks.choose(rows)


@pytest.mark.parametrize(
    ("columns", "block", "name"),
    [
        ({"model": "modern", "model.qk_norm": "rms"}, "modern", "rope"),
        ({"model.qk_norm": "rms"}, "gpt2-qknorm", "rope"),
        ({"optim": "muon", "model.qk_norm": "none"}, "gpt2-muon", "rope"),
        ({"interleaved": "true"}, "gpt2", "rope_twin"),
    ],
)
def test_arms_by_their_settings(columns: dict[str, str], block: str, name: str, tmp_path: Path) -> None:
    rows = blocks.read_results(results(tmp_path / "r.csv", {0.002: [1.9]}, **columns))
    assert {*zip(rows["block"], rows["name"], strict=True)} == {(block, name)}


def test_the_second_stage_has_the_chosen_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "EXPERIMENTS", tmp_path)
    blocks.write_experiments(blocks.choose(blocks.read_results(results(tmp_path / "r.csv", {0.004: [1.9, 1.8]}))))
    grids = {name: yaml.safe_load((tmp_path / f"{name}.yaml").read_text())["hydra"]["sweeper"]["grids"]
             for name in ("blocks", "ladder")}  # fmt: skip
    assert [grid["optim.learning_rate"] for grid in grids["blocks"]] == [0.004, 0.004]
    assert [grid.get("pos.interleaved") for grid in grids["blocks"]] == [None, True]  # the twin has rope's rate
    rates = {grid["model.embed_dim"]: grid["optim.learning_rate"] for grid in grids["ladder"]}
    assert rates == {64: 0.008, 256: 0.002}


def test_the_claims_are_of_the_blocks_of_the_study() -> None:
    claims = read_claims(REPOSITORY / "data/studies/blocks/claims.yaml")
    assert [str(claim)[:2] for claim in claims] == [f"C{n}" for n in range(1, 8)]
    named = {name for claim in claims for part in claim.all_of or [] for name in [*part.compared, part.name or ""]}
    levels = {level for claim in claims for part in claim.all_of or [] for level in part.between or []}
    assert {name.partition("block=")[2] for name in named} | {level[6:] for level in levels} <= {"", *blocks.BLOCKS}
