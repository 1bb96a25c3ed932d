"""What the page describes beside the hypotheses, from the tables alone: not registered, p-values not corrected.

Every number by which README.md judges H1 is made here: Kendall's tau where the recipe does nothing, its limits from
many more draws, how far a recipe or twice the steps move a scheme, and how many choices are no better on new seeds.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from poslab.metric import BEST_VALIDATION_LOSS
from seedstats.finding import p_text
from seedstats.page.terminal import table as text_table
from studies.hypotheses import Array, Cells, mean_tau
from studies.recipes import Chosen
from studies.tables import CONFIRMING, SCHEMES, TASKS, TEXTS, default_recipe

ORDERED = ("back", "copy", "recall")  # tasks of H1
DRAWS, SWAPS, AT_ONCE = 200_000, 20_000, 1_000


def report(second: pd.DataFrame, chosen: Chosen) -> str:
    """Return what is described, as two tables and a line on the choices."""
    cells = Cells(second)
    by_recipe = {recipe: exact(cells, recipe, ORDERED) for recipe in ("default", "chosen")}
    both = np.stack([*by_recipe.values()])
    rows = [[name, f"{tau:.3f}", f"{low:.3f} to {high:.3f}"] for name, tau, low, high in taus(both)]
    shifts = [[*shift(cells, data, "default", "chosen"), "recipe"] for data in TASKS]
    shifts += [[*shift(cells, data, "chosen", "longer"), "twice the steps"] for data in ("copy", "recall")]
    return "\n".join(
        [
            text_table(["Kendall's tau, mean of " + ", ".join(ORDERED), "estimate", "limits"], rows, "<><"),
            "",
            text_table(["at 2 x", "mean |change|", "p of swapped labels", "tau", "changed"], shifts, "<>>><"),
            "",
            *worse_choices(cells, chosen),
        ]
    )


def exact(cells: Cells, recipe: str, tasks: Sequence[str]) -> Array:
    """Return `exact` at 2 x (tasks, schemes, n seeds)."""
    of = [[cells.exact(data, scheme, recipe) for scheme in SCHEMES] for data in tasks]
    return np.array([[[figures[seed] for seed in CONFIRMING] for figures in row] for row in of])


def taus(both: Array) -> Iterator[tuple[str, float, float, float]]:
    """Yield H1's tau with the limits of both kinds of bootstrap, and its distribution where labels are swapped.

    both: (2 recipes, tasks, schemes, n seeds).
    """
    tau = float(mean_tau(both[0].mean(-1), both[1].mean(-1)))
    rng, drawn = np.random.default_rng(1), []
    for _ in range(DRAWS // AT_ONCE):
        seeds = rng.integers(both.shape[-1], size=(AT_ONCE, both.shape[-1]))
        means = np.moveaxis(both[..., seeds].mean(-1), -1, 0)
        drawn.append(mean_tau(means[:, 0], means[:, 1]))
    resampled, tail = np.concatenate(drawn), 0.05 / 6 / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    yield "99.2 %, basic bootstrap (registered)", tau, 2 * tau - high, 2 * tau - low
    yield "99.2 %, percentiles of the same draws", float(resampled.mean()), low, high
    null = np.concatenate([_swapped_taus(both, rng) for _ in range(SWAPS // AT_ONCE)])
    p = (1 + (null <= tau + 1e-9).sum()) / (1 + len(null))
    low, high = np.quantile(null, [0.05, 0.95])
    yield f"90 %, labels swapped: the recipe does nothing (p = {p:.3f})", float(null.mean()), low, high


def _swapped_taus(both: Array, rng: np.random.Generator) -> Array:
    """Return tau for AT_ONCE ways to exchange the two recipes of each scheme, task and seed at random."""
    swap = rng.random((AT_ONCE, *both.shape[1:])) < 0.5
    first = np.where(swap, both[1], both[0]).mean(-1)
    second = np.where(swap, both[0], both[1]).mean(-1)
    return mean_tau(first, second)


def shift(cells: Cells, data: str, before: str, after: str) -> list[str]:
    """Return by how much a scheme's mean at 2 x changes, in the mean of all, with the p-value of swapped labels."""
    both = np.stack([exact(cells, recipe, [data])[0] for recipe in (before, after)])
    change = both[1] - both[0]
    observed, rng = float(np.abs(change.mean(-1)).mean()), np.random.default_rng(2)
    signs = rng.choice([-1.0, 1.0], size=(SWAPS, *change.shape))
    p = (1 + (np.abs((signs * change).mean(-1)).mean(-1) >= observed - 1e-9).sum()) / (1 + SWAPS)
    tau = float(mean_tau(*both.mean(-1)[:, None]))
    return [data, f"{observed:.3f}", p_text(float(p)), f"{tau:.2f}"]


def worse_choices(cells: Cells, chosen: Chosen) -> list[str]:
    """Say how many chosen recipes, other than the default, have the higher mean loss in range on new seeds."""
    said = []
    for tasks in (("copy", "recall"), TASKS, tuple(TEXTS)):
        others = [(d, s) for (d, s), own in chosen.items() if d in tasks and s in SCHEMES and own != default_recipe(d)]
        losses = {
            recipe: [fmean(cells.seeds((*one, recipe), BEST_VALIDATION_LOSS).values()) for one in others]
            for recipe in ("default", "chosen")
        }
        worse = [
            f"{scheme} on {data}"
            for (data, scheme), usual, own in zip(others, losses["default"], losses["chosen"], strict=True)
            if own > usual
        ]
        said.append(
            f"{', '.join(tasks)}: {len(worse)} of {len(others)} chosen recipes are worse in range than the default"
        )
        said += [f"  {one}" for one in worse]
    return said
