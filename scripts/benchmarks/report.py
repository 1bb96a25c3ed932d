"""Tables of results: on the screen, in Markdown, and as JSON."""

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import distributions
from pathlib import Path

import torch

from benchmarks.measure import Timing
from poslab.processors import cpu_capabilities
from poslab.training.machine import bfloat16_units
from seedstats.page.terminal import table

_PACKAGES = ("poslab", "torch", "transformers", "x-transformers", "pytorch-lightning")


@dataclass(frozen=True)
class Table:
    """Cells by entrant; `seconds` are the timings behind them, for benchmark.json."""

    title: str
    rows: dict[str, dict[str, str]]
    seconds: dict[str, Timing] = field(default_factory=dict)

    @classmethod
    def of(cls, title: str, timings: dict[str, Timing], columns: dict[str, Callable[[Timing], str]]) -> "Table":
        """Return a table with a row for each timing, whose cells `columns` compute."""
        rows = {name: {column: cell(t) for column, cell in columns.items()} for name, t in timings.items()}
        return cls(title, rows, timings)

    def lines(self) -> list[list[str]]:
        """Return the names of the columns, then a line of cells for each entrant."""
        columns = list(next(iter(self.rows.values())))
        return [["", *columns], *([name, *cells.values()] for name, cells in self.rows.items())]

    def markdown(self) -> str:
        header, *rows = self.lines()
        lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
        return "\n".join([f"### {self.title}", "", *lines, ""])

    def text(self) -> str:
        header, *rows = self.lines()
        return f"\n{self.title}\n{table(header, rows)}"


def write(folder: Path, tables: list[Table], command: str) -> None:
    """Write benchmark.json and benchmark.md, complete after every group."""
    packages = " ".join(f"{name} {found.version}," for name in _PACKAGES for found in distributions(name=name))
    processor = cpu_capabilities().get("cpu_name") or platform.processor()
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    machine = (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {processor}, {gpu}bfloat16 in "
        f"{bfloat16_units() or 'software'}, {torch.get_num_threads()} threads, "
        f"{packages} Python {platform.python_version()}"
    )
    raw = {"command": command, "machine": machine, "tables": [asdict(measured) for measured in tables]}
    (folder / "benchmark.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    pages = "\n".join([f"`{command}`, {machine}", "", *(measured.markdown() for measured in tables)])
    (folder / "benchmark.md").write_text(pages, encoding="utf-8")
