"""Command train: one run, one that resumes, or a sweep, from a command line in Hydra's grammar."""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from poslab.config.command_line import as_called
from poslab.config.files import CONFIGS
from poslab.config.help import every_day_text, options_text, settings_text
from poslab.config.nodes import given_settings
from poslab.config.overrides import (
    config_groups,
    explain,
    naming_experiment,
    parse_arguments,
    require_known,
    scheme_name,
    unquoted,
)
from poslab.errors import SettingError, UserError, as_typed
from poslab.processes import quiet_other_processes
from poslab.runs.folder import run_at

if TYPE_CHECKING:
    from poslab.config.train import TrainConfig


def run_train(typed: list[str]) -> None:
    """Train or sweep, or print --help, --info or --example. Raises UserError for a line that is refused."""
    quiet_other_processes()
    if "--info" in typed:
        from poslab.commands.info import print_info  # loads torch

        print_info()
        return
    helps = not {"-h", "--help"}.isdisjoint(typed)
    # `--help all`: the rest of the line is composed as ever.
    words = [word for word in typed if word != "--example" and not (helps and word == "all")]
    flags, settings = parse_arguments(words)
    sweeping = not {"-m", "--multirun"}.isdisjoint(flags)
    settings = [_naming_newest_run(setting, sweeping) for setting in settings]
    roots = [CONFIGS, *_config_dir(flags)]
    with _in_users_words(typed):
        if helps:
            print(_help(settings, roots, with_all="all" in typed))
            return
        composed = _by_hydra(flags, settings)
        if composed is None:  # a sweep is over, or what was asked for is shown
            return
        config, hydra_config = composed
        swept = _swept_settings(hydra_config, settings)
        if swept and "--example" not in typed and config.resume is None:
            one_run = " ".join(f"{name}=VALUE" for name in swept)
            print(f"a sweep, as by -m; {one_run} chooses one of its runs", flush=True)
            _by_hydra([*flags, "--multirun"], settings)
            return
        if "--example" in typed:
            print(_parsed(config, hydra_config, roots).data.example())
            return
        if config.resume is None:  # else the scheme is that of the run
            require_known(scheme_name(hydra_config), settings)
        print("loading torch and Lightning ...", flush=True)
        parsed = _parsed(config, hydra_config, roots)
    from poslab.training.train import train

    train(parsed)


def _by_hydra(flags: Sequence[str], settings: Sequence[str]) -> tuple[DictConfig, Any] | None:
    """Do what hydra.main does with a command line: sweep, or show what the flags ask for. Return the configuration of a
    single run, and Hydra's own part: it is checked and trained outside of Hydra."""
    composed: list[tuple[DictConfig, Any]] = []

    @hydra.main(config_path=str(CONFIGS), config_name="train", version_base="1.3")
    def task(config: DictConfig) -> float | None:
        hydra_config = HydraConfig.get()
        if hydra_config.mode is RunMode.MULTIRUN:
            return _run_job(config, hydra_config)
        composed.append((config, hydra_config))
        return None

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # or Hydra would print errors itself
    typed, sys.argv = sys.argv, [sys.argv[0], *flags, *settings]
    try:
        task()
    finally:
        sys.argv = typed
    return composed[0] if composed else None


def _swept_settings(hydra_config: DictConfig, overrides: list[str]) -> list[str]:
    """Return the settings to which a yaml, such as an experiment's, gives several values, but those that the command
    line gives.

    hydra_config: Hydra's own part of the configuration.
    """
    sweeper: Any = OmegaConf.to_container(hydra_config.sweeper, resolve=False)
    params, grids = sweeper.get("params") or {}, sweeper.get("grids") or [{}]
    given, parser = given_settings(overrides), OverridesParser.create()
    swept = []
    for name in dict.fromkeys([*params, *(name for grid in grids for name in grid)]):
        values = {as_typed(grid.get(name, params.get(name))) for grid in grids}
        several = any(parser.parse_override(f"{name}={value}").is_sweep_override() for value in values)
        if name not in given and (several or len(values) > 1):
            swept.append(name)
    return swept


def _parsed(config: DictConfig, hydra_config: Any, roots: list[Path]) -> "TrainConfig":
    """Check the settings of a run, one that resumes included. Raises SettingError."""
    from poslab.config.train import parse
    from poslab.runs.resumed_settings import settings_of_resumed_run

    gc.freeze()  # torch's objects stay to the end, and are no longer searched for garbage
    overrides = [unquoted(override) for override in hydra_config.overrides.task]
    # A run resumes by `resume=` here, or as a job of a sweep (sweep/job.py): both go to training/resume.py.
    if config.resume is not None:
        return settings_of_resumed_run(config, overrides)
    try:
        return parse(config, scheme_name(hydra_config), [*map(_as_flag, roots[1:]), *overrides])
    except SettingError as error:
        raise naming_experiment(error, overrides, roots) from None


def _run_job(config: DictConfig, hydra_config: Any) -> float:
    """Run one job of a sweep, in a process of Hydra's launcher, and return its figure, for a sweeper that searches."""
    from poslab.config.train import parse
    from poslab.sweep.job import JobFiles, run_job
    from poslab.sweep.job_list import job_folder, sweep_folder

    sources = [Path(source.path) for source in hydra_config.runtime.config_sources if source.provider == "command-line"]
    overrides = [unquoted(override) for override in hydra_config.overrides.task]
    parsed = parse(config, scheme_name(hydra_config), [*map(_as_flag, sources), *overrides])
    if "ResumableSweeper" in str(hydra_config.sweeper._target_):  # which names the folder of each job
        return run_job(parsed, overrides)
    folder = job_folder(parsed, sweep_folder(config, hydra_config))
    placed = replace(parsed, settings=replace(parsed.settings, run_dir=str(folder)))
    figure = run_job(placed, [*overrides, f"run_dir={folder}"])
    print(f"{folder}: {JobFiles(folder).failure or f'{parsed.settings.monitor} {figure:.6g}'}", flush=True)
    return figure


def _naming_newest_run(setting: str, sweeping: bool) -> str:
    """Return init_from=last as init_from=RUN, because a run records what it began with. Raises UserError in a sweep."""
    if setting != "init_from='last'" or Path("last").exists():
        return setting
    if sweeping:
        raise UserError("init_from=last: the newest run is soon one of the sweep's own; name the run")
    return parse_arguments([f"init_from={run_at('last')}"])[1][0]


@contextmanager
def _in_users_words(typed: list[str]) -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise for a command line or a yaml into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(explain(error, typed)) from error


def _help(settings: list[str], roots: list[Path], with_all: bool) -> str:
    """Fill in the template of the config, or its header, with the settings of every day. (Hydra's own --help lists its
    groups twice over and takes a second.)"""
    searched = f"hydra.searchpath={[str(folder) for folder in roots[1:]]}"
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose("train", [*settings, searched], return_hydra_config=True)
    with open_dict(config):
        hydra_config = config.pop("hydra")
    choices = hydra_config.runtime.choices
    plain: Any = OmegaConf.to_container(config)
    if not with_all:
        shown = every_day_text(plain, choices, roots)
        return Template(as_called(hydra_config.help.header)).substitute(CONFIG=shown)
    return Template(as_called(hydra_config.help.template)).substitute(
        APP_CONFIG_GROUPS=options_text(config_groups(roots), choices, roots),
        CONFIG=settings_text(plain, choices, roots),
        PAGES=CONFIGS,
    )


def _as_flag(folder: Path) -> str:
    return f"--config-dir={folder.absolute()}"


def _config_dir(flags: Sequence[str]) -> list[Path]:
    """Return the folder that --config-dir names, if any. Raises UserError where there is none of that name, or where a
    yaml in it would never be read: Hydra looks into poslab's folder first."""
    named = next((flag.partition("=")[2] for flag in flags if flag.startswith("--config-dir=")), None)
    if named is None:
        return []
    folder = Path(named).absolute()
    if not folder.is_dir():
        raise UserError(f"--config-dir {named}: no such folder")
    for option in sorted(file.relative_to(CONFIGS) for file in CONFIGS.rglob("*.yaml")):
        own = folder / option
        if own.is_file() and own.read_bytes() != (CONFIGS / option).read_bytes():
            problem = "the name is taken, poslab has a yaml of that name; choose another"
            raise UserError(f"--config-dir {named}: {option}: {problem}")
    return [folder]
