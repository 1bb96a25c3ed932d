"""Report of a comparison: its blocks, and report.html, report.md, results.csv and figures in a folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from seedstats import factors, pairs
from seedstats.answers import answers, details, in_short
from seedstats.grids import choices
from seedstats.repeat import NOT_RECORDED, command_of, configurations, facts
from seedstats.section import Section, file_name
from seedstats.solving import solved_table
from seedstats.task_figures import task_panels
from seedstats.task_report import matrices
from seedstats.verdicts import Verdict, published, verdict_table
from seedstats.page.blocks import Block, Bullets, Code, Definitions, Details, Figure, Gallery, Heading, Text
from seedstats.page.files import write_report
from poslab.runs.load import LeftOut

_WRONG = (
    "Each scheme answers in the run of its median figure at that length, all on the same test: the first one that most "
    "of them get wrong. Where a scheme gets that right, a further test shows it wrong. Having read a symbol of the "
    "first row, it says the one below."
)


@dataclass(frozen=True)
class Report:
    """Content of a report: a section for each task or text, in the order of the page.

    command: the command as typed. left_out: folders that no section has. verdicts: on claims; they stand first.
    by_setting: figures over settings, of all sections. table: of results, from which all answers are. claims: where
    they stand, and when they were written.
    """

    sections: list[Section]
    command: str
    table: pd.DataFrame
    left_out: Sequence[LeftOut]
    verdicts: list[Verdict]
    by_setting: list[Figure]
    claims: str = ""

    @property
    def blocks(self) -> list[Block]:
        """Return the page; figures of tasks are over all sections."""
        names: set[str] = set()
        tasks = [section.task for section in self.sections if section.task]
        of_tasks = task_panels(tasks, self.sections[0].comparison.baseline) if tasks else []
        command: list[Block] = [Text("This page:"), Code(self.command)]
        if len(self.sections) == 1:
            (section,) = self.sections
            figures = [_named(figure, "", names) for figure in (*self.by_setting, *of_tasks, *section.panels)]
            return [*self._claims, *_section(section, figures, "schemes", self.left_out, command)]
        contents = [f"{section.title}: {'; '.join(in_short(section.comparison))}" for section in self.sections]
        links = [section.id for section in self.sections]
        page = [*self._claims, Heading("Each by itself", [Bullets(contents, links=links)])]
        page += matrices(tasks) if tasks else []
        page += [_named(figure, "", names) for figure in (*of_tasks, *self.by_setting)]
        for section in self.sections:
            figures = [_named(figure, f"{section.id}_", names) for figure in section.panels]
            content = _section(section, figures, f"{section.id}_schemes")
            page.append(Heading(section.title, content, section.id))
        return [*page, *command, *_left_out(self.left_out)]

    @property
    def on_screen(self) -> list[Block]:
        """Return what the terminal shows: verdicts, and of each section the table, answers and caveats."""
        sections: list[Block] = []
        for section in self.sections:
            caveats = Bullets(section.comparison.caveats, "caveat")
            content: list[Block] = [section.table, Bullets(answers(section.comparison), "answer"), caveats]
            if len(self.sections) > 1:
                content = [Heading(section.title, content)]
            elif self._verdicts:  # which may be of another figure
                content = [Heading(f"By {section.score}", content)]
            sections += content
        return [*self._verdicts, *sections]

    def write(self, folder: Path) -> None:
        """Write report.html, report.md, results.csv and figures/ into `folder`, over an earlier report there."""
        schemes = any(section.comparison.runs for section in self.sections)
        write_report(folder, "Which position scheme?" if schemes else "Which is best?", self.blocks)
        self.table.to_csv(folder / "results.csv", index=False, encoding="utf-8", errors="replace")

    @property
    def _verdicts(self) -> list[Block]:
        sentences = [verdict.sentence for verdict in self.verdicts if not verdict.claim.values]
        written = [Text(self.claims)] if self.verdicts else []
        blocks: list[Block] = [*written, Bullets(sentences, "answer"), *published(self.verdicts)]
        return [block for block in blocks if not isinstance(block, Bullets) or block.items]

    @property
    def _claims(self) -> list[Block]:
        if not self.verdicts:
            return []
        table = verdict_table(self.verdicts)
        seeds = Details("seed by seed", [replace(table, title="", note="")])
        return [Heading("What was claimed", [*self._verdicts, seeds, Text(table.note)])]


def _section(
    section: Section,
    figures: Sequence[Figure],
    anchor: str,
    left_out: Sequence[LeftOut] = (),
    command: Sequence[Block] = (),
) -> list[Block]:
    """Return a section's blocks. anchor: of its table. command: how to repeat the page."""
    blocks: list[Block] = [Text(f"By {section.score.title}:"), Bullets(answers(section.comparison), "answer")]
    one_by_one = details(section.comparison)
    if one_by_one:
        blocks.append(Details("by how much, and how sure that is", [Bullets(one_by_one)]))
    if section.comparison.caveats:
        blocks.append(Text("These answers are weakened by this:"))
        blocks.append(Bullets(section.comparison.caveats, "caveat"))
    blocks += [Text(f"{section.figures_are} {section.claims_are}"), replace(section.table, anchor=anchor)]
    blocks += _further_tables(section)
    if section.task:
        blocks.append(Heading("What comes out wrong", [Text(_WRONG), *section.wrong]))
    if section.notes:
        blocks.append(Details(f"what is missing here, and why: {len(section.notes)} notes", [Bullets(section.notes)]))
    blocks += _left_out(left_out)
    blocks += [figure for figure in figures if not figure.small]
    small = [figure for figure in figures if figure.small]
    if small:
        whose = Text(f"In each scheme's run of the median {section.score.metric.name}.")
        blocks.append(Heading("What was learned", [whose, Gallery(small)]))
    return [*blocks, *_sources(section, command)]


def _further_tables(section: Section) -> list[Block]:
    """Return all tables below that of the schemes."""
    comparison = section.comparison
    blocks: list[Block | None] = [pairs.matrix(comparison)]
    if comparison.setting_effects:
        blocks.append(factors.factor_table(comparison.setting_effects))
        two_way = factors.two_way_tables(comparison.groups)
        if two_way:
            tables = [replace(table, note="") for table in two_way]
            blocks.append(Details("two settings at a time", [*tables, Text(two_way[0].note)]))
    blocks += [choices(comparison), solved_table(comparison), section.by_memory]
    return [block for block in blocks if block]


def _sources(section: Section, command: Sequence[Block]) -> list[Block]:
    """Return how to repeat the section's runs, and the page, and the facts of data, machine and code."""
    groups, runs = section.comparison.groups, section.comparison.runs
    if not runs:
        return list(command)
    commands = [(group.label, command_of(group)) for group in groups]
    lines = [f"{label}: {text}" if text == NOT_RECORDED else text for label, text in commands]
    settings = [Details(f"complete settings: {whose}", [Code(text)]) for whose, text in configurations(groups)]
    folders = Details(f"{len(runs)} runs", [Code("\n".join(str(run.folder) for run in runs))])
    return [
        Heading("To repeat it", [Code("\n".join(lines)), *settings, *command]),
        Heading("Data and versions", [Definitions(facts(runs)), folders]),
    ]


def _left_out(left_out: Sequence[LeftOut]) -> list[Block]:
    lines = [f"{left.folder}: {left.reason}" for left in left_out]
    return [Heading("Left out", [Bullets(lines)])] if lines else []


def _named(figure: Figure, prefix: str, taken: set[str]) -> Figure:
    """Return the figure with a portable name that no other one of the page has."""
    name = file_name(prefix + figure.name)
    while name in taken:
        name += "_"
    taken.add(name)
    return replace(figure, name=name)
