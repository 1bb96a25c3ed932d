"""Report of a comparison: report.html, report.md, results.csv and figures."""

import base64
import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from poslab.comparison.contrasts import Verdict, verdict_table
from poslab.comparison.panels import Panel
from poslab.comparison.sections import Section, file_name
from poslab.comparison.task_report import Matrix
from poslab.evaluation.pictures import svg
from poslab.runs.load import LeftOut


@dataclass(frozen=True)
class Report:
    """Content of a report: a section for each task or text, in the order of the page.

    command: the command as typed. left_out: folders that no section has. contrasts: verdicts on those registered before
    the runs; they stand first. overview and matrices: over several sections, before which they stand.
    """

    sections: list[Section]
    command: str
    left_out: Sequence[LeftOut] = ()
    contrasts: list[Verdict] = field(default_factory=list)
    overview: list[Panel] = field(default_factory=list)
    matrices: Sequence[Matrix] = ()

    def write(self, folder: Path) -> None:
        """Write report.html, report.md, results.csv and figures/ into `folder`, over an earlier report there."""
        overview, by_section = self._by_file_name()
        panels = overview | {name: panel for of_section in by_section for name, panel in of_section.items()}
        pictures = {name: svg(panel.figure) for name, panel in panels.items()}
        (folder / "figures").mkdir(parents=True, exist_ok=True)
        for name, picture in pictures.items():
            _write(folder / "figures" / f"{name}.svg", picture)
        environment = Environment(
            loader=PackageLoader("poslab.comparison"),
            autoescape=select_autoescape(["html.j2", "html"]),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        content = {
            "report": self,
            "contrast_table": verdict_table(self.contrasts),
            "overview": overview,
            "sections": list(zip(self.sections, by_section, strict=True)),
            "data_uris": {name: _data_uri(picture) for name, picture in pictures.items()},
        }
        for name in ("report.html", "report.md"):
            _write(folder / name, environment.get_template(f"{name}.j2").render(content))
        _write_results(folder / "results.csv", self.sections)

    def _by_file_name(self) -> tuple[dict[str, Panel], list[dict[str, Panel]]]:
        """Return the panels of the overview and of each section, by portable and unique file names."""
        taken: set[str] = set()

        def named(panels: Sequence[Panel], prefix: str) -> dict[str, Panel]:
            by_name = {}
            for panel in panels:
                name = file_name(prefix + panel.name)
                while name in taken:
                    name += "_"
                taken.add(name)
                by_name[name] = panel
            return by_name

        many = len(self.sections) > 1
        overview = named(self.overview, "")
        return overview, [named(section.panels, f"{section.id}_" if many else "") for section in self.sections]


def _data_uri(picture: str) -> str:
    """Return a picture as a data URI within the page, so that nothing is fetched and ids of two pictures cannot
    collide."""
    return "data:image/svg+xml;base64," + base64.b64encode(picture.encode()).decode()


def _write(file: Path, text: str) -> None:
    """Write text that may contain folder names with bytes that are not UTF-8."""
    file.write_text(text, encoding="utf-8", errors="replace")


def _write_results(file: Path, sections: Sequence[Section]) -> None:
    """Write a row for each run: its summary, and its figures by length in a column each."""
    rows: list[dict[str, Any]] = []
    for section, group in ((of, group) for of in sections for group in of.comparison.groups):
        for run, evaluation in zip_longest(group.runs, section.evaluations.get(group.label, [])):
            summary = {key: value for key, value in vars(run.summary).items() if not isinstance(value, dict | list)}
            rows.append({"scheme": group.label, "folder": run.folder, **summary})
            for metric, by_length in run.summary.metrics.items():
                rows[-1] |= {f"{metric}_{length}": value for length, value in by_length.items()}
            for result in evaluation.lengths if evaluation else []:
                kinds = ("loss", "sliding_loss", "last_loss")
                rows[-1] |= {f"{kind}_{result.length}": getattr(result, kind) for kind in kinds}
    with file.open("w", newline="", encoding="utf-8", errors="replace") as opened:
        writer = csv.DictWriter(opened, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)
