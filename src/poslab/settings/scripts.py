"""Settings of the scripts other than train.py: types and limits, checked before torch is loaded."""

import dataclasses
from dataclasses import dataclass
from typing import TypeVar

from omegaconf import DictConfig

from poslab.errors import SettingError, at_least, one_of
from poslab.settings.typed import resolved, typed

Schema = TypeVar("Schema")


def parse_script(schema: type[Schema], config: DictConfig) -> Schema:
    """The composed config as an instance of one of the dataclasses here. Raises SettingError; loads no torch."""
    return typed(schema, {str(key): resolved(config, str(key)) for key in config}, "")


@dataclass
class EvaluateConfig:
    """What scripts/evaluate.py measures; see configs/evaluate.yaml."""

    ckpt: str
    lengths: list[int] | None = None
    stride: int | None = None
    data_path: str | None = None
    device: str = "auto"
    allow_code: bool = False

    def __post_init__(self) -> None:
        for length in self.lengths or []:
            at_least(1, lengths=length)
        if self.lengths is not None and not self.lengths:
            raise SettingError("lengths", "[]", "name at least one, or null for the usual ones")
        at_least(1, stride=self.stride)
        one_of(("auto", "cpu", "cuda"), device=self.device)


@dataclass
class CompareConfig:
    """What scripts/compare.py compares, and how; see configs/compare.yaml."""

    runs: list[str] = dataclasses.field(default_factory=lambda: ["runs"])
    baseline: str | None = None
    out: str | None = None
    effect: float = 0.02
    sentence: str | None = None
    allow_differences: bool = False
    allow_code: bool = False

    def __post_init__(self) -> None:
        if self.effect <= 0:
            raise SettingError("effect", self.effect, "must be above 0")
        if not self.runs:
            raise SettingError("runs", "[]", "name at least one folder")


@dataclass
class GenerateConfig:
    """What scripts/generate.py writes; see configs/generate.yaml."""

    ckpt: str
    prompt: list[str] = dataclasses.field(default_factory=list)
    max_new_tokens: int = 200
    temperature: float = 0.8
    top_k: int | None = 40
    top_p: float | None = None
    seed: int = 1
    samples: int = 1
    stop: bool = True
    window: int | None = None
    strict: bool = False
    device: str = "auto"
    allow_code: bool = False

    def __post_init__(self) -> None:
        at_least(0, max_new_tokens=self.max_new_tokens, temperature=self.temperature, seed=self.seed)
        at_least(1, top_k=self.top_k, samples=self.samples, window=self.window)
        if self.samples > 1000:
            raise SettingError("samples", self.samples, "must be at most 1000")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SettingError("top_p", self.top_p, "must be above 0 and at most 1")
        if self.seed >= 2**32:
            raise SettingError("seed", self.seed, "must be below 2**32")
        if not all(self.prompt) or not self.prompt:
            raise SettingError("prompt", "", "must be given (any text but an empty one)")
        one_of(("auto", "cpu", "cuda"), device=self.device)
