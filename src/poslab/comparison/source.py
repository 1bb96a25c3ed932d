"""Sources of a comparison: a table of results, from a file (`read_table_file`) or from run folders (`of_runs.py`)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from poslab.comparison.compare import Comparison
from poslab.comparison.figures import scores_panel, styles_of
from poslab.comparison.report import Report
from poslab.comparison.sections import Section
from poslab.config.files import require_writable
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError
from poslab.runs.load import LeftOut, Run
from poslab.statistics.table import BadTable, read_table


@dataclass(frozen=True)
class Source:
    """Checked table to be compared, and where its report goes.

    runs: by what is in the table's column `folder`, if they were read. left_out: folders that are not in the table.
    """

    table: pd.DataFrame
    folder: Path
    left_out: Sequence[LeftOut] = ()
    runs: Mapping[str, Run] = field(default_factory=dict)

    def section(self, title: str, comparison: Comparison, notes: list[str]) -> Section:
        """Return the report's section on one kind of data."""
        styles = styles_of((group.label for group in comparison.groups), comparison.baseline)
        return Section(title, comparison, [scores_panel(comparison, styles)], notes)

    def write_means(self, report: Report) -> None:
        """Write mean curves for TensorBoard, if curves are known."""


def read_table_file(config: CompareConfig) -> Source:
    """Return the table in a file. Raises SettingError for one that can't be used."""
    file = Path(os.path.expanduser(str(config.table)))
    if config.runs != CompareConfig().runs:
        raise SettingError("runs", ",".join(config.runs), "goes without table, which is compared in their place")
    try:
        table = _with_direction(read_table(file), config)
    except BadTable as error:
        raise SettingError("table", config.table, str(error)) from error
    except OSError as error:
        raise SettingError("table", config.table, f"can't be read: {error.strerror}") from error
    name = file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".parquet")
    folder = Path(os.path.expanduser(config.out)) if config.out else file.with_name(f"{name}-report")
    require_writable("out", folder)
    return Source(table, folder)


def _with_direction(table: pd.DataFrame, config: CompareConfig) -> pd.DataFrame:
    """Return the table with the direction that was typed, where it has none. Raises SettingError if it has another."""
    if config.better is None:
        return table
    other = table.loc[~table["better"].isin(["", config.better]), "metric"]
    if not other.empty:
        raise SettingError("better", config.better, f"the table's column better says otherwise of {other.iloc[0]}")
    return table.assign(better=config.better)
