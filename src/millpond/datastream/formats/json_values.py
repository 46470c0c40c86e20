"""Converts parsed JSON to values of a type and back; the functions are made once per type.

As in Flink, numbers may be written as text, and text may be any value. Bytes are Base64, times are ISO 8601.
"""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from millpond.common.basic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millpond.common.composite_types import (
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    _ElementsTypeInfo,
)
from millpond.common.time import Instant
from millpond.common.types import named_row
from millpond.datastream.formats.fields import fields_of

Convert = Callable[[Any], Any]
_UTC = datetime.timezone.utc  # noqa: UP017 (datetime is the module here)


def inner_types(type_info: TypeInformation) -> Iterator[TypeInformation]:
    """Yield the type and, recursively, all types it is made of."""
    yield type_info
    for part in _parts(type_info):
        yield from inner_types(part)


def _parts(type_info: TypeInformation) -> list[TypeInformation]:
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return type_info.types
    if isinstance(type_info, MapTypeInfo):
        return [type_info.key_type_info, type_info.value_type_info]
    return [type_info.element_type] if isinstance(type_info, _ElementsTypeInfo) else []


def is_bytes(type_info: TypeInformation) -> bool:
    """Return True for the type of bytes, `PRIMITIVE_ARRAY(BYTE())`."""
    return isinstance(type_info, PrimitiveArrayTypeInfo) and (
        type_info.element_type == BasicTypeInfo(BasicType.BYTE)
    )


# --- reading -----------------------------------------------------------------------------------------


def from_json(type_info: TypeInformation, fail_on_missing: bool) -> Convert:
    """Return the conversion from parsed JSON; it raises ValueError or TypeMismatchError if a value does
    not fit."""
    if isinstance(type_info, RowTypeInfo):
        return _read_row(type_info, fail_on_missing)
    if isinstance(type_info, TupleTypeInfo):
        parts = [from_json(field_type, fail_on_missing) for field_type in type_info.types]
        return _or_none(lambda value: _read_tuple(value, parts))
    if is_bytes(type_info):
        return _or_none(base64.b64decode)
    if isinstance(type_info, _ElementsTypeInfo):
        element = from_json(type_info.element_type, fail_on_missing)
        return _or_none(lambda value: list(map(element, _expected(value, list))))
    if isinstance(type_info, MapTypeInfo):
        convert = from_json(type_info.value_type_info, fail_on_missing)
        return _or_none(lambda value: {k: convert(v) for k, v in _expected(value, dict).items()})
    if isinstance(type_info, BasicTypeInfo):
        return _read_basic(type_info)
    if isinstance(type_info, TimestampTypeInfo):
        return _or_none(_read_timestamp)
    if isinstance(type_info, DateTypeInfo):
        return _or_none(datetime.date.fromisoformat)
    if isinstance(type_info, TimeTypeInfo):
        return _or_none(lambda value: datetime.time.fromisoformat(value).replace(tzinfo=None))
    return lambda value: value


def _or_none(convert: Convert) -> Convert:
    def read(value: object) -> object:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, AttributeError):
            raise ValueError(f"{value!r} does not fit") from None

    return read


def _expected(value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is not a {'list' if kind is list else 'JSON object'}")
    return value


def _read_row(type_info: RowTypeInfo, fail_on_missing: bool) -> Convert:
    names = type_info.field_names
    parts = [
        (name, from_json(field_type, fail_on_missing)) for name, field_type in _named(type_info)
    ]

    def read(value: object) -> Any:
        if value is None:
            return None
        given = _expected(value, dict)
        if fail_on_missing:
            for name in names:
                if name not in given:
                    raise ValueError(f"The record lacks the field '{name}'.")
        return named_row(names, [convert(given.get(name)) for name, convert in parts])

    return read


def _named(type_info: RowTypeInfo) -> Iterator[tuple[str, TypeInformation]]:
    return zip(type_info.field_names, type_info.types, strict=True)


def _read_tuple(value: Any, parts: list[Convert]) -> Any:
    if len(_expected(value, list)) != len(parts):
        raise ValueError(f"{value!r} does not have {len(parts)} values")
    return tuple(convert(item) for convert, item in zip(parts, value, strict=True))


def _read_basic(type_info: BasicTypeInfo) -> Convert:
    kind, check = type_info.basic_type, type_info.check()
    if type_info.limits is not None or kind is BasicType.BIG_INT:
        return lambda value: check(value if type(value) is int else _number(value, int))
    if kind in (BasicType.FLOAT, BasicType.DOUBLE):
        return lambda value: value if type(value) is float else _number(value, float)
    if kind is BasicType.BIG_DEC:
        return lambda value: value if type(value) is Decimal else _number(value, Decimal)
    if kind in (BasicType.STRING, BasicType.CHAR):
        return lambda value: value if type(value) is str else _text(value)
    if kind is BasicType.BOOLEAN:
        return lambda value: value if type(value) is bool else _boolean(value)
    return _or_none(_read_instant)


def _number(value: Any, kind: Any) -> object:
    if value is None:
        return None
    try:
        if isinstance(value, bool):
            raise ValueError
        if kind is int and isinstance(value, (float, Decimal)):
            whole = int(value)
            if whole != value:
                raise ValueError
            return whole
        return kind(value.strip() if isinstance(value, str) else value)
    except (ValueError, ArithmeticError, TypeError):
        raise ValueError(f"{value!r} is not a number") from None


def _text(value: object) -> object:
    if value is None:
        return None
    if isinstance(value, Decimal):
        return str(value)
    return json.dumps(value, default=str)


def _boolean(value: object) -> object:
    if value is None:
        return None
    if value in ("true", "false", 0, 1):
        return value in ("true", 1)
    raise ValueError(f"{value!r} is neither true nor false")


def _read_timestamp(value: str) -> datetime.datetime:
    """Return a timestamp in UTC without a time zone, as SQL has it."""
    time = datetime.datetime.fromisoformat(value)
    return time if time.tzinfo is None else time.astimezone(_UTC).replace(tzinfo=None)


def _read_instant(value: str) -> Instant:
    time = _read_timestamp(value).replace(tzinfo=_UTC)
    seconds = int(time.replace(microsecond=0).timestamp())
    return Instant(seconds, time.microsecond * 1000)


# --- writing -----------------------------------------------------------------------------------------


def to_json(type_info: TypeInformation) -> Convert:
    """Return the conversion from values of the type to what a JSON library takes, and Decimals."""
    if isinstance(type_info, RowTypeInfo):
        return _write_row(type_info)
    if isinstance(type_info, TupleTypeInfo):
        parts = [to_json(field_type) for field_type in type_info.types]
        return _or_none(lambda v: [convert(x) for convert, x in zip(parts, v, strict=True)])
    if is_bytes(type_info):
        return _or_none(lambda value: base64.b64encode(value).decode())
    if isinstance(type_info, (_ElementsTypeInfo, ListTypeInfo)):
        element = to_json(type_info.element_type)
        return _or_none(lambda value: [element(item) for item in value])
    if isinstance(type_info, MapTypeInfo):
        of_value = to_json(type_info.value_type_info)
        return _or_none(lambda value: {str(k): of_value(v) for k, v in value.items()})
    if isinstance(type_info, TimestampTypeInfo):
        return _or_none(_write_timestamp)
    if isinstance(type_info, (DateTypeInfo, TimeTypeInfo)):
        return _or_none(lambda value: value.isoformat())
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.INSTANT:
        return _or_none(_write_instant)
    return _as_it_is


def _as_it_is(value: object) -> object:
    return value


def _write_row(type_info: RowTypeInfo) -> Convert:
    names = type_info.field_names
    parts = [to_json(field_type) for field_type in type_info.types]
    if all(part is _as_it_is for part in parts):
        return _or_none(lambda value: dict(zip(names, fields_of(value, names), strict=True)))

    def write(value: Any) -> object:
        if value is None:
            return None
        given = zip(names, parts, fields_of(value, names), strict=True)
        return {name: convert(item) for name, convert, item in given}

    return write


def _write_timestamp(value: datetime.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(_UTC).replace(tzinfo=None)
    return value.isoformat() + "Z"


def _write_instant(value: Instant) -> str:
    at = datetime.datetime.fromtimestamp(value.seconds, _UTC).replace(tzinfo=None)
    return _write_timestamp(at.replace(microsecond=value.nanos // 1000))
