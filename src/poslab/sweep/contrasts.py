"""Whether what a sweep is to show can be shown by its runs."""

from collections.abc import Sequence
from typing import Any

from poslab.errors import SettingError, require_one_of, suggestion
from poslab.settings.contrasts import ALL, Contrast, named
from poslab.settings.files import text_name
from poslab.settings.schemes import shown
from poslab.settings.train import TrainConfig, training_of_scheme
from poslab.sweep.plan import Job
from poslab.tasks import Task
from poslab.tasks.metric import LOSS


def checked_contrasts(jobs: Sequence[Job]) -> list[Contrast]:
    """All that the jobs' configurations register. Raises SettingError for the first that names what they lack: a
    scheme, data, a metric or a length."""
    configs = [job.config for job in jobs if job.config is not None]
    contrasts = list(dict.fromkeys(contrast for config in configs for contrast in config.settings.contrasts))
    for place, contrast in enumerate(contrasts):
        try:
            _check(contrast, configs)
        except SettingError as error:
            problem = f"{error.problem}; contrasts=[] registers none"
            raise SettingError(f"contrasts[{place}].{error.option}", error.value, problem) from None
    return contrasts


def _check(contrast: Contrast, configs: Sequence[TrainConfig]) -> None:
    of_data = [config for config in configs if contrast.data in (None, _data(config))]
    known = list(dict.fromkeys(map(_data, configs)))
    if not of_data:
        raise SettingError("data", contrast.data, f"the sweep has none; {suggestion(str(contrast.data), known)}")
    if contrast.data is None and len(known) > 1:
        raise SettingError("data", None, f"must be given, the sweep has several: {', '.join(known)}")
    for name in contrast.schemes:
        if name != ALL:
            _check_scheme(contrast, name, of_data)
    for config in of_data:
        _check_figure(contrast, config)


def _check_scheme(contrast: Contrast, name: str, configs: Sequence[TrainConfig]) -> None:
    option = next(key for key, value in contrast.plain.items() if value == name)
    groups = {(config.pos_name, *told(config).items()): config for config in configs}.values()
    meant = [config for config in groups if named(name, config.pos_name, told(config))]
    if not meant:
        known = dict.fromkeys(config.pos_name for config in configs)
        raise SettingError(option, name, f"the sweep has no such scheme on these data; {suggestion(name, known)}")
    if len(meant) > 1:
        differing = [key for key in told(meant[0]) if len({str(told(config).get(key)) for config in meant}) > 1]
        labels = (" ".join([name, *(f"{key}={told(config).get(key)}" for key in differing)]) for config in meant)
        raise SettingError(option, name, f"is several schemes of the sweep; say which: {', '.join(labels)}")


def told(config: TrainConfig) -> dict[str, Any]:
    """The settings by which groups of one scheme are told apart."""
    return shown(config.pos_settings) | training_of_scheme(config)


def _data(config: TrainConfig) -> str:
    """What summaries call them."""
    return config.data.name if isinstance(config.data, Task) else text_name(config.data.path)


def _check_figure(contrast: Contrast, config: TrainConfig) -> None:
    """Whether runs of this configuration will have the metric, at this length."""
    lengths: Sequence[int] = ()
    if isinstance(config.data, Task):
        usual = [metric.name for metric in config.data.metrics]
        metric = contrast.metric or usual[0]
        if metric not in (LOSS, *usual):
            from poslab.evaluation.answers import metric_names  # loads torch

            require_one_of([LOSS, *metric_names(config.data)], metric=metric)
        lengths = () if metric == LOSS else config.data.test_lengths
    elif (contrast.metric or LOSS) != LOSS:
        if LOSS not in str(contrast.metric).split("_"):
            raise SettingError("metric", contrast.metric, "is none of a text's; its metrics are losses")
        lengths = config.evaluation.lengths
    if contrast.length not in lengths and (lengths or contrast.length is not None):
        there = f"tests of {_data(config)} are at {', '.join(map(str, lengths))}" if lengths else "its figure has none"
        raise SettingError("length", contrast.length, there)
