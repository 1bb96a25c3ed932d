"""Configuration of a training run as one typed object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from poslab.config.fields import Role, typed
from poslab.config.groups import GROUPS, role_of
from poslab.config.nodes import TARGET, chosen, given_of, shown, training_of_scheme
from poslab.config.parts import Node, checked_node
from poslab.config.schema import (
    DataConfig,
    EvaluationConfig,
    LoggerConfig,
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
    logger: LoggerConfig
    settings: Settings
    overrides: list[str] | None = None  # as typed; None: not known
    # What it was to train before it was extended, "trainer.max_steps=20 to step 20": the learning rate was another one.
    extended: list[str] = dataclasses.field(default_factory=list)
    init_sha256: str | None = None  # of the weights that it began with, once it has
    init_group: str | None = None  # which runs with other seeds have in common that began with runs of other seeds

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
    def plain(self) -> dict[str, Any]:
        """Settings as nested dicts of plain values, in the shape of the yaml files, without those of the command."""
        groups = {name: dataclasses.asdict(getattr(self, name)) for name in GROUPS} | {"data": self.data.node}
        settings = {k: v for k, v in vars(self.settings).items() if role_of(k) is not Role.COMMAND}
        provenance = {name: value for name in PROVENANCE_FIELDS if (value := getattr(self, name))}
        return {"pos": node_of(self.pos), **groups, **settings, **provenance}

    @property
    def recorded(self) -> dict[str, Any]:
        """Content of config.yaml: all settings, the name of the scheme, and the overrides as they were typed."""
        typed = {} if self.overrides is None else {"overrides": self.overrides}
        return {"pos_name": self.pos_name} | typed | self.plain


# Fields of a run's config.yaml that are no settings, written where they hold.
PROVENANCE_FIELDS = ("extended", "init_sha256", "init_group")


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
    plain = resolved(config) if isinstance(config, DictConfig) else config
    parsed: dict[str, Any] = {}
    for name, schema in GROUPS.items():
        node = plain.get(name, {})
        of_task = isinstance(node, Mapping) and TARGET in node
        parsed[name] = parse_task(node) if of_task else typed(schema, node, name, {Node: checked_node})
    model, data = parsed["model"], parsed["data"]
    if data.longest_text is not None:
        model.longest_text = min(data.longest_text, model.context_length)
    model.in_segments = data.in_segments
    scheme = parse_scheme(chosen(plain["pos"], given_of(overrides or ())))
    if not scheme.overrides("tables"):  # it learns nothing that could move faster: with any factor the same run
        parsed["optim"].position_learning_rate_factor = 1.0
    rest = {key: value for key, value in plain.items() if key not in GROUPS and key != "pos"}
    settings = typed(Settings, rest, "")
    name = pos_name or type(scheme).__name__.lower()
    checked = TrainConfig(scheme, name, settings=settings, overrides=overrides, **parsed)
    _check_together(checked)
    return checked


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
