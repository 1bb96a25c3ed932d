"""What a report says of memory: losses by its length."""

from pathlib import Path

from common import ENDLESS, compose_config
from runs_to_resume import TINY

from poslab.commands.compare import run_comparison
from poslab.config.scripts import CompareConfig
from poslab.training.train import train


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
