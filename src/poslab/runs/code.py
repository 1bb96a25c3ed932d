"""Fingerprints of the code that decides a run's numbers: poslab's own, and that of its position scheme.

A fingerprint follows what the code says to do: comments, docstrings, layout and the place of the files don't count.
Modules that are imported by a computed name are not seen.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from poslab.positions import PositionScheme
from poslab.settings.schemes import classes, targets
from poslab.settings.tasks import node_of_task
from poslab.tasks import Task

_PACKAGE = Path(__file__).parents[1]
# What decides a result, and what all schemes build on.
_ROOMS = ("attention", "data", "layers", "memory", "tasks", "training", "model.py", "evaluation/losses.py")
_SCHEMES = "poslab.positions."


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
    """16 hex digits for poslab's own code that decides what training gives, schemes left out.

    As it was at the first call in this process, which should be soon after that code was loaded.
    """
    rooms = [_PACKAGE / room for room in _ROOMS]
    return _hash(_base() | {file for room in rooms for file in (room.rglob("*.py") if room.is_dir() else [room])})


@cache
def scheme_fingerprint(*schemes: type) -> str | None:
    """16 hex digits for the source of schemes: the files of their classes and bases, and of the modules in the same
    folder tree that they import. None where there are no files, as for a class typed into a notebook.

    As it was at the first call in this process, which should be soon after that code was loaded.
    """
    files: dict[str, Path] = {}
    for name in {base.__module__ for scheme in schemes for base in scheme.__mro__} - sys.stdlib_module_names:
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "none")
        if file.is_file():
            _collect(name, file, files)
    return _hash(set(files.values()) - _base()) if files else None


def fingerprints(scheme: PositionScheme) -> dict[str, str | None]:
    """Both, by their names in summary.json and in checkpoints; schemes among the settings of a scheme count with it."""
    return {"code_fingerprint": code_fingerprint(), "scheme_fingerprint": scheme_fingerprint(*classes(scheme))}


def task_sha256(task: Task) -> str:
    """The sha256 of what decides a task's examples: its class and settings, and its source where that is no part of
    poslab."""
    node = node_of_task(task)
    kind: Any = type(task)
    source = scheme_fingerprint(kind) if outside(node) else None
    return hashlib.sha256(json.dumps([node, source], sort_keys=True).encode()).hexdigest()


def changed(before: Mapping[str, Any], scheme: PositionScheme) -> list[str]:
    """Those of the fingerprints in `before` that the code no longer has."""
    return [key for key, now in fingerprints(scheme).items() if before.get(key) and not _ends(before[key], now)]


def continued(before: Mapping[str, Any], scheme: PositionScheme) -> dict[str, str | None]:
    """The fingerprints of a run that goes on from `before`: all that it was trained with, joined by "+"."""
    pairs = {key: (before.get(key, "unknown"), now) for key, now in fingerprints(scheme).items()}
    return {key: earlier if _ends(earlier, now) else f"{earlier}+{now}" for key, (earlier, now) in pairs.items()}


def _ends(earlier: Any, now: str | None) -> bool:
    return str(earlier).endswith(str(now))


@cache
def _base() -> set[Path]:
    """The files that every scheme builds on."""
    files: dict[str, Path] = {}
    _collect(f"{_SCHEMES}base", _PACKAGE / "positions" / "base.py", files)
    return set(files.values())


def _collect(name: str, file: Path, files: dict[str, Path]) -> None:
    """Adds the module and, as deep as it goes, what it imports from its own folder tree or from poslab's schemes."""
    files[name] = file
    parts = name.split(".")
    root = file.parents[len(parts) - (file.name != "__init__.py")]
    package = parts if file.name == "__init__.py" else parts[:-1]
    for imported in _imports(file, package):
        top, of_poslab = imported.split(".")[0], imported.startswith(_SCHEMES)
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
    for node in ast.walk(_parsed(file)):
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
    """Of what the files say, in whatever order and under whatever names."""
    contents = (hashlib.sha256(repr(_plain(_parsed(file))).encode()).hexdigest() for file in files)
    return hashlib.sha256("".join(sorted(contents)).encode()).hexdigest()[:16]


def _parsed(file: Path) -> ast.AST:
    source = file.read_bytes()
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):  # edited since it was loaded
        return ast.Constant(source)


def _plain(node: Any) -> Any:
    """The syntax tree without docstrings, and without what one version of Python writes into it and another doesn't."""
    if isinstance(node, list):
        return [_plain(item) for item in node if not _is_text(item)]
    if not isinstance(node, ast.AST):
        return node
    fields = ((name, _plain(value)) for name, value in ast.iter_fields(node))
    return type(node).__name__, [(name, value) for name, value in fields if value is not None and value != []]


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
