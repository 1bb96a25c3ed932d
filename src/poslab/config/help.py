"""What `train --help` shows: every option of every group, and every setting with its default and the comment that the
yamls have beside it."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from poslab.config.nodes import flat_node
from poslab.errors import as_typed

_WIDTH = 120
# The settings that most command lines need, beside those of the scheme.
_EVERY_DAY = (
    "seed",
    "run_dir",
    "model.context_length",
    "model.num_layers",
    "data.batch_size",
    "optim.learning_rate",
    "trainer.max_epochs",
    "trainer.max_steps",
)
_ALSO = "Also called:"
_SETTING = re.compile(r"( *)([\w/]+):(?:.*? # (.*))?")


def options_text(groups: Mapping[str, Iterable[str]], choices: Mapping[str, Any], roots: Sequence[Path]) -> str:
    """Return a line for each option of each group: whether it is chosen, and the first sentence of its yaml."""
    blocks = []
    for group, options in groups.items():
        chosen = re.findall(r"[^\[\]', ]+", str(choices.get(group)))  # of several, as their list is written
        about = {f"{'*' if name in chosen else ' '} {group}={name}": _files(roots, group, name) for name in options}
        blocks.append(_columns({line: first_sentence(files[0]) for line, files in about.items()}))
    return "\n\n".join(blocks)


def every_day_text(settings: Mapping[Any, Any], choices: Mapping[str, Any], roots: Sequence[Path]) -> str:
    """Return the lines of `settings_text` that most command lines need: a few settings, and all of the scheme."""
    lines: dict[str, str] = {}
    for block in _settings_by_group(settings, choices, roots).values():
        for line, comment in block.items():
            name = line.partition(":")[0].strip()
            if name in _EVERY_DAY or (name.startswith("pos.") and name != "pos._target_"):
                lines[line] = comment
    return _columns(lines)


def settings_text(settings: Mapping[Any, Any], choices: Mapping[str, Any], roots: Sequence[Path]) -> str:
    """Return a line for each setting, group by group, with the comment beside it in the yamls that are chosen.

    settings: as composed. choices: the options by their groups, in the order of composition.
    """
    return "\n\n".join(map(_columns, _settings_by_group(settings, choices, roots).values()))


def _settings_by_group(
    settings: Mapping[Any, Any], choices: Mapping[str, Any], roots: Sequence[Path]
) -> dict[str, dict[str, str]]:
    """Return the comment of each line "  NAME: VALUE", by the group that it belongs to."""
    comments = _comments(roots[0] / "train.yaml", "")
    for group, chosen in choices.items():
        for name in re.findall(r"[^\[\]', ]+", str(chosen)):
            for file in _files(roots, group, name):
                comments |= _comments(file, group.replace("/", "."))
    blocks: dict[str, dict[str, str]] = {}
    for name, value in flat_node(settings).items():
        group = name.partition(".")[0] if "." in name or isinstance(settings.get(name), Mapping) else ""
        blocks.setdefault(group, {})[f"  {name}: {as_typed(value)}"] = comments.get(name, "")
    return blocks


def _columns(lines: Mapping[str, str]) -> str:
    """Return lines with their comments in a column of their own, where there is room for one."""
    width = min(max(map(len, lines)), _WIDTH // 2)
    text = []
    for line, comment in lines.items():
        first, *rest = textwrap.wrap(comment, _WIDTH - width - 4) or [""]
        text.append(f"{line:<{width}}  # {first}" if first else line)
        text += [f"{'':<{width}}  # {more}" for more in rest]
    return "\n".join(text)


def _files(roots: Sequence[Path], group: str, name: str) -> list[Path]:
    """Return the yaml of an option, as a list; none where there is none, as for Hydra's own groups."""
    return [file for root in roots if (file := root / group / f"{name}.yaml").is_file()][:1]


def _head(file: Path) -> list[str]:
    """Return the lines of the comment that a yaml begins with, where its settings go included (`@package`)."""
    lines = file.read_text(encoding="utf-8").splitlines()
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [line.removeprefix("#").strip() for line in lines[:count]]


def first_sentence(file: Path) -> str:
    """Return the first sentence of a yaml's head; after a short question the next one, which says what is done."""
    head = " ".join(line for line in _head(file) if not line.startswith(("@package", _ALSO)))
    first, *others = re.split(r"(?<=[.?!]) (?=[A-Z(])", head)
    return " ".join([first, *others[:1]]) if first.endswith("?") and len(first) < 40 else first


def other_names(file: Path) -> dict[str, str]:
    """Return what else an option is called, as its yaml's head says in a line of its own; by the name the setting that
    it needs, which stands there in brackets, or nothing."""
    named = next((line.removeprefix(_ALSO) for line in _head(file) if line.startswith(_ALSO)), "")
    pairs = (name.strip(" )").partition("(") for name in named.rstrip(".").split(",") if name.strip())
    return {name.strip(): setting for name, _, setting in pairs}


def _comments(file: Path, package: str) -> dict[str, str]:
    """Return the comment beside each setting of a yaml, and of the yamls of its group that it builds on, by the
    setting's name on the command line."""
    text = file.read_text(encoding="utf-8")
    comments: dict[str, str] = {}
    for base in (yaml.safe_load(text) or {}).get("defaults", []):
        if isinstance(base, str) and (built_on := file.with_name(f"{base}.yaml")).is_file():
            comments |= _comments(built_on, package)
    outer = [] if "@package _global_" in _head(file) or not package else [(-1, package)]
    for line in text.splitlines():
        if match := _SETTING.fullmatch(line):
            indent = len(match[1])
            outer = [*(above for above in outer if above[0] < indent), (indent, match[2])]
            if match[3]:
                comments[".".join(name for _, name in outer)] = match[3]
    return comments
