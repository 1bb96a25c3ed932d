"""Command `compare table=FILE`: the report of a table of results, which needs no run folder and loads no torch."""

import os
from pathlib import Path

from poslab.comparison.compare import Comparison
from poslab.comparison.figures import scores_panel, styles_of
from poslab.comparison.of_table import compare_table
from poslab.comparison.report import Report
from poslab.comparison.sections import Section
from poslab.config.files import require_writable
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError
from poslab.report import terminal
from poslab.statistics.table import BadTable, read_table


def run_table_comparison(config: CompareConfig, command: str) -> Path:
    """Write the report, print its answers, and return its folder.

    Raises SettingError for a table that can't be used.
    """
    file = Path(os.path.expanduser(str(config.table)))
    folder = Path(os.path.expanduser(config.out)) if config.out else file.with_name(f"{file.name.split('.')[0]}-report")
    try:
        compared = compare_table(
            read_table(file),
            metric=config.metric,
            length=config.length,
            better=config.better,
            baseline=config.baseline,
            effect=config.effect,
            all_pairs=config.pairs == "all",
        )
    except BadTable as error:
        raise SettingError("table", config.table, str(error)) from error
    except OSError as error:
        raise SettingError("table", config.table, f"can't be read: {error.strerror}") from error
    require_writable("out", folder)
    report = Report([_section(title, comparison) for title, comparison in compared.items()], command)
    report.write(folder)
    print(terminal.page(report.on_screen))
    print(f"\nreport  {folder / 'report.html'} (also report.md)")
    return folder


def _section(title: str, comparison: Comparison) -> Section:
    styles = styles_of((group.label for group in comparison.groups), comparison.baseline)
    return Section(title, comparison, {}, comparison.sentences, [], [scores_panel(comparison, styles)])
