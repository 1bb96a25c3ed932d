"""Settings of scripts/benchmark.py: types, defaults, limits and the words of --help."""

from dataclasses import dataclass

from poslab.errors import SettingError, require_at_least, require_one_of
from poslab.settings.roles import setting

GROUPS = ("attention", "step", "generate", "startup")


@dataclass
class BenchmarkConfig:
    """Measure poslab beside transformers and x-transformers (python -m pip install -e ".[bench]").
    Everything is measured in turns; tables give medians, quartiles and ratios.

    Examples
      python scripts/benchmark.py                               all groups, about half an hour
      python scripts/benchmark.py groups=attention
      python scripts/benchmark.py groups=step,startup rounds=3 out=runs/quick
    """

    groups: list[str] = setting(list(GROUPS), help="what is measured")
    rounds: int | None = setting(
        None, help="how often each entrant of a group is measured; null: as often as its group needs"
    )
    out: str | None = setting(None, help="folder for benchmark.md and benchmark.json; null: runs/benchmark-<time>")

    def __post_init__(self) -> None:
        require_at_least(1, rounds=self.rounds)
        for group in self.groups:
            require_one_of(GROUPS, groups=group)
        if not self.groups:
            raise SettingError("groups", self.groups, f"name at least one of {', '.join(GROUPS)}")
