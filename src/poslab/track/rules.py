"""Rules of a track, rules.yaml in its folder: conditions, tuning, seeds and the margin of claims."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from poslab.checked import Checked
from poslab.config.checking import checked
from poslab.config.fields import Positive, PositiveAmount, Seed
from poslab.errors import SettingError, UserError, first_line
from seedstats.metric import Metric

FILE = "rules.yaml"


@dataclass(frozen=True)
class DataSet(Checked):
    """Data set: settings of train, the metric and its unit, the lengths in range and beyond, seconds of a run; quick:
    further settings of a quick try."""

    settings: dict[str, Any]
    quick: dict[str, Any]
    metric: str
    unit: str
    lengths: list[Positive]
    seconds: PositiveAmount


@dataclass(frozen=True)
class Rules(Checked):
    """Rules of a track; its rules.yaml explains each."""

    version: Positive
    control: str
    yardstick: str
    data: dict[str, DataSet]
    rates: list[PositiveAmount]
    factors: list[PositiveAmount]
    tuning_seeds: list[Seed]
    seeds: list[Seed]
    margin: PositiveAmount
    cost: dict[str, Any]  # settings of train
    cost_seeds: list[Seed]
    quick: dict[str, list[Seed]]

    @property
    def figures(self) -> list[tuple[str, Metric]]:
        """Return what is compared: the name of the data set, and the metric at a length."""
        return [
            (name, Metric(data.metric, data.unit, data.unit.startswith("of "), length))
            for name, data in self.data.items()
            for length in data.lengths
        ]

    @property
    def hurried(self) -> "Rules":
        """Return the rules of a quick try."""
        data = {
            name: replace(of, settings=of.settings | of.quick, seconds=of.seconds / 3) for name, of in self.data.items()
        }
        return replace(self, data=data, tuning_seeds=self.quick["tuning_seeds"], seeds=self.quick["seeds"])


def read_rules(folder: Path) -> Rules:
    """Return the rules of the track in a folder. Raises UserError, with the file, where there are none."""
    file = folder / FILE
    try:
        return checked(Rules, yaml.safe_load(file.read_text(encoding="utf-8")), "")
    except (OSError, yaml.YAMLError, SettingError) as error:
        raise UserError(f"{file}: can't be read as the rules of a track: {first_line(error)}") from error
