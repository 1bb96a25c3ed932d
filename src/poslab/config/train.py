"""Configuration of a training run as one typed object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from poslab.config.checking import checked
from poslab.config.fields import Role
from poslab.config.groups import GROUPS, SLOTS, role_of
from poslab.config.nodes import TARGET, given_of, given_settings, known_settings, shown, targets, training_of_scheme
from poslab.config.parts import Node, checked_node, own_settings
from poslab.config.schema import (
    MADE,
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    OptimConfig,
    SampleConfig,
    Settings,
    TrainerConfig,
)
from poslab.config.schemes import node_of, parse_scheme, parse_task
from poslab.errors import SettingError, require_one_of
from poslab.metric import LOSS
from poslab.positions import PositionScheme
from poslab.positions.sizes import check_memory, check_sizes
from poslab.tasks import Task


@dataclass
class TrainConfig:
    """Settings of a training run, all groups of them."""

    pos: PositionScheme
    pos_name: str
    model: ModelConfig
    data: DataConfig | Task
    optim: OptimConfig
    trainer: TrainerConfig
    sample: SampleConfig
    evaluation: EvaluationConfig
    settings: Settings
    optimizer: Node  # its class and own settings
    schedule: Node
    callbacks: dict[str, Node]
    logger: dict[str, Node]
    overrides: list[str] | None = None  # as typed; None: not known
    # What it was to train before it was extended, "trainer.max_steps=20 to step 20": the learning rate was another one.
    extended: list[str] = dataclasses.field(default_factory=list)
    init_sha256: str | None = None  # of the weights that it began with, once it has
    init_group: str | None = None  # which runs with other seeds have in common that began with runs of other seeds
    parts_fingerprint: str | None = None  # of the source of parts from outside poslab, once it has begun
    data_on_this_machine: bool = False  # whether a description named the data, and nobody is contacted for them

    @property
    def pos_settings(self) -> dict[str, Any]:
        """Settings of the scheme, its defaults included, in plain values."""
        node = node_of(self.pos)
        del node[TARGET]
        return node

    @cached_property
    def data_name(self) -> str:
        """Name of the data in summaries."""
        return self.data.title

    @property
    def text_path(self) -> str | None:
        """Where the text is; None for fresh examples of a task."""
        return getattr(self.data, "path", None)

    @property
    def data_module(self) -> str:
        """Name of the class of the data module."""
        return self.data.module(remembers=self.model.reach > 0)

    @cached_property
    def scheme_settings(self) -> dict[str, Any]:
        """Settings of the scheme, and of how it is trained, as one would type them."""
        return shown(self.pos_settings) | training_of_scheme(self.plain)

    @property
    def parts(self) -> dict[str, Any]:
        """Nodes of the parts, by their groups."""
        slots = {"optim": self.optimizer, "schedule": self.schedule, "callbacks": self.callbacks, "logger": self.logger}
        return {**slots, "model": {name: getattr(self.model, name) for name in MADE}}

    @property
    def classes(self) -> list[str]:
        """Every class that the settings name."""
        return [str(target) for target in targets(self.plain) if target is not None]

    @property
    def plain(self) -> dict[str, Any]:
        """Settings as nested dicts of plain values, in the shape of the yaml files, without those of the command."""
        groups = {name: dataclasses.asdict(getattr(self, name)) for name in GROUPS} | {"data": self.data.node}
        groups |= {slot: self.parts[slot] for slot in SLOTS} | {"optim": {**self.optimizer, **groups["optim"]}}
        settings = {k: v for k, v in vars(self.settings).items() if role_of(k) is not Role.COMMAND}
        provenance = {name: value for name in PROVENANCE_FIELDS if (value := getattr(self, name))}
        return {"pos": node_of(self.pos), **groups, **settings, **provenance}

    @property
    def recorded(self) -> dict[str, Any]:
        """Content of config.yaml: all settings, the name of the scheme, and the overrides as they were typed."""
        as_typed = {} if self.overrides is None else {"overrides": self.overrides}
        return {"pos_name": self.pos_name} | as_typed | self.plain


# Fields of a run's config.yaml that are no settings, written where they hold.
PROVENANCE_FIELDS = ("extended", "init_sha256", "init_group", "parts_fingerprint")


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return a composed config as plain values. Raises OmegaConf's error where one refers to another that there
    isn't, which `overrides.explain` puts into words."""
    plain: Any = OmegaConf.to_container(config, resolve=True)
    return dict(plain)


def parse(
    config: DictConfig | Mapping[str, Any], pos_name: str | None = None, overrides: list[str] | None = None
) -> TrainConfig:
    """Check a config, composed or of plain values, and return it typed.

    pos_name: the name of the scheme, by default its class. overrides: as typed, to be recorded; those of the scheme
    tell which of its settings are of the class that was chosen.

    Raises SettingError for the first setting that is unknown, of the wrong type or impossible.
    """
    plain = resolved(config) if isinstance(config, DictConfig) else dict(config)
    plain["trainer"] = with_typed_limits(plain.get("trainer", {}), overrides or ())
    given = given_settings(overrides or ())
    for group in SLOTS:
        if not isinstance(plain.get(group), Mapping | None):
            problem = f"must be an option of configs/{group}, or {group}._target_=my_file.Mine"
            raise SettingError(group, plain[group], problem)
    optim, schedule = (own_settings(plain.get(group) or {}, group, given, _COMMON) for group in ("optim", "schedule"))
    modules = {name: own_settings(plain["model"].get(name), f"model/{name}", given) for name in MADE}
    common = {name: optim[name] for name in _COMMON if name in optim}
    groups = plain | {"model": plain["model"] | modules, "optim": common}
    parsed: dict[str, Any] = {}
    for name, schema in GROUPS.items():
        node = groups.get(name, {})
        is_task = isinstance(node, Mapping) and TARGET in node
        parsed[name] = parse_task(node, given) if is_task else checked(schema, node, name, known_settings)
    model, data = parsed["model"], parsed["data"]
    if data.longest_text is not None:
        model.longest_text = min(data.longest_text, model.context_length)
    model.in_segments = data.in_segments
    scheme = parse_scheme(plain["pos"])
    if not scheme.overrides("tables"):  # it learns nothing that could move faster: with any factor the same run
        parsed["optim"].position_learning_rate_factor = 1.0
    rest = {key: value for key, value in plain.items() if key not in {*GROUPS, *SLOTS, "pos"}}
    parsed["settings"] = checked(Settings, rest, "")
    # What an optimizer has beside what all have, and other parts of a run.
    optimizer = {name: value for name, value in optim.items() if name not in _COMMON}
    optimizer = checked_node(optimizer, "optim", "torch.optim.Optimizer", passed=("params", "lr"), beside=_COMMON)
    if parsed["trainer"].precision == "16-true":
        _hold_in_half(optimizer, "optim.eps" in given)
    # From outside any callable will do, but a run folder could name any of poslab's.
    ours = str(schedule.get(TARGET)).startswith(("poslab.", "torch.", "pytorch_lightning."))
    kind_of_ours = "poslab.training.schedules.Schedule" if ours else ""
    parsed["optimizer"], parsed["schedule"] = optimizer, checked_node(schedule, "schedule", kind_of_ours)
    for name, kind in (("callbacks", "pytorch_lightning.Callback"), ("logger", "pytorch_lightning.loggers.Logger")):
        nodes = (plain.get(name) or {}).items()
        parsed[name] = {key: checked_node(node, f"{name}.{key}", kind) for key, node in nodes}
    name = pos_name or type(scheme).__name__.lower()
    config_of_run = TrainConfig(scheme, name, overrides=overrides, **parsed)
    _check_together(config_of_run)
    return config_of_run


NO_LIMITS = {"max_epochs": None, "max_steps": -1, "max_time": None}  # of a length


def with_typed_limits(trainer: Any, overrides: Sequence[str]) -> Any:
    """Return the trainer's settings with those limits of the length alone that a command line gives; where it gives
    none, those of the yamls hold."""
    if not isinstance(trainer, Mapping):
        return trainer
    typed = given_of(overrides, "trainer").keys() & NO_LIMITS
    limits = {name for name in typed if trainer.get(name) != NO_LIMITS[name]}
    return {**trainer, **{name: value for name, value in NO_LIMITS.items() if limits and name not in limits}}


_COMMON = [field.name for field in dataclasses.fields(OptimConfig)]
_LEAST_IN_HALF = 1e-5


def _hold_in_half(optimizer: Node, typed: bool) -> None:
    """Raise `eps` of an optimizer to what trains in float16, where the square of a gradient below 2.4e-4 is 0, so that
    a step divides by `eps` alone. Raises SettingError if a smaller one was typed."""
    eps = optimizer.get("eps")
    if isinstance(eps, float) and eps < _LEAST_IN_HALF:
        if typed:
            raise SettingError("optim.eps", eps, f"must be at least {_LEAST_IN_HALF:g} with trainer.precision=16-true")
        optimizer["eps"] = 1e-4


def _check_together(config: TrainConfig) -> None:
    """Raise SettingError where the scheme can't work with the model's sizes or its memory, where the model can't read
    the data, or a setting is not of these data."""
    data, model, evaluation = config.data, config.model, config.evaluation
    try:
        check_sizes(config.pos, model.shape)
        check_memory(config.pos, model.shape, model.memory_length)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model" if error.option in vars(model) else "pos") from None
    if evaluation.last is not None and evaluation.last > model.context_length:
        problem = f"must be at most model.context_length={model.context_length}"
        raise SettingError("evaluation.last", evaluation.last, problem)
    require_one_of([LOSS, *data.figures], monitor=config.settings.monitor)
    if evaluation.lengths and data.test_lengths:
        problem = "are lengths of windows over a text; a task is tested at data.test_lengths"
        raise SettingError("evaluation.lengths", evaluation.lengths, problem)
    try:
        data.check(model.context_length, config.pos.max_length(model.shape), remembers=model.reach > 0)
    except SettingError as error:
        raise error.prefixed("data") from None
