"""Count of the statements in function bodies, and of the files, that one command executes: how much there is to read.

    python tests/executed.py                                   the main job: experiment=smoke, two steps
    python tests/executed.py scripts/compare.py runs=RUNS      any other script

Statements and files are those of src/poslab; what runs on import, such as definitions, doesn't count. The main job
finds its text tokenised: a first run, which is not counted, fills a cache of its own.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
MAIN_JOB = ("scripts/train.py", "pos=t5", "experiment=smoke", "trainer.max_steps=2")


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        command = sys.argv[1:] or [*MAIN_JOB, f"run_dir={scratch}/run", f"data.cache_dir={scratch}/cache"]
        if not sys.argv[1:]:
            first = [*command, f"run_dir={scratch}/first"]
            subprocess.run([sys.executable, *first], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        data, report = f"--data-file={scratch}/data", f"{scratch}/coverage.json"
        coverage = [sys.executable, "-m", "coverage"]
        subprocess.run([*coverage, "run", data, "--source", "src/poslab", *command], cwd=REPOSITORY, check=True)
        subprocess.run([*coverage, "json", data, "-q", "-o", report], cwd=REPOSITORY, check=True)
        files = json.loads(Path(report).read_text())["files"]
    counts = {
        file: sum(len(of["executed_lines"]) for name, of in found["functions"].items() if name)
        for file, found in files.items()
    }
    executed = {file: count for file, count in counts.items() if count}
    for file, count in sorted(executed.items(), key=lambda item: -item[1]):
        print(f"{count:6} {file}")
    print(f"{sum(executed.values())} statements of function bodies in {len(executed)} files")


if __name__ == "__main__":
    main()
