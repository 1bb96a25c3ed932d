"""Command list: what can be chosen on the command line of train, a line each."""

import shutil
import textwrap
from collections.abc import Sequence

import yaml

from poslab.config.files import CONFIGS
from poslab.config.help import first_sentence
from poslab.errors import UserError, suggestion

# The yamls of configs that each word lists, in the folder of their group.
_OPTIONS = {
    "schemes": "pos/*.yaml",
    "tasks": "data/*.yaml",
    "texts": "data/*.yaml",
    "models": "model/*.yaml",
    "experiments": "experiment/**/*.yaml",
}
_HELP = """List what there is: poslab list [schemes] [tasks] [texts] [models] [experiments]

A line begins with what to type, as in `poslab train pos=t5 data=recall`; `poslab train --help all` has all settings."""


def run_list(arguments: Sequence[str]) -> None:
    """Print the options of the named groups, or of all. Raises UserError for a name that is none of them."""
    if {"-h", "--help"} & {*arguments}:
        print(_HELP)
        return
    for word in arguments:
        if word not in _OPTIONS:
            raise UserError(f"{word}: can't be listed; {suggestion(word, _OPTIONS)}")
    # As wide as the terminal; into a file or a pipe whole lines.
    width = shutil.get_terminal_size((10_000, 24)).columns
    for title in arguments or _OPTIONS:
        options = _options(title)
        column = max(map(len, options))
        print(title)
        for option, purpose in options.items():
            words = textwrap.shorten(purpose, max(width - column - 4, 20), placeholder=" ...")
            print(f"  {option:<{column}}  {words}")
        print()


def _options(title: str) -> dict[str, str]:
    """Return the purpose of each option of a group, by what is typed to choose it."""
    purposes = {}
    for file in sorted(CONFIGS.glob(_OPTIONS[title])):
        group, *names = file.relative_to(CONFIGS).with_suffix("").parts
        # A task names a class, below `data`; a text has its settings at the top.
        is_task = "data" in yaml.safe_load(file.read_text(encoding="utf-8"))
        if group != "data" or is_task == (title == "tasks"):
            purposes[f"{group}={'/'.join(names)}"] = first_sentence(file)
    return purposes
