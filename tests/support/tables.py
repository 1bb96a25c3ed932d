"""Tables of results over seeds, and what is said of them."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from seedstats.answers import on_baseline, pair_sentences
from seedstats.comparison import Comparison, compare
from seedstats.effects import effects_in_words
from seedstats.finding import Finding
from seedstats.table import checked

LOSS = {"metric": "loss", "unit": "nats per token", "better": "lower"}
SHARE = {"metric": "exact", "unit": "of the examples", "better": "higher"}
Values = Sequence[float | None] | Mapping[int, float | None]  # of seeds 1, 2, ...; None: it is missing

SHAW = [0.9, 0.7, 0.8, 0.8, 0.9, 0.7, 0.8, 0.84]  # shares of eight seeds
BASE = [0.2, 0.1, 0.1, 0.3, 0.2, 0.2, 0.1, 0.2]


def by_number(values: Values) -> Mapping[int, float | None]:
    return values if isinstance(values, Mapping) else dict(enumerate(values, start=1))


def rows(values: Mapping[str, Values], kind: Mapping[str, str] = LOSS, /, **columns: object) -> pd.DataFrame:
    """A row for each name and seed, of text as a file has it; columns: settings and others, alike in all rows."""
    found = [
        {"name": name, "seed": str(seed), "value": "" if value is None else str(value)}
        for name, of_name in values.items()
        for seed, value in by_number(of_name).items()
    ]
    return pd.DataFrame(found, dtype=str).assign(**kind | {name: str(value) for name, value in columns.items()})


def reference(name: str, value: float, kind: Mapping[str, str] = LOSS, **columns: object) -> pd.DataFrame:
    """A row without a seed."""
    return rows({name: [value]}, kind, **columns).assign(seed="")


def losses(seeds: int = 5, noise: float = 0.01, **effects: float) -> dict[str, dict[int, float]]:
    """Losses of names that differ by `effects`; what a seed does to all of them is ten times the noise."""
    generator = np.random.default_rng(1)
    of_seed = generator.normal(4, 10 * noise, seeds)
    drawn = {name: of_seed + effect + generator.normal(0, noise, seeds) for name, effect in effects.items()}
    return {name: dict(enumerate(map(float, of_name), start=1)) for name, of_name in drawn.items()}


def table_of(*parts: pd.DataFrame) -> pd.DataFrame:
    return checked(pd.concat(parts, ignore_index=True))


def compared(*parts: pd.DataFrame, **settings: object) -> Comparison:
    """Compare a table of these parts, on one kind of data."""
    (one,) = compare(table_of(*parts), **settings).values()  # type: ignore[arg-type]
    return one


def said(one: Comparison) -> list[str]:
    """All sentences on groups, pairs and settings, one by one."""
    on_groups: Sequence[Finding] = list(on_baseline(one).values())
    return [*map(str, on_groups), *pair_sentences(one), *effects_in_words(one.setting_effects)]
