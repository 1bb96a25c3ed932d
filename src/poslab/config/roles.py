"""Declaration of a setting at its field: role, limits and the words of --help.

    threads: int | None = setting(None, role=Role.SPEED, least=1)

The role tells whether a setting decides the result of training, and what else depends on that. A setting without a role
and one that nobody knows decide the result: the careful assumption.
"""

import copy
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from poslab.errors import SettingError, require_one_of


class Role(Enum):
    """Purpose of a setting; its consequences are in the sets below."""

    RESULT = auto()  # decides the result of training
    SCHEME = auto()  # of the position scheme, which decides it too, and is what comparisons are about
    SEED = auto()  # chance: runs that differ in nothing else form a group
    LENGTH = auto()  # how long to train; a run may be extended
    TEXT = auto()  # where a text is, or weights to begin with; what counts is the contents, by their hash
    ROUNDING = auto()  # how the same sums are computed: other bits, the same up to rounding
    OUTPUT = auto()  # what a run measures, shows and logs of its training, which is the same to the bit
    SPEED = auto()  # where and how fast a run computes, how often it saves
    COMMAND = auto()  # of the command that starts or resumes a run; never in a run's configuration


MOST_THREADS = 1024  # torch crashes with many thousands

# Settings with these roles are no part of ...
NOT_IDENTITY = frozenset({Role.TEXT, Role.OUTPUT, Role.SPEED, Role.COMMAND})  # ... what makes two jobs the same one
NOT_COMPARED = NOT_IDENTITY | {Role.SCHEME, Role.SEED, Role.ROUNDING}  # ... what compared runs must have in common
NOT_SHOWN = frozenset({Role.OUTPUT, Role.SPEED, Role.COMMAND})  # ... what TensorBoard's HPARAMS tab lists
NOT_REPEATED = frozenset({Role.SPEED, Role.COMMAND})  # ... what repeats a run elsewhere
# Settings with these roles may change when a run resumes. Those of rounding may not, as a resumed run ends with
# the bits of one that nobody interrupted; they are part of a job's identity, so that a sweep can be over backends.
MAY_CHANGE = frozenset({Role.LENGTH, Role.TEXT, Role.OUTPUT, Role.SPEED})


def setting(
    default: Any = dataclasses.MISSING,
    *,
    role: Role = Role.RESULT,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    choices: Sequence[str] = (),
    help: str = "",
    text: bool = False,
    inner: bool = False,
) -> Any:
    """Return a dataclass field with more about a setting than its type; a list as default is copied for every instance.

    least, above, most, below, choices: limits of the value, or of each in a list; None always is within them.
    help: its words in --help. text: whether the command line's value is plain text, whatever it is.
    inner: whether it is a list of settings within, given as name.inner=value.
    """
    limits = {"least": least, "above": above, "most": most, "below": below, "choices": choices}
    metadata = limits | {"role": role, "help": help, "text": text, "inner": inner}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Limited:
    """Base of dataclasses whose fields declare limits. Raises SettingError for the first value that is outside."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            for item in value if isinstance(value, list) else [value]:
                if item is not None and field.metadata:
                    _require_within(field.metadata, field.name, item)


_NUMERIC_LIMITS = {
    "least": (operator.ge, "at least"),
    "above": (operator.gt, "above"),
    "most": (operator.le, "at most"),
    "below": (operator.lt, "below"),
}


def _require_within(limits: Mapping[str, Any], name: str, value: Any) -> None:
    if limits["choices"]:
        require_one_of(limits["choices"], **{name: value})
    for limit, (holds, words) in _NUMERIC_LIMITS.items():
        if limits[limit] is not None and not holds(value, limits[limit]):
            raise SettingError(name, value, f"must be {words} {limits[limit]}")


def roles(schema: type) -> dict[str, Role]:
    """Return the role of each field of a dataclass."""
    return {field.name: field.metadata.get("role", Role.RESULT) for field in dataclasses.fields(schema)}
