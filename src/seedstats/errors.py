"""Errors that name what is wrong in one line."""

import difflib
from collections.abc import Iterable


class BadTable(ValueError):
    """A table that can't be read; the message is one line that names row and column."""


class NoColumn(BadTable):
    """A table without a column that is needed."""


class BadSetting(ValueError):
    """A setting that can't be met, such as a baseline that isn't in the table: its name, value, and the problem."""

    def __init__(self, option: str, value: object, problem: str) -> None:
        self.option, self.value, self.problem = option, value, problem
        setting = "=".join(filter(None, [option, str(value)]))
        super().__init__(" ".join(f"{setting}: {problem}".removeprefix(": ").splitlines()))


def suggestion(name: str, choices: Iterable[str]) -> str:
    """Suggest names for one that is none of the choices: "did you mean loss? valid: accuracy, loss". A long list is
    left out where a name is suggested."""
    names = list(choices)
    if not names:
        return "there are none here"
    near, listed = difflib.get_close_matches(name, names, n=1, cutoff=0.5), f"valid: {', '.join(names)}"
    if not near:
        return listed
    return f"did you mean {near[0]}?" + (f" {listed}" if len(names) <= 8 else "")  # of more nobody reads the list
