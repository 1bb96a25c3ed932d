"""Files that other tools export, read as a table of results: a row for each run, metric and dataset.

| export | a row is |
|---|---|
| csv, also as .gz, or Parquet; with commas, semicolons or tabs; UTF-8, or UTF-16 with its mark | a row as it stands |
| wandb: csv of a chart | the last value of a run's curve |
| TensorBoard: csv of the Scalars tab, a file for each run and tag | the value at the last step |
| lm-evaluation-harness: `results_*.json` | a metric of a task |
| MLflow: csv of `search_runs()`, of the command line or of the browser | a row as it stands, of the columns chosen |
| Aim: csv of `metrics.dataframe()` | the value at the last step of a run's metric |
| plain logs, *.log, *.txt or *.out | the last number after a name, `val_loss:3.28` or `val_loss = 3.28` |

The content tells which one a file is.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from seedstats.errors import BadTable, NoColumn

Opened = Sequence[tuple[Path, Any]]  # files with their content: JSON, or a table of text
Rows = Iterable[Mapping[str, str]]

NEEDED = ("name", "seed", "value")
SAME_AS_NAME = ("name", "method", "model", "scheme")
_ROLES = ("name", "seed", "data", "metric", "better", "unit", "status")  # and value and settings, which may be several
_GROUPS_OF_DIGITS = "[. \u00a0\u202f]"
_COMMA_NUMBER = rf"(?i)[+-]?(\d+|[1-9]\d{{0,2}}({_GROUPS_OF_DIGITS}\d{{3}})+)(,\d+)?(e[+-]?\d+)?|[+-]?nan|[+-]?inf|"
_SEED = r"(?i)[-_. /]*seed[-_ =]*(\d+)"
_SEEDS_OF_RUNS = (_SEED, r"[-_. ]s(\d+)(?![^-_. /])", r"[-_. ](\d+)$")


def read_exports(files: Sequence[Path], columns: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Return the rows of all files as one table of text, with the columns `name`, `seed` (a whole number) and `value`,
    and (file, number of the row) as index.

    Where known, `data`, `metric`, `better` ("lower", "higher" or ""), `unit` and `caveat`, a sentence on a value in
    doubt. An empty value is of a missing run, nan or an infinite one of a run that diverged.

    columns: of csv and Parquet files, which column is the name, seed, value, data, metric, better, unit or status.
    Several values ("val_loss,val_acc") are a metric each; "settings" names the columns that tell groups of one name
    apart. All other columns are ignored. Without `columns`, all are returned as they are.

    Raises BadTable, which names the file, for one that can't be read, OSError for one that can't be opened.
    """
    unknown = {*(columns or ())} - {*_ROLES, "value", "settings"}
    if unknown:
        raise BadTable(f"{', '.join(sorted(unknown))}: unknown; valid: {', '.join(_ROLES)}, value, settings")
    kinds: dict[Callable[[Opened], Rows], list[tuple[Path, Any]]] = {}
    tables: list[tuple[str, pd.DataFrame]] = []
    for file in files:
        if file.suffix in _LOGS:
            tables.append((str(file), _log(file, columns or {})))
            continue
        content = _content(file)
        read = next((read for recognises, read in _KINDS if recognises(content)), None)
        if read and columns:
            raise BadTable(f"{file}: has no columns to choose: leave out {', '.join(columns)}")
        if read:
            kinds.setdefault(read, []).append((file, content))
        elif isinstance(content, pd.DataFrame):
            tables.append((str(file), _chosen(file, content, columns) if columns else _named(file, content)))
        else:
            raise BadTable(f"{file}: is JSON, but not of lm-evaluation-harness")
    for read, opened in kinds.items():
        tables.append((", ".join(str(file) for file, _ in opened), pd.DataFrame(list(read(opened)))))
    if not any(len(table) for _, table in tables):
        raise BadTable(f"{', '.join(map(str, files))}: has no rows")
    names, pieces = zip(*tables, strict=True)
    return pd.concat(pieces, keys=names).fillna("")


def _content(file: Path) -> Any:
    """Return JSON as it is, and a table as text, whose numbers have decimal points."""
    data = file.read_bytes()
    try:
        data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
        if data.startswith(b"version https://git-lfs.github.com/spec/"):
            raise BadTable("Git LFS has left a pointer in its place; `git lfs pull` fetches the file")
        if data.startswith(b"PAR1"):
            table = pd.read_parquet(io.BytesIO(data))
            return table.astype(object).where(table.notna(), "").astype(str)
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
        if "\0" in text:
            raise BadTable("is not text; save it as csv in UTF-8")
        return json.loads(text) if text.lstrip()[:1] in ("{", "[") else _table(text)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise BadTable(f"{file}: is not UTF-8 text (byte 0x{byte:02x}); save it as csv in UTF-8") from error
    except Exception as error:  # gzip, json, csv and pyarrow have some twenty for damaged files
        problem = str(error) if isinstance(error, BadTable) else f"can't be read: {error or type(error).__name__}"
        raise BadTable(f"{file}: {problem.splitlines()[0]}") from error


def _table(text: str) -> pd.DataFrame:
    head = text.strip("\r\n").partition("\n")[0]
    mark = max(",;\t", key=lambda mark: len(next(csv.reader([head], delimiter=mark), [])))
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=mark, skipinitialspace=True)
    rows = [row for line in lines if any(row := [cell.strip() for cell in line])] or [[]]
    header, width = rows[0], len(rows[0])
    for number, row in enumerate(rows, 1):
        if any(row[width:]):
            raise BadTable(f"row {number} has {len(row)} cells, the header has {width}")
        row[:] = row[:width] + [""] * (width - len(row))  # because Excel leaves out empty cells at the end
    if len({*header} - {""}) < width - header.count(""):
        raise BadTable(f"has two columns {next(name for name in header if name and header.count(name) > 1)}")
    table = pd.DataFrame(rows[1:], columns=header, dtype=str)
    table = table.loc[:, [name != "" for name in header]]  # because pandas gives row numbers a column without a name
    return table if mark == "," else _with_points(table)


def _with_points(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with points for decimal commas: in columns of nothing else than numbers, one with a comma."""
    numbers = [name for name in table if table[name].str.fullmatch(_COMMA_NUMBER).all()]
    commas = [name for name in numbers if table[name].str.contains(",").any()]
    for name in (name for name in numbers if commas and name not in commas):
        for row, cell in enumerate(table[name], 2):
            if "." in cell:
                raise BadTable(f"row {row}, column {name}: {cell!r}: is the dot for decimals or for thousands?")
    plain = {name: table[name].str.replace(_GROUPS_OF_DIGITS, "", regex=True) for name in commas}
    return table.assign(**{name: column.str.replace(",", ".") for name, column in plain.items()})


def _numbers(file: Path, table: pd.DataFrame, name: str) -> "pd.Series[float]":
    """Return a column as numbers, NaN where it is empty. Raises BadTable with its first cell that is none."""
    numbers = pd.to_numeric(table[name], errors="coerce")
    for index, cell in table[name][numbers.isna()].items():
        if cell.lower() not in ("", "nan", "+nan", "-nan"):
            raise BadTable(f"{file}: row {index + 2}, column {name}: {cell!r} is no number")
    return numbers


def _named(file: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a column `name`. Raises BadTable, with the header as it is, if one is missing."""
    table = _last_of_aim(table)
    table_of_runs = table.rename(columns={_name_in(table): "name"})
    missing = [name for name in NEEDED if name not in table_of_runs]
    if missing and len(table.columns):
        raise NoColumn(f"{file}: has no column {' and no column '.join(missing)}; it has {', '.join(table)}")
    return table_of_runs


def _name_in(table: pd.DataFrame) -> str:
    return next((name for name in SAME_AS_NAME if name in table), "name")


def _chosen(file: Path, table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the columns that count under the names of their roles, all rows of one value before those of the next."""
    table = _last_of_aim(table)
    state = next((name for name in _STATES if name in table), None)  # a run that crashed keeps what it logged last
    if state == "status" and "status" not in columns and "run_id" in table:
        table, state = table.rename(columns={"status": "State"}), "State"  # of MLflow, whose words are others
    wanted = (columns.get("value", "value"), columns.get("settings", ""))
    values, settings = ([of] if of in table else [*filter(None, map(str.strip, of.split(",")))] for of in wanted)
    usual = {role: role for role in _ROLES} | {"name": _name_in(table)} | {**columns}
    roles = {role: usual[role] for role in _ROLES if role in ("name", "seed", *columns, *table)}
    for name in (*roles.values(), *values, *settings):
        if name not in table:
            raise NoColumn(f"{file}: has no column {name}; it has {', '.join(table)}")
    if len(values) > 1 and "metric" in roles:
        raise BadTable(f"{file}: column {roles['metric']} names the metric, so that only one column can be the value")
    for name in (roles["seed"], *values):
        _numbers(file, table, name)
    kept = table[settings].assign(**{role: table[name] for role, name in roles.items()}, caveat="")
    if state in ("State", "Status"):
        runs = zip(kept["name"], kept["seed"], table[state].str.lower(), strict=True)
        kept["caveat"] = [
            "" if state in ("finished", "") else f"{name} with seed {seed} is {state}: its value may be an early one"
            for name, seed, state in runs
        ]
    pieces = [kept.assign(**{"value": table[name], "metric": kept.get("metric", name)}) for name in values]
    return pd.concat([part.assign(caveat=part["caveat"].where(part["value"] != "", "")) for part in pieces])


def _last_of_aim(table: pd.DataFrame) -> pd.DataFrame:
    """Return of Aim's curves the last value of each run's metric, with its context in the metric's name; other tables
    as they are."""
    if not {"run.hash", "metric.name", "step", "value"} <= {*table}:
        return table
    metric = table["metric.name"]
    for context in [name for name in table if name.startswith("metric.context.")]:
        has_context = table[context] != ""
        metric = metric.where(~has_context, metric + f" {context.removeprefix('metric.context.')}=" + table[context])
    plain = table.drop(columns=[name for name in table if name.startswith("metric.")]).assign(metric=metric)
    order = pd.to_numeric(plain["step"], errors="coerce").sort_values(kind="stable").index
    last = plain.loc[order].drop_duplicates(["run.hash", "metric"], keep="last").sort_index()
    return last.drop(columns=[name for name in ("idx", "step", "epoch", "time", "run.hash") if name in last])


_LOGS = (".log", ".txt", ".out")
_STATES = ("State", "Status", "status")  # wandb, MLflow's browser, MLflow's search_runs
_LOGGED = r"([A-Za-z_][\w./-]*)\s*[:=]\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf))(?![\w.])"


def _log(file: Path, columns: Mapping[str, str]) -> pd.DataFrame:
    """Return the last number after each name of `value` in a log, whose file's name holds its run's name and seed."""
    text = file.read_text(encoding="utf-8", errors="replace")
    logged = dict(re.findall(_LOGGED, text, flags=re.IGNORECASE))  # the last one of each name
    if not logged:
        raise BadTable(f"{file}: has no number after a name, as in val_loss:3.28")
    wanted = [*filter(None, map(str.strip, columns.get("value", "").split(",")))]
    missing = [name for name in wanted if name not in logged]
    if not wanted or missing:
        problem = f"has no {', '.join(missing)}" if missing else "needs value=NAME"
        raise BadTable(f"{file}: {problem}; it has {', '.join(logged)}")
    name, seed = _name_and_seed(file, file.stem)
    return pd.DataFrame([{"name": name, "seed": seed, "value": logged[metric], "metric": metric} for metric in wanted])


def _name_and_seed(file: Path, run: str) -> tuple[str, str]:
    """Return what a run's name says, NAME-seed1; without a NAME that of its folder. Raises BadTable without a seed."""
    seed = next(filter(None, (re.search(pattern, run) for pattern in _SEEDS_OF_RUNS)), None)
    if not seed:
        raise BadTable(f"{file}: there is no seed in the name {run!r}, as there is in NAME-seed1")
    return (run[: seed.start()] + run[seed.end() :]).strip("-_. /") or file.parent.name, seed[1]


def _charts(opened: Opened) -> Rows:
    named = [(file, table, column, *column.rpartition(" - ")) for file, table in opened for column in table]
    curves = [
        (file, run, metric, table[[table.columns[0], column]])
        for file, table, column, run, dash, metric in named
        if dash and not column.endswith(("__MIN", "__MAX")) and not metric.startswith("_")  # _step is wandb's own
    ]
    return _last_values(curves)


def _scalars(opened: Opened) -> Rows:
    curves = []
    for file, table in opened:
        stem = re.sub(r" ?\(\d+\)$", "", file.stem)  # because browsers number downloads of one name
        named = re.fullmatch("run-(.*?)-tag-(.*)", stem)
        curves.append((file, *(named.groups() if named else (stem, "")), table[["Step", "Value"]]))
    return _last_values(curves)


def _last_values(curves: Sequence[tuple[Path, str, str, pd.DataFrame]]) -> Rows:
    """Return the last value of each curve of steps and values; its run's name holds its name and seed."""
    last = []
    for file, run, metric, curve in curves:
        name, seed = _name_and_seed(file, run)
        logged = curve.assign(step=_numbers(file, curve, curve.columns[0]))[curve.iloc[:, 1] != ""]
        end = logged.sort_values("step", kind="stable").tail(1)  # the later one, of a step that was logged twice
        value, step = (end.iloc[0, 1], end["step"].iloc[0]) if len(end) else ("", float("nan"))
        last.append({"name": name, "seed": seed, "value": value, "metric": metric, "step": step})
    rows = pd.DataFrame(last, columns=["name", "seed", "value", "metric", "step"])
    latest = rows.groupby("metric")["step"].transform("max")
    ends = rows["name"] + " with seed " + rows["seed"] + " ends at step " + rows["step"].map("{:g}".format)
    caveats = (ends + ", another run at " + latest.map("{:g}".format)).where(rows["step"] < latest, "")
    return rows.drop(columns="step").assign(caveat=caveats).to_dict("records")


def _evaluations(opened: Opened) -> Iterator[Mapping[str, str]]:
    """Yield a row for each metric of a task. Filters of answers are named only where a metric has several.

    Its seed is the first that differs between the files: random_seed, fewshot_seed, or a seedN in model or folder.
    """
    configs = [content.get("config") or {} for _, content in opened]
    named = [re.search(r"(pretrained|model)\W+([^,'\"}]+)", str(config.get("model_args"))) for config in configs]
    models = [
        str(content.get("model_name") or (name_there and name_there[2]) or config.get("model"))
        for (_, content), config, name_there in zip(opened, configs, named, strict=True)
    ]
    paths = [f"{file.parent}/{model}" for (file, _), model in zip(opened, models, strict=True)]
    in_paths = [(re.findall(_SEED, path) or [None])[-1] for path in paths]
    candidates = [*([of.get(key) for of in configs] for key in ("random_seed", "fewshot_seed")), in_paths]
    complete = [seeds for seeds in candidates if None not in seeds]
    if not complete:
        raise BadTable(f"{opened[0][0]}: has no random_seed in its config, nor a seedN in the name of its folder")
    seeds = next((seeds for seeds in complete if len({*seeds}) > 1), complete[0])
    for (_, content), model, seed in zip(opened, models, seeds, strict=True):
        run = {"name": re.sub(_SEED, "", model), "seed": str(seed)}
        for task, figures in content["results"].items():
            better = (content.get("higher_is_better") or {}).get(task) or {}
            values = {
                key: value for key, value in figures.items() if type(value) in (int, float) and key != "sample_len"
            }
            metrics = [key.partition(",")[0] for key in values]
            for metric, key in zip(metrics, values, strict=True):
                if not metric.endswith("_stderr"):
                    which = {"data": task, "metric": metric if metrics.count(metric) == 1 else key}
                    direction = {True: "higher", False: "lower", None: ""}[better.get(metric)]
                    yield run | which | {"value": str(values[key]), "better": direction}


_KINDS: tuple[tuple[Callable[[Any], bool], Callable[[Opened], Rows]], ...] = (
    (lambda of: isinstance(of, pd.DataFrame) and any(f"{name}__MIN" in of for name in of), _charts),
    (lambda of: isinstance(of, pd.DataFrame) and [*of] == ["Wall time", "Step", "Value"], _scalars),
    (lambda of: isinstance(of, dict) and isinstance(of.get("results"), dict), _evaluations),
)
