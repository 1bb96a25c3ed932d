"""Comparison of a table of results, from anywhere: no run folder is read, and no torch loaded."""

import pandas as pd

from poslab.comparison.compare import Comparison, as_one_page, compare_groups
from poslab.comparison.groups import Group
from poslab.comparison.scores import Score
from poslab.config.schemes import distinguishing
from poslab.errors import SettingError, require_one_of
from poslab.runs.plan import Lost, Planned
from poslab.statistics.table import DIVERGED, FINISHED, MISSING, settings_of
from poslab.tasks import Metric


def compare_table(
    table: pd.DataFrame,
    *,
    metric: str | None = None,
    length: int | None = None,
    better: str | None = None,
    baseline: str | None = None,
    effect: float | None = None,
    all_pairs: bool = False,
) -> dict[str, Comparison]:
    """Compare the groups of a checked table, for each of its data by themselves, as one page.

    metric: by default the first one of the table. length: by default the longest. better: lower or higher, where the
    table doesn't say.

    Raises SettingError for settings that the table doesn't have, or needs, and BadTable as `settings_of` does.
    """
    metrics = table["metric"].unique().tolist()
    if metric is not None:
        require_one_of(metrics, metric=metric)
    rows = table[table["metric"] == (metric or metrics[0])]
    lengths = sorted(rows["length"].dropna().unique().tolist())
    if length is not None:
        require_one_of(lengths, length=length)
    if lengths:
        rows = rows[rows["length"] == (length or lengths[-1])]
    score = _score(rows, better)
    of_data = {str(name): of_name for name, of_name in rows.groupby("data", sort=False)}
    found = {}
    for name, of_name in of_data.items():
        groups, planned = _groups(of_name, score)
        if not groups:
            raise SettingError("table", name, "no run is finished")
        found[name] = compare_groups(groups, planned, baseline, effect, all_pairs)
    return dict(zip(found, as_one_page(list(found.values())), strict=True))


def _score(rows: pd.DataFrame, better: str | None) -> Score:
    """Return the score that the rows are figures of."""
    first, values = rows.iloc[0], rows.loc[rows["status"] == FINISHED, "value"]
    direction = better or first["better"]
    if not direction:
        raise SettingError("better", None, f"must be lower or higher: which {first['metric']} is the better one?")
    ends = bool(values.between(0, 1).all() and values.isin([0, 1]).any())  # where a t test takes seeds for certain
    unit = first["unit"] or ("of all" if direction == "higher" and ends else "")
    known = Metric(first["metric"], unit, higher_is_better=direction == "higher")
    length = None if pd.isna(first["length"]) else int(first["length"])
    return Score(known, length, known.name if length is None else f"{known.name} at {length}")


def _groups(rows: pd.DataFrame, score: Score) -> tuple[list[Group], Planned]:
    """Return the groups with finished runs, and what was planned."""
    names = settings_of(rows)
    members = dict(iter(rows.groupby(["scheme", *names], sort=False)))
    settings = {key: dict(zip(names, key[1:], strict=True)) for key in members}
    groups, seeds, found, lost = [], {}, {}, []
    for key, of_key in members.items():
        namesakes = [settings[other] for other in members if other[0] == key[0]]
        label = " ".join([str(key[0]), *distinguishing(settings[key], namesakes)])
        status = of_key.set_index("seed")["status"]
        values = of_key[of_key["status"] == FINISHED].set_index("seed")["value"]
        diverged = status.index[status == DIVERGED].tolist()
        seeds[label] = frozenset(status.index)
        if values.empty:
            lost.append(Lost(label, seeds[label], len(diverged)))
            continue
        found[label] = frozenset(status.index[status != MISSING])
        distinct = {name: str(value) for name, value in settings[key].items()}
        groups.append(Group(label, str(key[0]), score, values.to_dict(), diverged, distinct, distinct))
    without_rows = not (rows["status"] == MISSING).any()  # then the seeds of any group count as planned for all
    return groups, Planned({} if without_rows else seeds, found, lost)
