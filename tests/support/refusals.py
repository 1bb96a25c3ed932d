"""What a refusal must tell: the setting, its value, and names to go on with; the sentence around them is free."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from poslab.errors import UserError
from seedstats import BadSetting


@contextmanager
def refused(option: str, value: object = None, *names: str) -> Iterator[None]:
    """Check that what is done within is refused in one line, which begins with OPTION=VALUE.

    value: as typed; None: any. names: what else the line must name, such as valid values, or the setting to change.
    """
    with pytest.raises((UserError, BadSetting)) as raised:
        yield
    line = str(raised.value)
    beginning = f"{option}=" if value is None else f"{option}={value}: "
    assert line.startswith(beginning)
    assert "\n" not in line
    problem = line.removeprefix(beginning)
    assert problem
    assert [name for name in names if name not in problem] == []
