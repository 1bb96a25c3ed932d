"""Command train: one run, one that resumes, or a sweep, from a command line in Hydra's grammar."""

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from poslab.config.command_line import as_called
from poslab.config.files import CONFIGS
from poslab.config.help import every_day_text, options_text, settings_text
from poslab.config.nodes import chosen, given_of, given_settings, require_known
from poslab.config.overrides import (
    config_groups,
    explain,
    naming_experiment,
    parse_arguments,
    run_hydra,
    scheme_name,
    unquoted,
)
from poslab.errors import SettingError, UserError, as_typed
from poslab.processes import quiet_other_processes
from poslab.runs.folder import run_at

if TYPE_CHECKING:
    from poslab.config.train import TrainConfig


def run_train(typed: list[str]) -> None:
    """Train or sweep, or print --help, --info or --example. Raises UserError for a line that Hydra refuses."""
    quiet_other_processes()
    if "--info" in typed:
        from poslab.commands.info import print_info  # loads torch

        print_info()
        return
    # `--help all`: the rest of the line is composed as ever.
    helps = {"-h", "--help"} & {*typed}
    settings = [argument for argument in typed if argument != "--example" and not (helps and argument == "all")]
    arguments = parse_arguments(settings)
    arguments.overrides = [_of_newest_run(setting, arguments.multirun) for setting in arguments.overrides]
    with _in_users_words(typed):
        if arguments.help:
            print(_help(arguments, every="all" in typed))
            return
        # These need Hydra's application; a run needs no more than its public `compose`.
        shows = arguments.hydra_help or arguments.cfg or arguments.resolve or arguments.shell_completion
        os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # or Hydra would print errors itself
        if arguments.multirun or shows:
            _check_config_dir(arguments)
            run_hydra(_run_job, arguments)
            return
        composed, running = _composed(arguments.overrides, arguments)
        swept = _swept_settings(running, arguments.overrides)
        if swept and "--example" not in typed and composed.resume is None:
            one_run = " ".join(f"{name}=VALUE" for name in swept)
            print(f"a sweep, as by -m; {one_run} chooses one of its runs", flush=True)
            arguments.multirun = True
            run_hydra(_run_job, arguments)
            return
        if "--example" in typed:
            from poslab.config.train import parse

            print(parse(composed).data.example())
            return
        name = scheme_name(running)
        if composed.resume is None:  # else the scheme is that of the run
            require_known(composed.pos, given_of(arguments.overrides))
        print("loading torch and Lightning ...", flush=True)
        try:
            config = _checked(composed, running, name, arguments.config_dir)
        except SettingError as error:
            raise naming_experiment(error, arguments.overrides, lambda given: _composed(given, arguments)[0]) from None
    from poslab.training.train import train

    train(config)


def _of_newest_run(setting: str, sweeping: bool) -> str:
    """Return init_from=last as init_from=RUN, because a run records what it began with. Raises UserError in a sweep."""
    if setting != "init_from='last'" or Path("last").exists():
        return setting
    if sweeping:
        raise UserError("init_from=last: the newest run is soon one of the sweep's own; name the run")
    return parse_arguments([f"init_from={run_at('last')}"]).overrides[0]


@contextmanager
def _in_users_words(typed: list[str]) -> Iterator[None]:
    """Turn what Hydra and OmegaConf raise for a command line or a yaml into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
        raise UserError(explain(error, typed)) from error


def _swept_settings(running: DictConfig, overrides: list[str]) -> list[str]:
    """Return the settings to which a yaml, such as an experiment's, gives several values, but those that the command
    line gives.

    running: Hydra's own part of the configuration.
    """
    sweeper: Any = OmegaConf.to_container(running.sweeper, resolve=False)
    params, grids = sweeper.get("params") or {}, sweeper.get("grids") or [{}]
    given, parser = given_settings(overrides), OverridesParser.create()
    swept = []
    for name in dict.fromkeys([*params, *(name for grid in grids for name in grid)]):
        values = {as_typed(grid.get(name, params.get(name))) for grid in grids}
        several = any(parser.parse_override(f"{name}={value}").is_sweep_override() for value in values)
        if name not in given and (several or len(values) > 1):
            swept.append(name)
    return swept


def _composed(overrides: list[str], arguments: Namespace) -> tuple[DictConfig, DictConfig]:
    """Compose the configuration of these overrides, and Hydra's own part of it; arguments: the flags beside them."""
    searched = f"hydra.searchpath={[str(folder) for folder in _check_config_dir(arguments)]}"
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        composed = hydra.compose("train", [*overrides, searched], return_hydra_config=True)
    with open_dict(composed):
        return composed, composed.pop("hydra")


def _checked(composed: DictConfig, running: DictConfig, name: str | None, config_dir: str | None) -> "TrainConfig":
    """Check the settings of a run, one that resumes included. Raises SettingError."""
    from poslab.config.train import parse
    from poslab.runs.resumed_settings import settings_of_resumed_run

    overrides = [unquoted(override) for override in running.overrides.task]
    # A run resumes by `resume=` here, or as a job of a sweep (sweep/job.py): both go to training/resume.py.
    if composed.resume is not None:
        return settings_of_resumed_run(composed, overrides)
    return parse(composed, name, [*_typed_config_dir(config_dir), *overrides])


def _run_job(config: DictConfig) -> float:
    """Run one job of a sweep, in a process of Hydra's launcher, and return its figure, for a sweeper that searches."""
    from poslab.config.train import parse
    from poslab.sweep.job import JobFiles, run_job
    from poslab.sweep.job_list import job_folder, sweep_folder

    running = HydraConfig.get()
    sources = [source.path for source in running.runtime.config_sources if source.provider == "command-line"]
    overrides = [unquoted(override) for override in running.overrides.task]
    typed = [*(line for folder in sources for line in _typed_config_dir(folder)), *overrides]
    parsed = parse(config, scheme_name(running), typed)
    if "ResumableSweeper" in str(running.sweeper._target_):  # which names the folder of each job
        return run_job(parsed, overrides)
    folder = job_folder(parsed, sweep_folder(config, running))
    placed = replace(parsed, settings=replace(parsed.settings, run_dir=str(folder)))
    figure = run_job(placed, [*overrides, f"run_dir={folder}"])
    print(f"{folder}: {JobFiles(folder).failure or f'{parsed.settings.monitor} {figure:.6g}'}", flush=True)
    return figure


def _typed_config_dir(folder: str | None) -> list[str]:
    return [] if folder is None else [f"--config-dir={Path(folder).absolute()}"]


def _help(arguments: Namespace, every: bool) -> str:
    """Fill in the template of the config, or its header, with the settings of every day. (Hydra's own --help lists its
    groups twice over and takes a second.)"""
    config, running = _composed(arguments.overrides, arguments)
    config.pos = chosen(OmegaConf.to_container(config.pos), given_of(arguments.overrides))  # type: ignore[arg-type]
    roots, choices = [CONFIGS, *_check_config_dir(arguments)], running.runtime.choices
    plain = OmegaConf.to_container(config)
    if not every:
        shown = every_day_text(plain, choices, roots)  # type: ignore[arg-type]
        return Template(as_called(running.help.header)).substitute(CONFIG=shown)
    return Template(as_called(running.help.template)).substitute(
        APP_CONFIG_GROUPS=options_text(config_groups(roots), choices, roots),
        CONFIG=settings_text(plain, choices, roots),  # type: ignore[arg-type]
        PAGES=CONFIGS,
    )


def _check_config_dir(arguments: Namespace) -> list[Path]:
    """Return the folder that --config-dir names, if any. Raises UserError where there is none of that name, or where a
    yaml in it would never be read: Hydra looks into poslab's folder first."""
    named = arguments.config_dir
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
