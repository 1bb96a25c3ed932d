"""Golden runs: the main job of the front page gives the losses that it has always given.

To the bit equal is a repetition on one processor with one number of threads (test_train.py). Between processors,
numbers of threads and versions of torch the order of sums changes: with one and two threads, with AVX-512, AVX2 and
neither, and with torch 2.11, 2.14.1 and 2.15, losses of the first six steps differed by at most 4e-6. The whole
run's best loss was 5.8405244 with AVX-512 and two threads, and 5.8405248 with AVX2 and one.
"""

import re
from pathlib import Path

import pytest
from common import REPOSITORY, compose_config
from processes import run_process
from runs_to_resume import logged

from poslab.training.train import train

FIRST_LOSSES = {
    "absolute": [10.856277, 10.542806, 10.263515, 10.102145],
    "shaw": [10.859024, 10.556669, 10.259053, 10.108419],
    "t5": [10.859336, 10.535433, 10.265044, 10.095210],
}


@pytest.mark.parametrize("scheme", FIRST_LOSSES)
def test_first_losses(scheme: str, tmp_path: Path) -> None:
    golden = FIRST_LOSSES[scheme]
    settings = [f"pos={scheme}", f"trainer.max_steps={len(golden)}", "trainer.log_every_n_steps=1"]
    train(compose_config(*settings, "trainer.limit_val_batches=0", f"run_dir={tmp_path}"))
    losses = [loss for _, loss in logged(tmp_path)["train/loss"]]
    assert losses == pytest.approx(golden, abs=5e-5)


@pytest.mark.slow
def test_the_front_page_prints_what_the_main_job_prints(tmp_path: Path) -> None:
    """Loss and perplexity, whose last digit is the processor's, and the step that has the best."""
    best_line = r"best +validation loss ([\d.]+), perplexity ([\d.]+), at step (\d+) of (\d+)"
    promised = re.search(best_line, (REPOSITORY / "README.md").read_text())
    result = run_process("train", "pos=t5", f"run_dir={tmp_path / 'run'}", cwd=tmp_path)
    printed = re.search(best_line, result.stdout)
    assert promised, "README.md shows no best loss"
    assert printed, result.stdout + result.stderr
    loss, perplexity, *steps = map(float, promised.groups())
    assert [float(printed[1]), float(printed[2])] == [pytest.approx(loss, abs=5e-4), pytest.approx(perplexity, abs=0.2)]
    assert [float(printed[3]), float(printed[4])] == steps
