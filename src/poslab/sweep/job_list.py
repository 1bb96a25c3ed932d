"""Jobs of a sweep, without those that repeat another, and the folder of each one's run."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from poslab.config.corpora import fingerprint
from poslab.config.fields import NOT_IDENTITY
from poslab.config.files import CONFIGS, safe_name
from poslab.config.nodes import TARGET, given_settings
from poslab.config.overrides import explain, naming_experiment, scheme_name, unquoted, with_names_of_schemes
from poslab.config.train import TrainConfig, parse
from poslab.errors import SettingError, UnknownSetting, UserError
from poslab.runs.code import fingerprints, parts_fingerprint, task_sha256
from poslab.runs.evaluation import unmeasured_lengths
from poslab.runs.folder import RUNS, RunFolder
from poslab.runs.initial import initial_fields
from poslab.runs.load import Run, read_run
from poslab.runs.plan import PlannedGroup, group_keys, merged, settings_sha256

EXTENDED = "holds another run by now, as one that was extended; move it, and this job is trained"
# Files are read once for all jobs of a sweep.
_text_fingerprint, _initial_fields = cache(fingerprint), cache(initial_fields)


@dataclass(frozen=True)
class Job:
    """Combination of settings, and the folder of its run.

    config, identity: missing where there is a problem. problem: why it can't run; reason: the same in words that
    combinations share. impossible: because the scheme refuses to be combined with the other settings, which happens in
    any grid. reused: whether the run was trained before this sweep; other_code: and by other code than the present one.
    """

    overrides: list[str]
    folder: Path
    config: TrainConfig | None = None
    identity: str = ""
    problem: str = ""
    reason: str = ""
    impossible: bool = False
    reused: bool = False
    other_code: bool = False

    @property
    def trained(self) -> bool:
        return RunFolder(self.folder).finished and not self.problem

    @property
    def finished(self) -> bool:
        """True if the run is trained, and evaluated at every length of its settings."""
        return self.trained and not self.unmeasured

    @property
    def unmeasured(self) -> list[int]:
        """Return the lengths at which the run is still to be evaluated; of a job that can run."""
        assert self.config is not None
        return unmeasured_lengths(self.folder, self.config.evaluation)


def sweep_folder(config: DictConfig, hydra_config: Any) -> Path:
    """Return `run_dir`, or runs/<experiment>, or runs. hydra_config: Hydra's own part of the configuration."""
    if config.run_dir is not None:
        return Path(os.path.expanduser(str(config.run_dir)))
    experiment = hydra_config.runtime.choices.get("experiment")
    return RUNS / experiment if experiment else RUNS


def job_folder(config: TrainConfig, folder: Path, label: Sequence[str] = ()) -> Path:
    """Return where a job's run is made in the folder of its sweep. label: settings in which its sweep's jobs differ."""
    name = "-".join([config.pos_name, *label, f"seed{config.settings.seed}"])
    return folder / f"{safe_name(name, 100)}-{identity(config)[:8]}"


def list_jobs(combinations: Sequence[Sequence[str]], config: DictConfig, loader: ConfigLoader) -> list[Job]:
    """Return a job for each combination of overrides, without those that repeat another."""
    combinations = [with_names_of_schemes(overrides) for overrides in combinations]
    settings_of_jobs = [given_settings(map(unquoted, overrides)) for overrides in combinations]
    # All names have the scheme and the seed, so these are no part of the label.
    keys = dict.fromkeys(key for job_settings in settings_of_jobs for key in job_settings if key not in ("pos", "seed"))
    varied = [key for key in keys if len({job_settings.get(key) for job_settings in settings_of_jobs}) > 1]
    folder, composer = sweep_folder(config, config.hydra), _Composer(config, loader)
    finished = {}  # by identity, because a folder may have been renamed
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if run := _finished_run(path):
            recorded = run.summary.pos, run.config, run.summary.data_sha256, run.summary.scheme_fingerprint
            finished[settings_sha256(*recorded, NOT_IDENTITY)] = run
    jobs = [_plan_job(list(overrides), varied, folder, finished, composer) for overrides in combinations]
    return list({job.identity or str(job.folder): job for job in reversed(jobs)}.values())[::-1]


def identity(config: TrainConfig) -> str:
    """Return a hash of everything that decides the result of training: resolved settings, the text, the initial
    weights and the source of the scheme or task."""
    return settings_sha256(*_recorded(config), NOT_IDENTITY)


def planned_groups(jobs: Sequence[Job]) -> list[PlannedGroup]:
    """Return the groups and seeds that a comparison will expect of the jobs."""
    groups = []
    for config in (job.config for job in jobs if job.config is not None):
        group, shared = group_keys(*_recorded(config))
        seeds = [config.settings.seed]
        groups.append(PlannedGroup(config.pos_name, config.scheme_settings, config.data_name, group, shared, seeds))
    return merged(groups)


def _recorded(config: TrainConfig) -> tuple[str, dict[str, Any], str, str | None]:
    """Return what the run will record: the name of its scheme, its settings with what tells apart the weights that it
    begins with, the sha256 of the data, and the fingerprint of the scheme."""
    begun = _initial_fields(config.settings.init_from) | {"parts_fingerprint": parts_fingerprint(config.parts)}
    plain = replace(config, **begun).plain
    path = config.text_path
    data = _text_fingerprint(path, getattr(config.data, "name", None)) if path else task_sha256(config.data)
    return config.pos_name, plain, data, fingerprints(config.pos)["scheme_fingerprint"]


def _finished_run(folder: Path) -> Run | None:
    try:
        return read_run(folder)
    except ValueError:  # unfinished, or no run
        return None


class _Composer:
    """Composer of the configurations of jobs. Those that differ in nothing but the seed are composed once, which else
    takes most of the time of a plan."""

    def __init__(self, config: DictConfig, loader: ConfigLoader) -> None:
        self._config = config
        self._loader = loader
        self._composed: dict[tuple[str, ...], TrainConfig] = {}

    def config_of(self, overrides: list[str]) -> TrainConfig:
        """Return the configuration of a job. Raises what Hydra, OmegaConf and `parse` raise."""
        seed = given_settings(overrides).get("seed", "")
        others = tuple(override for override in overrides if not override.startswith("seed="))
        same_but_seed = self._composed.get(others)
        if same_but_seed is not None and seed.isdecimal():
            return replace(same_but_seed, settings=replace(same_but_seed.settings, seed=int(seed)), overrides=overrides)
        composed = self._loader.load_sweep_config(self._config, overrides)
        pos_name = scheme_name(composed.hydra)
        with open_dict(composed):
            del composed.hydra
        if composed.resume is not None:
            raise UserError(f"resume={composed.resume}: resumes one run, without -m; a sweep finds its own")
        try:
            parsed = parse(composed, pos_name, overrides)
        except SettingError as error:
            raise naming_experiment(error, overrides, [CONFIGS]) from None
        if not re.search(r"\$\{[^}]*seed", OmegaConf.to_yaml(composed)):  # nothing else may depend on the seed
            self._composed[others] = parsed
        return parsed


def _plan_job(
    overrides: list[str], varied: list[str], folder: Path, finished: dict[str, Run], composer: _Composer
) -> Job:
    impossible = False
    given = given_settings(map(unquoted, overrides))
    label = [f"{key.rsplit('.', 1)[-1]}_{given[key]}" for key in varied if key in given]
    try:
        parsed = composer.config_of(overrides)
        decisive = identity(parsed)
        if (run := finished.get(decisive)) is not None:
            now = fingerprints(parsed.pos)
            other_code = {key: getattr(run.summary, key) for key in now} != now
            return Job(overrides, run.folder, parsed, decisive, reused=True, other_code=other_code)
        own = job_folder(parsed, folder, label)
        # A finished one of this identity would have been found, and its folder is called after that at first.
        problem = f"{own}: {EXTENDED}" if _finished_run(own) else ""
        return Job(overrides, own, parsed, decisive, problem, problem)
    except (HydraException, OmegaConfBaseException) as error:
        problem = reason = explain(error, overrides)
    except UserError as error:
        problem = reason = str(error)
        group, _, setting = error.option.partition(".") if isinstance(error, SettingError) else ("", "", "")
        impossible = group == "pos" and setting != ""
        chosen = given.get(f"{group}.{TARGET}") or given.get(group)
        if chosen and isinstance(error, UnknownSetting):
            reason = f"{chosen} has no {setting}"
    name = "-".join([given.get("pos", ""), *label, f"seed{given.get('seed', '')}"])
    return Job(
        overrides, folder / safe_name(name.strip("-"), 100), problem=problem, reason=reason, impossible=impossible
    )
