"""Nodes: position schemes and tasks as plain values, a class named by `_target_` or an option of configs/pos, and the
values of its fields. Those of a scheme may be schemes in turn.

    pos=OUTER pos.of=INNER pos.of.base=500
    pos=OUTER 'pos.layers=[{_target_:INNER,base:500},INNER]'

Where a field takes a scheme, a name alone stands for its node. `poslab.config.schemes` makes objects of nodes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from poslab.config.files import CONFIGS
from poslab.errors import as_typed

TARGET = "_target_"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the former in a tenth of the time, where there is one
# Settings outside `pos` that belong to the scheme all the same, those with Role.SCHEME, and their defaults.
TRAINING_OF_SCHEME = {"optim.position_learning_rate_factor": 1.0, "model.memory_length": 0, "model.retrieval": None}


def schemes() -> dict[str, dict[str, Any]]:
    """Return the options of configs/pos by name, each as a node."""
    return copy.deepcopy(_schemes())


@cache
def _schemes() -> dict[str, dict[str, Any]]:
    nodes = {yaml.stem: OmegaConf.load(yaml) for yaml in sorted(CONFIGS.glob("pos/*.yaml"))}
    return {name: OmegaConf.to_container(node) for name, node in nodes.items()}  # type: ignore[misc]


@cache
def default_option(group: str) -> str:
    """Return the option of a group that train.py takes where none is chosen."""
    return str(next(default[group] for default in OmegaConf.load(CONFIGS / "train.yaml").defaults if group in default))


@cache
def options_of(group: str) -> list[str]:
    """Return the settings of all options of a group, but the class."""
    return sorted({name for file in CONFIGS.glob(f"{group}/*.yaml") for name in settings_in(file)})


def settings_in(option: Path) -> list[str]:
    """Return the settings that the yaml of an option has at its top level, but the class."""
    # Of names alone, as OmegaConf reads some values otherwise.
    node = yaml.load(option.read_text(encoding="utf-8"), _LOADER) or {}
    return [str(name) for name in node if name not in (TARGET, "defaults")]


@cache
def known_settings(pos: str = "") -> list[str]:
    """Return the groups and settings of train by their names on its command line, as they stand in configs/; of a
    position scheme those of the option `pos`."""
    main: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / "train.yaml"))
    groups = [name for default in main.pop("defaults") if isinstance(default, dict) for name in default]
    groups = [name for name in groups if not name.startswith("override ")]
    del main["hydra"]
    module_groups = [folder.relative_to(CONFIGS).as_posix() for folder in sorted(CONFIGS.glob("model/*/"))]
    single = [group for group in groups if group not in ("pos", "experiment", "debug", "callbacks", "logger")]
    settings = {group: options_of(group) for group in single} | {"pos": schemes().get(pos, {})}
    within = [f"{group}.{name}" for group, names in settings.items() for name in names if name not in (*groups, TARGET)]
    return [*groups, *module_groups, *flat_node(main), *within]


def default_scheme() -> str:
    """Return the option of configs/pos that train.py takes where none is chosen."""
    return default_option("pos")


def scheme_settings() -> dict[str, Any]:
    """Return every setting of every scheme in configs/pos, with the value "n/a": the keys that all runs share."""
    keys = {key for node in schemes().values() for key, value in node.items() if not isinstance(value, dict | list)}
    return {f"pos.{key}": "n/a" for key in sorted(keys - {TARGET})}


def targets(node: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield every class that a node names: its own, and those of the nodes among its settings."""
    yield node.get(TARGET)
    for value in node.values():
        inner = value if isinstance(value, list) else [value]
        yield from (target for each in inner if isinstance(each, Mapping) for target in targets(each))


def flat_node(node: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Return a node's values by their names on the command line: {"of._target_": ..., "of.base": 500}.

    A list of nodes is one of its places: {"layers.0._target_": ..., "layers.0.base": 500}. A mapping from numbers is a
    value.
    """
    flat: dict[str, Any] = {}
    for key, value in node.items():
        has_nodes = isinstance(value, list) and any(isinstance(item, Mapping) for item in value)
        inner = by_place(value) if has_nodes else value
        has_names = isinstance(inner, Mapping) and all(isinstance(name, str) for name in inner)
        flat |= flat_node(inner, f"{prefix}{key}.") if has_names else {f"{prefix}{key}": value}
    return flat


def by_place(value: Any) -> Any:
    """Return a list as a mapping from its places, {"0": ..., "1": ...}, by which settings name them, else the value."""
    return {str(place): item for place, item in enumerate(value)} if isinstance(value, list) else value


def shown(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return settings of a scheme as one would type them: {"of": NAME, "of.base": 500}.

    A list has the names of all and of each: {"layers": [NAME, NAME], "layers.0": NAME, "layers.0.base": 500, ...}.
    """
    names, settings_shown = _names(), dict[str, Any]()
    for setting, value in flat_node(settings).items():
        name = setting.removesuffix(f".{TARGET}")
        value = names.get(value, value) if setting.endswith(TARGET) else value
        outer, _, place = name.rpartition(".")
        if place.isdecimal():
            settings_shown[outer] = [*settings_shown.get(outer, []), value]
        settings_shown[name] = value
    return settings_shown


def briefly(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return settings of a scheme as `shown`, of schemes among them only those that are not the defaults."""
    whole = shown(settings)
    brief = {}
    for name, value in whole.items():
        outer, _, inner = name.rpartition(".")
        listed = isinstance(whole.get(outer), list)
        if not listed and not (outer in whole and value == default_settings(str(whole[outer])).get(inner)):
            brief[name] = value
    return brief


def distinguishing(settings: Mapping[str, Any], namesakes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the settings, as one would type them, in which any of the namesakes differs.

    Where schemes are settings, those within one say nothing of another: of "outer.scale" only namesakes with the same
    "outer" count.
    """
    own, *others = ({key: as_typed(value) for key, value in each.items()} for each in (settings, *namesakes))

    def differs(key: str) -> bool:
        outer = key.rpartition(".")[0]
        return any(other.get(key) != own[key] for other in others if other.get(outer) == own.get(outer))

    return [f"{key}={text}" for key, text in own.items() if differs(key)]


@cache
def _names() -> dict[Any, str]:
    """Return the options of configs/pos by their classes."""
    return {node[TARGET]: name for name, node in reversed(schemes().items())}


def with_settings(node: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """Return a node with settings of a command line, text by name: {"of": NAME, "of.base": "500"}.

    A scheme that is named keeps nothing but what is given below it: other settings are of the scheme before it.
    """
    changed = copy.deepcopy(dict(node))
    for name in sorted(given, key=lambda name: (name.count("."), not name.endswith(TARGET))):  # schemes come first
        *way, last = name.split(".")
        inner = changed
        for part in way:
            below = by_place(inner.get(part))
            if isinstance(below, str):
                below = {TARGET: below}
            inner[part] = below if isinstance(below, dict) else {}
            inner = inner[part]
        if last == TARGET:
            inner.clear()
        inner[last] = _value(given[name])
    return changed


def _value(text: str) -> Any:
    """Return null and a list as such, other values as text."""
    if text.startswith("["):
        with suppress(yaml.YAMLError):
            return yaml.safe_load(text)
    return None if text == "null" else text.strip("'\"")


def given_settings(arguments: Iterable[str]) -> dict[str, str]:
    """Return the settings of a command line, Hydra's `+name=value` included, as text."""
    return dict(argument.lstrip("+~").split("=", 1) for argument in arguments if "=" in argument)


def given_of(overrides: Iterable[str], group: str = "pos") -> dict[str, str]:
    """Return the settings of a group, by default of the scheme, on a command line, by their names within it."""
    given = given_settings(overrides)
    return {name.removeprefix(f"{group}."): text for name, text in given.items() if name.startswith(f"{group}.")}


def merged(node: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node with some settings changed; a node among them that names its class replaces the one before it."""
    inner = {key: value for key, value in over.items() if isinstance(value, dict) and TARGET not in value}
    before = {key: by_place(node.get(key)) for key in inner}
    inside = {key: merged(before[key], value) for key, value in inner.items() if isinstance(before[key], dict)}
    return {**node, **over, **inside}


def training_of_scheme(settings: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the settings of a run that `TRAINING_OF_SCHEME` names, by the last part of their name.

    Of a group that may be left out: {"retrieval": True, "retrieval.size": 512}.
    """
    values = flat_node(settings)
    training: dict[str, Any] = {}
    for setting in TRAINING_OF_SCHEME:
        group, _, name = setting.rpartition(".")
        within = {key: value for key, value in values.items() if key.startswith(f"{setting}.")}
        if within:
            training |= {name: True} | {key.removeprefix(f"{group}."): value for key, value in within.items()}
        elif setting in values:
            training[name] = values[setting]
    return training


@cache
def default_settings(pos: str) -> Mapping[str, Any]:
    """Return the default settings of a scheme in configs/pos, and of how it is trained, as runs show theirs."""
    defaults = {name.rpartition(".")[2]: value for name, value in TRAINING_OF_SCHEME.items()}
    return defaults | (shown(_named(schemes()[pos])) if pos in schemes() else {})


def _named(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node of configs/pos with the defaults of the schemes that it names."""
    options, whole = schemes(), dict(node)
    for key, value in node.items():
        if isinstance(value, list):
            whole[key] = [*_named(by_place(value)).values()]
        elif isinstance(value, Mapping) and value[TARGET] in options:
            own = {name: inner for name, inner in value.items() if name != TARGET}
            whole[key] = _named(merged(options[value[TARGET]], own))
    return whole
