"""Claims: what a comparison is to show, in a file written before the runs.

    - {better: NAME, than: NAME, data: back, length: 96, by: 0.2}
    - {equal: [NAME, NAME], within: 0.02}
    - {of: [NAME, NAME], between: {norm: [layer, rms]}}
    - {of: [NAME, NAME, NAME], between: {norm: [layer, rms]}, within: 0.05}
    - {name: all, at_least: 0.9, data: majority, length: 51}
    - {name: NAME, value: 1.88, within: 0.03, source: what has published this value}
    - {claim: both are solved, all_of: [{name: NAME, at_least: 0.9}, {name: NAME, at_least: 0.9}]}

NAME is what a report calls a group: a name, and as many settings, " scale=32", as distinguish it from other groups.
`seedstats.claim_tests` tests the claims.
"""

import dataclasses
import hashlib
import math
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from seedstats.errors import BadSetting, suggestion
from seedstats.exports import SAME_AS_NAME

ALL = "all"  # in the place of a name: each of them
# The settings of each kind of claim, and those that it may have.
_KINDS: dict[tuple[str, ...], set[str]] = {
    ("better", "than"): {"by", "times"},
    ("equal", "within"): set(),
    ("of", "between"): {"by"},
    ("of", "between", "within"): set(),
    ("name", "at_least"): set(),
    ("name", "at_most"): set(),
    ("name", "value"): {"within"},
    ("all_of",): set(),
}
_OF_ANY = {"claim", "data", "metric", "length", "up_to", "beyond", "source"}  # which any claim may have


@dataclass(frozen=True)
class Claim:
    """Claim on values, which are means over seeds.

    better, than: one group is better than another, by at least `by`, or than `times` its value. equal: groups of which
    each pair differs by less than `within`. of, between: an interaction; by how much the first group of two is better
    than the second is higher with the first settings than with the second, by at least `by`; or, of each pair of
    groups, changes by less than `within`. name: its value is `at_least` or `at_most` so much, or equal to a published
    `value` `within` a margin. all_of: several claims, which hold together. claim: how it is called, in words.

    data: by its name; None: the only one. metric: None is that by which these data are compared. length: of the tests;
    None: the only one. up_to: the value is the mean of the tests at all lengths from `length` to this one. beyond: the
    value is that at `length` less that at this one, of the same run. value: one number, or that of each seed; without a
    margin it claims nothing. source: of what was published.

    Raises BadSetting for a claim that is none of these.
    """

    better: str | None = None
    than: str | None = None
    by: float = 0.0
    times: float = 1.0
    equal: list[str] | None = None
    of: list[str] | None = None
    between: list[str] | None = None
    name: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    value: float | list[float] | None = None
    within: float | None = None
    all_of: "list[Claim] | None" = None
    claim: str | None = None
    data: str | None = None
    metric: str | None = None
    length: int | None = None
    up_to: int | None = None
    beyond: int | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        kind = {name for name, value in self.plain.items() if value != []} - _OF_ANY
        if not any(kind - optional == set(needed) for needed, optional in _KINDS.items()):
            kinds = "better and than, equal and within, of and between, all_of, or name and one of"
            raise BadSetting("", self._settings_given(), f"must say {kinds} at_least, at_most, value")
        better = self.compared if self.better else None
        for name, several in (("better", better), ("equal", self.equal), ("of", self.of), ("between", self.between)):
            pairwise = self.within is not None and name != "between"
            if several and (len({*several}) < len(several) or len(several) < 2 or (len(several) > 2 and not pairwise)):
                raise BadSetting(name, several, f"must be two {'or more ' * pairwise}that differ")
        if self.by < 0 or self.times <= 0 or (self.within is not None and self.within <= 0):
            raise BadSetting("", self._settings_given(), "by must be at least 0, times and within above 0")
        if ALL in self.compared or (self.name == ALL and self.value is not None):
            raise BadSetting("", self._settings_given(), f"needs groups by name; {ALL} goes with at_least or at_most")
        if self.up_to is not None and (self.length is None or self.up_to <= self.length):
            raise BadSetting("up_to", self.up_to, "must be above length, which goes with it")
        if self.beyond is not None and (self.length in (None, self.beyond) or self.up_to is not None):
            raise BadSetting("beyond", self.beyond, "must be another length than length, which goes with it")

    @property
    def compared(self) -> list[str]:
        """Return the groups that are compared, if so: two, or several of which each pair is."""
        return self.equal or self.of or [name for name in (self.better, self.than) if name is not None]

    @property
    def tested(self) -> bool:
        """Return whether it claims anything."""
        return self.value is None or self.within is not None

    @property
    def values(self) -> list[float]:
        """Return what was published."""
        if self.value is None:
            return []
        return self.value if isinstance(self.value, list) else [self.value]

    def is_of(self, length: int | None) -> bool:
        """Return whether its value is of that length, or a mean over it and others."""
        if length is None or self.length is None or self.up_to is None:
            return length == self.length
        return self.length <= length <= self.up_to

    @property
    def plain(self) -> dict[str, Any]:
        """Return the settings that aren't as by default."""
        return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}

    def _settings_given(self) -> str:
        return f"{{{', '.join(f'{name}: {value}' for name, value in self.plain.items())}}}"

    def __str__(self) -> str:
        """Return what the claim is called, or its words, "NAME at least 0.9 in exact on majority at 51"."""
        return self.claim or " and ".join(map(str, self.all_of or [])) or self._words()

    def _words(self) -> str:
        by = f" by at least {self.by:g}" if self.by else ""
        within = f" within {self.within:g}" if self.within else ""
        if self.between:
            first, second = self.between
            claim = f"{' better than '.join(self.compared)}{by or ' by'} more with {first} than with {second}"
            if within:
                claim = f"differences of {', '.join(self.compared)} with {first} and with {second} equal{within}"
        elif self.equal:
            claim = f"{' equal to '.join(self.equal)}{within}"
        elif self.name is None:
            times = f"{self.times:g} times " if self.times != 1 else ""
            claim = f"{self.better} better than {times}{self.than}{by}"
        else:
            published = fmean(self.values or [0])
            limits = {"at least": self.at_least, "at most": self.at_most, "as published,": published}
            limit = next(f"{words} {limit:g}{within}" for words, limit in limits.items() if limit is not None)
            claim = f"{'each' if self.name == ALL else self.name} {limit}"
        return f"{claim} {self.where}".rstrip()

    @property
    def where(self) -> str:
        """Return which value it is of, "in exact on majority at 51"."""
        where = [("in", self.metric), ("on", self.data), ("at", self.length), ("to", self.up_to)]
        where += [("less that at", self.beyond)]
        return " ".join(f"{word} {value}" for word, value in where if value is not None)


def parse_claim(node: Any, option: str = "claims") -> Claim:
    """Return the claim that plain values describe. Raises BadSetting; option: what messages call the claim."""
    if not isinstance(node, dict):
        raise BadSetting(option, node, "must be a claim, such as {better: NAME, than: NAME, by: 0.2, length: 96}")
    plain = {
        "name" if key in SAME_AS_NAME else str(key): value for key, value in node.items()
    }  # YAML reads `on` as True
    if isinstance(between := plain.get("between"), dict):
        if not all(isinstance(values, list) and len(values) == 2 for values in between.values()):
            raise BadSetting(f"{option}.between", between, "must have two values for each setting")
        plain["between"] = [
            " ".join(f"{name}={_as_typed(values[n])}" for name, values in between.items()) for n in (0, 1)
        ]
    if isinstance(parts := plain.get("all_of"), list) and parts:
        plain["all_of"] = [parse_claim(part, f"{option}.all_of[{place}]") for place, part in enumerate(parts)]
    field_names = [field.name for field in dataclasses.fields(Claim)]
    for name, value in plain.items():
        if name not in field_names:
            raise BadSetting(f"{option}.{name}", value, f"unknown; {suggestion(name, field_names)}")
        if wrong := _wrong(name, value):
            raise BadSetting(f"{option}.{name}", value, wrong)
    try:
        return Claim(**plain)
    except BadSetting as error:
        raise BadSetting(f"{option}.{error.option}".rstrip("."), error.value, error.problem) from None


def _as_typed(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong(name: str, value: object) -> str:
    """Return what a setting must be, if the value is something else."""

    def number(of: object) -> bool:
        return isinstance(of, int | float) and not isinstance(of, bool) and math.isfinite(of)

    if name in ("equal", "of", "between"):
        fits, kind = isinstance(value, list) and all(isinstance(of, str) for of in value), "a list of names"
    elif name == "all_of":
        fits, kind = isinstance(value, list) and bool(value), "a list of claims"
    elif name == "value":
        fits = number(value) or (isinstance(value, list) and all(map(number, value)))
        kind = "a number, or a list of them"
    elif name in ("length", "up_to", "beyond"):
        fits, kind = isinstance(value, int) and number(value) and value >= 1, "a whole number of at least 1"
    elif name in ("by", "times", "within", "at_least", "at_most"):
        fits, kind = number(value), "a number"
    else:
        fits, kind = isinstance(value, str), "text"
    return "" if fits else f"must be {kind}"


def read_claims(file: Path | str) -> list[Claim]:
    """Return the claims in a yaml file. Raises BadSetting for one that has none, or something else."""
    try:
        plain = yaml.safe_load(Path(file).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise BadSetting("claims", file, f"can't be read: {error}") from error
    if not isinstance(plain, list) or not plain:
        raise BadSetting("claims", file, "must be a list of claims, such as - {better: NAME, than: NAME}")
    return [parse_claim(node, f"claims[{number}]") for number, node in enumerate(plain)]


def when_written(file: Path) -> str:
    """Return when a file was committed to git as it is now, "committed 2026-11-25 06:51 by 1a2b3c4"; else when it was
    last changed."""
    content = file.read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    command = ["git", "log", "-1", "--raw", "--no-abbrev", "--date=format:%Y-%m-%d %H:%M", "--format=%cd by %H"]
    try:
        log = subprocess.run([*command, "--", file.name], cwd=file.parent, capture_output=True, text=True).stdout
    except OSError:  # there is no git
        log = ""
    if blob in log:  # the commit has this content, so nothing has been changed since
        date, _, commit = log.splitlines()[0].partition(" by ")
        return f"committed {date} by {commit[:7]}"
    changed = time.strftime("%Y-%m-%d %H:%M", time.localtime(file.stat().st_mtime))
    return f"last changed {changed}, {'after its commit' if log else 'not known to git'}"
