"""Each name at its best setting, where it was tried with several.

Trying more settings finds better ones by chance. Names are therefore compared at the setting that another metric than
the compared one has chosen, such as the loss of a validation, from as many settings each (`chosen`).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

from seedstats.errors import BadSetting, suggestion
from seedstats.groups import BySeed, Group, by_name, varied_settings
from seedstats.page.blocks import Table
from seedstats.table import SOURCE


def chosen(groups: Sequence[Group], by: str | None) -> dict[str, Group]:
    """Return the group by which each name is judged: of several settings the best one by the metric `by`, else by the
    compared one.

    Only groups with the fewest diverged seeds are candidates, and only seeds count that all groups of the name have,
    where there are such. Versions of edited code are no settings that one could choose: the first has most runs.
    Raises BadSetting for a metric that no group has, or whose direction isn't known.
    """
    names = dict.fromkeys(name for group in groups for name, _ in group.measurements)
    if by is not None and by not in names:
        raise BadSetting("chosen_by", by, f"there is no such metric; {suggestion(by, names)}")
    if by is not None and by not in groups[0].signs:
        raise BadSetting("chosen_by", by, "the table doesn't say which is better, lower or higher")
    return {name: _chosen(of, by) for name, of in by_name(groups).items()}


def _chosen(groups: Sequence[Group], by: str | None) -> Group:
    if SOURCE in varied_settings(groups):
        return max(groups, key=lambda group: len(group.values))
    choosing = [_at_some_length(group, by) for group in groups]
    all_measured = all(choosing)
    values = choosing if all_measured else [group.values for group in groups]
    sign = groups[0].signs[by] if all_measured and by else groups[0].metric.sign
    common = set.intersection(*map(set, values))

    def badness(place: int) -> tuple[int, float]:
        return len(groups[place].diverged), sign * fmean(values[place][seed] for seed in common or values[place])

    return groups[min(range(len(groups)), key=badness)]


def _at_some_length(group: Group, metric: str | None) -> BySeed:
    """Return a metric of each seed at the compared length, else at the first one that it is known at."""
    at_lengths = (values for (name, _), values in group.measurements.items() if name == metric)
    return group.of(metric or "", group.metric.length) or next(at_lengths, {})


def choices_table(
    groups: Sequence[Group], labels: Sequence[str], by: str, defaults: Mapping[str, Mapping[str, str]]
) -> Table | None:
    """Return the table of the usual and the chosen settings of each name; None if none was tried with several.

    labels: of the chosen groups. by: the metric that chose them. defaults: of each name, the usual values of settings.
    """
    grids = {name: of for name, of in by_name(groups).items() if SOURCE not in varied_settings(of)}
    if all(len(of) == 1 for of in grids.values()):
        return None
    metric = groups[0].metric
    measured_lengths = sorted(n for name, n in groups[0].measurements if name == metric.name and n is not None)
    lengths: list[int | None] = [*(n for n in measured_lengths if n >= (metric.length or 0))] or [metric.length]
    usual = {name: _usual(of, defaults.get(name, {})) for name, of in grids.items()}
    has_usual = any(usual[name] for name, of in grids.items() if len(of) > 1)
    shown = ["default", "chosen"] if has_usual else ["chosen"]
    columns = ["name", "settings tried", *shown]
    columns += [f"{metric.at(length).title}, {which}" for length in lengths for which in shown]
    rows = []
    for name, of in grids.items():
        both = [usual[name], next(group for group in of if group.label in labels)][-len(shown) :]
        row = [name, str(len(of)), *("not tried" if group is None else _told(group, of) for group in both)]
        row += [metric.text(group.mean(metric.name, length) if group else None) for length in lengths for group in both]
        rows.append(row)
    remark = f"Chosen: the best setting by mean {by} over seeds."
    if by == metric.title:
        remark += " The values shown here chose it, so they favour names with many settings."
    if len({len(of) for of in grids.values()}) > 1:
        remark += " Some names were tried with more settings than others, so they had more chances."
    title = f"{' and '.join(shown).capitalize()} settings"
    return Table(title, columns, rows, remark, words=[*range(2, 2 + len(shown))])


def _usual(groups: Sequence[Group], defaults: Mapping[str, str]) -> Group | None:
    """Return the group with the usual values, or None if there is none, or they are not known."""
    varied = varied_settings(groups)
    usual = (group for group in groups if all(group.settings.get(key) == defaults.get(key) for key in varied))
    return next(usual, None)


def _told(group: Group, groups: Sequence[Group]) -> str:
    """Return the group's settings as typed, "scale=32, max_distance=64"."""
    return ", ".join(f"{key}={group.settings.get(key)}" for key in varied_settings(groups))
