"""Report in a folder: report.html, report.md and the figures of the latter."""

from collections.abc import Sequence
from pathlib import Path

from seedstats.page import html, markdown
from seedstats.page.blocks import Block, figures


def write_report(folder: Path, title: str, blocks: Sequence[Block]) -> None:
    """Write report.html, report.md and figures/ into `folder`, over an earlier report there."""
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    contents = {f"figures/{file}": text for figure in figures(blocks) for file, text in figure.files.items()}
    contents |= {"report.html": html.page(title, blocks), "report.md": markdown.page(title, blocks)}
    for name, text in contents.items():  # which may have names of folders with bytes that are not UTF-8
        (folder / name).write_text(text, encoding="utf-8", errors="replace")
