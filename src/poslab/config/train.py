"""The configuration of a training run as one typed object, checked in full before torch is loaded."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from poslab.config.command_line import given_settings
from poslab.config.contrasts import Contrast, parse_contrast
from poslab.config.files import text_name
from poslab.config.roles import Role, roles
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
from poslab.config.schemes import TARGET, chosen, flat_node, given_of, node_of, parse_scheme, schemes, shown
from poslab.config.tasks import is_task, node_of_task, parse_task
from poslab.config.typed import is_group, kinds, typed
from poslab.errors import SettingError, require_one_of
from poslab.positions import PositionScheme
from poslab.positions.checks import check_memory, check_sizes
from poslab.tasks import Task
from poslab.tasks.metric import LOSS, PERPLEXITY, SHARES


@dataclass
class TrainConfig:
    """Everything a training run is made of."""

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
    init_sha256: str | None = None  # of what it began with, once it has

    @property
    def pos_settings(self) -> dict[str, Any]:
        """The scheme's settings, its defaults included, in plain values."""
        node = node_of(self.pos)
        del node[TARGET]
        return node

    @cached_property
    def data_name(self) -> str:
        """What summaries call the data."""
        return self.data.name if isinstance(self.data, Task) else text_name(self.data.path)

    @cached_property
    def scheme_settings(self) -> dict[str, Any]:
        """The scheme's settings, and those of how it is trained, as one would type them."""
        return shown(self.pos_settings) | training_of_scheme(self)

    @property
    def plain(self) -> dict[str, Any]:
        """The same as nested dicts of plain values, in the shape of the yaml files, without settings of the command."""
        groups = {name: dataclasses.asdict(getattr(self, name)) for name in _GROUPS}
        if isinstance(self.data, Task):
            groups["data"] = node_of_task(self.data)
        else:  # a run may go on from elsewhere
            groups["data"]["path"] = os.path.abspath(os.path.expanduser(self.data.path))
        settings = {k: v for k, v in vars(self.settings).items() if role_of(k) is not Role.COMMAND}
        facts = {name: value for name in FACTS if (value := getattr(self, name))}
        return {"pos": node_of(self.pos), **groups, **settings, **facts}

    @property
    def recorded(self) -> dict[str, Any]:
        """The content of config.yaml: all settings, what the scheme is called, and the overrides as they were typed."""
        typed = {} if self.overrides is None else {"overrides": self.overrides}
        return {"pos_name": self.pos_name} | typed | self.plain


_GROUPS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optim": OptimConfig,
    "trainer": TrainerConfig,
    "sample": SampleConfig,
    "evaluation": EvaluationConfig,
    "logger": LoggerConfig,
}


_ROLES: dict[str, Role] = {
    f"{group}.{name}": role for group, schema in _GROUPS.items() for name, role in roles(schema).items()
} | roles(Settings)


# Settings that are null or a group of settings themselves.
GROUPS_WITHIN = {
    f"{group}.{name}"
    for group, schema in _GROUPS.items()
    for name, hint in get_type_hints(schema).items()
    if any(map(is_group, kinds(hint)))
}


# What a run's configuration says beside its settings, and what other ones have there.
FACTS: dict[str, Any] = {"extended": [], "init_sha256": None}


# What runs have that were made before there was such a setting, by its name.
LATER: dict[str, Any] = {
    f"{group}.{field.name}" if group else field.name: field.default
    for group, schema in {**_GROUPS, "": Settings}.items()
    for field in dataclasses.fields(schema)
    if field.metadata.get("later")
} | FACTS


def role_of(setting: str) -> Role:
    """The role of a setting by its name on the command line."""
    if setting == "pos_name" or setting.startswith("pos."):
        return Role.SCHEME
    if setting == "overrides":
        return Role.COMMAND
    if setting == "extended":
        return Role.LENGTH
    return _ROLES.get(setting) or _ROLES.get(setting.rpartition(".")[0], Role.RESULT)  # a group's, of those within


def names(of: Collection[Role]) -> list[str]:
    """The settings that have one of these roles; those of schemes are not among them."""
    return [name for name, role in _ROLES.items() if role in of]


def flat(config: TrainConfig | Mapping[Any, Any], without: Collection[Role] = ()) -> dict[str, Any]:
    """Settings by their names on the command line, {"trainer.max_epochs": 4, ...}, without those of some roles.

    config: as parsed, or as the plain dict of a config.yaml, which may be an older version's or hold unknown settings.
    """
    plain = config.plain if isinstance(config, TrainConfig) else config
    return {name: value for name, value in flat_node(plain).items() if role_of(name) not in without}


def training_of_scheme(config: TrainConfig | Mapping[Any, Any]) -> dict[str, Any]:
    """Settings outside `pos` that belong to the scheme all the same, {"position_learning_rate_factor": 1.0}; as in
    `flat`. Of a group that may be left out: {"retrieval": True, "retrieval.size": 512}."""
    values = LATER | flat(config)
    found: dict[str, Any] = {}
    for setting in names({Role.SCHEME}):
        group, _, name = setting.rpartition(".")
        within = {key: value for key, value in values.items() if key.startswith(f"{setting}.")}
        if within:
            found |= {name: True} | {key.removeprefix(f"{group}."): value for key, value in within.items()}
        elif setting in values:
            found[name] = values[setting]
    return found


@cache
def usual_settings(pos: str) -> Mapping[str, Any]:
    """Settings of a scheme in configs/pos, and of how it is trained, where nobody typed any; as runs show theirs."""
    return training_of_scheme({}) | (shown(node_of(parse_scheme(pos))) if pos in schemes() else {})


def resolved(config: DictConfig) -> dict[str, Any]:
    """A composed config as plain values. Raises SettingError where one refers to another that there isn't."""
    try:
        plain: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        raise SettingError(str(error.full_key), "...", str(error).splitlines()[0]) from None
    return dict(plain)


def parse(
    config: DictConfig | Mapping[str, Any], pos_name: str | None = None, overrides: list[str] | None = None
) -> TrainConfig:
    """Checks a config, composed or of plain values, and makes it typed.

    pos_name: what to call the scheme, by default its class. overrides: what was typed, to be recorded; of settings of
    the scheme it tells which are those of the class that was chosen.

    Raises SettingError for the first setting that is unknown, of the wrong type or impossible.
    """
    plain = resolved(config) if isinstance(config, DictConfig) else config
    task = parse_task(plain["data"]) if is_task(plain.get("data")) else None
    schemas = {name: schema for name, schema in _GROUPS.items() if task is None or name != "data"}
    parsed: dict[str, Any] = {name: typed(schema, plain.get(name, {}), name) for name, schema in schemas.items()}
    if task is not None:
        parsed["model"].longest_text = min(task.reach(task.lengths[-1]), parsed["model"].context_length)
    rest = {key: value for key, value in plain.items() if key not in _GROUPS and key != "pos"}
    node = chosen(plain["pos"], given_of(overrides or ()))
    if pos_name is not None and not node.get(TARGET):
        raise SettingError("pos", pos_name, f"its yaml has no {TARGET}, which names the scheme's class")
    try:
        scheme = parse_scheme(node)
    except SettingError as error:
        if pos_name is None or overrides is None or {"pos", f"pos.{TARGET}"} & given_settings(overrides).keys():
            raise
        problem = f"{error.problem} (pos={pos_name}, as no other one is given)"
        raise SettingError(error.option, error.value, problem) from error
    if not scheme.overrides("tables"):  # it learns nothing that could move faster: with any factor the same run
        parsed["optim"].position_learning_rate_factor = 1.0
    try:
        check_sizes(scheme, parsed["model"].shape)
        check_memory(scheme, parsed["model"].shape, parsed["model"].memory_length)
    except SettingError as error:
        if error.option == "pos":
            raise
        raise error.prefixed("model" if error.option in vars(parsed["model"]) else "pos") from None
    if task is None and parsed["model"].reach and parsed["data"].order != "stream":
        problem = "must be stream: by model.memory_length or model.retrieval, a row remembers what it has read before"
        raise SettingError("data.order", parsed["data"].order, problem)
    if task is not None:
        _check_task(task, scheme.max_length(parsed["model"].shape), **parsed)
        parsed["data"] = task
    last, longest = parsed["evaluation"].last, parsed["model"].context_length
    if last is not None and last > longest:
        raise SettingError("evaluation.last", last, f"must be at most model.context_length={longest}")
    settings = typed(Settings, rest, "", {Contrast: parse_contrast})
    if settings.early_stopping_patience is not None and parsed["trainer"].limit_val_batches == 0:
        patience = settings.early_stopping_patience
        raise SettingError("early_stopping_patience", patience, "needs validation, but trainer.limit_val_batches=0")
    figures = SHARES if task is not None else (PERPLEXITY,)
    require_one_of([LOSS, *(figure.name for figure in figures)], monitor=settings.monitor)
    name = pos_name or type(scheme).__name__.lower()
    return TrainConfig(scheme, name, settings=settings, overrides=overrides, **parsed)


def _check_task(
    task: Task, positions: int | None, model: ModelConfig, evaluation: EvaluationConfig, sample: SampleConfig, **_: Any
) -> None:
    """Raises SettingError where the model can't read the task, or a setting is of texts. positions: of the scheme."""
    try:
        task.check(model.context_length, positions, remembers=model.reach > 0)
    except SettingError as error:
        raise error.prefixed("data") from None
    if evaluation.lengths:
        problem = "are lengths of windows over a text; a task is tested at data.test_lengths"
        raise SettingError("evaluation.lengths", evaluation.lengths, problem)
    if sample.prompt is not None:
        raise SettingError("sample.prompt", sample.prompt, "is how a text goes on; a task shows one of its examples")
