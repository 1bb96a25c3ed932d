"""A table of a report."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """remark: how it is to be read. kind: its class on the page."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    remark: str = ""
    kind: str = ""
