"""Dataclasses whose fields pydantic checks: groups of settings, position schemes, tasks, parts of a run.

They stay dataclasses of Python's own: pydantic is loaded with the first check (`poslab.config.checking`), and whoever
makes one in Python needs none of it.
"""

import re
from typing import Any, ClassVar

# No unknown settings, numbers where text is asked for become text, and no number is infinite.
CONFIG = {
    "extra": "forbid",
    "arbitrary_types_allowed": True,
    "coerce_numbers_to_str": True,
    "allow_inf_nan": False,
}


class Limits:
    """Limits of a number in an annotation, by pydantic's names: Annotated[int, Limits(ge=1, lt=10)]. Its own Field
    would load it for commands that check nothing, too."""

    def __init__(self, **limits: float) -> None:
        self.limits = limits

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        return {**handler(source), **self.limits}


class Checked:
    """Base of dataclasses of settings."""

    __pydantic_config__: ClassVar[dict[str, Any]] = CONFIG

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return with_numbers_as_they_are(handler(source))


def by_context(kind: type) -> Any:
    """Return pydantic's schema of a field that takes any object of a kind, or a plain value, of which the check's
    context, a function such as `parse_scheme`, makes one."""
    from pydantic_core import core_schema

    def converted(value: Any, check: Any) -> Any:
        return value if isinstance(value, kind) else check.context(value)

    return core_schema.with_info_plain_validator_function(converted)


def with_numbers_as_they_are(schema: Any) -> Any:
    """Return pydantic's schema so that true is no number, which pydantic would convert. 1e3 is a whole one; text may be
    either."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(with_numbers_as_they_are, schema))
    if not isinstance(schema, dict):
        return schema
    inner = {key: value if key == "metadata" else with_numbers_as_they_are(value) for key, value in schema.items()}
    if inner.get("type") not in ("int", "float"):
        return inner
    from pydantic_core import PydanticCustomError, core_schema

    whole = inner["type"] == "int"

    def as_it_is(value: Any) -> Any:
        if whole and isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?[eE]\+?\d{1,2}", value):
            value = float(value)
        if isinstance(value, bool) or (whole and isinstance(value, float) and not value.is_integer()):
            raise PydanticCustomError(f"{inner['type']}_parsing", "no number")
        return value

    return core_schema.no_info_before_validator_function(as_it_is, inner)
