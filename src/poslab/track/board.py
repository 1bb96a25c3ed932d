"""Board of a track: the page of all entries, README.md, and its picture, from the entries alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import matplotlib
from matplotlib.figure import Figure as Picture

from poslab.config.files import write_whole
from poslab.config.nodes import schemes
from poslab.track.entry import Entry, board_values
from poslab.track.rules import Rules
from poslab.track.verdict import EQUAL, NOT_SHOWN, Figure, compared
from seedstats.comparison import Comparison
from seedstats.finding import BETTER, WORSE
from seedstats.page.looks import STYLE, looks_of

PAGE, PICTURE = "README.md", "board.png"
_MARKS = {BETTER: "+", WORSE: "-", EQUAL: "=", NOT_SHOWN: ""}
_ABOUT = """
The track fixes text, tasks, model, optimizer and steps; free is the positional encoding, tuned is its learning rate.
[Rules](rules.yaml), with power and simulated false claims. To enter, one command of half an hour on two cores:

    python scripts/track.py my_file.MyALiBi

[How to enter](../../.github/CONTRIBUTING.md#enter-the-track). This page: `python scripts/track.py board`.

**What it is not**: two layers, one text of a million characters, two tasks. What fails here may work at scale.
"""
Compared = Mapping[Figure, tuple[Comparison, Mapping[str, str]]]


def write_board(folder: Path, entries: Mapping[str, Entry], rules: Rules) -> Path:
    """Write the page and the picture into the track's folder; return the page."""
    write_whole(folder / PAGE, page(entries, rules))
    if entries:
        with matplotlib.rc_context(STYLE):
            picture(judged(entries, rules)).savefig(folder / PICTURE, dpi=110, metadata={"Software": None})
    return folder / PAGE


def judged(entries: Mapping[str, Entry], rules: Rules) -> Compared:
    """Return by figure how the entries compare, and what is shown of each against the control."""
    values = board_values(entries, rules)
    return {figure: compared(figure, of, rules.control, rules.margin) for figure, of in values.items()}


def page(entries: Mapping[str, Entry], rules: Rules) -> str:
    """Return the page: the answers, the table, the picture, the machines, and what the track is not."""
    title = "# Which positional encoding is best under equal conditions?\n"
    if not entries:
        return f"{title}\n**No entries yet.**\n{_ABOUT}"
    found = judged(entries, rules)
    text = [title, *_answers(found, entries, rules), "", *_table(found, entries, rules), ""]
    text += [f"![Loss in range and at eight times the length, with 95 % intervals]({PICTURE})", ""]
    return "\n".join([*text, *_machines(entries, rules), _ABOUT])


def _answers(found: Compared, entries: Mapping[str, Entry], rules: Rules) -> list[str]:
    """Return a sentence each on the best in range, beyond it and on tasks, and on what they cost."""
    best = {figure: one.best.members if one.best else () for figure, (one, _) in found.items()}
    (text, near), (_, far), *tasks = best
    left = len(schemes().keys() - entries.keys())
    few = f" {left} of poslab's encodings are not entered yet." if left else ""
    on_tasks = "; ".join(f"`{data}` at {metric.length}: {_named(best[data, metric])}" for data, metric in tasks)
    shown = dict.fromkeys(name for of in best.values() for name in of[:3] if name in entries)
    costs = ", ".join(f"`{name}` {entries[name].cost(rules)[1]:.2f}" for name in shown)
    return [
        f"**Best in range** ({text}, {near.length}): {_named(best[text, near])}.{few}\n",
        f"**Beyond it** ({far.length}): {_named(best[text, far])}.\n",
        f"**On tasks**: {on_tasks}.\n",
        f"**What they cost**, a step's time as a multiple of `{rules.yardstick}`'s: {costs}.",
    ]


def _named(names: Sequence[str]) -> str:
    """Return the names of a set that can't be told apart."""
    first = ", ".join(f"`{name}`" for name in names[:5]) or "not known yet"
    return f"{first} or one of {len(names) - 5} others" if len(names) > 5 else first


def _table(found: Compared, entries: Mapping[str, Entry], rules: Rules) -> list[str]:
    """Return the table, sorted by the first figure. In bold: what may be the best; + - =: against the control."""
    costs = ["parameters", "step", "memory"]
    head = ["", *(f"{data} {metric.length}" for data, metric in found), *costs]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    first, _ = next(iter(found.values()))
    place = {group.name: number for number, group in enumerate(first.groups)}  # from the best to the worst
    for name in sorted(entries, key=lambda name: place.get(name, len(place))):
        cells = [f"`{name}`"]
        for one, words in found.values():
            group = next((group for group in one.groups if group.name == name), None)
            lost = f" ({len(group.diverged)} lost)" if group and group.diverged else ""
            value = f"{group.estimate.mean:.3f}{lost}" if group else "none"
            bold = "**" if one.best and name in one.best.members else ""
            cells.append(f"{bold}{value}{bold} {_MARKS[words.get(name, NOT_SHOWN)]}".strip())
        parameters, slower, larger = entries[name].cost(rules)
        lines.append(f"| {' | '.join([*cells, f'{parameters:,}', f'{slower:.2f}', f'{larger:.2f}'])} |")
    seeds = f"n = {len(rules.seeds)} seeds"
    legend = (
        f"Means, {seeds}. Text: nats; tasks: share of right answers. **Bold**: may be the best, can't be told apart."
    )
    legend += f" + - =: better than `{rules.control}`, worse, equal within {rules.margin:g}."
    return [
        *lines,
        "",
        f"{legend} Step and memory: multiples of `{rules.yardstick}`'s. Lost: diverged or missing seeds.",
    ]


def _machines(entries: Mapping[str, Entry], rules: Rules) -> list[str]:
    """Return the control's figures on each machine, and how far these lie apart."""
    rows: dict[tuple[str, tuple[float, ...]], None] = {}
    for entry in entries.values():
        means = tuple(fmean(entry.values(figure, rules.control, rules).values()) for figure in rules.figures)
        rows[entry.machine, means] = None
    lines = [f"- {machine}: {', '.join(f'{mean:.3f}' for mean in means)}" for machine, means in rows]
    apart = [max(of) - min(of) for of in zip(*(means for _, means in rows), strict=True)]
    lines += [f"- largest difference: {', '.join(f'{x:.3f}' for x in apart)}"] if len(rows) > 1 else []
    return [f"**The control, `{rules.control}`, on each machine**, the six figures:\n", *lines]


def picture(found: Compared) -> Picture:
    """Draw the loss in range and beyond of each encoding, with 95 % intervals."""
    (near, _), (far, _) = [*found.values()][:2]
    drawn = Picture(figsize=(8.6, 5.6), layout="constrained")
    axes = drawn.subplots()
    both = [(group, other) for group in near.groups for other in far.groups if group.name == other.name]
    styles = looks_of([group.name for group, _ in both])
    for group, other in both:
        if group.values and other.values:
            x, y = group.estimate, other.estimate
            bars = [
                [[of.mean - of.interval.low], [of.interval.high - of.mean]] if of.interval else None for of in (x, y)
            ]
            colour = styles[group.name]["color"]
            axes.errorbar(x.mean, y.mean, bars[1], bars[0], fmt="o", ms=4, color=colour)
            axes.annotate(group.name, (x.mean, y.mean), (4, 4), textcoords="offset points", color=colour, fontsize=8)
    axes.set_xlabel(f"loss at {near.metric.length}, nats: in range")
    axes.set_ylabel(f"loss at {far.metric.length}, nats")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:.1f}")
    axes.yaxis.set_minor_formatter("{x:.1f}")
    return drawn
