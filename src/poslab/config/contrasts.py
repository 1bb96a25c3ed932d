"""Contrasts: what an experiment claims before it runs, to be tested when it is over.

    contrasts:
      - {better: NAME, than: NAME, data: back, length: 96, by: 0.2}
      - {scheme: all, at_least: 0.9, data: majority, length: 51}
      - {scheme: all, at_most: 0.6, data: parity, length: 40}

A scheme is named as a report names its group: NAME, and as many settings, " scale=32", as tell it from other groups.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poslab.config.roles import Limited, setting
from poslab.config.typed import typed
from poslab.errors import SettingError, as_typed

ALL = "all"  # in the place of a scheme: each of them


@dataclass(frozen=True)
class Contrast(Limited):
    """One scheme `better` `than` another, by at least `by`; or a `scheme`'s figure `at_least` or `at_most` so much.

    data: by its name; None: the only one. metric: None is that by which runs on these data are compared. length: of
    the tests; None: the metric's own, such as the validation loss of a text. Figures are means over seeds.
    """

    better: str | None = None
    than: str | None = None
    by: float = setting(0.0, least=0)
    scheme: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    data: str | None = None
    metric: str | None = None
    length: int | None = setting(None, least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        limits = [limit for limit in (self.at_least, self.at_most) if limit is not None]
        of_two = self.better is not None and self.than is not None and self.scheme is None and not limits
        of_one = self.scheme is not None and len(limits) == 1 and self.better is None and self.than is None
        if not of_two and not (of_one and not self.by):
            problem = "must say better, than (and by), or scheme and one of at_least, at_most"
            raise SettingError("", self._given(), problem)
        if of_two and ALL in self.schemes:
            raise SettingError("", self._given(), f"compares two schemes; {ALL} goes with at_least or at_most")
        if self.better == self.than is not None:
            raise SettingError("than", self.than, "is the same scheme as better")

    @property
    def schemes(self) -> tuple[str, ...]:
        """The schemes that it names."""
        return tuple(name for name in (self.better, self.than, self.scheme) if name is not None)

    @property
    def plain(self) -> dict[str, Any]:
        """What was given: settings that aren't as by default."""
        return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}

    def _given(self) -> str:
        return f"{{{', '.join(f'{name}: {value}' for name, value in self.plain.items())}}}"

    def __str__(self) -> str:
        """NAME at least 0.9 in exact on majority at 51."""
        if self.scheme is None:
            claim = f"{self.better} better than {self.than}" + (f" by at least {self.by:g}" if self.by else "")
        else:
            limit = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
            claim = f"{'every scheme' if self.scheme == ALL else self.scheme} {limit}"
        where = (("in", self.metric), ("on", self.data), ("at", self.length))
        return " ".join([claim, *(f"{word} {value}" for word, value in where if value is not None)])


def parse_contrast(node: Any, option: str) -> Contrast:
    """The contrast that plain values describe. Raises SettingError, by the option's name on the command line."""
    if not isinstance(node, Mapping):
        raise SettingError(option, node, "must be a contrast, such as {better: NAME, than: NAME, by: 0.2, length: 96}")
    try:
        return typed(Contrast, {str(key): value for key, value in node.items()}, option)
    except SettingError as error:  # of the whole
        raise SettingError(option, error.value, error.problem) if error.option == f"{option}." else error from None


def named(name: str, pos: str, settings: Mapping[str, Any]) -> bool:
    """Whether a contrast's name of a scheme, "NAME scale=32", is of runs of the scheme `pos` with these settings."""
    scheme, *told = name.split()
    given = dict(part.partition("=")[::2] for part in told)
    return scheme == pos and all(key in settings and _same(text, settings[key]) for key, text in given.items())


def _same(text: str, value: Any) -> bool:
    """32 is 32.0, true is True, and null None."""
    try:
        return float(text) == float(value)
    except (TypeError, ValueError):
        return text.lower() == as_typed(value).lower()
