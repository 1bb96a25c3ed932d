"""What all scripts share: Hydra composes, and whatever the user can put right is said in one line, exit code 2."""

import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from string import Template
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from poslab.commands.arguments import (
    as_typed,
    check_readable,
    each_job_its_own,
    flags_first,
    is_sweep,
    paths_as_typed,
    quoted,
    without_debug,
)
from poslab.commands.faults import report
from poslab.errors import SettingError, UserError
from poslab.interruption import Interrupted, raise_on_signals, received_signal
from poslab.settings.composed import config_groups, explain, given_settings
from poslab.settings.train import CONFIGS


def run_script(
    task: Callable[[DictConfig], None],
    config_name: str,
    text: str | None = None,
    many_texts: bool = False,
    sweeps: bool = False,
) -> None:
    """Composes configs/<config_name>.yaml with the command line and runs `task` on it; exits 2 on a user's error.

    text: an option whose value is taken as it is typed, not as Hydra's grammar reads it; with `many_texts` it may be
        given several times, and the configuration gets a list.
    sweeps: whether -m runs the script for every combination of several values.
    """
    # Hydra's own reporting prints advice about tracebacks; with this it leaves errors to us.
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")
    sys.path.append(os.getcwd())  # pos._target_=my_file.MyScheme finds my_file.py where the command is given
    for stream in (sys.stdout, sys.stderr):  # a model may write characters that the terminal doesn't have
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    raise_on_signals()
    typed, debug = without_debug(sys.argv[1:])

    @wraps(task)
    def job(config: DictConfig) -> None:
        sys.argv[1:] = typed  # Lightning starts the script again with these, for every further device
        if HydraConfig.get().mode == RunMode.MULTIRUN:  # how a job ended is the sweep's to tell
            task(config)
            return
        with _told_in_one_line(config_name, typed, debug):  # here, too: Hydra would add lines of its own
            task(config)

    with _told_in_one_line(config_name, typed, debug, composing=True):
        check_readable(typed)
        if is_sweep(typed) and not sweeps:
            raise UserError("-m: only train.py sweeps")
        sys.argv[1:] = quoted(paths_as_typed(each_job_its_own(flags_first(typed))), text, many_texts)
        if {"-h", "--help"} & set(sys.argv[1:]):
            _print_help(config_name)
        else:
            hydra.main(version_base="1.3", config_path=str(CONFIGS), config_name=config_name)(job)()


@contextmanager
def _told_in_one_line(config_name: str, arguments: list[str], debug: bool, composing: bool = False) -> Iterator[None]:
    """Ends the program with one line on stderr for whatever goes wrong. composing: a ValueError is Hydra's, of the
    command line."""
    try:
        yield
    except UserError as error:
        _stop(_in_users_words(error, arguments), error.exit_code)
    except (HydraException, OmegaConfBaseException) as error:
        _stop(explain(error, arguments, config_name))
    except (Interrupted, KeyboardInterrupt) as interrupted:
        _end_interrupted(interrupted)
    except BrokenPipeError:  # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python's last flush would complain
        sys.exit(141)  # as a shell counts SIGPIPE
    except Exception as error:
        if (number := received_signal()) is not None:
            _end_interrupted(Interrupted(number))
        if composing and isinstance(error, ValueError):
            _stop(explain(error, arguments, config_name))
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _stop(f"nothing more can be written: {error.strerror}", exit_code=1)
        _stop(report(error, config_name, debug), exit_code=1)


def given_overrides() -> list[str]:
    """The settings that the command line gives, as they stand there."""
    return list(HydraConfig.get().overrides.task)


def swept_overrides(text: str | None = None) -> list[str] | None:
    """The overrides of this job if it is one of a sweep; None for a run by itself. As they would be typed: `text` names
    the option whose value is plain text."""
    if HydraConfig.get().mode != RunMode.MULTIRUN:
        return None
    return [as_typed(override, text) for override in given_overrides()]


def _in_users_words(error: UserError, arguments: list[str]) -> str:
    """Its message, in which a number stands as it was typed: 1e3, not 1000.0."""
    typed = given_settings(arguments).get(error.option) if isinstance(error, SettingError) else None
    if isinstance(error, SettingError) and isinstance(error.value, float) and typed is not None:
        return str(SettingError(error.option, typed, error.problem))
    return str(error)


def _print_help(config_name: str) -> None:
    """The template of the config, filled in. (Hydra's own --help lists its groups twice over and takes a second.)"""
    overrides = [argument for argument in sys.argv[1:] if "=" in argument and not argument.startswith("-")]
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = hydra.compose(config_name, overrides, return_hydra_config=True)
    template = Template(config.hydra.help.template)
    with open_dict(config):
        del config.hydra
    print(
        template.substitute(
            APP_CONFIG_GROUPS="\n".join(f"{name}: {', '.join(options)}" for name, options in config_groups().items()),
            CONFIG=OmegaConf.to_yaml(config).strip(),
        )
    )


def _end_interrupted(interruption: BaseException) -> NoReturn:
    print(f"\n{str(interruption) or 'interrupted'}", file=sys.stderr)
    sys.exit(getattr(interruption, "exit_code", 130))


def _stop(message: str, exit_code: int = 2) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(exit_code)
