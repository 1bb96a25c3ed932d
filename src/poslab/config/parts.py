"""Parts of a run that an option of a group chooses: a callable named by `_target_`, and its settings.

    optim=muon        model/norm=rms        callbacks.mine._target_=my_file.Mine callbacks.mine.every=10

Such a node is plain values until the run needs what it makes; `part` makes it, by Hydra's rules, and the caller adds
what only the caller has, such as the parameters of the model.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hydra.utils import instantiate
from omegaconf import OmegaConf

from poslab.config.fields import imported
from poslab.config.nodes import TARGET
from poslab.errors import SettingError, first_line, suggestion

Node = dict[str, Any]


def checked_node(node: Any, option: str) -> Node:
    """Return a node as it is. Raises SettingError where there is no such callable, or it doesn't take a setting."""
    if not isinstance(node, Mapping) or not node.get(TARGET):
        raise SettingError(option, node, f"must be an option of configs/{option.replace('.', '/')}, or a _target_")
    target = imported(str(node[TARGET]), f"{option}.{TARGET}")
    if not callable(target):
        raise SettingError(f"{option}.{TARGET}", node[TARGET], "must be a class or a function")
    known = list(_parameters(target))
    for name, value in node.items():
        if known and name not in known and not name.startswith("_"):
            raise SettingError(f"{option}.{name}", value, f"unknown setting; {suggestion(name, known)}")
    return {str(name): value for name, value in node.items()}


def part(node: Mapping[str, Any], option: str) -> Callable[..., Any]:
    """Return the callable of a node, with the node's settings given.

    Raises SettingError for a node as `checked_node` does, and when it is called, if the callable refuses its settings.
    """
    made = instantiate(OmegaConf.create(checked_node(node, option)), _partial_=True, _convert_="all")

    @functools.wraps(made.func, updated=())
    def called(*arguments: Any, **more: Any) -> Any:
        try:
            return made(*arguments, **more)
        except (TypeError, ValueError) as error:
            raise SettingError(option, node[TARGET], f"refuses its settings: {first_line(error)}") from error

    return called


def with_parts(settings: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return settings of a group with the callable of each node among them, as `part` makes it, in the node's place."""
    return {
        name: part(value, f"{group}.{name}") if isinstance(value, Mapping) and TARGET in value else value
        for name, value in settings.items()
    }


def _parameters(target: Callable[..., Any]) -> Iterator[str]:
    """Yield the names of the settings that a callable takes; none where it takes any, or doesn't say."""
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        yield from (parameter.name for parameter in parameters)
