"""Fields of settings: their types with limits, and beside a field its role and the words of --help.

    threads: Threads | None = setting(None, role=Role.SPEED)

The role tells whether a setting decides the result of training, and what else depends on that. A setting without a role
and one that nobody knows decide the result: the careful assumption. pydantic checks the types (`config.checking`).
"""

import copy
import dataclasses
from enum import Enum, auto
from typing import Annotated, Any

from poslab.checked import Limits

MOST_TOKENS = 12_288  # of a text at each length: two models' difference on them has a standard error below 0.006 nats

Count = Annotated[int, Limits(ge=0)]
Positive = Annotated[int, Limits(ge=1)]
Threads = Annotated[int, Limits(ge=1, le=1024)]  # torch crashes with many thousands
Remembered = Annotated[int, Limits(ge=0, le=1_000_000)]  # tokens
Seed = Annotated[int, Limits(ge=0, lt=2**32)]
Amount = Annotated[float, Limits(ge=0)]
PositiveAmount = Annotated[float, Limits(gt=0)]
Share = Annotated[float, Limits(ge=0, lt=1)]


class Role(Enum):
    """Purpose of a setting; its consequences are the sets of roles below."""

    RESULT = auto()  # decides the result of training
    SCHEME = auto()  # of the position scheme, which decides it too, and is what comparisons are about
    SEED = auto()  # chance: runs that differ in nothing else form a group
    LENGTH = auto()  # how long to train; a run may be extended
    LOCATION = auto()  # where a text is, or weights to begin with; what counts is the contents, by their hash
    ROUNDING = auto()  # how the same sums are computed: other bits, the same up to rounding
    OUTPUT = auto()  # what a run measures, shows and logs of its training, which is the same to the bit
    SPEED = auto()  # where and how fast a run computes, how often it saves
    COMMAND = auto()  # of the command that starts a run; never in a run's configuration


# Two runs are the same job of a sweep if they agree in all settings but those with these roles.
NOT_IDENTITY = frozenset({Role.LOCATION, Role.OUTPUT, Role.SPEED, Role.COMMAND})
# Two runs can be compared, as schemes at equal conditions, if they agree in all settings but those with these roles.
NOT_COMPARED = NOT_IDENTITY | {Role.SCHEME, Role.SEED, Role.ROUNDING}
# TensorBoard's HPARAMS tab lists all settings but those with these roles.
NOT_SHOWN = frozenset({Role.OUTPUT, Role.SPEED, Role.COMMAND})
# The command that repeats a run on another machine has all settings but those with these roles.
NOT_REPEATED = frozenset({Role.SPEED, Role.COMMAND})
# Settings with these roles may change when a run goes on. Those of rounding may not, as it ends with
# the bits of one that nobody interrupted; they are part of a job's identity, so that a sweep can be over backends.
MAY_CHANGE = frozenset({Role.LENGTH, Role.LOCATION, Role.OUTPUT, Role.SPEED})


def setting(
    default: Any = dataclasses.MISSING,
    *,
    role: Role = Role.RESULT,
    help: str = "",
    text: bool = False,
    bare: bool = False,
    given: bool = True,
) -> Any:
    """Return a dataclass field with more about a setting than its type; a list or dict as default is copied for every
    instance.

    help: its words in --help. text: whether the command line's value is plain text, whatever it is. bare: whether its
    value may stand alone. given: whether a command line may give it.
    """
    metadata = {"role": role, "help": help, "text": text, "bare": bare, "given": given}
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def roles(schema: type) -> dict[str, Role]:
    """Return the role of each field of a dataclass that a command line may give."""
    fields = [field for field in dataclasses.fields(schema) if field.metadata.get("given", True)]
    return {field.name: field.metadata.get("role", Role.RESULT) for field in fields}
