"""Section of a report on one kind of data: its answers, the table of groups, and what both mean."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from seedstats import pairs, settings
from seedstats.answers import all_findings, best_groups, caveats, findings, fine_print, headline
from seedstats.comparison import Comparison
from seedstats.figures import scores_figure
from seedstats.finding import p_text
from seedstats.groups import Group
from seedstats.page.blocks import Block, Bullets, Cell, Details, Figure, Gallery, Heading, Row, Table, Text
from seedstats.remarks import lost_count
from seedstats.statistics.best import rank_intervals
from seedstats.statistics.paired import FEWEST_SEEDS


@dataclass(frozen=True)
class Section:
    """Content of a section, which whoever makes the table may add to.

    about: sentences on what the values are. columns: further ones of the table of groups, by their heads, with a cell
    for each label. tables: further ones, folded away. figures: below the first one; small ones are a gallery. notes:
    what is missing, and why. sources: how to repeat the runs.
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
    sources: Sequence[Block] = ()

    @property
    def id(self) -> str:
        """Return the title as a part of file names and of anchors in the page."""
        return file_name(self.title)

    @property
    def answers(self) -> list[Block]:
        """Return the answer in one line, the findings, and what weakens them."""
        one = self.comparison
        weak = [*caveats(one), *self.caveats]
        lists = [Bullets(findings(one), "answer"), Bullets(weak, "caveat")]
        return [Text(headline(one), large=True), *(block for block in lists if block.items)]

    @property
    def blocks(self) -> list[Block]:
        """Return the section: the answer, the plot of differences, findings, and below them all else."""
        one = self.comparison
        first, *others = self.answers
        every = all_findings(one)
        blocks: list[Block] = [first, scores_figure(one), *others]
        blocks += [Details(f"all {len(every)} findings one by one", [Bullets(every)])] if every else []
        methods = [Text(text) for text in self.methods]
        blocks += [self.table, Details("how to read this, and how it was tested", methods)]
        blocks += [Details(table.title, [_untitled(table)]) for table in self._tables]
        blocks += self.tables
        blocks += [figure for figure in self.figures if not figure.small]
        small = [figure for figure in self.figures if figure.small]
        blocks += [Heading("What was learned", [Text(self.gallery), Gallery(small)])] if small else []
        notes = [*one.notes, *self.notes]
        blocks += [Details(f"what is missing here, and why: {len(notes)} notes", [Bullets(notes)])] if notes else []
        return [*blocks, *self.sources]

    @property
    def _tables(self) -> list[Table]:
        one = self.comparison
        found: list[Table | None] = [settings.choices_table(one), pairs.matrix(one)]
        found += [settings.effects_table(one.setting_effects)] if one.setting_effects else []
        found += settings.two_way_tables(one.groups, one.defaults) if one.setting_effects else []
        return [table for table in found if table]

    @property
    def methods(self) -> list[str]:
        """Return what the columns are, and how differences were tested, a paragraph each."""
        one, metric, n = self.comparison, self.comparison.metric, self.comparison.comparisons
        columns = f"n: runs. Difference: the group's mean minus that of {one.baseline}, over the seeds that both have."
        columns += " Quote the interval in bold: those of all comparisons of this page hold together in 95 % of cases."
        columns += " The interval of a single group is not corrected."
        if one.pairs:
            columns += " Rank: those that the differences shown leave."
        if one.over_text:
            columns += " Interval, other text: of the same difference, for new seeds and other text of this corpus."
        if one.references:
            columns += " In brackets: references, which no seed has."
        tests = f"Differences are paired by seed. A difference is claimed from {FEWEST_SEEDS} seeds on, where "
        tests += "a paired t test gives p below 0.05, corrected by Holm's method for "
        tests += f"all {n} comparisons of this page." if n > 1 else "the only comparison of this page."
        if metric.is_proportion:
            tests += (
                " An exact test must agree, because where all seeds agree a t test takes the next one for certain. "
                "Groups whose every seed solves the task or fails are compared as counts, by an exact test alone."
            )
        tests += " Groups are equal within a margin where two one-sided tests of the same family say so."
        if best_groups(one):
            tests += " The best group is among those named first in 95 % of cases."
        direction = "higher" if metric.higher_is_better else "lower"
        values = " ".join(filter(None, [f"Values: {metric.label}; {direction} is better.", self.about]))
        return list(filter(None, [values, columns, tests, fine_print(one)]))

    @property
    def table(self) -> Table:
        """Return the table of groups."""
        one, planned, over_text = self.comparison, self.comparison.planned, self.comparison.over_text
        ranks = self._ranks
        each = ["", "n", one.metric.title, "95 % interval", "sd"]
        compared = [
            "difference",
            "95 % interval, all at once",
            "p (Holm)",
            *(["interval, other text"] if over_text else []),
        ]
        others = [*(["rank"] if ranks else []), *map(str, self._other_lengths), *self.columns]
        columns = [*each, *compared, *others]
        groups = [("each by itself", 4), (f"difference from {one.baseline}", len(compared))]
        groups += [("further", len(others))] if others else []
        lost = [[name, lost_count(len(planned.seeds[name]), planned.diverged[name]), "n/a"] for name in planned.lost]
        ascending = sorted(one.references.items(), key=lambda item: one.metric.sign * item[1])
        lost += [[f"({name})", "", one.metric.text(value)] for name, value in ascending]
        return Table(
            "Results",
            columns,
            [self._row(group, ranks) for group in one.groups],
            highlight=one.baseline,
            foot=[[*row, *[""] * (len(columns) - len(row))] for row in lost],
            sortable=True,
            sorted_by=(2, "descending" if one.metric.higher_is_better else "ascending"),
            narrow=[0, 1, 2, 3, 5, 6, 7, *([8] if over_text else [])],
            groups=groups,
        )

    def _row(self, group: Group, ranks: Mapping[str, str]) -> Row:
        """Return the table's row for a group, from its label and number of seeds to the columns added."""
        one, found, metric = self.comparison, group.estimate, self.comparison.metric
        row: list[str | Cell] = [group.label, group.count, metric.text(found.mean), metric.interval(found.interval)]
        row.append(metric.text(found.sd))
        d = one.differences.get(group.label)
        if d is None:
            row += ["baseline", "", "", *([""] if one.over_text else [])]
        else:
            row += [metric.text(d.mean, "+"), Cell(metric.interval(d.interval, "+"), marked=d.interval is not None)]
            row.append("n/a" if d.p_value is None else p_text(d.p_value))
            on_text = one.over_text.get(group.label)
            row += [metric.interval(on_text.interval if on_text else None, "+")] if one.over_text else []
        row += [ranks[group.label]] if ranks else []
        row += [metric.text(group.mean(metric.name, length)) for length in self._other_lengths.values()]
        return [*row, *(cells.get(group.label, "n/a") for cells in self.columns.values())]

    @property
    def _ranks(self) -> dict[str, str]:
        """Return the ranks that each group may have, "1 to 3", if all pairs were compared."""
        one = self.comparison
        found = rank_intervals([group.label for group in one.groups], pairs.ranked(one)) if one.pairs else {}
        return {label: f"{low}" if low == high else f"{low} to {high}" for label, (low, high) in found.items()}

    @property
    def _other_lengths(self) -> dict[str, int]:
        """Return the lengths at which the metric is known, but for the compared one, by the heads of their columns."""
        one = self.comparison
        known = {length for group in one.groups for name, length in group.known if name == one.metric.name}
        lengths = sorted({length for length in known if length is not None} - {one.metric.length or 0})
        return {f"{one.metric.name} at {length}": length for length in lengths}


def _untitled(table: Table) -> Table:
    return Table(**{**vars(table), "title": ""})


def file_name(text: str) -> str:
    """Return a name that any file system takes."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)[:80]
