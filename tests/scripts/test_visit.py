"""A visit to a GPU goes on where it was interrupted."""

import json
from pathlib import Path

from benchmarks.visit import Results


def test_a_second_visit_measures_what_the_first_one_did_not(tmp_path: Path) -> None:
    def fails() -> dict[str, float]:
        raise RuntimeError("out of shared memory")

    first = Results(tmp_path / "visit")
    assert first.measure("fast", lambda: {"ms": 1.0})["ms"] == 1.0
    assert first.measure("broken", fails) is None
    second = Results(tmp_path / "visit")
    assert second.measure("fast", fails)["ms"] == 1.0
    assert second.measure("broken", lambda: {"ms": 2.0})["ms"] == 2.0
    lines = (tmp_path / "visit/results.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["fast", "broken"]
