"""What a report says of memory and of contexts: losses by memory, and the relative effective context length."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from common import ENDLESS, compose_config
from runs_to_resume import TINY

from poslab.commands.compare import run_comparison
from poslab.comparison.context import SHARES, common_losses, effective_length
from poslab.config.scripts import CompareConfig
from poslab.runs.evaluation import Evaluation, LengthLoss, last_targets
from poslab.training.train import train


def by_definition(own: dict, of_all: list[dict], share: float) -> int:
    """Appendix C of the paper, token by token."""
    lengths = sorted(own)
    for c, longer in pairwise(lengths):
        best = [min(losses[c][t] for losses in of_all) for t in range(len(own[c]))]
        chosen = sorted(range(len(best)), key=lambda t: -best[t])[: max(1, round(share * len(best)))]
        f = {n: sum(min(best[t], own[n][t]) for t in chosen) / len(chosen) for n in (c, longer)}
        if (math.exp(f[c]) - math.exp(f[longer])) / math.exp(f[c]) < 0.01:
            return c
    return lengths[-1]


def test_the_length_by_its_definition() -> None:
    random, found = np.random.default_rng(0), set()
    for _ in range(30):
        tokens, falls = random.gamma(2, 1, 40), random.uniform(0, 0.02, 2)
        models = [
            {n: tokens + random.normal(0, 0.005, 40) - fall * place for place, n in enumerate((8, 16, 32, 64))}
            for fall in falls
        ]
        for own in models:
            for share in SHARES:
                found.add(effective_length(own, models, share))
                assert effective_length(own, models, share) == by_definition(own, models, share)
    assert len(found) > 1


def evaluation_of(context: int, last: int) -> Evaluation:
    """Whose loss of a token is its place in the text, and a tenth for each token of the context."""
    evaluation = Evaluation(context, 1000, [], [], "")
    places = last_targets(evaluation, last)
    lengths = [LengthLoss(n, 1, last=last, last_losses=[place + n / 10 for place in places]) for n in (64, 128)]
    return replace(evaluation, lengths=lengths)


def test_models_of_other_contexts_have_tokens_in_common() -> None:
    short, long = evaluation_of(16, 8), evaluation_of(64, 32)
    assert len(last_targets(short, 8)) > 32
    assert last_targets(long, 32)[:2] == [481, 482]
    found = common_losses({"short": short, "long": long})
    assert [*found["short"]] == [64, 128]
    assert np.array_equal(found["short"][64], found["long"][64])
    shared = set(last_targets(short, 8)) & set(last_targets(long, 32))
    assert found["short"][128].tolist() == pytest.approx([place + 12.8 for place in sorted(shared)])
    assert common_losses({"short": short, "without": replace(long, lengths=[])})["short"] == {}


def test_a_report_of_runs_with_memory(tmp_path: Path, no_figures: None, blank_pictures: None) -> None:
    settings = [*TINY, f"pos={ENDLESS}", "data.order=stream", "evaluation.lengths=[8,16,32]"]
    for memory in (0, 16):
        summary = train(compose_config(*settings, f"model.memory_length={memory}", f"run_dir={tmp_path / str(memory)}"))
        by_memory = summary.metrics.get("memory_loss", {})
        assert [*by_memory] == ([] if memory == 0 else ["0", "16", "64"])
    config = CompareConfig(runs=[str(tmp_path)], allow_differences=True, out=str(tmp_path / "report"))
    run_comparison(config, "compare")
    for page in ("report.md", "report.html"):
        text = (tmp_path / "report" / page).read_text()
        assert "Loss by memory" in text
        assert f"{by_memory['16']:.4f}" in text
        assert "Relative effective context length" in text
        assert "Lengths measured: 8, 16, 32." in text
