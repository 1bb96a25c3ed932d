"""Section of a report on one kind of data: its answers, the table of groups, and what both mean."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median_low

from seedstats import pairs
from seedstats.answers import all_findings, caveats, findings, fine_print, headline, not_above_references
from seedstats.choosing import choices_table
from seedstats.comparison import Comparison
from seedstats.effects import effects_table
from seedstats.figures import scores_figure
from seedstats.finding import ended, p_text
from seedstats.groups import Group
from seedstats.interactions import interactions_table
from seedstats.metric import decimals
from seedstats.page.blocks import (
    Block,
    Bullets,
    Cell,
    Details,
    Figure,
    Gallery,
    Heading,
    Opening,
    Row,
    Table,
    Text,
    folded,
)
from seedstats.setting_figures import setting_maps
from seedstats.statistics.best import rank_intervals
from seedstats.statistics.intervals import Interval
from seedstats.statistics.paired import FEWEST_SEEDS

Column = Callable[[Group], str | Cell]
_ALONE = "95 % interval, each alone"


@dataclass(frozen=True)
class Section:
    """Content of a section, which whoever makes the table may add to.

    about: sentences on what the values are. columns: further ones of the table of groups, by their heads, with a cell
    for each label. tables: further ones, folded away. figures: below the first one; small ones are a gallery. notes:
    what is missing, and why. targets: sentences on fixed values, before the findings. sources: how to repeat the runs.
    """

    title: str
    comparison: Comparison
    about: str = ""
    caveats: Sequence[str] = ()
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    tables: Sequence[Block] = ()
    figures: Sequence[Figure] = ()
    gallery: str = ""
    notes: Sequence[str] = ()
    targets: Sequence[str] = ()
    sources: Sequence[Block] = ()

    @property
    def id(self) -> str:
        """Return the title as a part of file names and of anchors in the page."""
        return file_name(self.title)

    @property
    def answers(self) -> list[Block]:
        """Return the answer in one line, right below it that its models are worse than a reference, the findings, and
        what else weakens them."""
        comparison = self.comparison
        undertrained = not_above_references(comparison)
        weak = [text for text in (*caveats(comparison), *map(ended, self.caveats)) if text not in undertrained]
        lists = [Bullets([*self.targets, *findings(comparison)], "answer"), Bullets(weak, "caveat")]
        first = [
            Text(headline(comparison), large=True),
            *(Text(text, large=True, caveat=True) for text in undertrained),
        ]
        return [*first, *(block for block in lists if block.items)]

    @property
    def blocks(self) -> list[Block]:
        """Return the section: the answers beside the plot of differences, the table, all figures, and folded below them
        what is read rather than seen."""
        comparison = self.comparison
        sentences = all_findings(comparison)
        below: list[Block] = [Details("How to read this, and how it was tested", [*map(Text, self.methods)])]
        below += [Details(f"All {len(sentences)} findings one by one", [Bullets(sentences)])] if sentences else []
        for block in (*self._tables, *self.tables):
            below.append(Details(block.title, [replace(block, title="")]) if isinstance(block, Table) else block)
        notes = [*map(ended, (*comparison.notes, *self.notes))]
        below += [Details(f"What is missing here, and why: {len(notes)} notes", [Bullets(notes)])] if notes else []
        opening = Opening(self.answers, scores_figure(comparison))
        pictures: list[Block] = [figure for figure in self.figures if not figure.small]
        small = [figure for figure in self.figures if figure.small]
        pictures += [Heading("What was learned", [Text(self.gallery), Gallery(small)])] if small else []
        return [opening, self.table, *setting_maps(comparison), *pictures, *folded([*below, *self.sources])]

    @property
    def _tables(self) -> list[Table]:
        comparison = self.comparison
        choices = choices_table(comparison.groups, comparison.chosen, comparison.chosen_by, comparison.defaults)
        setting_tables = effects_table(comparison.setting_effects), interactions_table(comparison.interactions)
        return [table for table in (choices, pairs.matrix(comparison), *setting_tables) if table]

    @property
    def methods(self) -> list[str]:
        """Return what the columns are, and how differences were tested, a paragraph each."""
        comparison, metric, n = self.comparison, self.comparison.metric, self.comparison.comparisons
        direction = "Higher" if metric.higher_is_better else "Lower"
        columns = [
            "n is the number of runs.",
            f"A difference is the group's mean minus the mean of {comparison.baseline}, over common seeds"
            f"{f'; that is the best of {comparison.candidates} settings' if comparison.candidates > 1 else ''}.",
            "Quote the interval in bold.",
            f"It is corrected for {n} comparisons, so all intervals hold together in 95 % of cases." * (n > 1),
            "The interval of a group alone is not corrected: each misses in 5 % of cases, one of many more often.",
            "Ranks are all those that the shown differences leave possible." * bool(comparison.pairs),
            "Rows in brackets are references, not runs." * bool(comparison.references),
        ]
        tests = [
            "Differences are paired by seed and tested by a paired t test.",
            f"A difference is claimed from {FEWEST_SEEDS} or more seeds, if p is below 0.05.",
            f"p is corrected by Holm's method for all {n} comparisons of this page." * (n > 1),
        ]
        if metric.is_proportion:
            tests += [
                "An exact test must agree, because a t test is overconfident where all seeds agree.",
                "Groups whose seeds all have 0 or 1 are compared as counts, by an exact test alone.",
            ]
        tests.append("Groups are equal within a margin if two one-sided tests show it, corrected likewise.")
        if comparison.best:
            tests.append("In 95 % of pages the first line leaves out no group that is truly among the best.")
        margin = comparison.effect or metric.usual_effect
        matters = f"{margin or 0:g} {metric.short_unit}".rstrip()
        margin_in_words = f"The difference that matters is {matters}, and effect=NUMBER sets another one."
        plan = "With effect=NUMBER, findings say whether a difference matters, or how many seeds would show it."
        tests.append(margin_in_words if margin else plan)
        paragraphs = [[f"Metric: {metric.label}. {direction} is better.", self.about], columns, tests]
        return [" ".join(filter(None, texts)) for texts in [*paragraphs, [fine_print(comparison)]] if any(texts)]

    @property
    def table(self) -> Table:
        """Return the table of groups."""
        comparison, metric = self.comparison, self.comparison.metric
        alone, compared, further = self._alone, self._compared, self._further
        columns = {**alone, **compared, **further}
        heads = ["", *columns]
        rows: list[Row] = [[group.label, *(cell(group) for cell in columns.values())] for group in comparison.groups]
        foot = []
        for name in comparison.planned.lost:
            diverged = comparison.planned.diverged[name]
            counts = (diverged, "diverged"), (len(comparison.planned.seeds[name]) - diverged, "missing")
            counted = ", ".join(f"{count} {word}" for count, word in counts if count)
            foot.append({"n": f"0 ({counted})" if counted else "0", metric.title: "n/a"} | {"": name})
        for name, value in sorted(comparison.references.items(), key=lambda item: metric.sign * item[1]):
            foot.append({"": f"({name})", metric.title: metric.text(value, places=self._places_alone)})
        headings = [("each by itself", len(alone)), (f"difference from {comparison.baseline}", len(compared))]
        on_terminal = {"", "n", "failed", "median", metric.title, _ALONE, *compared}
        return Table(
            "Results",
            heads,
            rows,
            highlight=comparison.baseline,
            foot=[[cells.get(head, "") for head in heads] for cells in foot],
            sortable=True,
            sorted_by=(heads.index(metric.title), "descending" if metric.higher_is_better else "ascending"),
            narrow=[place for place, head in enumerate(heads) if head in on_terminal],
            headings=headings + ([("further", len(further))] if further else []),
        )

    @property
    def _alone(self) -> dict[str, Column]:
        """Return the columns on each group by itself, by their heads; where runs failed, what a mean hides first."""
        comparison, metric = self.comparison, self.comparison.metric
        places = self._places_alone
        columns: dict[str, Column] = {"n": lambda group: group.count}
        if comparison.failed:
            columns["failed"] = lambda group: f"{len(comparison.failed.get(group.label, ()))} of {len(group.values)}"
            columns["median"] = lambda group: metric.text(group.median, places=places)
        columns[metric.title] = lambda group: metric.text(group.estimate.mean, places=places)
        columns[_ALONE] = lambda group: metric.interval(group.estimate.interval, places=places)
        columns["sd"] = lambda group: metric.text(group.estimate.sd, places=places)
        return columns

    @property
    def _places_alone(self) -> int | None:
        return self._places(group.estimate.interval for group in self.comparison.groups)

    @property
    def _compared(self) -> dict[str, Column]:
        """Return the columns on the differences from the baseline, by their heads."""
        comparison, metric = self.comparison, self.comparison.metric
        places = self._places(d.interval for d in comparison.differences.values())

        def difference(group: Group) -> str:
            d = comparison.differences.get(group.label)
            return "baseline" if d is None else metric.text(d.mean, "+", places)

        def interval(group: Group) -> str | Cell:
            d = comparison.differences.get(group.label)
            return "" if d is None else Cell(metric.interval(d.interval, "+", places), marked=d.interval is not None)

        def p_value(group: Group) -> str:
            d = comparison.differences.get(group.label)
            if d is None:
                return ""
            return "n/a" if d.p_value is None else p_text(d.p_value)

        return {"difference": difference, "95 % interval, all at once": interval, "p (Holm)": p_value}

    @property
    def _further(self) -> dict[str, Column]:
        """Return the other columns, by their heads."""
        comparison, ranks = self.comparison, self._ranks
        columns: dict[str, Column] = {}
        if (best := comparison.best) is not None:
            words = dict.fromkeys(best.members, "yes") | dict.fromkeys(best.left_out, "no")
            columns["may be best"] = lambda group: words.get(group.label, "")
        if ranks:
            columns["rank"] = lambda group: ranks[group.label]
        metric = comparison.metric

        def mean_at(length: int, group: Group) -> str:
            return metric.text(group.mean(metric.name, length))

        def cost(cells: Mapping[str, str], group: Group) -> str:
            return cells.get(group.label, "n/a")

        for head, length in self._other_lengths.items():
            columns[head] = partial(mean_at, length)
        for head, cells in self.columns.items():
            columns[head] = partial(cost, cells)
        return columns

    def _places(self, intervals: Iterable[Interval | None]) -> int | None:
        """Return the decimals of a column: two digits of the width of the interval in the middle; None where there is
        no interval with a width."""
        widths = [ends.high - ends.low for ends in intervals if ends is not None and ends.high > ends.low]
        return decimals(median_low(widths)) if widths else None

    @property
    def _ranks(self) -> dict[str, str]:
        """Return the ranks that each group may have, "1 to 3", if all pairs were compared."""
        comparison = self.comparison
        intervals = (
            rank_intervals([group.label for group in comparison.groups], comparison.shown) if comparison.pairs else {}
        )
        return {label: f"{low}" if low == high else f"{low} to {high}" for label, (low, high) in intervals.items()}

    @property
    def _other_lengths(self) -> dict[str, int]:
        """Return the lengths at which the metric is known, but for the compared one, by the heads of their columns."""
        comparison = self.comparison
        metric = comparison.metric
        at = {length for group in comparison.groups for name, length in group.measurements if name == metric.name}
        lengths = sorted({length for length in at if length is not None} - {metric.length})
        return {f"{metric.name} at {length}": length for length in lengths}


def file_name(text: str) -> str:
    """Return a name that any file system takes."""
    return re.sub(r"\W", "_", text)[:60]  # letters, which may take four bytes each of 255
