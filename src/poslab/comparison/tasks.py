"""Runs on a task together: metrics by length, and which seeds solve its training range and when.

All figures are over all seeds; those over the seeds that solved the range stand beside them, never instead of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from poslab.metric import Metric
from poslab.runs.load import Run

_MOST_LENGTHS = 4  # that tables show; of more, those at one, two and three times the training length


@dataclass(frozen=True)
class TaskRuns:
    """Finished runs on one task, by the label of their group and in the order of the report. diverged: how many others
    of each group did."""

    name: str
    runs: Mapping[str, Sequence[Run]]
    diverged: Mapping[str, int] = field(default_factory=dict)

    @property
    def first(self) -> Run:
        return next(iter(self.runs.values()))[0]

    @property
    def all_runs(self) -> list[Run]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def trained(self) -> tuple[int, int]:
        """Return the shortest and the longest training length."""
        longest = self.first.summary.training_length
        shortest = self.first.config["data"].get("min_length")
        return (shortest if isinstance(shortest, int) else 1), longest

    @property
    def measures(self) -> list[Metric]:
        """Return the metrics known by length, first the one by which such runs are compared."""
        return [measure for measure in self.first.summary.measures if self.lengths(measure.name)]

    def lengths(self, metric: str) -> list[int]:
        return sorted({length for run in self.all_runs for length in run.lengths(metric)})

    @property
    def shown_lengths(self) -> list[int]:
        """Return the lengths that tables show: nearest to one, two and three times the training length."""
        lengths, longest = self.lengths(self.measures[0].name), self.trained[1]
        if len(lengths) <= _MOST_LENGTHS:
            return lengths
        return sorted({min(lengths, key=lambda length: abs(length - n * longest)) for n in (1, 2, 3)})

    def multiple(self, length: int) -> str:
        """Return the length as a multiple of the longest training length, "1.5×"."""
        return f"{round(length / self.trained[1], 1):g}×"

    def values(self, label: str, metric: str, length: int) -> list[float]:
        """Return the metric of each seed."""
        values = (run.value(metric, length) for run in self.runs.get(label, ()))
        return [value for value in values if value is not None]

    def chance(self, metric: str) -> dict[int, float]:
        """Return by length what the best answer reaches that does not look at the question."""
        return {int(n): share for n, share in self.first.summary.metrics.get(f"{metric}_chance", {}).items()}

    def solved_steps(self, label: str) -> list[int]:
        """Return the steps of the first validations that solved the training range, of the seeds that did, in order."""
        return sorted(run.summary.solved_step for run in self.runs[label] if run.summary.solved_step is not None)

    def solved(self, labels: Iterable[str] | None = None) -> str:
        """Return how many runs solved the training range, "2 of 3"."""
        among = list(self.runs if labels is None else labels)
        return f"{sum(len(self.solved_steps(of)) for of in among)} of {sum(map(self.seeds, among))}"

    def seeds(self, label: str) -> int:
        """Return how many runs a group has, those that diverged too."""
        return len(self.runs[label]) + self.diverged.get(label, 0)

    def median_run(self, label: str, length: int) -> Run:
        """Return the run of the median metric at that length, whose answers represent its group."""
        runs = sorted(self.runs[label], key=lambda run: run.value(self.measures[0].name, length) or 0.0)
        return runs[(len(runs) - 1) // 2]


def task_runs(
    title: str, runs: Mapping[str, Sequence[Run]], diverged: Mapping[str, int] | None = None
) -> TaskRuns | None:
    """Return runs, by the label of their group, as those of a task; None if they are of a text, or have no metric by
    length."""
    task = TaskRuns(title, runs, diverged or {})
    return task if not task.first.text_path and task.measures else None
