"""Compare results over seeds from the command line: `python -m seedstats results.csv better=lower`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from seedstats.errors import BadSetting, BadTable, suggestion
from seedstats.page import terminal

_HELP = """Which is best, by how much, how sure: a table of results over seeds becomes answers and a page.

    python -m seedstats results.csv better=lower
    python -m seedstats runs.csv name=Model seed=Seed value=val_loss better=lower
    python -m seedstats lm_eval/*.json baseline=small

Files: csv, also Excel's and .gz, or Parquet; exports of wandb, TensorBoard, lm-evaluation-harness, hyperfine and
pytest-benchmark. A row has a name, a seed and a value; any other column is a setting.

    better=lower|higher     which values are better, where the table has no column of that name
    baseline=NAME           what the others are compared with, at its best setting; else the first row's
    effect=NUMBER           the difference that matters
    pairs=all               compares all pairs, not each with the baseline
    metric=NAME length=N    what is compared, where the table has several; else the first row's
    chosen_by=METRIC        chooses among the settings of a name; else the metric that is compared
    looks=N                 how often you will look, adding seeds in between
    claims=FILE             a yaml file of what is to be shown
    out=FOLDER              of the page; else NAME-report beside the first file
    name= seed= value=      columns that are meant, where they have other names; also settings=, data=, unit=, status=;
                            value=A,B reads two metrics, and columns that nobody names are then ignored"""


@dataclass(frozen=True)
class _Asked:
    """What stands on the command line beside the files."""

    better: str | None = None
    baseline: str | None = None
    effect: float | None = None
    pairs: str = "baseline"
    metric: str | None = None
    length: int | None = None
    chosen_by: str | None = None
    looks: int = 1
    claims: str | None = None
    out: str | None = None


_COLUMNS = ("name", "seed", "value", "settings", "data", "unit", "status")
_NUMBERS = {"effect": float, "length": int, "looks": int}
_CHOICES = {"better": ("lower", "higher"), "pairs": ("baseline", "all")}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the report of the files and print its answers; return the exit code, 2 for what can't be used."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given or {"-h", "--help"} & {*given}:
        print(_HELP)
        return 0
    try:
        print(f"\nreport  {_compared(given)}", flush=True)
    except BrokenPipeError:  # because `| head` has closed it; the page is written by then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered goes nowhere
    except (BadTable, BadSetting, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _compared(arguments: Sequence[str]) -> Path:
    """Compare the files, print the answers, and return the page's path."""
    files, asked, columns = _parsed(arguments)
    # Late, so that help and wrong settings are answered before pandas, scipy and matplotlib are loaded.
    from seedstats.claims import read_claims
    from seedstats.comparison import compare
    from seedstats.figures import setting_figures
    from seedstats.reporting import Report
    from seedstats.section import Section
    from seedstats.table import read_table
    from seedstats.verdict import verdicts

    table = read_table(*files, columns=columns)
    claims = read_claims(asked.claims) if asked.claims else []
    names = ("baseline", "metric", "length", "better", "pairs", "effect", "looks", "chosen_by")
    found = compare(table, **{name: getattr(asked, name) for name in names})
    sections = [Section(title, one) for title, one in found.items()]
    report = Report(
        sections,
        verdicts=verdicts(claims, found),
        across=setting_figures(found),
        command=" ".join(["python -m seedstats", *arguments]),
    )
    first = Path(files[0])
    folder = Path(asked.out) if asked.out else first.with_name(f"{first.name.partition('.')[0]}-report")
    written = report.write(folder, table)
    print(terminal.page(report.on_screen))
    return written


def _parsed(arguments: Sequence[str]) -> tuple[list[str], _Asked, dict[str, str]]:
    """Return files, settings and columns. Raises BadSetting for a setting that there isn't, or of a wrong value."""
    files, settings, columns = list[str](), dict[str, object](), dict[str, str]()
    known = [*(field.name for field in fields(_Asked)), *_COLUMNS]
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or Path(argument).exists():
            files.append(argument)
        elif name in _COLUMNS:
            columns[name] = value
        elif name not in known:
            raise BadSetting(name, value, f"unknown; {suggestion(name, known)}")
        else:
            settings[name] = _value(name, value)
    if not files:
        raise BadSetting("", "", "names no file of results, such as results.csv")
    return files, _Asked(**settings), columns  # type: ignore[arg-type]


def _value(name: str, text: str) -> object:
    if text not in _CHOICES.get(name, (text,)):
        raise BadSetting(name, text, f"must be {' or '.join(_CHOICES[name])}")
    try:
        number = _NUMBERS[name](text) if name in _NUMBERS else 1
    except ValueError:
        raise BadSetting(name, text, f"must be a {'whole ' if _NUMBERS[name] is int else ''}number") from None
    if not number > 0:
        raise BadSetting(name, text, "must be above 0")
    return number if name in _NUMBERS else text


if __name__ == "__main__":
    sys.exit(main())
