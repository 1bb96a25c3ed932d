"""Section of a report on the runs on one kind of data: answers, the table, and figures."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from poslab.comparison import factors, pairs
from poslab.comparison.compare import Comparison
from poslab.comparison.convergence import shared_references
from poslab.comparison.groups import Group
from poslab.comparison.scores import Score
from poslab.comparison.seeds_and_text import claims_by_text
from poslab.comparison.sentences import p_text
from poslab.comparison.task_report import TaskReport
from poslab.report.blocks import Figure, Table
from poslab.runs.evaluation import Evaluation
from poslab.statistics.paired import FEWEST_SEEDS, Difference


@dataclass(frozen=True)
class Section:
    """Content of a section.

    evaluations: by label, of groups that are evaluated whole. notes: what is missing, and why. moved: drift of the
    schemes' tables. over_text: differences over seeds and text, by label. effects: effect sizes. of_context: tables on
    memory and context.
    """

    title: str
    comparison: Comparison
    evaluations: Mapping[str, list[Evaluation]]
    answers: list[str]
    notes: list[str]
    panels: list[Figure]
    task: TaskReport | None = None
    moved: Table | None = None
    over_text: Mapping[str, Difference] = field(default_factory=dict)
    effects: Table | None = None
    of_context: Sequence[Table] = ()

    @property
    def id(self) -> str:
        """Return the title as a part of file names and of anchors in the page."""
        return file_name(self.title)

    @property
    def of_factors(self) -> Sequence[factors.Effect]:
        """Return the effects of settings in which groups of one scheme differ."""
        return self.comparison.effects

    @property
    def by_factor(self) -> list[str]:
        """Return the sentences of a grid."""
        return factors.in_words(self.of_factors) + factors.confounded(self.comparison)

    @property
    def score(self) -> Score:
        return self.comparison.score

    @property
    def verdicts(self) -> list[str]:
        """Return the best group; the groups better than the baseline, the worse ones, and those not shown to differ.

        For proportions also the groups that were so in every one of a few seeds.
        """
        groups, baseline, differences = self.comparison.groups, self.comparison.baseline, self.comparison.differences
        better, worse = f"better than {baseline}", f"worse than {baseline}"
        unclear = f"no difference from {baseline} can be shown"
        few = ", in every seed, too few to claim it"
        verdicts: dict[str, list[str]] = {said: [] for said in (better, better + few, unclear, worse + few, worse)}
        for label in (group.label for group in groups if group.label != baseline):
            d = differences[label]
            verdict = better if d.leaning * self.score.metric.sign < 0 else worse
            if not d.significant:
                by_seeds = self.score.metric.is_proportion and d.outcomes.complete and self._in_every_seed(label)
                verdict = verdict + few if by_seeds else unclear
            verdicts[verdict].append(label)
        unit = self.score.metric.unit.partition(" per ")[0]
        figure = self.score.text(groups[0].estimate.mean)
        shared = groups if self.score.metric.is_proportion else groups[:1]  # losses are alike by chance only
        alike = [group.label for group in shared if group.estimate.mean == groups[0].estimate.mean]
        best = f"{self.score.best} {self.score}: {', '.join(alike)}, {figure} {unit}"
        others = [f"{said}, {len(of)} of {len(differences)}: {', '.join(of)}" for said, of in verdicts.items() if of]
        incomplete = [label for label, d in differences.items() if not d.outcomes.complete]
        others += [f"seeds missing or diverged, {len(incomplete)}: {', '.join(incomplete)}"] if incomplete else []
        return [best, *others, *self._for_other_text, *self.comparison.planned.sentences]

    @property
    def _for_other_text(self) -> list[str]:
        """Return how many of the groups that differ are shown to do so for other text, too."""
        claims = claims_by_text(self.comparison, self.over_text)
        shown = [label for label, is_shown in claims.items() if is_shown]
        which = f": {', '.join(shown)}" if shown and len(shown) < len(claims) else ""
        return [f"shown for held-out text of this corpus, too, {len(shown)} of {len(claims)}{which}"] if claims else []

    def _in_every_seed(self, label: str) -> bool:
        """Return whether the group is better, or worse, than the baseline in each of several seeds."""
        values = {group.label: group.values for group in self.comparison.groups}
        own, base = values[label], values[self.comparison.baseline]
        signs = {(own[seed] > base[seed]) - (own[seed] < base[seed]) for seed in own.keys() & base.keys()}
        return signs in ({1}, {-1}) and self.comparison.differences[label].n > 1

    @property
    def in_short(self) -> list[str]:
        """Return the verdicts, if there are many answers."""
        return [*self.verdicts, *pairs.in_lines(self.comparison)] if len(self.answers) > 6 else []

    @property
    def first_answers(self) -> list[str]:
        """Return the first sentences: on settings, and on groups."""
        return self.by_factor + (self.in_short or self.answers)

    @property
    def figures_are(self) -> str:
        """Return a description of the figures."""
        metric, runs = self.score.metric, self.comparison.runs
        if self.score.is_loss and runs:
            kept = _KEPT if self.score.validation and self.task is None else ""
            return f"Losses are {_LOSSES[self.score.validation].format(metric.unit)}{kept}"
        direction = "higher" if metric.higher_is_better else "lower"
        if not runs:
            return f"Figures are {self.score.label}; {direction} is better."
        longest = " or ".join(dict.fromkeys(str(run.summary.training_length) for run in runs))
        chance = sorted({run.value(f"{metric.name}_chance", self.score.length) or 0.0 for run in runs})
        known = f" The most frequent answer alone would be worth {self.score.text(chance[0])}." if any(chance) else ""
        return f"Figures are {self.score.label}; {direction} is better.{known} Training ended at length {longest}."

    @property
    def claims_are(self) -> str:
        """Return the condition of a claim, in words."""
        if self.score.metric.is_proportion:
            further = (
                ", and so does an exact test: where all seeds agree, a t test takes the next one for certain. Groups "
                "whose every seed solves the task or fails are compared as counts, by an exact test alone"
            )
        else:
            further = (
                ""
                if self.task or not self.comparison.runs
                else "; they hold for other seeds on this text, and for other text where that is said"
            )
        why = ": runs of one seed start from the same weights and see the same batches" if self.comparison.runs else ""
        return (
            f"Differences are paired by seed{why}. Claims are "
            f"made from {FEWEST_SEEDS} seeds on, where a paired t test, corrected by Holm's method for all "
            f"{self.comparison.comparisons} comparisons of this page, gives p below 0.05{further}. Intervals of "
            "differences are simultaneous: all of the page cover at once in 95 % of sweeps. Those of single schemes "
            "are not corrected."
        )

    @property
    def legend(self) -> str:
        """Return the legend of the table of schemes."""
        said = f"n: runs. Difference: mean of scheme minus {self.comparison.baseline} over common seeds."
        if self.over_text:
            said += (
                " Interval, seeds and text: of the same difference, for other seeds and held-out text of this corpus "
                "at once; the one before it is for other seeds on this text."
            )
        if self.comparison.runs and not self._other_lengths:
            said += " Longer windows: sliding loss at the longest window measured beyond the training length."
        if self.reference_rows:
            said += (
                " In brackets, without any training: models that count single tokens or pairs of tokens in the "
                "training text, or take all for equally likely; a decoder above them has learned next to nothing."
            )
        return said

    @property
    def columns(self) -> list[str]:
        before = ["scheme", "n", str(self.score), "95 % interval", "sd"]
        before += ["difference", "simultaneous interval", "p (Holm)"]
        if not self.comparison.runs:
            return before
        others = [f"{self.score.metric.name} at {length}" for length in self._other_lengths] or ["longer windows"]
        text = ["interval, seeds and text"] if self.over_text else []
        return [*before, *text, "parameters added", "tokens/s", "peak memory, MB", *others]

    def row(self, group: Group) -> list[str]:
        """Return the table's row for a group, from its label and number of seeds to its figures at other lengths."""
        found, difference, text = group.estimate, self.comparison.differences.get(group.label), self.score.text
        cells = [
            group.label,
            group.count,
            text(found.mean),
            self.score.interval(found.interval),
            text(found.sd),
            "baseline" if difference is None else text(difference.mean, "+"),
            "" if difference is None else self.score.interval(difference.interval, "+"),
            "" if difference is None else "n/a" if difference.p_value is None else p_text(difference.p_value),
        ]
        if not group.runs:
            return cells
        return [
            *cells,
            *self._over_text(group.label),
            _whole(group.mean("params_scheme")),
            _whole(group.mean("tokens_per_s")),
            _whole(group.mean("peak_memory_mb")),
            *([group.at(n) for n in self._other_lengths] or [_beyond(self.evaluations.get(group.label, []))]),
        ]

    def _over_text(self, label: str) -> list[str]:
        if not self.over_text or label == self.comparison.baseline:
            return [""] if self.over_text else []
        found = self.over_text.get(label)
        return ["n/a" if found is None else self.score.interval(found.interval, "+")]

    @property
    def table(self) -> Table:
        """Return the table of schemes."""
        return Table(
            "Schemes",
            self.columns,
            [self.row(group) for group in self.comparison.groups],
            self.legend,
            highlight=self.comparison.baseline,
            foot=self.reference_rows,
            sortable=True,
            sorted_by=(2, "descending" if self.score.metric.higher_is_better else "ascending"),
            narrow=[0, 1, 2, 3, 5, 6, 7, *([8] if self.over_text else [])],
        )

    @property
    def reference_rows(self) -> list[list[str]]:
        """Return table rows for models without training."""
        losses = shared_references(self.comparison.runs, self.score)
        ascending = sorted(losses.items(), key=lambda item: item[1])
        empty = [""] * (len(self.columns) - 3)
        return [[f"({name})", "", self.score.text(loss), *empty] for name, loss in ascending]

    @property
    def _other_lengths(self) -> list[int]:
        lengths = {n for run in self.comparison.runs for n in run.lengths(self.score.metric.name)}
        return sorted(lengths - {self.score.length or 0})


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


def _whole(value: float | None) -> str:
    return "n/a" if value is None else f"{value:,.0f}"
