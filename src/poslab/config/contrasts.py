"""Contrasts: claims that an experiment registers before its runs, to be tested when they are finished.

    contrasts:
      - {better: NAME, than: NAME, data: back, length: 96, by: 0.2}
      - {scheme: all, at_least: 0.9, data: majority, length: 51}
      - {scheme: all, at_most: 0.6, data: parity, length: 40}

A scheme is named as a report names its group: NAME, and as many settings, " scale=32", as distinguish it from other
groups. contrasts.yaml in the folder of a sweep holds the claims, when they were made, and after how many runs.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from poslab.config.fields import Limited, setting, typed
from poslab.config.files import write_whole
from poslab.config.schemes import distinguishing
from poslab.errors import SettingError, UserError, as_typed, require_one_of, suggestion
from poslab.tasks import Task
from poslab.tasks.metric import LAST_TOKENS_LOSS, LOSS

if TYPE_CHECKING:
    from poslab.config.train import TrainConfig

FILE = "contrasts.yaml"  # in the folder of a sweep
ALL = "all"  # in the place of a scheme: each of them


@dataclass(frozen=True)
class Contrast(Limited):
    """Claim that one scheme is `better` `than` another, by at least `by`, or that a `scheme`'s figure is `at_least` or
    `at_most` so much.

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
            limit = f"at least {self.at_least:g}" if self.at_most is None else f"at most {self.at_most:g}"
            claim = f"{'every scheme' if self.scheme == ALL else self.scheme} {limit}"
        where = (("in", self.metric), ("on", self.data), ("at", self.length))
        return " ".join([claim, *(f"{word} {value}" for word, value in where if value is not None)])


def parse_contrast(node: Any, option: str) -> Contrast:
    """Return the contrast that plain values describe. Raises SettingError, by the option's name on the command line."""
    if not isinstance(node, Mapping):
        raise SettingError(option, node, "must be a contrast, such as {better: NAME, than: NAME, by: 0.2, length: 96}")
    try:
        return typed(Contrast, {str(key): value for key, value in node.items()}, option)
    except SettingError as error:  # of the whole
        raise SettingError(option, error.value, error.problem) if error.option == f"{option}." else error from None


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


def checked_contrasts(configs: Sequence[TrainConfig], metric_names: Callable[[Task], Sequence[str]]) -> list[Contrast]:
    """Return all contrasts that the configurations of a sweep's runs register.

    metric_names: of all metrics of a task, called only for one that isn't among `data.metrics`.
    Raises SettingError for the first contrast that names a scheme, data, a metric or a length that the runs lack.
    """
    contrasts = list(dict.fromkeys(contrast for config in configs for contrast in config.settings.contrasts))
    groups = list({str((one.pos_name, one.data_name, one.scheme_settings)): one for one in configs}.values())
    for number, contrast in enumerate(contrasts):
        try:
            on_data = _on_its_data(contrast, groups)
            for name in contrast.schemes:
                if name != ALL:
                    _require_one_group(contrast, name, on_data)
            for config in {str(group.data): group for group in on_data}.values():
                _require_figure(contrast, config, metric_names)
        except SettingError as error:
            problem = f"{error.problem}; contrasts=[] registers none"
            raise SettingError(f"contrasts[{number}].{error.option}", error.value, problem) from None
    return contrasts


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


def _require_figure(contrast: Contrast, config: TrainConfig, metric_names: Callable[[Task], Sequence[str]]) -> None:
    """Raise SettingError if runs of this configuration won't have the metric at this length."""
    lengths: Sequence[int] = ()
    if isinstance(config.data, Task):
        own = [metric.name for metric in config.data.metrics]
        metric = contrast.metric or own[0]
        if metric not in (LOSS, *own):
            require_one_of([LOSS, *metric_names(config.data)], metric=metric)
        lengths = () if metric == LOSS else config.data.test_lengths
    elif (contrast.metric or LOSS) != LOSS:
        require_one_of([LOSS, LAST_TOKENS_LOSS], metric=contrast.metric)
        lengths = config.evaluation.lengths
    if contrast.length not in lengths and (lengths or contrast.length is not None):
        at = f"tests of {config.data_name} are at {', '.join(map(str, lengths))}" if lengths else "its figure has none"
        raise SettingError("length", contrast.length, at)


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
        return [_registration(plain) for plain in yaml.safe_load(file.read_text(encoding="utf-8"))]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
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
