"""Claims: what a comparison is to show, in a file written before the runs.

    - {better: NAME, than: NAME, data: back, length: 96, by: 0.2}
    - {equal: [NAME, NAME], within: 0.02}
    - {of: [NAME, NAME], between: {norm: [layer, rms]}}
    - {scheme: all, at_least: 0.9, data: majority, length: 51}
    - {scheme: NAME, value: 1.88, within: 0.03, source: what has published this figure}

A scheme is named as a report names its group: NAME, and as many settings, " scale=32", as distinguish it from other
groups. `poslab.comparison.verdicts` tests the claims.
"""

import dataclasses
import hashlib
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from poslab.config.fields import Limited, setting, typed
from poslab.config.files import CLAIMS
from poslab.errors import SettingError, as_typed, suggestion

ALL = "all"  # in the place of a scheme: each of them
# The settings of each kind of claim, and those that it may have.
_KINDS: dict[tuple[str, ...], set[str]] = {
    ("better", "than"): {"by"},
    ("equal", "within"): set(),
    ("of", "between"): {"by"},
    ("scheme", "at_least"): set(),
    ("scheme", "at_most"): set(),
    ("scheme", "value"): {"within"},
}
_FIGURE = {"data", "metric", "length", "up_to", "source"}  # which any claim may have


@dataclass(frozen=True)
class Claim(Limited):
    """Claim on figures, which are means over seeds.

    better, than: one scheme is better than another, by at least `by`. equal: two schemes, which differ by less than
    `within`. of, between: an interaction; by how much the first scheme of two is better than the second is higher with
    the first settings than with the second, by at least `by`. scheme: its figure is `at_least` or `at_most` so much, or
    equal to a published `value` `within` a margin.

    data: by its name; None: the only one. metric: None is that by which runs on these data are compared. length: of
    the tests; None: the only one. up_to: the figure is the mean of the tests at all lengths from `length` to this one.
    value: one number, or that of each seed; without a margin it claims nothing. source: of what was published.
    """

    better: str | None = None
    than: str | None = None
    by: float = setting(0.0, least=0)
    equal: list[str] | None = None
    of: list[str] | None = None
    between: list[str] | None = None
    scheme: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    value: float | list[float] | None = None
    within: float | None = setting(None, above=0)
    data: str | None = None
    metric: str | None = None
    length: int | None = setting(None, least=1)
    up_to: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        given = {name for name, value in self.plain.items() if value != []} - _FIGURE
        if not any(given - optional == set(needed) for needed, optional in _KINDS.items()):
            kinds = "better and than, equal and within, of and between, or scheme and one of at_least, at_most, value"
            raise SettingError("", self._given(), f"must say {kinds}")
        better = self.pair if self.better else None
        for name, two in (("better", better), ("equal", self.equal), ("of", self.of), ("between", self.between)):
            if two and (len(two) != 2 or two[0] == two[1]):
                raise SettingError(name, two, "must be two that differ")
        if ALL in self.pair or (self.scheme == ALL and self.value is not None):
            raise SettingError("", self._given(), f"needs schemes by name; {ALL} goes with at_least or at_most")
        if self.up_to is not None and (self.length is None or self.up_to <= self.length):
            raise SettingError("up_to", self.up_to, "must be above length, which goes with it")

    @property
    def pair(self) -> list[str]:
        """Return the two schemes that are compared, if so."""
        return self.equal or self.of or [name for name in (self.better, self.than) if name is not None]

    @property
    def tested(self) -> bool:
        """Return whether it claims anything."""
        return self.value is None or self.within is not None

    @property
    def values(self) -> list[float]:
        """Return what was published."""
        return self.value if isinstance(self.value, list) else [] if self.value is None else [self.value]

    def is_of(self, length: int | None) -> bool:
        """Return whether its figure is of that length, or a mean over it and others."""
        if length is None or self.length is None or self.up_to is None:
            return length == self.length
        return self.length <= length <= self.up_to

    @property
    def plain(self) -> dict[str, Any]:
        """Return the settings that aren't as by default."""
        return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}

    def _given(self) -> str:
        return f"{{{', '.join(f'{name}: {as_typed(value)}' for name, value in self.plain.items())}}}"

    def __str__(self) -> str:
        """Return the claim in words, "NAME at least 0.9 in exact on majority at 51"."""
        by = f" by at least {self.by:g}" if self.by else ""
        within = f" within {self.within:g}" if self.within else ""
        if self.between:
            first, second = self.between
            claim = f"{' better than '.join(self.pair)}{by or ' by'} more with {first} than with {second}"
        elif self.equal:
            claim = f"{' equal to '.join(self.pair)}{within}"
        elif self.scheme is None:
            claim = f"{' better than '.join(self.pair)}{by}"
        else:
            published = fmean(self.values or [0])
            limits = {"at least": self.at_least, "at most": self.at_most, "as published,": published}
            limit = next(f"{words} {limit:g}{within}" for words, limit in limits.items() if limit is not None)
            claim = f"{'every scheme' if self.scheme == ALL else self.scheme} {limit}"
        return f"{claim} {self.where}".rstrip()

    @property
    def where(self) -> str:
        """Return which figure it is of, "in exact on majority at 51"."""
        where = (("in", self.metric), ("on", self.data), ("at", self.length), ("to", self.up_to))
        return " ".join(f"{word} {value}" for word, value in where if value is not None)


def parse_claim(node: Any, option: str) -> Claim:
    """Return the claim that plain values describe. Raises SettingError; option: what messages call the claim."""
    if not isinstance(node, dict):
        raise SettingError(option, node, "must be a claim, such as {better: NAME, than: NAME, by: 0.2, length: 96}")
    plain = {str(key): value for key, value in node.items()}  # YAML reads `on` as True
    if isinstance(between := plain.get("between"), dict):
        if not all(isinstance(values, list) and len(values) == 2 for values in between.values()):
            raise SettingError(f"{option}.between", between, "must have two values for each setting")
        levels = ([f"{name}={as_typed(values[n])}" for name, values in between.items()] for n in (0, 1))
        plain["between"] = [" ".join(level) for level in levels]
    return typed(Claim, plain, option)


def read_claims(file: Path) -> list[Claim]:
    """Return the claims in a file. Raises SettingError for one that has none, or something else."""
    try:
        plain = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingError("claims", file, f"can't be read: {error}") from error
    if not isinstance(plain, list) or not plain:
        raise SettingError("claims", file, "must be a list of claims, such as - {better: NAME, than: NAME}")
    return [parse_claim(node, f"claims[{number}]") for number, node in enumerate(plain)]


def claims_file(given: str) -> Path:
    """Return the file at a path, or the one of that name in configs/claims. Raises SettingError if there is neither."""
    file = Path(given).expanduser()
    if file.is_file():
        return file
    known = {of.relative_to(CLAIMS).with_suffix("").as_posix(): of for of in sorted(CLAIMS.rglob("*.yaml"))}
    if given not in known:
        raise SettingError("claims", given, f"no such file, nor one in configs/claims; {suggestion(given, known)}")
    return known[given]


def when_written(file: Path) -> str:
    """Return when a file was committed to git as it is now, "committed 2026-11-25 06:51 by 1a2b3c4"; else when it was
    last changed."""
    content = file.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    command = ["git", "log", "-1", "--raw", "--no-abbrev", "--date=format:%Y-%m-%d %H:%M", "--format=%cd by %H"]
    try:
        found = subprocess.run([*command, "--", file.name], cwd=file.parent, capture_output=True, text=True).stdout
    except OSError:  # there is no git
        found = ""
    if blob in found:  # the commit has this content, so nothing has been changed since
        date, _, commit = found.splitlines()[0].partition(" by ")
        return f"committed {date} by {commit[:7]}"
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.stat().st_mtime))
    return f"last changed {changed}, {'after its commit' if found else 'not known to git'}"
