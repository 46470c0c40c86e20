"""The fields of a record, whatever its form: a Row, a tuple, a list or a dictionary."""

from __future__ import annotations

from typing import Any

from millpond.common.composite_types import RowTypeInfo
from millpond.common.types import Row
from millpond.errors import ProgramError


def fields_of(value: object, names: list[str]) -> list[Any]:
    """Return the fields in the order of `names`: by name if the record has these names, else by position.

    Raise ValueError if the value is not a record, or has another number of fields.
    """
    if isinstance(value, dict):
        return [value.get(name) for name in names]
    if isinstance(value, Row):
        known = value._fields
        if known is not None and known != names and set(known) == set(names):
            return value.get_fields_by_names(names)
        value = value._values
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"{value!r} is not a record: it must be a Row, a tuple or a dictionary")
    if len(value) != len(names):
        raise ValueError(f"{value!r} has {len(value)} fields instead of {', '.join(names)}")
    return list(value)


def row_type(type_info: object, who: str) -> RowTypeInfo:
    """Return `type_info` if it is a row type; raise ProgramError, naming `who` needs it, if not."""
    if not isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"{who} needs Types.ROW or Types.ROW_NAMED, not {type_info}.")
    return type_info
