"""The command line before Hydra reads it, where its grammar would stand in the user's way."""

import os
import re
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import OmegaConf

from poslab.errors import UserError

_PATHS = ("run_dir", "resume", "ckpt", "out", "data.path", "data.cache_dir", "data_path")
_LISTS_OF_PATHS = ("runs",)


def flags_first(arguments: list[str]) -> list[str]:
    """The same with all settings at the end: Hydra's parser takes them in one piece only. Raises UserError for a flag
    that there isn't."""
    settings = [argument for argument in arguments if "=" in argument and not argument.startswith("-")]
    rest = [argument for argument in arguments if argument not in settings]
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    parser.parse_args([*rest, *settings])
    return [*rest, *settings]


def _refuse(message: str) -> NoReturn:
    raise UserError(f"{message}; --help shows what there is")


def without_debug(arguments: list[str]) -> tuple[list[str], bool]:
    """The arguments without debug=true or debug=false, which every script takes, and which of them was given."""
    choices = [a.lower() == "debug=true" for a in arguments if a.lower() in ("debug=true", "debug=false")]
    rest = [a for a in arguments if a.lower() not in ("debug=true", "debug=false")]
    return rest, bool(choices and choices[-1])


def check_readable(arguments: list[str]) -> None:
    """Raises UserError for one that is no text in UTF-8, which no file of a run could hold."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UserError(f"{argument.encode(errors='replace').decode()}: must be text in UTF-8") from None


def is_sweep(arguments: list[str]) -> bool:
    return bool({"-m", "--multirun"} & set(arguments))


def each_job_its_own(arguments: list[str]) -> list[str]:
    """In a sweep over schemes, a scheme's setting as a choice of one.

    Hydra composes what isn't swept before it knows a job's scheme, and would refuse pos=one,other pos.setting=16 where
    the default scheme has no such setting.
    """
    if not is_sweep(arguments):
        return arguments
    one = re.compile(r"(\+{0,2}pos\.[^=]+)=([^,]+)")
    return [f"{m[1]}=choice({m[2]})" if (m := one.fullmatch(a)) and "(" not in a else a for a in arguments]


def paths_as_typed(arguments: list[str]) -> list[str]:
    """The arguments with quotes around paths that Hydra's grammar can't read, or would take for several values."""
    sweeping = is_sweep(arguments)
    return [_quoted_path(_quoted_list(argument), sweeping) for argument in arguments]


def _quoted_list(argument: str) -> str:
    """Several paths, in brackets or not, as a list that Hydra reads."""
    key, _, value = argument.partition("=")
    if key not in _LISTS_OF_PATHS or _is_plain(argument):
        return argument
    bare = value[1:-1] if value.startswith("[") and value.endswith("]") else value
    paths = [bare] if os.path.exists(os.path.expanduser(bare)) else bare.split(",")
    return f"{key}=[{','.join(_quote(path.strip()) for path in paths)}]"


def _quoted_path(argument: str, sweeping: bool) -> str:
    key, separator, value = argument.partition("=")
    if not separator or key not in _PATHS:
        return argument
    return argument if _is_plain(argument, sweeping) else f"{key}={_quote(value)}"


def _is_plain(argument: str, sweeping: bool = False) -> bool:
    """Whether Hydra reads it, and as one value unless `sweeping`."""
    try:
        override = OverridesParser.create().parse_override(argument)
    except HydraException:
        return False
    return sweeping or not override.is_sweep_override()


def quoted(arguments: list[str], option: str | None, many: bool = False) -> list[str]:
    """The arguments with the values of `option`, plain text, in quotes and escapes, so that Hydra gives them back.

    With `many`, all of them as one list. The text ??? by itself means to Hydra that there is none.
    """
    pattern = re.compile(rf"(\+{{0,2}}{re.escape(option or '')})=(.*)", flags=re.DOTALL)
    matches = [pattern.fullmatch(argument) if option else None for argument in arguments]
    texts = [_quote(match[2]) for match in matches if match]
    if many and texts:
        others = [argument for argument, match in zip(arguments, matches, strict=True) if not match]
        return [*others, f"{option}=[{','.join(texts)}]"]
    return [f"{m[1]}={_quote(m[2])}" if m else argument for argument, m in zip(arguments, matches, strict=True)]


def _quote(text: str) -> str:
    return QuotedString(escaped(text), Quote.single).with_quotes()


def escaped(text: str) -> str:
    """The text as OmegaConf gives it back unchanged: it would look for the value of ${name}. A backslash prevents that,
    and is itself one of two before it."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)


def as_typed(override: str, text: str | None) -> str:
    if text is None or not override.lstrip("+").startswith(f"{text}="):
        return override
    value = OverridesParser.create().parse_override(override).value()
    plain = OmegaConf.to_container(OmegaConf.create({"value": value}), resolve=True)
    return f"{override.partition('=')[0]}={plain['value']}"  # type: ignore[index,call-overload]
