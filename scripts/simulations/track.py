"""Simulated boards of the track, with its own numbers of seeds and names, and its power by the spread of a study."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy import special

from poslab.track.rules import read_rules
from poslab.track.verdict import NOT_SHOWN, own_verdict
from seedstats.metric import Metric
from simulations.best import of_means
from simulations.claims import FOLDER, Cell, table
from simulations.sweeps import WORLDS, Array, Draw, Size, half_differ, rates

NAMES = 27
RULES = read_rules(FOLDER.parents[1] / "track")
SEEDS = len(RULES.seeds)
FIGURES = len(RULES.figures)


def false_verdicts(noise: Draw, count: int) -> float:
    """Return the share of entries that equal all others of a board in truth and have a claim, better or worse, against
    the control or the best, in any figure."""
    rng, made = np.random.default_rng(9), 0
    figures = [(str(number), Metric("loss", length=number)) for number in range(FIGURES)]
    for _ in range(count):
        drawn = 4 + noise(rng, (1, FIGURES, NAMES, SEEDS))[0]
        values = {
            figure: {str(name): dict(enumerate(of.tolist())) for name, of in enumerate(of_names)}
            for figure, of_names in zip(figures, drawn, strict=True)
        }
        found = own_verdict("1", "0", values, 1e-9)
        made += any(word != NOT_SHOWN for of_figure in found.values() for word in of_figure.values())
    return made / count


def of_claims(count: int = 4_000) -> None:
    """One family of a board: all encodings against the control, and the set of the best; and an entry's own verdict."""
    size = Size(SEEDS, NAMES)

    def rows() -> Iterator[Sequence[Cell]]:
        for name, draw in WORLDS.items():
            equal, differ = (rates(draw, size, count, effects)[0] for effects in ((), half_differ(NAMES)))
            left_out = 1 - of_means(draw, np.zeros(NAMES), SEEDS, count)["now"][0]
            yield [name, equal, differ, left_out, 1 - (1 - equal) ** FIGURES, false_verdicts(draw, count // 20)]

    head = [f"false claims, %: {SEEDS} seeds, {NAMES} names", "against the control: all equal", "half differ"]
    head += ["a best name is left out: all equal", "against the control, in any figure", "an entry's verdict"]
    table("track", head, rows())


def spread(metric: str, length: int) -> Array:
    """Return the sd of differences from the control, paired by seed, of each encoding of the study of blocks."""
    rows = pd.read_csv(FOLDER.parent / "blocks/runs.csv.gz", low_memory=False)
    own = (rows["block"] == "modern") & rows["data"].str.contains("shakespeare") & (rows["metric"] == metric)
    values = rows[own & (rows["length"] == length)].pivot(index="seed", columns="name", values="value")
    return np.array([(values[a] - values[b]).std() for a, b in combinations(values, 2) if RULES.control in (a, b)])


def power(sd: float, effect: float, seeds: int) -> float:
    """Return the power of one of the board's comparisons with the control, at the strictest level of Holm's method."""
    critical = special.stdtrit(seeds - 1, 1 - 0.025 / (NAMES - 1))
    return float(1 - special.nctdtr(seeds - 1, effect / sd * seeds**0.5, critical))


def of_power() -> None:
    def rows() -> Iterator[Sequence[Cell]]:
        text = RULES.data["text"]
        for length in text.lengths:
            sds = spread(text.metric, length)
            for which, sd in (("median", float(np.median(sds))), ("largest", float(sds.max()))):
                for seeds in (8, SEEDS):
                    shown = (power(sd, effect, seeds) for effect in (0.02, 0.05))
                    yield [f"{text.metric} at {length}", f"{which}, {sd:.4f}", str(seeds), *shown]

    head = ["figure", "sd of paired differences", "seeds", "a difference of 0.02 is shown, %", "of 0.05, %"]
    table("track_power", head, rows())


TABLES: dict[str, Callable[[], None]] = {"track": of_claims, "track_power": of_power}
