"""Command line of train: quoted where Hydra's grammar would stand in the user's way, and again as it was typed; and
what Hydra refuses in one line of the user's words."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import InterpolationResolutionError

from poslab.config.command_line import flag_problem
from poslab.config.files import CLAIMS, CONFIGS
from poslab.config.groups import CLOSED, names
from poslab.config.help import other_names
from poslab.config.nodes import TARGET, default_scheme, flat_node, given_settings, known_settings, settings_in
from poslab.errors import SettingError, UnknownSetting, UserError, suggestion

# Hydra has more, and takes -pos=NAME for -p, its short name of --package, and --conf for --config-dir.
_VALUED = {"--config-dir": ("FOLDER",), "--cfg": ("job", "hydra", "all")}
_FLAGS = (*_VALUED, "-m", "--multirun", "-h", "--help", "--hydra-help", "--resolve", "-sc", "--shell-completion")
_NOTHING = ("experiment=null", "debug=null")  # what is so where none is chosen; Hydra refuses to hear it again
_TEXT = "sample.prompt"  # always plain text
# Plain text, too, but for null and a ${name} in what Hydra could read.
_PATHS = ("run_dir", "resume", "init_from", "data.path", "data.cache_dir", "data.split", "data.document_separator")
_ONE_PER_SWEEP = ("run_dir", "resume")
_QUOTES = ("'", '"')
_MERGED = ("callbacks", "logger", "experiment", "debug")  # groups of which several options may be chosen
_OWN = "own"  # option of `pos` for a class of the user's


def parse_arguments(typed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags, --name=value in one, and the settings, quoted as Hydra's grammar needs, in any order typed.
    Raises UserError for a flag or a word that means nothing."""
    flags, settings, words = [], [], iter(enumerate(typed))
    for number, word in words:
        if not word.startswith("-"):
            settings.append(word)
        elif word.partition("=")[0] not in _FLAGS:
            value = word.partition("=")[2] or "".join(typed[number + 1 : number + 2])
            if Path(value).name == "config.yaml" and Path(value).is_file():
                run = Path(value).parent
                raise UserError(f"{word}: unknown flag; resume={run} resumes that run, init_from={run} begins another")
            raise UserError(flag_problem(typed[number:], [*config_groups(), *names()]))
        elif word in _VALUED:
            _, value = next(words, (0, ""))
            flags.append(f"{word}={value}")
        else:
            flags.append(word)
    for flag, _, value in (word.partition("=") for word in flags):
        choices = _VALUED.get(flag, ())
        if (choices and not value) or (len(choices) > 1 and value not in choices):
            raise UserError(f"{flag} {value}: must be given as {' or '.join(f'{flag} {each}' for each in choices)}")
    if bare := next((word for word in settings if "=" not in word and not word.startswith("~")), None):
        before = "".join(settings[: settings.index(bare)][-1:])
        if "=" in before and before.endswith(","):
            raise UserError(f"{before} {bare}: several values are given without spaces: -m {before}{bare}")
        after = "".join(settings[settings.index(bare) + 1 :][:1])
        raise UserError(f"{bare}: not of the form option=value; {_meant_by(bare, after)}")
    for group in (word[1:].partition("=")[0] for word in settings if word.startswith("~")):
        if group in config_groups() and group not in _MERGED:
            raise UserError(f"~{group}: can't be left out; {group}=NAME chooses one")
    settings = [setting for setting in settings if setting not in _NOTHING]
    # Settings of a group need no + to be new ones.
    settings = [word.lstrip("+") if "." in word.partition("=")[0] else word for word in settings]
    given = given_settings(settings)
    for name, text in given.items():
        match = re.fullmatch(r"(\d+)(?:\.\.\.?|-|:)(\d+)", text)
        if match and name not in (_TEXT, *_PATHS, "trainer.max_time"):
            several = f"range({match[1]},{int(match[2]) + 1})"
            raise UserError(f"{name}={text}: must be one value; -m '{name}={several}' runs each of several")
        if name == "hydra.run.dir":
            raise UserError(f"{name}={text}: not used; run_dir={text} names the folder of a run")
        if text.startswith("[") and name in config_groups() and name not in _MERGED:
            raise UserError(f"{name}={text}: must be one option; -m {name}={text.strip('[]')} runs each")
    schemes = [name.strip() for name in given.get("pos", "").split(",")]
    own_class = given.get(f"pos.{TARGET}") or next((name for name in schemes if "." in name), "my_file.Mine")
    if len(schemes) > 1 and (_OWN in schemes or any(re.fullmatch(r"[\w.]+\.\w+", name) for name in schemes)):
        beside = ",".join(["mine", *(name for name in schemes if name != _OWN and "." not in name)])
        raise UserError(
            f"pos={given['pos']}: beside others, a class of your own needs a name: write the line "
            f"{TARGET}: {own_class} into conf/pos/mine.yaml, then -m --config-dir conf pos={beside}"
        )
    if f"pos.{TARGET}" in given and given.get("pos") != _OWN and "resume" not in given:
        target = given[f"pos.{TARGET}"]
        raise UserError(f"pos.{TARGET}={target}: a class of your own is given as pos={_OWN} pos.{TARGET}={target}")
    sweeping = not {"-m", "--multirun"}.isdisjoint(flags)
    return flags, [_quoted(setting, sweeping) for setting in with_names_of_schemes(settings)]


def with_names_of_schemes(settings: Iterable[str]) -> list[str]:
    """Return settings with pos.of=NAME as the name of a node, pos.of._target_=NAME, where settings below it are given,
    which it would else replace."""
    settings = list(settings)
    changed = []
    for setting in settings:
        name, _, value = setting.partition("=")
        below = any(other.startswith(f"{name}.") for other in settings)
        within = name.startswith("pos.") and below and not value.startswith("[")
        changed.append(f"{name}.{TARGET}={value}" if within else setting)
    return changed


def scheme_name(hydra_config: Any) -> str | None:
    """Return the option chosen for `pos`; None for a class of the user's."""
    name = str(hydra_config.runtime.choices["pos"])
    return None if name == _OWN else name


# Groups that take a class of the user's, and its node.
_CLASSES = {group: group.replace("/", ".") for group in ("optim", "schedule", "model/norm", "model/mlp")}
_CLASSES |= {"callbacks": "callbacks.mine", "logger": "logger.mine", "pos": "pos=own pos", "data": "data=task data"}
# Of packages that are an extra of poslab.
_PLUGINS = {"hydra/launcher": ("joblib", "submitit_local", "submitit_slurm"), "hydra/sweeper": ("optuna",)}


def explain(error: Exception, arguments: Iterable[str]) -> str:
    """Return one line for an error in which Hydra or OmegaConf refuse a command line."""
    given = given_settings(arguments)
    message = " ".join(str(error).partition("\nSee https")[0].split())
    if isinstance(error, OverrideParseException):
        return f"{unquoted(str(error.override))}: not of the form option=value; quote values with special characters"
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        return _no_option(error, error.missing_cfg_file)
    if match := re.match(r"Could not override '([^']+)'", message):
        option = match[1]
        valid = list(dict.fromkeys([*config_groups(), *(name for name in names() if "." not in name)]))
        elsewhere = [name for name in known_settings(given.get("pos", default_scheme())) if name not in valid]
        return f"{option}={given.get(option, '...')}: unknown setting; {suggestion(option, valid, elsewhere)}"
    if match := re.match(r"Ambiguous value for argument '([^=]+)=", message):
        return f"{match[1]}={given.get(match[1], '...')}: must be one value; -m runs each of several"
    # What OmegaConf says of pos.layers.7=NAME, and of pos.layers.base=500.
    if match := re.match(r"Error merging override (\S+\.\d[^=]*)=|invalid literal for int\(\).*'(.+)'", message):
        option = match[1] or next((name for name in given if f".{match[2]}" in name), match[2])
        list_of = option.rpartition(".")[0]
        problem = f"is no place of the list; '{list_of}=[{{_target_:NAME,SETTING:VALUE}},NAME]' gives a whole one"
        return f"{option}={given.get(option, '...')}: {problem}"
    for group, options in config_groups().items() if "Config group override" in message else ():  # pos=5, pos=null
        if given.get(group, options[0]) not in options:
            return f"{group}={given[group]}: must be one option; {suggestion(given[group], options)}"
    if isinstance(error, InterpolationResolutionError):
        unresolved = [f"{option}={value}: " for option, value in given.items() if "${" in value]
        return f"{''.join(unresolved[:1])}{message}"
    return message


def _no_option(error: MissingConfigException, missing: str) -> str:
    """Return the line for an option of a group that there isn't."""
    group, _, name = missing.partition("/")
    inner = missing.rpartition("/")
    if group not in config_groups() or inner[0] in config_groups():  # such as hydra/launcher, and model/norm
        group, _, name = inner
    if name in _PLUGINS.get(group, ()):
        return f'{group}={name}: needs a package that is not installed: python -m pip install "poslab[sweep]"'
    if group == "data" and (path_problem := _path_problem(name)):
        return f"{group}={name}: {path_problem}"
    if "." in name and group in _CLASSES:
        return f"{group}={name}: no option; a class is given as {_CLASSES[group]}.{TARGET}={name}"
    if name in ("all", "*"):
        all_of_them = "-m experiment=field trains each" if group == "pos" else f"-m {group}=NAME,NAME runs each"
        return f"{group}={name}: unknown; {all_of_them}"
    # Hydra leaves out those of folders within, and those whose package isn't there.
    there = {*(error.options or ()), *config_groups().get(group, []), *_PLUGINS.get(group, ())}
    return f"{group}={name}: unknown; {_option_meant(group, name, sorted(there))}"


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
    files = {file.stem: file for file in (CONFIGS / group).glob("*.yaml")}
    called_elsewhere = {option: other_names(files[option]) for option in options if option in files}
    called = [f"{option} {other[plain]}".strip() for option, other in called_elsewhere.items() if plain in other]
    if called:
        return f"did you mean {' or '.join(called)}?"
    words = name.replace(",", " ").split()
    if len(words) > 1 and {*words} <= {*options}:
        return f"several are given without spaces, with -m: {group}={','.join(words)}"
    meant = suggestion(name, options)
    if group == "data" and not meant.startswith("did"):
        return f"any text: data=text data.path=FILE, or data=text data.path=hf://OWNER/NAME; {meant}"
    return meant


def require_known(pos: str | None, overrides: Iterable[str]) -> None:
    """Raise SettingError for a setting that its group, or the scheme, doesn't have, before anything is loaded.

    pos: the option chosen for the scheme; a yaml from elsewhere may leave settings to the defaults of its class.
    """
    scheme = CONFIGS / "pos" / f"{pos}.yaml"
    for option, text in given_settings(overrides).items():
        group, _, name = option.partition(".")
        if group == "pos" and scheme.is_file():
            settings = settings_in(scheme)
        elif group in CLOSED:
            settings = [setting.partition(".")[2] for setting in names() if setting.startswith(f"{group}.")]
        else:
            continue
        if name and name.partition(".")[0] not in settings:
            valid = [
                f"{group}/{setting}" if f"{group}/{setting}" in config_groups() else setting for setting in settings
            ]
            elsewhere = [setting for setting in known_settings() if not setting.startswith(f"{group}.")]
            raise UnknownSetting(name, text, valid, elsewhere, f"{group}.")


def naming_experiment(error: SettingError, overrides: Iterable[str], roots: Iterable[Path]) -> SettingError:
    """Return an error that also says which experiment sets its setting, where nobody has typed it."""
    given = given_settings(overrides)
    for group in ("experiment", "debug"):
        files = [file for root in roots if (file := root / group / f"{given.get(group)}.yaml").is_file()]
        if error.option not in given and any(error.option in flat_node(dict(OmegaConf.load(file))) for file in files):
            return SettingError(error.option, error.value, f"set by {group}={given[group]}; {error.problem}")
    return error


def config_groups(roots: Iterable[Path] = (CONFIGS,)) -> dict[str, list[str]]:
    """Return the options of every group in these folders: of "model/norm", which is a setting of model; elsewhere with
    the folders within a group, "published/nanogpt"."""
    groups: dict[str, set[str]] = {}
    settings = {*names()}
    for option in (option.relative_to(root) for root in roots for option in root.glob("*/**/*.yaml")):
        group, *name = option.with_suffix("").parts
        if f"{group}.{name[0]}" in settings:
            group = f"{group}/{name.pop(0)}"
        groups.setdefault(group, set()).add("/".join(name))
    return {group: sorted(groups[group]) for group in sorted(groups) if group != CLAIMS.name}


def _meant_by(word: str, after: str) -> str:
    """Return what to type in place of a word without a name, and of the word after it."""
    if word == "help":
        return "--help shows what there is"
    spaces = "without spaces around the =, and with quotes around a value that has spaces"
    if after.startswith("="):
        return spaces
    if word in names() or word in config_groups():
        value = after if after and "=" not in after else "VALUE"
        return f"{word}={value} sets it"
    if word == "last" or Path(word).expanduser().is_dir():
        return f"resume={word} resumes a run, init_from={word} begins with its weights"
    if Path(word).expanduser().is_file():
        return f"data=text data.path={word} trains on that file"
    groups = [group for group, options in config_groups().items() if word in options]
    if groups:
        return " or ".join(f"{group}={word}" for group in groups) + " chooses it"
    return spaces


def unquoted(override: str) -> str:
    """Return what is typed for an override that Hydra was given, a text or path without its quotes."""
    name, _, value = override.partition("=")
    plain = name.lstrip("+")
    if plain != _TEXT and (plain not in _PATHS or not value.startswith("'") or "${" in value):
        return override
    text = OverridesParser.create().parse_override(override).value()
    container: Any = OmegaConf.to_container(OmegaConf.create({"value": text}), resolve=True)
    return f"{name}={container['value']}"


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
        paths = re.findall(r"""(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^,])+""", value)
        quoted = [path if path.strip().startswith(_QUOTES) else _in_quotes(path.strip()) for path in paths]
        return f"{name}={','.join(quoted)}"
    in_quotes = not override.is_sweep_override() and override.get_value_element_as_str().startswith(_QUOTES)
    return setting if in_quotes else f"{name}={_in_quotes(value)}"


def _in_quotes(text: str) -> str:
    return str(QuotedString(text, Quote.single).with_quotes())


def quoted_text(text: str) -> str:
    """Return a text as the value of an override, so that nobody looks for the value of ${name} in it."""
    return _in_quotes(re.sub(r"(\\*)\$\{", r"\1\1\\${", text))
