"""Groups of settings, by their names on the command line, and the role of each setting."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from poslab.config.fields import Role, roles
from poslab.config.nodes import flat_node
from poslab.config.schema import (
    DataConfig,
    EvaluationConfig,
    ModelConfig,
    OptimConfig,
    SampleConfig,
    Settings,
    TrainerConfig,
)

GROUPS: dict[str, type] = {
    "model": ModelConfig,
    "data": DataConfig,
    "optim": OptimConfig,
    "trainer": TrainerConfig,
    "sample": SampleConfig,
    "evaluation": EvaluationConfig,
}
# Groups of nodes, by their roles: a part of `config.parts`, or several by name.
SLOTS = {"optim": Role.RESULT, "schedule": Role.RESULT, "callbacks": Role.RESULT, "logger": Role.OUTPUT}

CLOSED = ("model", "trainer", "sample", "evaluation")  # whose settings no class of an option adds to

_ROLES: dict[str, Role] = {
    f"{group}.{name}": role for group, schema in GROUPS.items() for name, role in roles(schema).items()
} | {**SLOTS, **roles(Settings)}


# Fields of a run's config.yaml that are no settings. init_sha256 is of the weights of one seed, init_group of those of
# all seeds.
_ROLES_OF_FIELDS = {
    "pos_name": Role.SCHEME, "overrides": Role.COMMAND, "extended": Role.LENGTH, "init_sha256": Role.SEED,
}  # fmt: skip


@cache
def role_of(setting: str) -> Role:
    """Return the role of a setting by its name on the command line; within a group it may be that of the group."""
    if setting.startswith("pos."):
        return Role.SCHEME
    role = _ROLES_OF_FIELDS.get(setting) or _ROLES.get(setting)
    group = setting.rpartition(".")[0]
    return role or (role_of(group) if group else Role.RESULT)


def names(wanted: Collection[Role] = tuple(Role)) -> list[str]:
    """Return the settings that have one of these roles; those of schemes are not among them."""
    return [name for name, role in _ROLES.items() if role in wanted]


def flat(settings: Mapping[Any, Any], without: Collection[Role] = ()) -> dict[str, Any]:
    """Return settings, such as those of a config.yaml, by their names on the command line, without those of some roles:
    {"trainer.max_epochs": 4, ...}."""
    return {name: value for name, value in flat_node(settings).items() if role_of(name) not in without}
