"""Results that are compared: a table from a file (`read_table_file`) or from run folders (`of_runs.py`)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from poslab.comparison.costs import cost_columns, uneven_speed
from poslab.comparison.solving import solved_table
from poslab.config.files import require_writable
from poslab.config.nodes import default_settings, schemes
from poslab.config.scripts import CompareConfig
from poslab.errors import SettingError, UserError, as_typed
from poslab.metric import BEST_VALIDATION_LOSS, LAST_VALIDATION_LOSS, LOSS, LOSSES_BY_LENGTH, TEST_LOSS
from seedstats.comparison import Comparison, compare
from seedstats.errors import BadSetting, BadTable
from seedstats.page.blocks import Block
from seedstats.section import Section
from seedstats.table import read_table

# What losses are compared, by the name of their metric, and what their intervals say nothing of.
_ON_THIS_TEXT = "Intervals are over seeds, on this text; on another text the difference may be another."
_ABOUT = {
    TEST_LOSS: f"The loss is that of the held-out test part, by each run's best checkpoint. {_ON_THIS_TEXT}",
    LAST_VALIDATION_LOSS: f"The loss is that of the last validation. No checkpoint was selected by it. {_ON_THIS_TEXT}",
    BEST_VALIDATION_LOSS: "The loss is that of each run's best validation: the lowest of several, so it is biased "
    f"downwards. {_ON_THIS_TEXT}",
}


@dataclass(frozen=True)
class Results:
    """Checked table to be compared, and where its report goes. left_out: what is not in the table, and why."""

    table: pd.DataFrame
    folder: Path
    left_out: Sequence[str] = ()

    def section(self, title: str, comparison: Comparison) -> Section:
        """Return the report's section on one kind of data."""
        solved = solved_table(comparison)
        return Section(
            title,
            comparison,
            about=_ABOUT.get(comparison.metric.name, ""),
            caveats=[*still_falling(comparison), *uneven_speed(comparison)],
            columns=cost_columns(comparison),
            tables=[solved] if solved else [],
        )

    @property
    def missing(self) -> Sequence[object]:
        """Return the runs of which something is missing that can be measured."""
        return ()

    def measured(self) -> "Results":
        """Return the results with what is missing measured, as far as it can be."""
        return self

    def across(self, comparisons: Mapping[str, Comparison]) -> list[Block]:
        """Return what is about all kinds of data together."""
        return []

    def write_means(self, comparisons: Mapping[str, Comparison]) -> Path | None:
        """Write mean curves for TensorBoard, and return their folder; None if no curves are known."""
        return None


def compared(results: Results, config: CompareConfig) -> dict[str, Comparison]:
    """Return the comparisons of results, by the name of their data. Raises SettingError for what can't be met."""
    metrics = results.table["metric"].unique().tolist()
    losses = [name for name in (TEST_LOSS, LAST_VALIDATION_LOSS) if name in metrics]
    metric = losses[0] if config.metric == LOSS and LOSS not in metrics and losses else config.metric
    if config.validation == "best":
        usual_metrics = results.table.groupby("data", sort=False)["metric"].first()
        others = [name for name in ([metric] if metric else usual_metrics) if name != LAST_VALIDATION_LOSS]
        if others:
            problem = f"the runs are compared by {others[0]}, which chose nothing"
            raise SettingError("validation", config.validation, problem)
        metric = BEST_VALIDATION_LOSS
    usual = {name: {key: as_typed(value) for key, value in default_settings(name).items()} for name in schemes()}
    better = config.better or ("lower" if metric in LOSSES_BY_LENGTH else None)
    try:
        return compare(
            results.table,
            baseline=config.baseline,
            metric=metric,
            length=config.length,
            better=better,
            pairs="all" if config.pairs == "all" else "baseline",
            effect=config.effect,
            looks=config.looks,
            chosen_by=metric if metric in losses[1:] or BEST_VALIDATION_LOSS not in metrics else BEST_VALIDATION_LOSS,
            defaults=usual,
        )
    except BadSetting as error:
        raise SettingError(error.option, error.value, f"{error.problem}{at_lengths(error)}") from error
    except BadTable as error:
        if config.table:
            raise SettingError("table", config.table, str(error)) from error
        raise UserError(str(error)) from error


def at_lengths(error: BadSetting) -> str:
    """Return how a text's loss is compared at a length, for an error about a metric or a length; else ""."""
    if error.option not in ("metric", "length") or "loss" not in f"{error.value} {error.problem}":
        return ""
    return (
        "; a text's loss at a length is last_loss, at the lengths that evaluation.lengths=[64,256] gives to training, "
        "or that evaluate or compare have measured"
    )


def still_falling(comparison: Comparison) -> list[str]:
    """Return a caveat on groups whose training loss still fell by more than their difference from the baseline.

    Early in training a scheme is ahead because it moves first, and may end behind.
    """
    labels = []
    for group in comparison.judged:
        d, fall = comparison.differences.get(group.label), group.mean("late_fall")
        if d and d.significant and fall is not None and fall > abs(d.mean or 0.0):
            labels.append(f"{group.label} (by {fall:.2g})")
    in_which = "The loss still fell by more than the difference in the last tenth of the steps"
    return [f"{in_which}: {', '.join(labels)}"] if labels else []


def read_table_file(config: CompareConfig) -> Results:
    """Return the table in a file. Raises SettingError for one that can't be used."""
    file = Path(os.path.expanduser(str(config.table)))
    if config.runs != CompareConfig().runs:
        raise SettingError("runs", ",".join(config.runs), "goes without table, which is compared in their place")
    try:
        table = read_table(file)
    except BadTable as error:
        raise SettingError("table", config.table, str(error).removeprefix(f"{file}: ")) from error
    except OSError as error:
        raise SettingError("table", config.table, f"can't be read: {error.strerror}") from error
    if config.better is not None and not table["better"].isin(["", config.better]).all():
        metric = table.loc[~table["better"].isin(["", config.better]), "metric"].iloc[0]
        raise SettingError("better", config.better, f"the table's column better says otherwise of {metric}")
    name = file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".parquet")
    folder = Path(os.path.expanduser(config.out)) if config.out else file.with_name(f"{name}-report")
    require_writable("out", folder)
    return Results(table, folder)
