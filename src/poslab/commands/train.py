"""Trains: Hydra composes the settings; then one run, one that goes on, or a sweep's job."""

import os
import sys
from pathlib import Path
from string import Template

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from poslab.commands.cli import start, told_in_one_line
from poslab.commands.overrides import as_typed, for_hydra, settings_in
from poslab.config.composed import config_groups, explain, scheme_name
from poslab.config.files import CONFIGS
from poslab.config.program import argv_of, as_called
from poslab.config.schemes import chosen, given_of
from poslab.config.train import parse
from poslab.errors import UserError
from poslab.lazy import import_training
from poslab.runs.place import prepare_process
from poslab.runs.resume import resumed
from poslab.tasks import Task


def run_train() -> None:
    """Reads the command line and trains, sweeps, or prints --help or --info; exits 2 on a user's error."""
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # or Hydra would print errors itself, with advice on tracebacks
    typed, debug = start()
    prepare_process()

    def in_users_words(error: Exception, composing: bool = False) -> str | None:
        """composing: a ValueError is Hydra's, of the command line; and yamls are read."""
        known = (HydraException, OmegaConfBaseException, *([ValueError, YAMLError] if composing else []))
        return explain(error, typed) if isinstance(error, known) else None

    def job(config: DictConfig) -> None:
        sys.argv[:] = argv_of("train", *typed)  # Lightning starts the script again with these, for every further device
        if HydraConfig.get().mode == RunMode.MULTIRUN:  # how a job ended is the sweep's to tell
            _run_job(config)
            return
        with told_in_one_line("train", typed, debug, in_users_words):  # here, too: Hydra would add lines of its own
            _run_alone(config)

    with told_in_one_line("train", typed, debug, lambda error: in_users_words(error, composing=True)):
        if "--info" in typed:
            from poslab.commands.info import print_info  # loads torch

            print_info()
            return
        if "--example" in typed:
            print(_example([argument for argument in typed if argument != "--example"]))
            return
        sys.argv[1:] = for_hydra(typed)
        _own_folder(sys.argv[1:])
        if {"-h", "--help"} & set(typed):
            print(_help(sys.argv[1:]))
        else:
            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name="train")(job)()


def _run_alone(config: DictConfig) -> None:
    again = config.resume is not None
    checked = resumed(config, _overrides()) if again else parse(config, scheme_name(), _typed())
    print("loading torch and Lightning ...", flush=True)
    import_training().train(checked)  # after the checks, which need neither


def _run_job(config: DictConfig) -> None:
    from poslab.sweep import run_job

    run_job(parse(config, scheme_name(), _typed()), _overrides())


def _overrides() -> list[str]:
    """Those of this run, or this job of a sweep, as they would be typed."""
    return [as_typed(override) for override in HydraConfig.get().overrides.task]


def _typed() -> list[str]:
    """What makes this run again: its overrides, and the folder of yamls of one's own, if one was named."""
    sources = HydraConfig.get().runtime.config_sources
    named = [source.path for source in sources if source.provider == "command-line"]
    return [*(f"--config-dir={folder}" for folder in named), *_overrides()]


def _example(arguments: list[str]) -> str:
    """One example of the task that the command line names."""
    config = parse(_composed(for_hydra(arguments)))
    if not isinstance(config.data, Task):
        raise UserError("--example: of a task, as in data=recall --example")
    return config.data.example()


def _help(arguments: list[str]) -> str:
    """The template of the config, filled in. (Hydra's own --help lists its groups twice over and takes a second.)"""
    config = _composed(arguments, return_hydra_config=True)
    template = Template(as_called(config.hydra.help.template))
    with open_dict(config):
        del config.hydra
        config.pos = chosen(OmegaConf.to_container(config.pos), given_of(settings_in(arguments)))  # type: ignore[arg-type]
    folders = [CONFIGS, *_own_folder(arguments)]
    groups = "\n".join(f"{name}: {', '.join(options)}" for name, options in config_groups(folders).items())
    return template.substitute(APP_CONFIG_GROUPS=groups, CONFIG=OmegaConf.to_yaml(config).strip())


def _composed(arguments: list[str], return_hydra_config: bool = False) -> DictConfig:
    """The configuration of a command line, without running anything."""
    searched = [f"hydra.searchpath={[str(folder) for folder in _own_folder(arguments)]}"]  # after poslab's, as in a run
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        return hydra.compose("train", [*settings_in(arguments), *searched], return_hydra_config=return_hydra_config)


def _own_folder(arguments: list[str]) -> list[Path]:
    """The folder that --config-dir names, if any. Raises UserError where there is none of that name, or where a yaml in
    it would never be read: Hydra looks into poslab's folder first."""
    named = get_args_parser().parse_args(arguments).config_dir
    if named is None:
        return []
    folder = Path(named).absolute()
    if not folder.is_dir():
        raise UserError(f"--config-dir {named}: no such folder")
    for option in sorted(file.relative_to(CONFIGS) for file in CONFIGS.rglob("*.yaml")):
        own = folder / option
        if own.is_file() and own.read_bytes() != (CONFIGS / option).read_bytes():
            raise UserError(
                f"--config-dir {named}: {option}: the name is taken, poslab has a yaml of that name; choose another"
            )
    return [folder]
