"""What a description may name: decides, for whatever reads one, before anything is imported.

A description is the plain values by which a run, a file of weights, an export or a checkpoint says what it is, and may
be anybody's. It names classes by `_target_`, which are imported and called. Without `allow_code` only the parts that
poslab offers may be named: its schemes and tasks, the options of configs/ by their classes, and torch's optimizers.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from pathlib import Path, PureWindowsPath
from typing import Any, NamedTuple

import yaml

from poslab.config.files import CONFIGS
from poslab.config.nodes import TARGET, schemes

# Groups of a description that name classes, in words.
KINDS = {
    "pos": "scheme",
    "data": "task",
    "model": "block",
    "optim": "optimizer",
    "schedule": "schedule",
    "callbacks": "callback",
    "logger": "logger",
}
_MOST_VALUES = 20_000  # of a description; a yaml of a few lines can stand for any number


class _Entry(NamedTuple):
    """Key of a mapping within a description, with the keys on the way to it."""

    way: tuple[str, ...]
    name: str
    value: Any

    @property
    def option(self) -> str:
        return ".".join((*self.way, self.name))


def require_trusted(
    description: Mapping[str, Any], groups: Collection[str] = tuple(KINDS), named: Collection[Any] = (),
    allow_code: bool = False,
) -> None:  # fmt: skip
    """Raise ValueError, in a line, where a description names what may not be imported, or reaches out of its folder.

    groups: those whose classes are about to be made. named: classes that the user has named.
    """
    if not isinstance(description, Mapping):
        raise ValueError("it describes no settings")
    foreign: dict[str, list[str]] = {}
    for entry in _entries({group: description.get(group) for group in groups}):
        if not any(part.startswith("_") for part in entry.name.split(".")):  # of.base is base of `of`
            continue
        slot = _slot(entry.way)
        if entry.name != TARGET or slot is None:
            raise ValueError(f"{entry.option}: keys that begin with _ have no meaning there, and are refused")
        if entry.value not in named and not _offered(slot, entry.value):
            foreign.setdefault(KINDS[entry.way[0]], []).append(str(entry.value))
    for kind, classes in foreign.items() if not allow_code else ():
        problem = f"its {kind} is {', '.join(classes)}, which is none of poslab's parts"
        raise ValueError(f"{problem}; allow_code=true imports it, if you trust it")
    for entry in _entries({"logger": description.get("logger")}) if "logger" in groups and not allow_code else ():
        part = description["logger"].get(entry.way[1]) if len(entry.way) > 1 else None
        trusted_by_name = isinstance(part, Mapping) and part.get(TARGET) in named
        if not trusted_by_name and _leaves_the_folder(entry):
            problem = f"its {entry.option}={entry.value} reaches out of its folder"
            raise ValueError(f"{problem}; allow_code=true lets it, if you trust it")


def needs_allow_code(description: Mapping[str, Any]) -> bool:
    """Return whether a description is trusted only with allow_code."""
    try:
        require_trusted(description)
    except ValueError:
        return True
    return False


def refuse_links(folder: Path) -> None:
    """Raise ValueError for a link in a run's folder that leads out of it, by which files elsewhere would be written.
    W&B makes some within its own folder, and writes into new ones."""
    inside = folder.resolve()
    for path in folder.rglob("*"):
        is_wandbs = path.relative_to(folder).parts[0] == "wandb" and path.parent != folder
        if path.is_symlink() and not is_wandbs and not path.resolve().is_relative_to(inside):
            raise ValueError(f"{path} is a link to {path.resolve()}; allow_code=true follows it, if you trust it")


def _slot(way: tuple[str, ...]) -> str | None:
    """Return the group of configs/ whose options a class may be of, that stands at the end of the way; None for places
    where no class is made. Schemes may stand within schemes."""
    if way[0] == "pos" or way in (("data",), ("optim",), ("schedule",)):
        return way[0]
    if way in (("model", "norm"), ("model", "mlp")):
        return "/".join(way)
    return way[0] if way[0] in ("callbacks", "logger") and len(way) == 2 else None


def _offered(slot: str, target: Any) -> bool:
    """Return whether a class is one of the options of a group, by its full name; of a scheme also by its short one. A
    name that is none of a scheme's is refused where the scheme is made."""
    if not isinstance(target, str):
        return False
    return target in _classes(slot) or (slot == "pos" and "." not in target)


@cache
def _classes(slot: str) -> frozenset[str]:
    """Return the classes of a group's options in configs/."""
    if slot == "pos":
        return frozenset(str(node[TARGET]) for node in schemes().values())
    classes = set()
    for file in CONFIGS.glob(f"{slot}/*.yaml"):
        option = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
        nodes = option.values() if slot in ("callbacks", "logger") else [option.get(slot, option)]
        classes |= {node[TARGET] for node in nodes if isinstance(node, dict) and TARGET in node}
    if slot == "optim":
        from torch import optim

        members = {name: value for name, value in vars(optim).items() if isinstance(value, type)}
        classes |= {f"torch.optim.{name}" for name, value in members.items() if issubclass(value, optim.Optimizer)}
    return frozenset(classes - {"???"})


def _leaves_the_folder(entry: _Entry) -> bool:
    """Return whether a logger's setting sends what it logs to a server, or writes it anywhere but into the run."""
    if entry.name == "offline":
        return entry.value is not True
    if not isinstance(entry.value, str) or entry.name == TARGET:
        return False
    path = PureWindowsPath(entry.value)  # which takes both kinds of slashes
    return "://" in entry.value or bool(path.anchor) or ".." in path.parts or entry.value.startswith("~")


def _entries(values: Mapping[str, Any]) -> Iterator[_Entry]:
    """Yield every key of mappings at any depth, lists included, by its place. Raises ValueError for values without
    end."""
    left: list[tuple[tuple[str, ...], Any]] = [((), values)]
    seen = 0
    while left:
        way, value = left.pop()
        items: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, inner in items:
            seen += 1
            if seen > _MOST_VALUES:
                raise ValueError("its description is too large, or refers to itself")
            if isinstance(value, Mapping):
                yield _Entry(way, str(key), inner)
            if isinstance(inner, Mapping | list | tuple | set):
                left.append(((*way, str(key)), inner))
