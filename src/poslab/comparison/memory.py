"""Value of memory: the loss by how many tokens are remembered."""

from collections.abc import Mapping, Sequence

from poslab.runs.evaluation import Evaluation
from seedstats.page.blocks import Table
from seedstats.statistics.intervals import estimate


def memory_table(evaluations: Mapping[str, list[Evaluation]]) -> Table | None:
    """Return the table of losses by memory length, of groups whose runs are all measured with a memory.

    evaluations: by label, one for each run.
    """
    lengths = sorted(
        {int(n) for seed_evaluations in evaluations.values() for e in seed_evaluations for n in e.memory_losses}
    )
    rows = []
    for label, seed_evaluations in evaluations.items():
        cells = [_mean([e.memory_losses.get(str(length)) for e in seed_evaluations]) for length in lengths]
        if any(cell != "n/a" for cell in cells):
            rows.append([label, str(len(seed_evaluations)), *cells])
    if not rows:
        return None
    remark = (
        "Mean loss of contiguous windows of the training length, in nats, of the same tokens for every memory length; "
        "means over seeds, with 95 % intervals. Retrieval is not counted in that length."
    )
    return Table("Loss by memory", ["", "n", *(f"{length:,} tokens" for length in lengths)], rows, remark)


def _mean(losses: Sequence[float | None]) -> str:
    measured = [loss for loss in losses if loss is not None]
    if len(measured) < len(losses):
        return "n/a"
    mean_loss = estimate(measured)
    half = f" \u00b1 {mean_loss.interval.high - mean_loss.mean:.4f}" if mean_loss.interval else ""
    return f"{mean_loss.mean:.4f}{half}"
