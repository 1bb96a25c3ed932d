"""Seeds that were planned for the groups of a comparison, and what became of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SeedPlan:
    """Planned seeds of a comparison.

    seeds: of each group, by label. found: of groups with a finished run, those that finished or diverged. diverged: how
    many did, of each group. before: groups without a finished run that the table has before all others, so that one of
    them would have been the baseline. earlier: how many seeds a group had at comparisons after which further ones were
    planned.
    """

    seeds: Mapping[str, frozenset[int]] = field(default_factory=dict)
    found: Mapping[str, frozenset[int]] = field(default_factory=dict)
    diverged: Mapping[str, int] = field(default_factory=dict)
    before: Sequence[str] = ()
    earlier: Sequence[int] = ()

    def of_pair(self, first: str, second: str) -> frozenset[int]:
        """Return the seeds planned for both groups."""
        return self.seeds[first] & self.seeds[second]

    def of_pairs(self, pairs: Iterable[tuple[str, str]]) -> frozenset[int]:
        """Return the seeds planned for all of some pairs, which are compared by their means."""
        return frozenset[int]().union(*(self.of_pair(*pair) for pair in pairs))

    @property
    def groups(self) -> int:
        """Return the number of groups with several planned seeds."""
        return sum(len(seeds) > 1 for seeds in self.seeds.values())

    @property
    def lost(self) -> list[str]:
        """Return the groups without a finished run."""
        return [label for label in self.seeds if label not in self.found]
