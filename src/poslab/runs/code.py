"""Fingerprints of the source that decides a run's numbers: poslab's own, and that of its position scheme and its task.

A fingerprint is of what files hold, comments included, wherever they are and whatever they are called. Modules that are
imported by a computed name are not seen.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from poslab.config.schemes import classes, targets
from poslab.config.tasks import node_of_task
from poslab.config.typed import full_name
from poslab.positions import PositionScheme
from poslab.tasks import Task

_PACKAGE = Path(__file__).parents[1]
# What decides a result, whatever the scheme and the task.
_ROOMS = ("attention", "data", "model", "training", "evaluation/losses.py")
# Of the packages of schemes and tasks, `checks` and what it imports there are the contract, on which all of them build.
# It counts as poslab's own code; everything else there counts with the schemes and tasks that import it.
_OPEN = ("poslab.positions.", "poslab.tasks.")


def outside(node: Mapping[Any, Any]) -> list[str]:
    """The classes that a scheme's node names, those of schemes among its settings too, which are no part of poslab."""
    named = (str(target) for target in targets(node) if target is not None)
    return [target for target in named if "." in target and not target.startswith("poslab.")]


def distrust(what: str, foreign: Sequence[str], allow_code: bool) -> str:
    """Why a scheme or a task of these classes is not imported; empty where it may be."""
    if allow_code or not foreign:
        return ""
    named = ", ".join(foreign)
    return f"its {what} is {named}, which is no part of poslab; allow_code=true imports it, if you trust it"


@cache
def code_fingerprint() -> str:
    """16 hex digits for poslab's own code that decides what training gives, schemes and tasks left out.

    As it was at the first call in this process, which should be soon after that code was loaded.
    """
    rooms = [_PACKAGE / room for room in _ROOMS]
    return _hash(_contract() | {file for room in rooms for file in (room.rglob("*.py") if room.is_dir() else [room])})


@cache
def scheme_fingerprint(*classes: type) -> str | None:
    """16 hex digits for the source of schemes, or of a task. None where there are no files, as for a class typed into a
    notebook.

    As it was at the first call in this process, which should be soon after that code was loaded.
    """
    files = source_files(*classes)
    return None if files is None else _hash(files)


def source_files(*classes: type) -> set[Path] | None:
    """The files of classes and their bases, and of the modules in the same folder tree that they import, without those
    on which all schemes and tasks build. None where there are none at all."""
    files: dict[str, Path] = {}
    for name in {base.__module__ for cls in classes for base in cls.__mro__} - sys.stdlib_module_names:
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "none")
        if file.is_file():
            _collect(name, file, files)
    return set(files.values()) - _contract() if files else None


def fingerprints(scheme: PositionScheme) -> dict[str, str | None]:
    """Both, by their names in summary.json and in checkpoints; schemes among the settings of a scheme count with it."""
    return {"code_fingerprint": code_fingerprint(), "scheme_fingerprint": scheme_fingerprint(*classes(scheme))}


def task_sha256(task: Task) -> str:
    """The sha256 of what decides a task's examples: its class, its settings and its source."""
    kind: Any = type(task)
    content = [node_of_task(task), scheme_fingerprint(kind)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def changed(before: Mapping[str, Any], scheme: PositionScheme) -> list[str]:
    """Those of the fingerprints in `before` that the code no longer has."""
    return [key for key, now in fingerprints(scheme).items() if before.get(key) and not _ends(before[key], now)]


def edited(before: Mapping[str, Any], scheme: PositionScheme) -> str:
    """A scheme's classes, where their source is no longer that of the fingerprint in `before`; empty where it is."""
    return " with ".join(map(full_name, classes(scheme))) if "scheme_fingerprint" in changed(before, scheme) else ""


def continued(before: Mapping[str, Any], scheme: PositionScheme) -> dict[str, str | None]:
    """The fingerprints of a run that goes on from `before`: all that it was trained with, joined by "+"."""
    pairs = {key: (before.get(key, "unknown"), now) for key, now in fingerprints(scheme).items()}
    return {key: earlier if _ends(earlier, now) else f"{earlier}+{now}" for key, (earlier, now) in pairs.items()}


def _ends(earlier: Any, now: str | None) -> bool:
    return str(earlier).endswith(str(now))


@cache
def _contract() -> set[Path]:
    files: dict[str, Path] = {}
    for package in _OPEN:
        _collect(f"{package}checks", _PACKAGE.parent / package.replace(".", "/") / "checks.py", files)
    return set(files.values())


def _collect(name: str, file: Path, files: dict[str, Path]) -> None:
    """Adds the module and, as deep as it goes, what it imports from its own folder tree or from poslab's schemes and
    tasks."""
    files[name] = file
    parts = name.split(".")
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    package = parts if file.name == "__init__.py" else parts[:-1]
    for imported in _imports(file, package):
        top, of_poslab = imported.split(".")[0], imported.startswith(_OPEN)
        if imported in files or top in sys.stdlib_module_names or (top == "poslab" and not of_poslab):
            continue
        if "site-packages" in root.parts and top != parts[0]:  # everything that is installed lies beside it
            continue
        if found := _find(imported, _PACKAGE.parent if of_poslab else root):
            _collect(imported, found, files)


def _find(name: str, root: Path) -> Path | None:
    place = root.joinpath(*name.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


def _imports(file: Path, package: list[str]) -> Iterator[str]:
    """Names that may be modules, those of the packages around them included."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # edited since it was loaded, which its fingerprint tells
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{source}.{alias.name}" for alias in node.names]
        else:
            continue
        for parts in (name.split(".") for name in names):
            yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _hash(files: Iterable[Path]) -> str:
    """Of what the files hold, in whatever order and under whatever names."""
    contents = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("".join(contents).encode()).hexdigest()[:16]
