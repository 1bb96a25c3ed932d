"""Settings of scripts/benchmark.py: types and limits, checked before torch is loaded."""

from dataclasses import dataclass

from poslab.errors import SettingError, at_least, one_of

GROUPS = ("attention", "step", "generate", "startup")


@dataclass
class BenchmarkConfig:
    """What is measured, and how often; `rounds` null means as often as a group needs."""

    groups: list[str]
    rounds: int | None = None
    out: str | None = None

    def __post_init__(self) -> None:
        at_least(1, rounds=self.rounds)
        for group in self.groups:
            one_of(GROUPS, groups=group)
        if not self.groups:
            raise SettingError("groups", "[]", f"name at least one of {', '.join(GROUPS)}")
