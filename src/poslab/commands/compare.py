"""Command `compare`: a table of results, from run folders or a file, its comparison, and the report."""

import sys
from pathlib import Path

from poslab.comparison.claims import claims_file, read_claims, when_written
from poslab.comparison.compare import compare_table
from poslab.comparison.grids import setting_panels
from poslab.comparison.report import Report
from poslab.comparison.source import read_table_file
from poslab.comparison.verdicts import verdicts
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError
from poslab.report import terminal
from poslab.statistics.table import BadTable


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Write the report, print its answers, and return its folder.

    Raises UserError for settings, tables, runs and folders that can't be used.
    """
    file = claims_file(config.claims) if config.claims else None
    claims = read_claims(file) if file else []
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
    found = verdicts(claims, compared)
    sections = [source.section(title, one, notes[title]) for title, one in compared.items()]
    by_setting = setting_panels(compared)
    written = f"Claims of {config.claims}, {when_written(file)}." if file else ""
    report = Report(sections, command, source.table, source.left_out, found, by_setting, written)
    report.write(source.folder)
    source.write_means(report)
    print(terminal.page(report.on_screen))
    for note in (note for section in sections for note in section.notes):
        print(f"note: {note}", file=sys.stderr)
    print(f"\nreport  {source.folder / 'report.html'} (also report.md, results.csv)")
    return source.folder
