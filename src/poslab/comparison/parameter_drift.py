"""Parameter drift: how far training moved a scheme's tables, beside how far it could.

AdamW moves a number by about its learning rate in a step, whatever its gradient.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from torch import Tensor

from poslab.comparison.groups import Group
from poslab.report.blocks import Table
from poslab.runs.checkpoint_files import start_and_best
from poslab.runs.folder import RunFolder
from poslab.runs.load import Run

_REMARK = (
    "Root mean squares of each table's numbers before training and of their change up to the best weights, means over "
    "seeds. AdamW moves a number by about its learning rate in a step, so a table whose change is near learning rate x "
    "steps may still have been on its way; what never moved was never trained."
)


class Drift(NamedTuple):
    """Movement of one table in one run.

    start, moved: root mean squares, of the table and of its change up to the best weights; of_most: the latter as a
    proportion of the peak learning rate times the steps; still: the proportion of numbers that did not change.
    """

    numbers: int
    start: float
    moved: float
    of_most: float
    still: float


def of_run(run: Run) -> dict[str, Drift]:
    """Return the drift of a run by the name of the table; empty if not known."""
    optim, steps = run.config["optim"], run.summary.best_step
    most = optim["learning_rate"] * optim["position_learning_rate_factor"] * steps
    found = {}
    for name, (start, best) in start_and_best(RunFolder(run.folder)).items():
        change = best.double() - start.double()
        still = float((change == 0).double().mean())
        found[name] = Drift(start.numel(), _rms(start), _rms(change), _rms(change) / most if most else 0.0, still)
    return found


def table(groups: Sequence[Group]) -> Table | None:
    """Return a table of means over seeds, for the groups with known drift in all runs, or None if there are none."""
    columns = ("scheme", "table", "numbers", "at the start", "moved by", "of learning rate x steps", "never moved")
    rows: list[list[str]] = []
    for group in groups:
        of_runs = [of_run(run) for run in group.runs]
        common = [name for name in of_runs[0] if all(name in of_run for of_run in of_runs)]
        rows += [_row(group.label, name, [of_run[name] for of_run in of_runs]) for name in common]
    return Table("How far training moved what schemes learn", columns, rows, _REMARK) if rows else None


def _rms(values: Tensor) -> float:
    return float(values.double().square().mean().sqrt())


def _row(label: str, table: str, of_seeds: list[Drift]) -> list[str]:
    numbers, start, moved, of_most, still = map(fmean, zip(*of_seeds, strict=True))
    return [label, table, f"{numbers:,.0f}", f"{start:.3g}", f"{moved:.3g}", f"{of_most:.0%}", f"{still:.0%}"]
