"""Figures of how much there is to read: what a command executes, what a decoder loads, how many files know a feature.

    python scripts/maintenance/executed.py                               all; the main job: experiment=smoke, two steps
    python scripts/maintenance/executed.py scripts/compare.py runs=RUNS  statements and files that a script executes

Statements are those of function bodies in src; what runs on import, such as definitions, doesn't count. The main
job finds its text tokenised: a first run, which is not counted, fills a cache of its own.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "poslab"
ROOMS = ("poslab", "seedstats", "hydra_plugins")
MAIN_JOB = ("scripts/train.py", "pos=t5", "experiment=smoke", "trainer.max_steps=2")
A_DECODER = """
import sys, poslab
poslab.GPT(vocab_size=10, embed_dim=8, num_layers=1, num_heads=1, context_length=8)
print(*(m.__file__ for n, m in sys.modules.items() if n.split(".")[0] == "poslab" and getattr(m, "__file__", None)))
"""
# Words of a feature, and the files that are its room.
FEATURES = {
    "processes": (
        r"\b(world_size|global_rank|is_first_process|barrier|is_global_zero|rank_zero\w*|all_gather\w*)\b|launch(ed)?\(\)",
        r"^$",
    ),
    "memory": (
        r"\b(remembers|memory_length|empty_memory|retrieval|Retrieval|LayerMemory|in_segments)\b",
        r"model/memory/|/stream",
    ),
    "resuming": (r"\bresum", r"/resume"),
}
ASKS_DATA = r"isinstance\([^()]*,\s*(Task|TaskDataModule|DataConfig)\)|\bis_task\("


def main() -> None:
    executed = statements(sys.argv[1:])
    for file, count in sorted(executed.items(), key=lambda item: -item[1]):
        print(f"{count:6} {file}")
    print(f"{sum(executed.values())} statements of function bodies in {len(executed)} files")
    if sys.argv[1:]:
        return
    text = {path: path.read_text(encoding="utf-8") for path in (REPOSITORY / "src").rglob("*.py")}
    loaded = subprocess.run(
        [sys.executable, "-c", A_DECODER], capture_output=True, text=True, check=True
    ).stdout.split()
    print(f"GPT alone loads {len(loaded)} files, {lines(*map(Path, loaded)):,} lines")
    for feature, (words, room) in FEATURES.items():
        files = [path for path, content in text.items() if re.search(words, content) and not re.search(room, str(path))]
        print(f"files that know of {feature}: {len(files)}")
    print(
        f"places that ask data for their type: {sum(len(re.findall(ASKS_DATA, content)) for content in text.values())}"
    )
    listed = files_to_a_step()
    print(f"from the command line to a training step: {len(listed)} files, {lines(*listed):,} lines")
    rooms = {name: [path for path in text if path.relative_to(REPOSITORY / "src").parts[0] == name] for name in ROOMS}
    print("; ".join(f"{name} {lines(*of):,} lines" for name, of in rooms.items()))
    print(f"all {lines(*text):,} lines, tests {lines(*(REPOSITORY / 'tests').rglob('*.py')):,}")
    print(f"train.py {lines(PACKAGE / 'training' / 'train.py')} lines")


def statements(command: list[str]) -> dict[str, int]:
    """Return how many statements of function bodies a script executes, by file."""
    with tempfile.TemporaryDirectory() as scratch:
        arguments = command or [*MAIN_JOB, f"run_dir={scratch}/run", f"data.cache_dir={scratch}/cache"]
        if not command:
            first = [*arguments, f"run_dir={scratch}/first"]
            subprocess.run([sys.executable, *first], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
        data, report = f"--data-file={scratch}/data", f"{scratch}/coverage.json"
        coverage = [sys.executable, "-m", "coverage"]
        subprocess.run([*coverage, "run", data, "--source", "src", *arguments], cwd=REPOSITORY, check=True)
        subprocess.run([*coverage, "json", data, "-q", "-o", report], cwd=REPOSITORY, check=True)
        files = json.loads(Path(report).read_text())["files"]
    counts = {
        file: sum(len(of["executed_lines"]) for name, of in found["functions"].items() if name)
        for file, found in files.items()
    }
    return {file: count for file, count in counts.items() if count}


def files_to_a_step() -> list[Path]:
    """Return the files that the package's page lists from the command line to a training step."""
    page = (PACKAGE / "README.md").read_text(encoding="utf-8")
    section = page.partition("## From the command line to a training step")[2].partition("\n## ")[0]
    names = re.findall(r"^    ([\w/]+\.py)", section, flags=re.MULTILINE)
    return [REPOSITORY / name if name.startswith("scripts/") else PACKAGE / name for name in names]


def lines(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


if __name__ == "__main__":
    main()
