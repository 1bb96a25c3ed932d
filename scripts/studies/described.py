"""What the page describes beside the hypotheses, from the tables alone: not registered, p-values not corrected."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pandas as pd

from poslab.metric import BEST_VALIDATION_LOSS, LAST_TOKENS_LOSS
from seedstats.finding import p_text
from seedstats.statistics.permutation import sign_flip_test
from studies import hypotheses as tests
from studies.tables import BEYOND, LONGER, SCHEMES, TEXTS, TWIN, Array, values

DRAWS, SWAPS = 200_000, 20_000


def report(first: pd.DataFrame, second: pd.DataFrame) -> str:
    """Return what is described, as tables and lines."""
    tuned, longer = ((task, "default", "chosen") for task in BEYOND), ((task, "chosen", "longer") for task in LONGER)
    shifts = [
        [*one, *shift(np.array([values(second, one[0], recipe) for recipe in one[1:]]))] for one in (*tuned, *longer)
    ]
    tables = [
        pd.DataFrame(taus(tests.orders(second)), columns=["Kendall's tau", "estimate", "low", "high"]),
        pd.DataFrame(shifts, columns=["at 2 x", "from", "to", "mean |change|", "p of swapped labels", "tau"]),
        pd.DataFrame(differences(second), columns=["one", "other", "mean of one", "of other", "p of sign flips"]),
    ]
    texts = (table.to_string(index=False, float_format="{:.3f}".format) for table in tables)
    return "\n\n".join([*texts, "\n".join([*without(first, second), *worse_choices(second)])])


def taus(both: Array) -> Iterator[tuple[str, float, float, float]]:
    """Yield H1's tau with the limits of both kinds of bootstrap, and its distribution where the two recipes of each
    scheme, task and seed are exchanged at random. both: `hypotheses.orders`."""
    _, _, tau, low, high, *_ = tests.order_part(both, DRAWS)
    yield "99.2 %, basic bootstrap (registered)", tau, low, high
    yield "99.2 %, percentiles of the same draws", tau, 2 * tau - high, 2 * tau - low
    rng = np.random.default_rng(1)
    swaps = (rng.random((tests.AT_ONCE, *both.shape[1:])) < 0.5 for _ in range(SWAPS // tests.AT_ONCE))
    swapped = ([np.where(swap, both[1 - n], both[n]).mean(-1) for n in (0, 1)] for swap in swaps)
    null = np.concatenate([tests.mean_tau(*means) for means in swapped])
    low, high = np.quantile(null, [0.05, 0.95])
    p = tests.share(null <= tau + 1e-9)
    yield f"90 %, labels swapped: the recipe does nothing (p = {p:.3f})", float(null.mean()), low, high


def shift(both: Array) -> tuple[float, str, float]:
    """Return by how much a scheme's mean changes, in the mean of all, with the p-value of swapped labels, and the tau.
    both: (2, schemes, n seeds)."""
    change = both[1] - both[0]
    observed = np.abs(change.mean(-1)).mean()
    signs = np.random.default_rng(2).choice([-1.0, 1.0], size=(SWAPS, *change.shape))
    p = tests.share(np.abs((signs * change).mean(-1)).mean(-1) >= observed - 1e-9)
    return observed, p_text(p), float(tests.mean_tau(*both.mean(-1)[:, None]))


def differences(second: pd.DataFrame) -> Iterator[tuple[str, str, float, float, str]]:
    """Yield pairs of cells that differ with p < 0.2 (`exact` at 2 x, of texts the loss at 8 x): a scheme with two
    recipes, and rope and its twin, which differ by chance alone."""
    at = second["length"] == second["data"].map(BEYOND | dict.fromkeys(TEXTS, 512))
    of = second[at & second["metric"].isin(["exact", LAST_TOKENS_LOSS])]
    cells = of.pivot(index=["data", "scheme", "recipe"], columns="seed", values="value")
    for (one, before), (other, after) in combinations(cells.iterrows(), 2):
        twins = {one[1], other[1]} == {"rope", TWIN} and one[::2] == other[::2]
        p = sign_flip_test((after - before).dropna().tolist()) if twins or one[:2] == other[:2] else 1.0
        if p < 0.2:
            yield " ".join(one), " ".join(other), before.mean(), after.mean(), p_text(p)


def without(first: pd.DataFrame, second: pd.DataFrame) -> Iterator[str]:
    """Say what remains of the estimates of H4 and H5 without schemes that never solve."""
    for left_out in (("nope",), ("nope", "randomized")):
        schemes = [scheme for scheme in SCHEMES if scheme not in left_out]
        solved = {data: values(second, data, "longer", "solved", schemes=schemes) for data in LONGER}
        found = {data: tests.pair_difference(of.mean(1)) for data, of in solved.items()}
        found |= {data: np.exp(tests.log_ratio(tests.losses(first, data, schemes).mean(-1))) for data in TEXTS}
        yield f"H4, H5 without {', '.join(left_out)}: " + ", ".join(f"{data} {of:.2f}" for data, of in found.items())


def worse_choices(second: pd.DataFrame) -> Iterator[str]:
    """Say how many chosen recipes, other than the default, have the higher mean loss in range on new seeds."""
    for data in (*BEYOND, *TEXTS):
        usual, own = (values(second, data, recipe, BEST_VALIDATION_LOSS) for recipe in ("default", "chosen"))
        others = (usual != own).any(1).sum()  # because where the default was chosen both are the same runs
        worse = [SCHEMES[n] for n in np.flatnonzero(own.mean(1) > usual.mean(1))]
        which = ", ".join(worse) or "none"
        yield f"worse in range than the default on {data}, of {others} chosen recipes {len(worse)}: {which}"
