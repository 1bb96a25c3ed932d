"""Tables of results: on the screen, in Markdown, and as JSON."""

import json
import os
import platform
import time
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

_PACKAGES = ("poslab", "torch", "transformers", "x-transformers", "llms-from-scratch", "pytorch-lightning")


@dataclass
class Table:
    """One table; `notes` say what its figures mean and where entrants differ."""

    title: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        lines = [f"### {self.title}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (self.columns, ["---"] * len(self.columns), *self.rows)]
        return "\n".join([*lines, "", *self.notes, ""])

    def text(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.columns, *self.rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zipped))
            for zipped in (list(zip(row, widths, strict=True)) for row in (self.columns, *self.rows))
        ]
        return "\n".join([f"\n{self.title}", *lines])


def machine() -> dict[str, Any]:
    """What the figures were measured on and with."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processor": torch.cpu.get_capabilities().get("cpu_name") or platform.processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
    }


def write(folder: Path, results: dict[str, Any], tables: list[Table], command: str) -> None:
    """benchmark.json and benchmark.md, complete at any time."""
    about = machine()
    raw = {"command": command, "machine": about, "results": results, "tables": [asdict(table) for table in tables]}
    (folder / "benchmark.json").write_text(json.dumps(raw, indent=2) + "\n", encoding="utf-8")
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items() if number)
    head = (
        f"`{command}`, {about['date']}: {about['cores']} cores, {about['processor']}, {about['threads']} threads, "
        f"Python {about['python']}, {packages}"
    )
    pages = "\n".join([head, "", *(table.markdown() for table in tables)])
    (folder / "benchmark.md").write_text(pages, encoding="utf-8")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
