"""Compare results over seeds from the command line: `python -m seedstats results.csv better=lower`."""

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seedstats.errors import BadSetting, BadTable, NoColumn, suggestion
from seedstats.page import terminal

_HELP = """Which is best, by how much, how sure: a table of results over seeds becomes answers and a page.

    python -m seedstats results.csv better=lower
    python -m seedstats runs.csv name=Model seed=Seed value=val_loss better=lower
    python -m seedstats lm_eval/*.json baseline=small

Files: csv, also Excel's and .gz, or Parquet; exports of wandb, TensorBoard, MLflow, Aim and
lm-evaluation-harness; plain logs called NAME-seed1.log, with value=NAME. A row has a name, a seed and a value; any
other column is a setting.

    better=lower|higher     which values are better, where the table has no column of that name
    baseline=NAME           what the others are compared with, at its best setting; else the first row's
    effect=NUMBER           the difference that matters
    pairs=all               compares all pairs, not each with the baseline
    metric=NAME length=N    what is compared, where the table has several; else the first row's
    chosen_by=METRIC        chooses among the settings of a name; else the metric that is compared
    looks=N                 how often you will look, adding seeds in between
    target=NUMBER sd=NUMBER tests each name against a fixed value; sd is a run's known standard deviation, else its own
    claims=FILE             a yaml file of what is to be shown
    latex=true              writes the table as results.tex, too
    out=FOLDER              of the page; else NAME-report beside the first file
    name= seed= value=      columns that are meant, where they have other names; also settings=, data=, unit=, status=;
                            value=A,B reads two metrics, and columns that nobody names are then ignored"""


_SETTINGS = ("better", "baseline", "effect", "pairs", "metric", "length", "chosen_by", "looks")  # of `compare`
_OTHERS = ("claims", "out", "target", "sd", "latex")
_COLUMNS = ("name", "seed", "value", "settings", "data", "unit", "status")
_NUMBERS = {"effect": float, "length": int, "looks": int, "target": float, "sd": float}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report of the files and print its answers; return the exit code, 2 for what can't be used."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if not words or {"-h", "--help"} & {*words}:
        print(_HELP)
        return 0
    try:
        print(f"\nreport  {_compared(words)}", flush=True)
    except BrokenPipeError:  # because `| head` has closed it; the page is written by then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    except (BadTable, BadSetting, OSError) as error:
        hint = " (name=COLUMN, seed=COLUMN and value=COLUMN say which is meant; see --help)"
        named = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        print(terminal.visible(f"error: {named}{hint if isinstance(error, NoColumn) else ''}"), file=sys.stderr)
        return 2
    return 0


def _compared(arguments: Sequence[str]) -> Path:
    """Compare the files, print the answers, and return the page's path."""
    files, settings, columns = _parsed(arguments)
    claims_file, out, target, sd, latex = (settings.pop(name, None) for name in _OTHERS)
    # Late, so that help and unknown settings are answered before pandas, scipy and matplotlib are loaded.
    from seedstats.claims import read_claims
    from seedstats.comparison import compare
    from seedstats.heat_maps import heat_maps
    from seedstats.reporting import Report
    from seedstats.section import Section
    from seedstats.setting_figures import setting_figures
    from seedstats.table import read_table
    from seedstats.target import against_target
    from seedstats.verdict import verdicts

    table = read_table(*files, columns=columns)
    claims = read_claims(claims_file) if claims_file else []
    comparisons = compare(table, **settings)
    if target is not None and not math.isfinite(target):
        raise BadSetting("target", target, "must be a finite number")
    if sd is not None and (target is None or not sd > 0):
        raise BadSetting("sd", sd, "must be above 0, and goes with target=NUMBER")
    if latex not in (None, "true", "false"):
        raise BadSetting("latex", latex, "must be true or false")
    sections = []
    for title, comparison in comparisons.items():
        section = Section(title, comparison)
        if target is not None:
            sentences, target_table = against_target(comparison, target, sd)
            section = replace(section, targets=sentences, tables=[target_table])
        sections.append(section)
    report = Report(
        sections,
        verdicts=verdicts(claims, comparisons),
        across=[*setting_figures(comparisons), *heat_maps(comparisons)],
        command=" ".join(["python -m seedstats", *arguments]),
    )
    first = Path(files[0])
    folder = Path(out) if out else first.with_name(f"{first.name.partition('.')[0]}-report")
    written = report.write(folder, table, latex=latex == "true")
    print(terminal.page(report.on_screen))
    return written


def _parsed(arguments: Sequence[str]) -> tuple[list[str], dict[str, Any], dict[str, str]]:
    """Return files, settings and columns. Raises BadSetting for a setting that there isn't, or that is no number."""
    files, settings, columns = list[str](), dict[str, Any](), dict[str, str]()
    option_names = [*_SETTINGS, *_OTHERS, *_COLUMNS]
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or Path(argument).exists():
            files.append(argument)
        elif name in _COLUMNS:
            columns[name] = value
        elif name not in option_names:
            raise BadSetting(name, value, f"unknown; {suggestion(name, option_names)}")
        else:
            settings[name] = _value(name, value)
    if not files:
        raise BadSetting("", "", "names no file of results, such as results.csv")
    return files, settings, columns


def _value(name: str, text: str) -> object:
    kind = _NUMBERS.get(name, str)
    try:
        return kind(text)
    except ValueError:
        raise BadSetting(name, text, f"must be a {'whole ' if kind is int else ''}number") from None


if __name__ == "__main__":
    sys.exit(main())
