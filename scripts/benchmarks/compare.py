"""Benchmark of `compare` over many run folders, in CPU time, which other work on the machine changes little."""

import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import Timing
from benchmarks.report import Table
from benchmarks.settings import BenchmarkConfig

_SCRIPTS = Path(__file__).parents[1]
_SIZES = ("embed_dim=16", "num_layers=1", "num_heads=2", "context_length=16")
_TINY = [*(f"model.{size}" for size in _SIZES), "trainer.max_steps=2", "trainer.limit_val_batches=2"]
_SCHEMES = ("absolute", "t5", "rope", "nope")


def measure_compare(config: BenchmarkConfig, rounds: int) -> list[Table]:
    """Return a table of the CPU time of `compare` for a tenth of `config.runs`, and for all of them."""
    timings = {}
    with tempfile.TemporaryDirectory() as folder:
        trained = {pos: Path(folder) / pos for pos in _SCHEMES}
        for pos, run in trained.items():
            _cpu_seconds("train", f"pos={pos}", *_TINY, f"run_dir={run}")
        for runs in (config.runs // 10, config.runs):
            sweep = Path(folder) / str(runs)
            for number in range(runs):
                _copy(trained[_SCHEMES[number % len(_SCHEMES)]], sweep / f"run-{number}", seed=number // len(_SCHEMES))
            seconds = [_cpu_seconds("compare", f"runs={sweep}", "measure=false") for _ in range(rounds)]
            timings[f"{runs:,} runs"] = Timing.of(seconds)
    columns = {"median CPU s": lambda t: f"{t.median:.1f}", "quartiles": lambda t: t.quartiles()}
    return [Table.of("compare over run folders", timings, columns)]


def _copy(trained: Path, run: Path, seed: int) -> None:
    """Write a run as the trained one, of another seed and with other losses; without its curves and weights."""
    run.mkdir(parents=True)
    config = (trained / "config.yaml").read_text(encoding="utf-8").replace("\nseed: 1\n", f"\nseed: {seed}\n")
    (run / "config.yaml").write_text(config, encoding="utf-8")
    summary = json.loads((trained / "summary.json").read_text(encoding="utf-8"))
    loss = 4 + random.Random(run.name).gauss(0, 0.05)
    summary |= {"seed": seed, "best_val_loss": loss, "last_val_loss": loss}
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")


def _cpu_seconds(script: str, *arguments: str) -> float:
    """Return the CPU time of a script with these arguments. Raises RuntimeError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(_SCRIPTS / f"{script}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{script}.py {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
