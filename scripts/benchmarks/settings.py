"""Settings of scripts/benchmark.py: types, defaults, limits and the texts of --help."""

from dataclasses import dataclass
from typing import Annotated, Literal

from poslab.checked import Checked, Limits
from poslab.config.fields import Positive, setting
from poslab.config.nodes import schemes
from poslab.errors import SettingError, require_one_of

GROUPS = ("attention", "bfloat16", "step", "gpt2", "profile", "small", "generate", "startup", "compare")
ON_CUDA = ("attention", "bfloat16", "step", "gpt2")
LIBRARIES = ("torch", "transformers", "x-transformers")
SCHEMES = tuple(schemes())


@dataclass
class BenchmarkConfig(Checked):
    """Measure poslab beside transformers and x-transformers (python -m pip install -e ".[bench]").
    Everything is measured in turns; tables give medians, quartiles and ratios.

    Examples
      python scripts/benchmark.py                               all groups and schemes: more than an hour
      python scripts/benchmark.py groups=attention schemes=t5,shaw dense=true
      python scripts/benchmark.py groups=step,startup rounds=3 out=runs/quick
    """

    groups: list[str] = setting(list(GROUPS), help="what is measured")
    schemes: list[str] = setting([], help="which schemes of configs/pos are measured; []: all")
    dense: bool = setting(False, help="attention also as most code computes it: minutes for each scheme")
    rivals: list[str] = setting(
        list(LIBRARIES), help="whose attention, training steps and generation stand beside ours"
    )
    device: Literal["cpu", "cuda"] = setting("cpu", help=f"cuda: for the groups {', '.join(ON_CUDA)}")
    tuned: bool = setting(False, help="of training steps, leaves out the rivals that don't train as poslab does")
    new_tokens: Annotated[Positive, Limits(le=1000)] = setting(1000, help="that a text gets in the group generate")
    runs: Annotated[int, Limits(ge=10)] = setting(10_000, help="folders in the group compare")
    rounds: Positive | None = setting(
        None, help="how often each entrant of a group is measured; null: as often as its group needs"
    )
    out: str | None = setting(None, help="folder for benchmark.md and benchmark.json; null: runs/benchmark-<time>")

    def __post_init__(self) -> None:
        for option, choices in {"groups": GROUPS, "schemes": SCHEMES, "rivals": LIBRARIES}.items():
            for name in getattr(self, option):
                require_one_of(choices, **{option: name})
        if self.device == "cuda" and (others := [group for group in self.groups if group not in ON_CUDA]):
            raise SettingError("device", "cuda", f"isn't for {', '.join(others)}; valid: groups=[{','.join(ON_CUDA)}]")
