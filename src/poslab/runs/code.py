"""Fingerprints of the source that decides a run's numbers: poslab's own, that of its scheme and task, and of its parts.

A fingerprint is a hash of whole files, wherever they are and whatever they are called. The modules that a scheme or a
task imports from its own folder tree count with it; modules that are imported by a computed name are not seen.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from poslab.config import checking
from poslab.config.checking import full_name
from poslab.config.fields import Role
from poslab.config.groups import SLOTS
from poslab.config.nodes import TARGET, targets
from poslab.config.schemes import classes
from poslab.positions import PositionScheme

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("attention", "data", "model", "training")  # decide a result, whatever the scheme and the task
# So do what validates, and torch's kernels by their private names,
_FILES = ("metric", "processors", "evaluation/losses", "evaluation/stream_losses", "evaluation/task_metrics")
# and what all schemes and tasks build on; the other files of positions/ and tasks/ count with who imports them.
_CONTRACT = {
    "positions": ("__init__", "base", "pictures", "sizes", "terms"),
    "tasks": ("__init__", "base", "checks"),
}
# A run records the versions of these, so the source of their classes needs no fingerprint.
_LIBRARIES = ("torch.nn.", "torch.optim.", "pytorch_lightning.")
_SHARED = {_ROOT / package / f"{name}.py" for package, names in _CONTRACT.items() for name in names}


def outside(node: Mapping[Any, Any]) -> list[str]:
    """Return the classes that a node, or a node within it, names from outside poslab and the libraries it builds on.

    Their source is a part of what a run is. Which of them may be imported is another question (`config.trust`).
    """
    named = (str(target) for target in targets(node) if target is not None)
    return [target for target in named if "." in target and not target.startswith(("poslab.", *_LIBRARIES))]


@cache
def code_fingerprint() -> str:
    """Return 16 hex digits for poslab's own code that decides what training gives, schemes and tasks left out.

    The code is that of the first call in this process, which should be soon after it was loaded.
    """
    decisive = (file for package in _PACKAGES for file in (_ROOT / package).rglob("*.py"))
    return _hash({*decisive, *_SHARED, *(_ROOT / f"{name}.py" for name in _FILES)})


def foreign_parts(parts: Mapping[str, Any]) -> list[str]:
    """Return the classes and functions from outside that decide a result, of the parts of a TrainConfig."""
    deciding = (node for group, node in parts.items() if SLOTS.get(group, Role.RESULT) is Role.RESULT)
    return [target for node in deciding for target in outside(node)]


def parts_fingerprint(parts: Mapping[str, Any]) -> str | None:
    """Return 16 hex digits for the source of `foreign_parts`; None if there are none."""
    return scheme_fingerprint(*(checking.imported(target, TARGET) for target in foreign_parts(parts)))


def model_fingerprint(model: Mapping[str, Any]) -> str | None:
    """Return 16 hex digits for the source of a model's parts from outside, as its norm or MLP; None if there are
    none."""
    return scheme_fingerprint(*(checking.imported(target, TARGET) for target in outside(model)))


@cache
def scheme_fingerprint(*classes: Callable[..., Any]) -> str | None:
    """Return 16 hex digits for the source of schemes, of a task or of other parts; None if there are no files, as for a
    class typed into a notebook.

    The code is that of the first call in this process, which should be soon after it was loaded.
    """
    files = source_files(*classes)
    return _hash(files) if files else None


def source_files(*classes: Callable[..., Any]) -> set[Path]:
    """Return the files of classes and their bases, and of the modules in the same folder tree that they import, without
    those on which all schemes and tasks build."""
    files: dict[str, Path] = {}
    bases = {base.__module__ for cls in classes for base in (cls.__mro__ if isinstance(cls, type) else [cls])}
    for name in bases - sys.stdlib_module_names:
        if name.startswith(_LIBRARIES):
            continue
        file = Path(getattr(sys.modules.get(name), "__file__", None) or "none")
        if file.is_file():
            _add_with_imports(name, file, files)
    return set(files.values())


def fingerprints(scheme: PositionScheme) -> dict[str, str | None]:
    """Return both fingerprints by their names in summary.json; schemes among the settings of a scheme count with it."""
    return {"code_fingerprint": code_fingerprint(), "scheme_fingerprint": scheme_fingerprint(*classes(scheme))}


def task_sha256(task: Any) -> str:
    """Return the sha256 of what decides a task's examples: its class, its settings and its source."""
    kind: Any = type(task)
    content = [task.node, scheme_fingerprint(kind)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def changed_fingerprints(before: Mapping[str, Any], scheme: PositionScheme) -> list[str]:
    """Return the names of the fingerprints in `before` that the code no longer has."""
    return [key for key, now in fingerprints(scheme).items() if before.get(key) and not _ends(before[key], now)]


def edited(before: Mapping[str, Any], scheme: PositionScheme, model: Mapping[str, Any]) -> str:
    """Return the classes of a scheme, and of a model's parts from outside, whose source is no longer that of the
    fingerprints in `before`; empty if there are none. model: settings whose classes may be imported."""
    scheme_edited = "scheme_fingerprint" in changed_fingerprints(before, scheme)
    edited_classes = [" with ".join(map(full_name, classes(scheme)))] if scheme_edited else []
    if before.get("model_fingerprint") not in (None, model_fingerprint(model)):
        edited_classes += outside(model)
    return " or ".join(edited_classes)


def continued(before: Mapping[str, Any], scheme: PositionScheme) -> dict[str, str | None]:
    """Return the fingerprints of a run that goes on from `before`: all that it was trained with, joined by "+"."""
    pairs = {key: (before.get(key, "unknown"), now) for key, now in fingerprints(scheme).items()}
    return {key: earlier if _ends(earlier, now) else f"{earlier}+{now}" for key, (earlier, now) in pairs.items()}


def _ends(earlier: Any, now: str | None) -> bool:
    return str(earlier).endswith(str(now))


def _add_with_imports(name: str, file: Path, files: dict[str, Path]) -> None:
    """Add the module and, as deep as it goes, what it imports from its own folder tree or from poslab's schemes and
    tasks."""
    if file in _SHARED:
        return
    files[name] = file
    packages, is_package = name.split("."), file.name == "__init__.py"
    root = file.parents[len(packages) - (not is_package)]
    for imported in _imports(file, packages if is_package else packages[:-1]):
        top, is_poslabs = imported.split(".")[0], imported.startswith(("poslab.positions.", "poslab.tasks."))
        if imported in files or top in sys.stdlib_module_names or (top == "poslab" and not is_poslabs):
            continue
        if "site-packages" in root.parts and top != packages[0]:  # everything that is installed lies beside it
            continue
        path = (_ROOT.parent if is_poslabs else root).joinpath(*imported.split("."))
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                _add_with_imports(imported, candidate, files)


def _imports(file: Path, package: list[str]) -> Iterator[str]:
    """Yield the names in import statements that may be modules, with those of the packages around them."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # edited since it was loaded; the fingerprint is another one anyway
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        above: list[str] = []
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            above += [node.module] if node.module else []
        for alias in node.names:
            yield from accumulate(".".join([*above, alias.name]).split("."), "{}.{}".format)


def _hash(files: Iterable[Path]) -> str:
    contents = sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    return hashlib.sha256("".join(contents).encode()).hexdigest()[:16]
