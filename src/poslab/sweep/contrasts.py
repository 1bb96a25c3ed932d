"""Whether what a sweep is to show can be shown by its runs."""

from collections.abc import Sequence

from poslab.config.contrasts import ALL, Contrast, named
from poslab.config.train import TrainConfig
from poslab.errors import SettingError, require_one_of, suggestion
from poslab.runs.evaluation import LAST_LOSS
from poslab.sweep.plan import Job
from poslab.tasks import Task
from poslab.tasks.metric import LOSS


def checked_contrasts(jobs: Sequence[Job]) -> list[Contrast]:
    """All that the jobs' configurations register. Raises SettingError for the first that names what they lack: a
    scheme, data, a metric or a length."""
    configs = [job.config for job in jobs if job.config is not None]
    contrasts = list(dict.fromkeys(contrast for config in configs for contrast in config.settings.contrasts))
    groups = list({str((one.pos_name, one.data_name, one.scheme_settings)): one for one in configs}.values())
    for place, contrast in enumerate(contrasts):
        try:
            _check(contrast, groups)
        except SettingError as error:
            problem = f"{error.problem}; contrasts=[] registers none"
            raise SettingError(f"contrasts[{place}].{error.option}", error.value, problem) from None
    return contrasts


def _check(contrast: Contrast, groups: Sequence[TrainConfig]) -> None:
    on_data = [group for group in groups if contrast.data in (None, group.data_name)]
    known = list(dict.fromkeys(group.data_name for group in groups))
    if not on_data:
        raise SettingError("data", contrast.data, f"the sweep has none; {suggestion(str(contrast.data), known)}")
    if contrast.data is None and len(known) > 1:
        raise SettingError("data", None, f"must be given, the sweep has several: {', '.join(known)}")
    for name in contrast.schemes:
        if name != ALL:
            _check_scheme(contrast, name, on_data)
    for config in {str(group.data): group for group in on_data}.values():
        _check_figure(contrast, config)


def _check_scheme(contrast: Contrast, name: str, groups: Sequence[TrainConfig]) -> None:
    option = next(key for key, value in contrast.plain.items() if value == name)
    meant = [group for group in groups if named(name, group.pos_name, group.scheme_settings)]
    if not meant:
        known = dict.fromkeys(group.pos_name for group in groups)
        raise SettingError(option, name, f"the sweep has no such scheme on these data; {suggestion(name, known)}")
    if len(meant) > 1:
        settings = [group.scheme_settings for group in meant]
        differing = [key for key in settings[0] if len({str(of_one.get(key)) for of_one in settings}) > 1]
        labels = (" ".join([name, *(f"{key}={of_one.get(key)}" for key in differing)]) for of_one in settings)
        raise SettingError(option, name, f"is several schemes of the sweep; say which: {', '.join(labels)}")


def _check_figure(contrast: Contrast, config: TrainConfig) -> None:
    """Whether runs of this configuration will have the metric, at this length."""
    lengths: Sequence[int] = ()
    if isinstance(config.data, Task):
        usual = [metric.name for metric in config.data.metrics]
        metric = contrast.metric or usual[0]
        if metric not in (LOSS, *usual):
            from poslab.evaluation.task_metrics import metric_names  # loads torch

            require_one_of([LOSS, *metric_names(config.data)], metric=metric)
        lengths = () if metric == LOSS else config.data.test_lengths
    elif (contrast.metric or LOSS) != LOSS:
        require_one_of([LOSS, LAST_LOSS], metric=contrast.metric)
        lengths = config.evaluation.lengths
    if contrast.length not in lengths and (lengths or contrast.length is not None):
        there = (
            f"tests of {config.data_name} are at {', '.join(map(str, lengths))}" if lengths else "its figure has none"
        )
        raise SettingError("length", contrast.length, there)
