"""Report of a comparison: its blocks, and report.html, report.md, results.csv and figures in a folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from seedstats.answers import headline
from seedstats.comparison import Comparison
from seedstats.finding import ended
from seedstats.lengths import by_length
from seedstats.page.blocks import Block, Bullets, Code, Details, Figure, Gallery, Heading, Opening, Table, Text, folded
from seedstats.page.files import write_report
from seedstats.page.latex import table as table_in_latex
from seedstats.section import Section, file_name
from seedstats.verdict import Verdict, published, verdict_table


@dataclass(frozen=True)
class Report:
    """Content of a report: a section for each kind of data, in the order of the page.

    verdicts: on claims; they stand first. written: where the claims stand, and since when. across: what is about all
    sections. command: as typed. left_out: what no section has, and why.
    """

    sections: Sequence[Section]
    title: str = "Which is best?"
    verdicts: Sequence[Verdict] = ()
    written: str = ""
    across: Sequence[Block] = ()
    command: str = ""
    left_out: Sequence[str] = field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        """Return the page."""
        names: set[str] = set()
        command: list[Block] = [Details("Command of this page", [Code(self.command)])] if self.command else []
        left_out = folded([Heading("Left out", [Bullets([*map(ended, self.left_out)])])]) if self.left_out else []
        across = [_named(block, "", names) for block in self.across]
        # Tables that stand first, such as those of all tasks, stay open.
        first = next((place for place, block in enumerate(across) if not isinstance(block, Table)), len(across))
        across = [*across[:first], *folded(across[first:])]
        if len(self.sections) == 1:
            blocks = [_named(block, "", names) for block in self.sections[0].blocks]
            return [*self._claims, *blocks, *across, *command, *left_out]
        contents = [f"{section.title}: {headline(section.comparison)}" for section in self.sections]
        answers = Bullets(contents, "answer", links=[section.id for section in self.sections])
        page = [*self._claims, answers, *across]
        for section in self.sections:
            blocks = [_named(block, f"{section.id}_", names) for block in section.blocks]
            page.append(Heading(section.title, blocks, section.id))
        return [*page, *command, *left_out]

    @property
    def on_screen(self) -> list[Block]:
        """Return what the terminal shows: verdicts, and of each section the answer, the table, findings and caveats."""
        sections: list[Block] = []
        for section in self.sections:
            first = [block for block in section.answers if isinstance(block, Text)]
            others = [block for block in section.answers if not isinstance(block, Text)]
            content = [*first, replace(section.table, title=""), *others]
            titled = len(self.sections) > 1 or bool(self.verdicts)  # verdicts may be on another metric
            title = section.title if len(self.sections) > 1 else f"By {section.comparison.metric.title}"
            sections += [Heading(title, content)] if titled else content
        return [*self._verdicts, *sections]

    def write(self, folder: Path, table: pd.DataFrame, latex: bool = False) -> Path:
        """Write report.html, report.md, results.csv, figures/ and, of metrics at several lengths, by_length.csv into
        `folder`, over an earlier report there, and return report.html. table: all answers are from it. latex: also
        write the tables of groups as results.tex."""
        write_report(folder, self.title, self.blocks)
        if latex:
            tables = [table_in_latex(section.table) for section in self.sections]
            (folder / "results.tex").write_text("\n".join(tables), encoding="utf-8")
        for section in self.sections:  # a direction that was typed, so that the table can be compared by itself
            metric = section.comparison.metric
            rows = (table["data"] == section.title) & (table["metric"] == metric.name)
            table = table.assign(better=table["better"].mask(rows, "higher" if metric.higher_is_better else "lower"))
        table.to_csv(folder / "results.csv", index=False, encoding="utf-8", errors="replace")
        lengths = by_length({section.title: section.comparison for section in self.sections})
        if len(lengths):
            lengths.to_csv(folder / "by_length.csv", index=False, encoding="utf-8", errors="replace")
        else:
            (folder / "by_length.csv").unlink(missing_ok=True)  # that of an earlier report
        return folder / "report.html"

    @property
    def _verdicts(self) -> list[Block]:
        sentences = [verdict.sentence for verdict in self.verdicts if not verdict.claim.values]
        written = [Text(self.written)] if self.verdicts and self.written else []
        blocks: list[Block] = [*written, Bullets(sentences, "answer"), *published(self.verdicts)]
        return [block for block in blocks if not isinstance(block, Bullets) or block.items]

    @property
    def _claims(self) -> list[Block]:
        if not self.verdicts:
            return []
        table = verdict_table(self.verdicts)
        seeds = Details("Seed by seed", [replace(table, title="", note="")])
        return [Heading("What was claimed", [*self._verdicts, seeds, Text(table.note)])]


def report(
    comparisons: Mapping[str, Comparison], folder: Path | str, table: pd.DataFrame, verdicts: Sequence[Verdict] = ()
) -> Path:
    """Write a report of comparisons, as `compare` returns them, into a folder, and return its report.html.

    Beside it stand report.md with its figures, results.csv, the table that was compared, and of metrics at several
    lengths by_length.csv. Raises OSError where the folder can't be written.
    """
    sections = [Section(title, comparison) for title, comparison in comparisons.items()]
    return Report(sections, verdicts=verdicts).write(Path(folder), table)


def _named(block: Block, prefix: str, taken: set[str]) -> Block:
    """Return a block whose figures have portable names that no other one of the page has."""
    if isinstance(block, Figure):
        return _named_figure(block, prefix, taken)
    if isinstance(block, Opening):
        return replace(block, figure=_named_figure(block.figure, prefix, taken))
    if isinstance(block, Heading | Details):
        return replace(block, blocks=[_named(inner, prefix, taken) for inner in block.blocks])
    if isinstance(block, Gallery):
        return Gallery([_named_figure(figure, prefix, taken) for figure in block.figures])
    return block


def _named_figure(figure: Figure, prefix: str, taken: set[str]) -> Figure:
    name = file_name(prefix + figure.name)
    while name in taken:
        name += "_"
    taken.add(name)
    return replace(figure, name=name)
