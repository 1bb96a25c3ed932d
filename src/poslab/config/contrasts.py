"""Contrasts: claims that an experiment registers before its runs, to be tested when they are finished.

    contrasts:
      - {better: NAME, than: NAME, data: back, length: 96, by: 0.2}
      - {scheme: all, at_least: 0.9, data: majority, length: 51}
      - {scheme: all, at_most: 0.6, data: parity, length: 40}

The block `published` makes contrasts of what a source has: its figures, equal to ours within a margin, and its order.

A scheme is named as a report names its group: NAME, and as many settings, " scale=32", as distinguish it from other
groups. contrasts.yaml in the folder of a sweep holds the claims, when they were made, and after how many runs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import yaml

from poslab.config.fields import Limited, setting, typed
from poslab.config.files import write_whole
from poslab.config.nodes import distinguishing
from poslab.errors import SettingError, UserError, as_typed, require_one_of, suggestion
from poslab.metric import LOSS

if TYPE_CHECKING:
    from poslab.config.train import TrainConfig

FILE = "contrasts.yaml"  # in the folder of a sweep
ALL = "all"  # in the place of a scheme: each of them
EXACT, SCALED = "exact", "scaled"  # settings, beside those of a source


@dataclass(frozen=True)
class Contrast(Limited):
    """Claim that one scheme is `better` `than` another, by at least `by`, or that a `scheme`'s figure is `at_least` or
    `at_most` so much, or equal to a published `value` `within` a margin.

    data: by its name; None: the only one. metric: None is that by which runs on these data are compared. length: of
    the tests; None: the metric's own, such as the validation loss of a text. up_to: the figure is the mean of the tests
    at all lengths from `length` to this one. Figures are means over seeds.
    value: one number, or that of each seed; without a margin it claims nothing. source: of what was published.
    """

    better: str | None = None
    than: str | None = None
    by: float = setting(0.0, least=0)
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
        limits = [limit for limit in (self.at_least, self.at_most, self.value) if limit not in (None, [])]
        of_two = self.better is not None and self.than is not None and self.scheme is None and not limits
        of_one = self.scheme is not None and len(limits) == 1 and self.better is None and self.than is None
        if not of_two and not (of_one and not self.by):
            problem = "must say better, than (and by), or scheme and one of at_least, at_most, value"
            raise SettingError("", self._given(), problem)
        if ALL in self.schemes and (of_two or self.value is not None):
            raise SettingError("", self._given(), f"needs schemes by name; {ALL} goes with at_least or at_most")
        if self.within is not None and self.value is None:
            raise SettingError("within", self.within, "goes with value")
        if self.up_to is not None and (self.length is None or self.up_to <= self.length):
            raise SettingError("up_to", self.up_to, "must be above length, which goes with it")
        if self.better == self.than is not None:
            raise SettingError("than", self.than, "is the same scheme as better")

    def __hash__(self) -> int:
        return hash(str(self))

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
    def schemes(self) -> tuple[str, ...]:
        """Return the schemes that the claim names."""
        return tuple(name for name in (self.better, self.than, self.scheme) if name is not None)

    @property
    def plain(self) -> dict[str, Any]:
        """Return the settings that aren't as by default."""
        return {f.name: value for f in dataclasses.fields(self) if (value := getattr(self, f.name)) != f.default}

    def _given(self) -> str:
        return f"{{{', '.join(f'{name}: {value}' for name, value in self.plain.items())}}}"

    def __str__(self) -> str:
        """Return the claim in words, "NAME at least 0.9 in exact on majority at 51"."""
        if self.scheme is None:
            claim = f"{self.better} better than {self.than}" + (f" by at least {self.by:g}" if self.by else "")
        else:
            within = f" within {self.within:g}" if self.within else ""
            limits = (
                ("at least", self.at_least),
                ("at most", self.at_most),
                ("as published,", fmean(self.values or [0])),
            )
            limit = next(f"{words} {limit:g}{within}" for words, limit in limits if limit is not None)
            claim = f"{'every scheme' if self.scheme == ALL else self.scheme} {limit}"
        return f"{claim} {self.where}".rstrip()

    @property
    def where(self) -> str:
        """Return which figure it is of, "in exact on majority at 51"."""
        where = (("in", self.metric), ("on", self.data), ("at", self.length), ("to", self.up_to))
        return " ".join(f"{word} {value}" for word, value in where if value is not None)


@dataclass(frozen=True)
class Published(Limited):
    """Figures that a source published, each with its scheme and `value`, and contrasts of two schemes by its order.

    settings: exact where model, data and training are the source's but for what `differs` lists, else scaled: then no
    figure can agree, but an order can. within: the margin for figures to be equal, where one has no margin of its own.
    """

    source: str
    settings: str = setting(choices=(EXACT, SCALED))
    differs: str | None = None
    within: float | None = None
    figures: list[Contrast] = setting([])
    contrasts: list[Contrast] = setting([])

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings == SCALED and self.differs is None:
            raise SettingError("differs", None, "must be given: what is not as published")
        if self.settings == EXACT and not all(claim.tested for claim in self.claims.values()):
            raise SettingError("within", None, "must be given: the margin within which figures agree")
        if self.settings == SCALED and any(claim.than is None and claim.tested for claim in self.claims.values()):
            raise SettingError("settings", SCALED, "only an order can agree: figures take no margin or limit")

    @property
    def claims(self) -> dict[str, Contrast]:
        """Return all contrasts with margin and source, by their options on the command line."""
        but = f"{', but' if self.settings == EXACT else ':'} {self.differs}" if self.differs else ""
        source = f"{self.source}; {self.settings} settings{but}"
        figures = [replace(one, within=one.within or self.within) for one in self.figures]
        return {
            f"published.{name}[{number}]": replace(claim, source=source)
            for name, claims in (("figures", figures), ("contrasts", self.contrasts))
            for number, claim in enumerate(claims)
        }


def parse_contrast(node: Any, option: str) -> Contrast:
    """Return the contrast that plain values describe. Raises SettingError, by the option's name on the command line."""
    if not isinstance(node, dict):
        raise SettingError(option, node, "must be a contrast, such as {better: NAME, than: NAME, by: 0.2, length: 96}")
    return typed(Contrast, {str(key): value for key, value in node.items()}, option)  # YAML reads `on` as True


def named(name: str, pos: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a contrast's name of a scheme, "NAME scale=32", means the scheme `pos` with these settings."""
    scheme, *settings_given = name.split()
    given = dict(setting.partition("=")[::2] for setting in settings_given)
    return scheme == pos and all(key in settings and _same(text, settings[key]) for key, text in given.items())


def _same(text: str, value: Any) -> bool:
    """Return whether text on the command line is a value: 32 is 32.0, true is True, and null None."""
    try:
        return float(text) == float(value)
    except (TypeError, ValueError):
        return text.lower() == as_typed(value).lower()


def checked_contrasts(configs: Sequence[TrainConfig]) -> list[Contrast]:
    """Return all contrasts that the configurations of a sweep's runs register.

    Raises SettingError for the first contrast that names a scheme, data, a metric or a length that the runs lack.
    """
    contrasts = {contrast: option for config in configs for option, contrast in config.settings.claims.items()}
    groups = list({str((one.pos_name, one.data_name, one.scheme_settings)): one for one in configs}.values())
    for contrast, option in contrasts.items():
        try:
            on_data = _on_its_data(contrast, groups)
            for name in contrast.schemes:
                if name != ALL:
                    _require_one_group(contrast, name, on_data)
            for config in {str(group.data): group for group in on_data}.values():
                _require_figure(contrast, config)
        except SettingError as error:
            none = "contrasts=[]" if option.startswith("contrasts") else "published=null"
            problem = f"{error.problem}; {none} registers none"
            raise SettingError(f"{option}.{error.option}", error.value, problem) from None
    return list(contrasts)


def _on_its_data(contrast: Contrast, groups: Sequence[TrainConfig]) -> list[TrainConfig]:
    """Return the groups on the data of a contrast. Raises SettingError if there are none, or data of several names."""
    on_data = [group for group in groups if contrast.data in (None, group.data_name)]
    known = list(dict.fromkeys(group.data_name for group in groups))
    if not on_data:
        raise SettingError("data", contrast.data, f"the sweep has none; {suggestion(str(contrast.data), known)}")
    if contrast.data is None and len(known) > 1:
        raise SettingError("data", None, f"must be given, the sweep has several: {', '.join(known)}")
    return on_data


def _require_one_group(contrast: Contrast, name: str, groups: Sequence[TrainConfig]) -> None:
    """Raise SettingError if `name` means no group, or several."""
    option = next(key for key, value in contrast.plain.items() if value == name)
    meant = [group.scheme_settings for group in groups if named(name, group.pos_name, group.scheme_settings)]
    if not meant:
        known = dict.fromkeys(group.pos_name for group in groups)
        raise SettingError(option, name, f"the sweep has no such scheme on these data; {suggestion(name, known)}")
    if len(meant) > 1:
        labels = (" ".join([name, *distinguishing(settings, meant)]) for settings in meant)
        raise SettingError(option, name, f"is several schemes of the sweep; say which: {', '.join(labels)}")


def _require_figure(contrast: Contrast, config: TrainConfig) -> None:
    """Raise SettingError if runs of this configuration won't have the metric at this length."""
    known = list(dict.fromkeys([LOSS, *config.data.compared_by]))
    metric, lengths = contrast.metric or config.data.compared_by[0], config.test_lengths
    if metric not in known and not set(metric.split("_")) & set(known):  # of parts and variants
        require_one_of(known, metric=metric)
    if not any(map(contrast.is_of, [None] if metric == LOSS else lengths)):
        at = f"tests of {config.data_name} are at {', '.join(map(str, lengths)) or 'no length'}"
        raise SettingError("length", contrast.length, "its figure has none" if metric == LOSS else at)


@dataclass(frozen=True)
class Registration:
    """Contrasts that were registered together. finished_runs: how many of the sweep's were finished by then."""

    date: str
    finished_runs: int
    contrasts: list[Contrast]

    @property
    def plain(self) -> dict[str, Any]:
        contrasts = [contrast.plain for contrast in self.contrasts]
        return {"registered": self.date, "finished_runs": self.finished_runs, "contrasts": contrasts}


def read_registrations(folder: Path) -> list[Registration]:
    """Return the registrations of a sweep in their order. Raises UserError for a file that holds something else."""
    file = folder / FILE
    if not file.exists():
        return []
    try:
        return [_registration(plain) for plain in yaml.safe_load(file.read_text("utf-8"))]
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:  # as it may be written beside a table by hand
        raise UserError(f"{file}: can't be read as registered contrasts: {' '.join(str(error).split())}") from error


def _registration(plain: Any) -> Registration:
    contrasts = [parse_contrast(node, f"contrasts[{number}]") for number, node in enumerate(plain["contrasts"])]
    return Registration(str(plain["registered"]), int(plain["finished_runs"]), contrasts)


def register(folder: Path, contrasts: Sequence[Contrast], finished_runs: int) -> str:
    """Add the contrasts that aren't registered yet, and return one line on what is registered. None is ever removed."""
    earlier = read_registrations(folder)
    known = [contrast for registration in earlier for contrast in registration.contrasts]
    new = [contrast for contrast in dict.fromkeys(contrasts) if contrast not in known]
    late = ""
    if new:
        earlier.append(Registration(time.strftime("%Y-%m-%d %H:%M:%S"), finished_runs, new))
        folder.mkdir(parents=True, exist_ok=True)
        write_registrations(folder, earlier)
        late = f", {len(new)} of them only now, after {runs_finished(finished_runs)}" if finished_runs else ""
    kept = len(set(known) - set(contrasts))
    late += f", {kept} of them earlier, which stay" if kept else ""
    return f"contrasts: {len(known) + len(new)} registered in {folder / FILE}{late}"


def write_registrations(folder: Path, registrations: Sequence[Registration]) -> None:
    content = [registration.plain for registration in registrations]
    write_whole(folder / FILE, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))


def runs_finished(count: int) -> str:
    return f"{count} runs were finished" if count != 1 else "1 run was finished"
