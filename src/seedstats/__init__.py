"""Statistics of results over random seeds: a table with names, seeds and values becomes answers and a page.

    table = read_table("results.csv")                 names, seeds, values
    found = compare(table, better="lower")            tested, by the name of the data
    for sentence in findings(found["results"]): ...   what is shown, by how much, how sure
    report(found, "results-report", table)            the page
    power(sd=0.03, pilot=3, effect=0.02)              how many seeds the next study needs

Knows nothing of what the values are of. README.md has the rules, and how often each of them misleads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedstats.answers import findings, headline
    from seedstats.claims import read_claims
    from seedstats.comparison import Comparison, compare
    from seedstats.errors import BadSetting, BadTable
    from seedstats.reporting import report
    from seedstats.statistics.power import plan_seeds as power
    from seedstats.table import read_table
    from seedstats.verdict import verdicts

_ROOMS = {
    "read_table": ("table", "read_table"),
    "compare": ("comparison", "compare"),
    "Comparison": ("comparison", "Comparison"),
    "headline": ("answers", "headline"),
    "findings": ("answers", "findings"),
    "report": ("reporting", "report"),
    "power": ("statistics.power", "plan_seeds"),
    "read_claims": ("claims", "read_claims"),
    "verdicts": ("verdict", "verdicts"),
    "BadTable": ("errors", "BadTable"),
    "BadSetting": ("errors", "BadSetting"),
}
__all__ = [
    "BadSetting",
    "BadTable",
    "Comparison",
    "compare",
    "findings",
    "headline",
    "power",
    "read_claims",
    "read_table",
    "report",
    "verdicts",
]


def __getattr__(name: str) -> Any:
    # Late, because whoever only lays out a table (`seedstats.page`) needs neither pandas nor scipy.
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, attribute = _ROOMS[name]
    return getattr(import_module(f"{__name__}.{room}"), attribute)
