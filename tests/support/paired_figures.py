"""Comparisons of figures by seed with a baseline, as one page makes them."""

from collections.abc import Collection, Iterable, Mapping

from seedstats.statistics.families import one_family
from seedstats.statistics.paired import Difference, paired


def by_seed(figures: Iterable[float]) -> dict[int, float]:
    return dict(enumerate(figures))


def differences(
    values: Mapping[str, Mapping[int, float]],
    baseline: str,
    *,
    proportion: bool = False,
    planned: Mapping[str, Collection[int]] | None = None,
    family: int = 0,
) -> dict[str, Difference]:
    """Compare every other group with the baseline. family: how many were planned; at least so many count."""
    pairs = {name: (of, values[baseline]) for name, of in values.items() if name != baseline}
    (found,) = one_family([paired(pairs, proportion=proportion, planned=planned, groups=family + 1)], [family])
    return found
