"""Overrides of train.py: quoted where Hydra's grammar would stand in the user's way, and again as they were typed."""

import re
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf

from poslab.config.composed import with_any_scheme
from poslab.errors import UserError

# Hydra has more, and takes -pos=NAME for -p, its short name of --package, and --conf for --config-dir.
_SHOWING = ("-h", "--help", "--hydra-help", "--version", "--cfg", "--resolve", "-sc", "--shell-completion")
_FLAGS = ("-m", "--multirun", "--config-dir", *_SHOWING)
_TEXT = "sample.prompt"  # always plain text
_PATHS = ("run_dir", "resume", "data.path", "data.cache_dir")  # plain text wherever Hydra can't read them


def for_hydra(arguments: list[str]) -> list[str]:
    """Flags and then settings, since Hydra takes these in one piece only, with the quotes that its grammar needs.

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


def settings_in(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if "=" in argument and not argument.startswith("-")]


def as_typed(override: str) -> str:
    """What is typed for an override that Hydra was given, the text without its quotes."""
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
    """The text as OmegaConf gives it back unchanged: it would look for the value of ${name}. A backslash prevents that,
    and is itself one of two before it."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def _is_plain(setting: str, sweeping: bool) -> bool:
    """Whether Hydra reads it, and as one value unless `sweeping`."""
    try:
        override = OverridesParser.create().parse_override(setting)
    except HydraException:
        return False
    return sweeping or not override.is_sweep_override()
