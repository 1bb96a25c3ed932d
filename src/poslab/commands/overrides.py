"""The command line of train: quoted where Hydra's grammar would stand in the user's way, and again as it was typed.

Hydra's parser of flags and its start of an application have no public name but hydra.main, which reads sys.argv and not
a list of arguments: both are used as in hydra-core 1.3.2, _internal/utils.py.
"""

import re
from argparse import Namespace
from collections.abc import Callable
from typing import NoReturn

from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from hydra.version import setbase
from omegaconf import DictConfig, OmegaConf

from poslab.config.composed import with_any_scheme
from poslab.errors import UserError

# Hydra has more, and takes -pos=NAME for -p, its short name of --package, and --conf for --config-dir.
_SHOWING = ("-h", "--help", "--hydra-help", "--version", "--cfg", "--resolve", "-sc", "--shell-completion")
_FLAGS = ("-m", "--multirun", "--config-dir", *_SHOWING)
_TEXT = "sample.prompt"  # always plain text
_PATHS = ("run_dir", "resume", "data.path", "data.cache_dir")  # plain text wherever Hydra can't read them


def for_hydra(arguments: list[str]) -> list[str]:
    """Order flags before settings, which Hydra takes in one piece only, and quote as its grammar needs.

    Raises UserError for a flag that there isn't.
    """
    settings = settings_in(arguments)
    flags = [argument for argument in arguments if argument not in settings]
    for flag in flags:
        if flag.startswith("-") and flag.partition("=")[0] not in _FLAGS:
            _refuse(f"{flag}: unknown flag")
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    parser.parse_args([*flags, *settings])
    sweeping = bool({"-m", "--multirun"} & set(flags))
    return [*flags, *(_quoted(setting, sweeping) for setting in with_any_scheme(settings))]


def parsed(arguments: list[str]) -> Namespace:
    """Parse arguments as Hydra does: `overrides` are the settings, `config_dir` is the folder of --config-dir."""
    return get_args_parser().parse_args(arguments)


def run_hydra(task: Callable[[DictConfig], None], arguments: list[str], config_dir: str, config_name: str) -> None:
    """Do as hydra.main(task) would with `arguments` in sys.argv: sweep, or show what is asked for."""
    setbase("1.3")
    _run_hydra(parsed(arguments), get_args_parser(), task, config_dir, config_name)


def settings_in(arguments: list[str]) -> list[str]:
    """Return the settings among the arguments, `name=value`."""
    return [argument for argument in arguments if "=" in argument and not argument.startswith("-")]


def as_typed(override: str) -> str:
    """Return what is typed for an override that Hydra was given, the text without its quotes."""
    if override.startswith("++"):  # of `with_any_scheme`
        return override.removeprefix("++")
    name = override.partition("=")[0]
    if name.lstrip("+") != _TEXT:
        return override
    text = OverridesParser.create().parse_override(override).value()
    plain = OmegaConf.to_container(OmegaConf.create({"value": text}), resolve=True)
    return f"{name}={plain['value']}"  # type: ignore[index,call-overload]


def _refuse(message: str) -> NoReturn:
    raise UserError(f"{message}; --help shows what there is")


def _quoted(setting: str, sweeping: bool) -> str:
    name, _, value = setting.partition("=")
    if name.lstrip("+") == _TEXT or (name in _PATHS and not _is_plain(setting, sweeping and name.startswith("data."))):
        return f"{name}={QuotedString(_escaped(value), Quote.single).with_quotes()}"
    return setting


def _escaped(text: str) -> str:
    """Escape the text so that OmegaConf doesn't look for the value of ${name}: by a backslash, and double those before
    it."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def _is_plain(setting: str, sweeping: bool) -> bool:
    """Return whether Hydra reads the setting, and as one value unless `sweeping`."""
    try:
        override = OverridesParser.create().parse_override(setting)
    except HydraException:
        return False
    return sweeping or not override.is_sweep_override()
