"""Section of a report on one kind of data: the table of schemes, and what it and the answers mean."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from seedstats.answers import best_groups
from seedstats.compare import Comparison
from seedstats.groups import Group
from seedstats.pairs import ranked
from seedstats.metric import Score
from seedstats.tasks import TaskRuns
from seedstats.page.blocks import Details, Figure, Table
from poslab.runs.evaluation import Evaluation
from seedstats.statistics.best import rank_intervals
from seedstats.findings import p_text
from seedstats.statistics.paired import FEWEST_SEEDS
from seedstats.remarks import lost_count

# Columns of costs in the table of schemes, by name in the table of results (`runs.table`): heading and format.
COSTS = {
    "params_scheme": ("parameters added", ",.0f"),
    "tokens_per_s": ("tokens/s", ",.0f"),
    "peak_memory_mb": ("peak memory, MB", ",.0f"),
}


@dataclass(frozen=True)
class Section:
    """Content of a section. What needs run folders is empty of a table from elsewhere.

    evaluations: by label, of groups that are evaluated whole. notes: what is missing, and why. wrong: answers to a
    task, by length. by_memory: losses by memory length.
    """

    title: str
    comparison: Comparison
    panels: list[Figure]
    notes: list[str] = field(default_factory=list)
    evaluations: Mapping[str, list[Evaluation]] = field(default_factory=dict)
    task: TaskRuns | None = None
    wrong: Sequence[Details] = ()
    by_memory: Table | None = None

    @property
    def id(self) -> str:
        """Return the title as a part of file names and of anchors in the page."""
        return file_name(self.title)

    @property
    def score(self) -> Score:
        return self.comparison.score

    @property
    def figures_are(self) -> str:
        """Return a description of the figures."""
        metric, runs = self.score.metric, self.comparison.runs
        if self.score.is_loss and runs:
            kept = _KEPT if self.score.validation and self.task is None else ""
            return f"Losses are {_LOSSES[self.score.validation].format(metric.unit)}{kept}"
        direction = "higher" if metric.higher_is_better else "lower"
        chance = sorted(set(self.comparison.base.figures(f"{self.score.name}_chance", self.score.length).values()))
        known = f" The most frequent answer alone would be worth {self.score.text(chance[0])}." if any(chance) else ""
        trained = dict.fromkeys(str(run.summary.training_length) for run in runs)
        ended = f" Training ended at length {' or '.join(trained)}." if trained else ""
        return f"Figures are {self.score.label}; {direction} is better.{known}{ended}"

    @property
    def claims_are(self) -> str:
        """Return the condition of a claim, in words."""
        further, n, best = "", self.comparison.comparisons, best_groups(self.comparison)
        among = f"all {n} comparisons" if n > 1 else "the only comparison"
        if self.score.metric.is_proportion:
            further = (
                ", and so does an exact test: where all seeds agree, a t test takes the next one for certain. Groups "
                "whose every seed solves the task or fails are compared as counts, by an exact test alone"
            )
        elif any(group.stretches for group in self.comparison.groups):
            further = "; they hold for other seeds on this text, and for other text where that is said"
        why = ": runs of one seed start from the same weights and see the same batches" if self.comparison.runs else ""
        return (
            f"Differences are paired by seed{why}. Claims are "
            f"made from {FEWEST_SEEDS} seeds on, where a paired t test, corrected by Holm's method for "
            f"{among} of this page, gives p below 0.05{further}. Equal within a "
            "margin is what two one-sided tests show in the same family. Intervals of differences are simultaneous: "
            "all of the page cover at once in 95 % of sweeps. Those of single schemes are not corrected."
            + (" The best scheme is one of those named first in as many sweeps as is said there." if best else "")
        )

    @property
    def legend(self) -> str:
        """Return the legend of the table of schemes."""
        said = f"n: runs. Difference: mean of scheme minus {self.comparison.baseline} over common seeds."
        if self.comparison.pairs:
            said += " Rank: those that the shown differences leave, all at once in 95 % of sweeps."
        if self.comparison.over_text:
            said += (
                " Interval, seeds and text: of the same difference, for other seeds and held-out text of this corpus "
                "at once; the one before it is for other seeds on this text."
            )
        if self.evaluations and not self._other_lengths:
            said += " Longer windows: sliding loss at the longest window measured beyond the training length."
        if self.untrained_rows:
            said += (
                " In brackets, without any training: models that count single tokens or pairs of tokens in the "
                "training text, or take all for equally likely; a decoder above them has learned next to nothing."
            )
        return said

    @property
    def table(self) -> Table:
        """Return the table of schemes."""
        groups, planned = self.comparison.groups, self.comparison.planned
        columns = ["scheme", "n", str(self.score), "95 % interval", "sd", "difference", "simultaneous interval"]
        columns += ["p (Holm)", *(["interval, seeds and text"] if self.comparison.over_text else [])]
        narrow = [0, 1, 2, 3, 5, 6, 7, *([8] if self.comparison.over_text else [])]
        ranks = self._ranks
        costs = [name for name in COSTS if any(group.figures(name) for group in groups)]
        longer = [f"{self.score.name} at {length}" for length in self._other_lengths]
        windows = ["longer windows"] if self.evaluations and not longer else []
        columns += [*(["rank"] if ranks else []), *(COSTS[name][0] for name in costs), *longer, *windows]
        lost = [[name, lost_count(len(planned.seeds[name]), planned.diverged[name]), "n/a"] for name in planned.lost]
        return Table(
            "Schemes",
            columns,
            [self._row(group, ranks, costs, bool(windows)) for group in groups],
            self.legend,
            highlight=self.comparison.baseline,
            foot=[[*row, *[""] * (len(columns) - len(row))] for row in lost + self.untrained_rows],
            sortable=True,
            sorted_by=(2, "descending" if self.score.metric.higher_is_better else "ascending"),
            narrow=narrow,
        )

    def _row(self, group: Group, ranks: Mapping[str, str], costs: Sequence[str], windows: bool) -> list[str]:
        """Return the table's row for a group, from its label and number of seeds to its figures at other lengths."""
        found, d, text = group.estimate, self.comparison.differences.get(group.label), self.score.text
        over_text = self.comparison.over_text
        row = [group.label, group.count, text(found.mean), self.score.interval(found.interval), text(found.sd)]
        if d is None:
            row += ["baseline", "", "", *([""] if over_text else [])]
        else:
            p = "n/a" if d.p_value is None else p_text(d.p_value)
            row += [text(d.mean, "+"), self.score.interval(d.interval, "+"), p]
            on_text = over_text.get(group.label)
            row += [self.score.interval(on_text.interval if on_text else None, "+")] if over_text else []
        row += [ranks[group.label]] if ranks else []
        means = {name: group.mean(name) for name in costs}
        row += ["n/a" if mean is None else format(mean, COSTS[name][1]) for name, mean in means.items()]
        row += [text(group.mean(self.score.name, length)) for length in self._other_lengths]
        return row + ([_beyond(self.evaluations.get(group.label, []))] if windows else [])

    @property
    def _ranks(self) -> dict[str, str]:
        """Return the ranks that each group may have, "1 to 3", if all pairs were compared."""
        one = self.comparison
        found = rank_intervals([group.label for group in one.groups], ranked(one)) if one.pairs else {}
        return {label: f"{low}" if low == high else f"{low} to {high}" for label, (low, high) in found.items()}

    @property
    def untrained_rows(self) -> list[list[str]]:
        """Return the names and losses of models without training."""
        ascending = sorted(self.comparison.untrained.items(), key=lambda item: item[1])
        return [[f"({name})", "", self.score.text(loss)] for name, loss in ascending]

    @property
    def _other_lengths(self) -> list[int]:
        known = (length for group in self.comparison.groups for name, length in group.known if name == self.score.name)
        return sorted({length for length in known if length is not None} - {self.score.length or 0})


_KEPT = " What is measured by length and position is of the best weights, on the validation data that chose them."
# What losses are compared, by the validation that they are of.
_LOSSES = {
    "": "those of each run's best weights on the part of the text that was held out, in {}; lower is better.",
    "last": "those of each run's last validation, which has chosen nothing, in {}; lower is better.",
    "best": "those of each run's best validation, in {}; lower is better. The lowest of several, on the data that are "
    "reported, is too good by having been chosen.",
}


def file_name(text: str) -> str:
    """Return a name that any file system takes."""
    return re.sub(r"[^A-Za-z0-9_]", "_", text)[:80]


def _beyond(of_seeds: list[Evaluation]) -> str:
    """Return the mean sliding loss at the longest window beyond the training length, or why there is none."""
    results = [result for e in of_seeds for result in e.lengths if result.length > e.context_length]
    measured = [(result.length, result.sliding_loss) for result in results if result.sliding_loss is not None]
    if not measured:
        return next((result.note for result in results if result.note), "n/a")
    longest = max(length for length, _ in measured)
    return f"{fmean(loss for length, loss in measured if length == longest):.4f} at {longest:,}"
