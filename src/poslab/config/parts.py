"""Parts of a run that an option of a group chooses: a callable named by `_target_`, and its settings.

    optim=muon        model/norm=rms        callbacks.mine._target_=my_file.Mine callbacks.mine.every=10

Such a node is plain values until the run needs what it makes; `part` makes it, and the caller adds what only the caller
has, such as the parameters of the model.
"""

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from types import NoneType
from typing import Any, get_args, get_type_hints

from poslab.checked import Checked
from poslab.config.checking import checked, imported
from poslab.config.files import CONFIGS
from poslab.config.nodes import TARGET, known_settings, options_of
from poslab.errors import SettingError, UnknownSetting, UserError, as_typed, first_line, suggestion

Node = dict[str, Any]


def checked_node(
    node: Any, option: str, kind: str = "", passed: Collection[str] = (), beside: Collection[str] = ()
) -> Node:
    """Return a node in plain values; one of a `Checked` dataclass with all settings, of their types and within limits.

    kind: full name of the class that its class must be derived from. passed: arguments that the caller adds. beside:
    settings of the group that are none of the class.

    Raises SettingError where there is no such callable, or it doesn't take a setting.
    """
    where = f"{option}.{TARGET}"
    if not isinstance(node, Mapping):
        files = sorted(CONFIGS.glob(f"**/{option.replace('.', '/')}/*.yaml"))
        chosen = ""
        if files:
            group = files[0].parent.relative_to(CONFIGS).as_posix()
            chosen = f", or an option chosen as {group}=NAME; {suggestion(str(node), [file.stem for file in files])}"
        raise SettingError(option, node, f"must be a class as {TARGET} and its settings{chosen}")
    if not node.get(TARGET):
        names = ", ".join(f"{option}.{name}" for name in node)
        problem = f"must be given, a class such as my_file.Mine, or an option that has one, for {names or option}"
        raise SettingError(where, "", problem)
    target = imported(str(node[TARGET]), where)
    if not callable(target):
        raise SettingError(where, node[TARGET], "must be a class or a function")
    if kind and not (isinstance(target, type) and issubclass(target, imported(kind, where))):
        raise SettingError(where, node[TARGET], f"must be a class derived from {kind}")
    settings = {str(name): value for name, value in node.items() if name != TARGET}
    if isinstance(target, type) and issubclass(target, Checked):
        return {TARGET: str(node[TARGET]), **asdict(checked(target, settings, option))}  # type: ignore[call-overload]
    parameters, takes_any = _parameters(target)
    for name, value in settings.items():
        if name in passed or name.startswith("_") or not (takes_any or name in parameters):
            valid = [*beside, *(parameter for parameter in parameters if parameter not in {*passed, *beside})]
            elsewhere = [setting for setting in known_settings() if not setting.startswith(f"{option}.")]
            raise UnknownSetting(name, value, valid, elsewhere, f"{option}.")
        if value == "???":
            raise SettingError(f"{option}.{name}", "", "must be given")
    _check_numbers(target, settings, option)
    return {TARGET: str(node[TARGET]), **settings}


def _check_numbers(target: Callable[..., Any], settings: Mapping[str, Any], option: str) -> None:
    """Raise SettingError for text given to an argument whose annotation says that it is a number or a flag."""
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    try:
        hints = get_type_hints(target.__init__ if isinstance(target, type) else target) if texts else {}  # type: ignore[misc]
    except Exception:  # whatever somebody's annotations are, which may be prose
        return
    for name, value in texts.items():
        hint = hints.get(name, str)
        kinds = get_args(hint) or (hint,)
        if all(kind in (bool, int, float, NoneType) for kind in kinds):
            words = "true or false" if bool in kinds else "a number"
            raise SettingError(f"{option}.{name}", value, f"must be {words}")


def part(node: Mapping[str, Any], option: str) -> Callable[..., Any]:
    """Return the callable of a node, with the node's settings given. (`config.trust` decides what a node may name.)

    Raises SettingError for a node as `checked_node` does, and when it is called, if the callable refuses its settings.
    """
    # Values stay what they are: Hydra's `instantiate` would make what one names within, and look up its ${names}.
    settings = copy.deepcopy(checked_node(node, option))
    target = imported(settings.pop(TARGET), option)

    @functools.wraps(target, updated=())
    def called(*arguments: Any, **more: Any) -> Any:
        try:
            return target(*arguments, **settings, **more)
        except UserError:
            raise
        except Exception as error:  # whatever a class makes of a setting of another type
            settings_given = ", ".join(f"{name}={as_typed(value)}" for name, value in node.items() if name != TARGET)
            problem = f"refuses its settings{f' ({settings_given})' if settings_given else ''}: {first_line(error)}"
            raise SettingError(option, node[TARGET], problem) from error

    return called


def module_node(node: Any, option: str) -> Node:
    """Return the node of a part of the model as `checked_node`; a class of poslab's or torch's must make a module, as a
    run folder could name any of theirs."""
    ours = isinstance(node, Mapping) and str(node.get(TARGET)).startswith(("poslab.", "torch."))
    return checked_node(node, option, "torch.nn.Module" if ours else "")


def with_parts(settings: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return settings of a group with the callable of each node among them, as `part` makes it, in the node's place."""
    return {
        name: part(value, f"{group}.{name}") if isinstance(value, Mapping) and TARGET in value else value
        for name, value in settings.items()
    }


def _parameters(target: Callable[..., Any]) -> tuple[list[str], bool]:
    """Return (names of settings that a callable takes, whether it takes any other, or doesn't say). A class that takes
    any for its base takes those of its base."""
    names: dict[str, None] = {}
    makers: Any = [vars(base).get("__init__") for base in target.__mro__] if isinstance(target, type) else [target]
    for maker in filter(None, makers):
        try:
            own = list(inspect.signature(maker).parameters.values())
        except (TypeError, ValueError):
            break
        plain = [p.name for p in own if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        names |= dict.fromkeys(plain[1:] if isinstance(target, type) else plain)  # without self
        if not any(p.kind is p.VAR_KEYWORD for p in own):
            return list(names), False
    return list(names), True


def takes(node: Mapping[str, Any], name: str) -> bool:
    """Return whether the callable of a node says that it takes a setting of that name."""
    return name in _parameters(imported(str(node[TARGET]), TARGET))[0]


def own_settings(node: Any, group: str, given: Mapping[str, str], common: Collection[str] = ()) -> Any:
    """Return the node of a group without settings of other classes than its own.

    Of a class that the command line names all others but those that it gives; of an option those that other options of
    the group have and its class doesn't take, as a task's recipe for AdamW. given: settings as typed. common: what all
    classes of the group have.
    """
    option = group.replace("/", ".")
    if not isinstance(node, Mapping) or node.get(TARGET) in (None, "???"):
        return node
    typed = {name.removeprefix(f"{option}.").partition(".")[0] for name in given if name.startswith(f"{option}.")}
    kept = {TARGET, *typed, *common}
    if TARGET not in typed:
        parameters, takes_any = _parameters(imported(str(node[TARGET]), f"{option}.{TARGET}"))
        kept |= {*node} if takes_any else {*parameters, *node} - ({*options_of(group)} - {*parameters} - kept)
    return {name: value for name, value in node.items() if name in kept}
