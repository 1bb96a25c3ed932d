"""Command `compare`: a table of results, from run folders or a file, its comparison, and the report."""

import sys
from pathlib import Path

from poslab.comparison.compare import compare_table
from poslab.comparison.contrasts import verdicts
from poslab.comparison.grids import setting_panels
from poslab.comparison.report import Report
from poslab.comparison.source import read_table_file
from poslab.config.contrasts import write_registrations
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError
from poslab.report import terminal
from poslab.statistics.table import BadTable


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Write the report, print its answers, and return its folder.

    Raises UserError for settings, tables, runs and folders that can't be used.
    """
    if config.table is not None:
        source = read_table_file(config)
    else:
        print("reading runs ...", flush=True)
        from poslab.comparison.of_runs import read_folders  # loads torch

        source = read_folders(config)
    for left in source.left_out:
        print(f"left out  {left.folder}: {left.reason}")
    try:
        compared, notes = compare_table(source.table, config, source.runs)
    except BadTable as error:
        raise SettingError("table", config.table, str(error)) from error
    registered = verdicts(source.registered, compared) if source.registered else []
    sections = [source.section(title, one, notes[title]) for title, one in compared.items()]
    by_setting = setting_panels(compared)
    report = Report(sections, command, source.table, source.left_out, registered, by_setting)
    report.write(source.folder)
    if source.registered:
        write_registrations(source.folder, source.registered)
    source.write_means(report)
    print(terminal.page(report.on_screen))
    for note in (note for section in sections for note in section.notes):
        print(f"note: {note}", file=sys.stderr)
    print(f"\nreport  {source.folder / 'report.html'} (also report.md, results.csv)")
    return source.folder
