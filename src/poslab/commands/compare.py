"""Command `compare`: a table of results, from run folders or a file, its comparison, and the report."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from poslab.comparison.results import Results, at_lengths, compared, read_table_file
from poslab.config.files import CLAIMS
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, suggestion
from poslab.metric import LAST_VALIDATION_LOSS, LOSS, LOSSES_BY_LENGTH, TEST_LOSS
from seedstats.answers import findings
from seedstats.claims import Claim, read_claims, when_written
from seedstats.comparison import Comparison
from seedstats.errors import BadSetting
from seedstats.heat_maps import heat_maps
from seedstats.page import terminal
from seedstats.reporting import Report
from seedstats.setting_figures import setting_figures
from seedstats.verdict import Verdict, verdicts


def run_comparison(config: CompareConfig, command: str) -> Path:
    """Print the answers, measure what is missing, write the report, and return its folder.

    Raises UserError for settings, tables, runs and folders that can't be used.
    """
    file = _claims_file(config.claims) if config.claims else None
    try:
        claims = read_claims(file) if file else []
    except BadSetting as error:
        raise SettingError(error.option, error.value, error.problem) from error
    if config.table is not None:
        results = read_table_file(config)
    else:
        print("reading runs ...", flush=True)
        from poslab.comparison.of_runs import read_folders  # loads torch

        results = read_folders(config)
    for line in results.left_out:
        print(terminal.visible(f"left out  {' '.join(line.splitlines())}"))
    # What is asked for may be among what is to be measured.
    asked = {config.metric, *(part.metric for claim in claims for part in (claim, *(claim.all_of or ())))}
    if config.measure and results.missing and asked & {*LOSSES_BY_LENGTH}:
        results = results.measured()
    comparisons = compared(results, config)
    shown = [Results.section(results, title, comparison) for title, comparison in comparisons.items()]
    # The answer first, as the base class has it: pictures and measurements of runs take longer.
    written = f"Claims of {config.claims}, {when_written(file)}." if file else ""
    print(terminal.page(Report(shown, verdicts=_verdicts(claims, comparisons), written=written).on_screen), flush=True)
    if config.measure and results.missing:
        results = results.measured()
        comparisons = compared(results, config)
    print("drawing ...", flush=True)
    sections = [results.section(title, comparison) for title, comparison in comparisons.items()]
    earlier = {sentence for section in shown for sentence in findings(section.comparison)}
    for sentence in (sentence for section in sections for sentence in findings(section.comparison)):
        if sentence not in earlier:  # because measuring has changed it
            print(terminal.visible(f"now     {sentence}"))
    report = Report(
        sections,
        "Which position scheme?" if config.table is None else "Which is best?",
        _verdicts(claims, comparisons),
        written,
        [*results.across(comparisons), *setting_figures(comparisons), *heat_maps(comparisons)],
        command,
        results.left_out,
    )
    page = report.write(results.folder, results.table, latex=config.latex)
    means = results.write_means(comparisons)
    for note in (note for section in sections for note in (*section.comparison.notes, *section.notes)):
        print(terminal.visible(f"note: {note}"), file=sys.stderr)
    print(f"\nreport  {page} (also report.md, results.csv, by_length.csv)")
    if means is not None:
        print(f"means   {shlex.join(['tensorboard', '--logdir', os.path.relpath(means)])}")
    return results.folder


def _verdicts(claims: Sequence[Claim], comparisons: Mapping[str, Comparison]) -> list[Verdict]:
    """Return the verdicts on claims. Raises SettingError for a claim on what isn't there."""
    losses = [
        name for comparison in comparisons.values() for group in comparison.groups for name, _ in group.measurements
    ]
    loss = next((name for name in (TEST_LOSS, LAST_VALIDATION_LOSS) if name in losses), LOSS)
    named = [replace(claim, metric=loss) if claim.metric == LOSS and LOSS not in losses else claim for claim in claims]
    try:
        return verdicts(named, comparisons)
    except BadSetting as error:
        raise SettingError(error.option, error.value, f"{error.problem}{at_lengths(error)}") from error


def _claims_file(name_or_path: str) -> Path:
    """Return the file at a path, or the one of that name in configs/claims. Raises SettingError if there is neither."""
    file = Path(name_or_path).expanduser()
    if file.is_file():
        return file
    claims_files = {of.relative_to(CLAIMS).with_suffix("").as_posix(): of for of in sorted(CLAIMS.rglob("*.yaml"))}
    if name_or_path not in claims_files:
        raise SettingError(
            "claims", name_or_path, f"no such file, nor one in configs/claims; {suggestion(name_or_path, claims_files)}"
        )
    return claims_files[name_or_path]
