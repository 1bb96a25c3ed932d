"""What a comparison says of held-out text, by intervals over seeds and text at once."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from common import SMOKE
from runs_to_compare import (
    change_summary,
    compare_folders,
    page_in,
    report_of,
    runs_by_group,
    write_evaluation,
    write_run,
)

from poslab.evaluation.files import evaluate_run
from poslab.runs.evaluation import read_evaluation
from seedstats.other_text import stretches_of
from seedstats.statistics.stretches import seeds_and_text

TOKENS = 533


def write_pair(
    root: Path, of_text: float, tokens: int = TOKENS, seeds: int = 5, ends: Sequence[int] = (), **summary: float
) -> None:
    """absolute, and t5 that is better by 0.1 nats, a little more or less by seed; and by part of the text, with an sd
    of `of_text`. ends: of documents."""
    rng = np.random.default_rng(1)
    by_text = np.repeat(rng.normal(0, of_text, tokens // 16 + 1), 16)[:tokens]
    by_text -= by_text.mean()
    for seed in range(1, seeds + 1):
        base = rng.normal(4, 1, tokens)
        for pos, losses in {"absolute": base, "t5": base - 0.1 + by_text + rng.normal(0, 0.005)}.items():
            figure = round(float(losses.mean()), 5)
            folder = write_run(root, pos, seed, figure, val_loss_tokens=tokens, **summary)
            write_evaluation(folder, losses, ends=ends)


def claim_in(root: Path, **settings: bool) -> str:
    (said,) = page_in(report_of(root, **settings)).lists[0]
    assert said.startswith("t5 is better than absolute: 0.")
    return said


@pytest.mark.usefixtures("no_figures")
def test_a_claim_says_for_which_seeds_and_text_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_pair(tmp_path / "even", of_text=0.05)
    assert claim_in(tmp_path / "even").endswith(" It holds for new seeds and for other text of this corpus.")
    assert "interval, other text" in capsys.readouterr().out
    write_pair(tmp_path / "uneven", of_text=1.0)
    assert claim_in(tmp_path / "uneven").endswith(
        " It holds for new seeds on this text; for other text it is not shown."
    )
    _, header, first, second = page_in(tmp_path / "uneven" / "report").rows[:4]
    by_label = {row[0]: dict(zip(header, row, strict=True)) for row in (first, second)}
    low, high = map(float, by_label["t5"]["interval, other text"].split(" to "))
    assert low < -0.2 < 0 < high
    assert by_label["absolute"]["interval, other text"] == ""


@pytest.mark.usefixtures("no_figures")
def test_documents_are_what_is_drawn_of_a_text(tmp_path: Path) -> None:
    """The interval is that of seeds and documents, however much they differ within; of few nothing is said."""
    ends = [40, 111, 160, 190, 230, 260, 300, 340, 385, 430, 470, 510]
    write_pair(tmp_path / "many", of_text=0.05, ends=ends)
    assert "It holds for new seeds and for other text of this corpus." in claim_in(tmp_path / "many")
    losses = [
        np.array([read_evaluation(tmp_path / "many" / f"{pos}-seed{seed}").consecutive_losses for seed in range(1, 6)])
        for pos in ("t5", "absolute")
    ]
    documents = np.repeat(np.arange(13), np.diff([0, *ends, TOKENS]))
    expected = seeds_and_text(losses[0] - losses[1], documents, np.ones(TOKENS))
    assert compare_folders(tmp_path / "many").over_text["t5"].interval == pytest.approx(expected.interval, abs=1e-6)
    write_pair(tmp_path / "few", of_text=0.05, ends=ends[:8])
    assert claim_in(tmp_path / "few").endswith(
        "because its held-out documents tell less than 10 of equal length would."
    )


@pytest.mark.usefixtures("no_figures")
def test_other_parts_of_a_text_say_nothing_of_other_text(tmp_path: Path) -> None:
    write_pair(tmp_path, of_text=0.05)
    for folder in tmp_path.glob("t5-*"):
        change_summary(folder, test_tokens=77)
    assert "text" not in claim_in(tmp_path, allow_differences=True)


@pytest.mark.parametrize("limit", ["null", 3])
def test_stretches_have_the_mean_that_is_compared(limit: object, trained: Callable[..., Path], tmp_path: Path) -> None:
    """Also where validations are of a part of the text."""
    run = shutil.copytree(trained(*SMOKE, f"trainer.limit_val_batches={limit}"), tmp_path / "run")
    evaluation = evaluate_run(run, [16])
    (group,) = compare_folders(run, validation="best").groups
    stretches = stretches_of(group)[1]
    ((of_group,),) = runs_by_group(run).values()
    tokens = of_group.summary.val_loss_tokens
    assert len(stretches) == tokens // 16
    assert (tokens == evaluation.tokens) == (limit == "null")
    assert np.mean(stretches) == pytest.approx(group.values[1], abs=1e-5)


@pytest.mark.usefixtures("no_figures")
def test_stretches_of_other_weights_are_called_so(tmp_path: Path) -> None:
    """The last validations are compared, and the evaluation is of the best one."""
    write_pair(tmp_path, of_text=0.05)
    for folder in tmp_path.glob("t5-seed*"):
        change_summary(folder, last_val_loss=json.loads((folder / "summary.json").read_text())["best_val_loss"] + 0.01)
    assert claim_in(tmp_path).endswith(
        "because the passages of this one were measured with another checkpoint than the one compared."
    )
    assert "interval, other text" not in page_in(tmp_path / "report").rows[1]
