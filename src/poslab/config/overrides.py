"""Command line of train: quoted where Hydra's grammar would stand in the user's way, and again as it was typed; and
what Hydra refuses in one line of the user's words.

Hydra's parser of flags and its start of an application have no public name but hydra.main, which reads sys.argv and not
a list of arguments: both are used as in hydra-core 1.3.2 to 1.3.8, _internal/utils.py. They are all that poslab uses
of Hydra's private parts.
"""

import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import _run_hydra, get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.version import setbase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from poslab.config.command_line import flag_problem
from poslab.config.files import CLAIMS, CONFIGS
from poslab.config.groups import names
from poslab.config.help import other_names
from poslab.config.nodes import TARGET, default_scheme, given_settings, known_settings
from poslab.errors import SettingError, UserError, suggestion


def scheme_name(running: Any) -> str | None:
    """Return the option chosen for `pos`; None where the command line puts another class in its place.

    running: Hydra's own part of the configuration.
    """
    if any(override.lstrip("+~").startswith("pos._target_=") for override in running.overrides.task):
        return None
    return str(running.runtime.choices["pos"])


def with_any_part(overrides: Iterable[str]) -> list[str]:
    """Return the overrides so that Hydra takes every setting of a part, of the task and of a group that may be
    null: it knows those of a yaml, and of a sweep's default one, not those of a class, which are checked later. The
    name of a scheme comes before its settings, which else would be replaced by it."""
    known, settings = names(), []
    for override in overrides:
        plain = override.lstrip("+")
        name = plain.partition("=")[0]
        # A group that may be null is null in every yaml, so its settings are below a name that is known, as parts are.
        within = any(name.startswith(f"{group}.") for group in known)
        of_class = name.startswith("pos.") or within
        of_task = name.startswith("data.") and name not in known
        settings.append(f"++{plain}" if of_class or of_task else override)
    of_scheme = [setting for setting in settings if setting.startswith("++pos.")]
    outer_first = iter(sorted(of_scheme, key=lambda setting: setting.partition("=")[0].count(".")))
    return [next(outer_first) if setting in of_scheme else setting for setting in settings]


# Groups that take a class of the user's, and its node.
_OF_CLASSES = {group: group.replace("/", ".") for group in ("pos", "optim", "schedule", "model/norm", "model/mlp")}
_OF_CLASSES |= {"callbacks": "callbacks.mine", "logger": "logger.mine", "data": "data=task data"}
# Of packages that are an extra of poslab.
_PLUGINS = {"hydra/launcher": ("joblib", "submitit_local", "submitit_slurm"), "hydra/sweeper": ("optuna",)}


def explain(error: Exception, arguments: Iterable[str]) -> str:
    """Return one line for an error in which Hydra or OmegaConf refuse a command line: option, value and valid ones."""
    given = given_settings(arguments)
    message = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    if isinstance(error, OverrideParseException):
        return f"{unquoted(str(error.override))}: not of the form option=value; quote values with special characters"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        group, _, name = error.missing_cfg_file.partition("/")
        inner = error.missing_cfg_file.rpartition("/")
        if group not in config_groups() or inner[0] in config_groups():  # such as hydra/launcher, and model/norm
            group, _, name = inner
        if name in _PLUGINS.get(group, ()):
            return f'{group}={name}: needs a package that is not installed: python -m pip install "poslab[sweep]"'
        if group == "data" and (path_problem := _path_problem(name)):
            return f"{group}={name}: {path_problem}"
        if "." in name and group in _OF_CLASSES:
            return f"{group}={name}: no option; a class is given as {_OF_CLASSES[group]}.{TARGET}={name}"
        if name in ("all", "*"):
            every = "-m experiment=field trains each" if group == "pos" else f"-m {group}=NAME,NAME runs each"
            return f"{group}={name}: unknown; {every}"
        there = {*(error.options or ()), *config_groups().get(group, [])}  # Hydra leaves out those of folders within
        return f"{group}={name}: unknown; {_option_meant(group, name, sorted(there))}"
    if match := re.match(r"Could not override '([^']+)'", message):
        option, known = match[1], names()
        chosen = {group.replace("/", "."): group for group in config_groups()}  # model.norm as model/norm=NAME
        of_group = [chosen.get(name, name) for name in known if name.startswith(f"{option.partition('.')[0]}.")]
        valid = of_group or dict.fromkeys([*chosen.values(), *(name for name in known if "." not in name)])
        elsewhere = [name for name in known_settings(given.get("pos", default_scheme())) if name not in valid]
        problem = f"unknown setting; {suggestion(option, valid, elsewhere)}"
        if option.startswith("data.") and option in known:
            problem = "a text has this setting, a task doesn't"
        return f"{option}={given.get(option, '...')}: {problem}"
    if match := re.match(r"Ambiguous value for argument '([^=]+)=", message):
        option = match[1].lstrip("+")
        return f"{option}={given.get(option, '...')}: must be one value; -m runs each of several"
    # What OmegaConf says of pos.layers.7=NAME, and of pos.layers.base=500.
    if match := re.match(r"Error merging override \+*(\S+\.\d[^=]*)=|invalid literal for int\(\).*'(.+)'", message):
        option = match[1] or next((name for name in given if f".{match[2]}" in name), match[2])
        return f"{option}={given.get(option, '...')}: is no place of the list: they are numbers from 0 on"
    if isinstance(error, InterpolationResolutionError):
        typed = [f"{option}={value}: " for option, value in given.items() if "${" in value]
        return f"{''.join(typed[:1])}{message}"
    bad_option = "Config group override" in message or "choices." in message  # such as pos=5, or a list
    for group, options in config_groups().items() if bad_option else ():
        if given.get(group, options[0]) not in options:
            return f"{group}={given[group]}: must be one option; {suggestion(given[group], options)}"
    if match := re.match(r"Key '(\w+)' is not in struct full_key: hydra\.runtime\.choices", message):
        return f"~{match[1]}: can't be left out; {match[1]}=NAME chooses one"
    return message


# What a file of text ends with; the last part of a class is none of these.
_TEXT_FILES = (".txt", ".md", ".csv", ".tsv", ".json", ".jsonl", ".parquet", ".arrow", ".bin", ".zst", ".gz", ".html")


def _path_problem(name: str) -> str | None:
    """Return what to say of a path given as an option of data; None for what is no path."""
    if name.startswith("hf:/") or Path(name).expanduser().exists():
        return f"no option, but data; data=text data.path={name} trains on it"
    if name.endswith(_TEXT_FILES):
        return "no such file; data=text data.path=FILE trains on one"
    return None


def _option_meant(group: str, name: str, options: Sequence[str]) -> str:
    """Suggest an option of a group for a name that is none: by what else the options are called, or by spelling."""
    plain = name.lower().replace("-", "_")
    called = [option for option in options if plain in other_names(CONFIGS / group / f"{option}.yaml")]
    if called:
        return f"did you mean {' or '.join(called)}?"
    words = name.replace(",", " ").split()
    if len(words) > 1 and {*words} <= {*options}:
        return f"several are given without spaces, with -m: {group}={','.join(words)}"
    meant = suggestion(name, options)
    if group == "data" and not meant.startswith("did"):
        return f"any text: data=text data.path=FILE, or data=text data.path=hf://OWNER/NAME; {meant}"
    return meant


def naming_experiment(
    error: SettingError, overrides: Iterable[str], compose: Callable[[list[str]], DictConfig]
) -> SettingError:
    """Return an error that also says which experiment sets its setting, where nobody has typed it.

    compose: returns the configuration of a command line.
    """
    overrides = list(overrides)
    given = given_settings(overrides)
    for group in ("experiment", "debug"):
        if group in given and error.option not in given:
            others = [override for override in overrides if not override.startswith(f"{group}=")]
            try:
                without = OmegaConf.select(compose(others), error.option)
            except HydraException:  # the others need the experiment
                without = None
            if without != error.value:
                problem = f"set by {group}={given[group]}; {error.problem}"
                return type(error)(error.option, error.value, problem)
    return error


def config_groups(roots: Iterable[Path] = (CONFIGS,)) -> dict[str, list[str]]:
    """Return the options of every group in these folders: of "model/norm", which is a setting of model; elsewhere with
    the folders within a group, "published/nanogpt"."""
    groups: dict[str, set[str]] = {}
    for option in (option.relative_to(root) for root in roots for option in root.glob("*/**/*.yaml")):
        group, *name = option.with_suffix("").parts
        if f"{group}.{name[0]}" in names():
            group = f"{group}/{name.pop(0)}"
        groups.setdefault(group, set()).add("/".join(name))
    return {group: sorted(groups[group]) for group in sorted(groups) if group != CLAIMS.name}


# Hydra has more, and takes -pos=NAME for -p, its short name of --package, and --conf for --config-dir.
_SHOWING = ("-h", "--help", "--hydra-help", "--cfg", "--resolve", "-sc", "--shell-completion")
_FLAGS = ("-m", "--multirun", "--config-dir", *_SHOWING)
_MERGED = ("callbacks", "logger", "experiment", "debug")  # groups of which several options may be chosen
_NOTHING = ("experiment=null", "debug=null")  # what is so where none is chosen; Hydra refuses to hear it again
_TEXT = "sample.prompt"  # always plain text
# Plain text, too, but for null and a ${name} in what Hydra could read.
_PATHS = ("run_dir", "resume", "init_from", "data.path", "data.cache_dir", "data.split", "data.document_separator")
_ONE_PER_SWEEP = ("run_dir", "resume")


def parse_arguments(arguments: list[str]) -> Namespace:
    """Parse flags and settings, in any order, as Hydra does: `overrides` are the settings, quoted as its grammar needs,
    `config_dir` is the folder of --config-dir. Raises UserError for a flag that there isn't."""
    for number, argument in enumerate(arguments):
        if argument.startswith("-") and argument.partition("=")[0] not in _FLAGS:
            raise UserError(flag_problem(arguments[number:], [*config_groups(), *names()]))
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]
    parsed = parser.parse_intermixed_args(arguments)
    if bare := next((word for word in parsed.overrides if "=" not in word and not word.startswith("~")), None):
        before = "".join(parsed.overrides[: parsed.overrides.index(bare)][-1:])
        if "=" in before and before.endswith(","):
            raise UserError(f"{before} {bare}: several values are given without spaces: -m {before}{bare}")
        raise UserError(f"{bare}: not of the form option=value; {_meant_by(bare)}")
    parsed.overrides = [setting for setting in parsed.overrides if setting not in _NOTHING]
    for group, text in given_settings(parsed.overrides).items():
        match = re.fullmatch(r"(\d+)(?:\.\.\.?|-|:)(\d+)", text)
        if match and group not in (_TEXT, *_PATHS, "trainer.max_time"):
            several = f"range({match[1]},{int(match[2]) + 1})"
            raise UserError(f"{group}={text}: must be one value; -m '{group}={several}' runs each of several")
        if group == "hydra.run.dir":
            raise UserError(f"{group}={text}: not used; run_dir={text} names the folder of a run")
        if text.startswith("[") and group in config_groups() and group not in _MERGED:
            raise UserError(f"{group}={text}: must be one option; -m {group}={text.strip('[]')} runs each")
    parsed.overrides = [_quoted(setting, parsed.multirun) for setting in with_any_part(parsed.overrides)]
    return parsed


def _meant_by(word: str) -> str:
    """Return what to type in place of a word without a name."""
    if word == "help":
        return "--help shows what there is"
    if word == "last" or Path(word).expanduser().is_dir():
        return f"resume={word} resumes a run, init_from={word} begins with its weights"
    if Path(word).expanduser().is_file():
        return f"data=text data.path={word} trains on that file"
    groups = [group for group, options in config_groups().items() if word in options]
    if groups:
        return " or ".join(f"{group}={word}" for group in groups) + " chooses it"
    return "without spaces around the =, and with quotes around a value that has spaces"


def run_hydra(task: Callable[[DictConfig], Any], arguments: Namespace) -> None:
    """Do as hydra.main(task) would with these arguments in sys.argv: sweep, or show what is asked for."""
    setbase("1.3")
    _run_hydra(arguments, get_args_parser(), task, str(CONFIGS), "train")


def unquoted(override: str) -> str:
    """Return what is typed for an override that Hydra was given, a text or path without its quotes."""
    if override.startswith("++"):  # of `with_any_part`
        return override.removeprefix("++")
    name, _, value = override.partition("=")
    plain = name.lstrip("+")
    if plain != _TEXT and (plain not in _PATHS or not value.startswith("'") or "${" in value):
        return override
    text = OverridesParser.create().parse_override(override).value()
    container: Any = OmegaConf.to_container(OmegaConf.create({"value": text}), resolve=True)
    return f"{name}={container['value']}"


def _refuse(message: str) -> NoReturn:
    raise UserError(f"{message}; --help shows what there is")


def _quoted(setting: str, sweeping: bool) -> str:
    """Quote a text, and a path, which to Hydra may be a number, several values, or nothing that it can read. Quotes
    that are typed around a path are Hydra's; with -m each of several paths is quoted."""
    name, _, value = setting.partition("=")
    plain = name.lstrip("+")
    if plain == _TEXT:
        return f"{name}={quoted_text(value)}"
    if plain not in _PATHS or value == "null":
        return setting
    try:
        override = OverridesParser.create().parse_override(setting)
    except HydraException:
        return f"{name}={quoted_text(value)}"
    if sweeping and override.is_sweep_override() and plain not in _ONE_PER_SWEEP:
        if not override.is_choice_sweep() or value.startswith("choice("):
            return setting
        # Hydra has read it, so the quotes among the values are in pairs.
        each = re.findall(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^,])+""", value)
        return f"{name}={','.join(one if one.strip().startswith(_QUOTES) else _in_quotes(one.strip()) for one in each)}"
    in_quotes = not override.is_sweep_override() and override.get_value_element_as_str().startswith(_QUOTES)
    return setting if in_quotes else f"{name}={_in_quotes(value)}"


_QUOTES = ("'", '"')


def _in_quotes(text: str) -> str:
    return str(QuotedString(text, Quote.single).with_quotes())


def quoted_text(text: str) -> str:
    """Return a text as the value of an override, so that nobody looks for the value of ${name} in it."""
    return _in_quotes(re.sub(r"(\\*)\$\{", r"\1\1\\${", text))
