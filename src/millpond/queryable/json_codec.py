"""Keys and values as JSON, for look-ups.

    Python                            JSON
    None, bool, int, str              as they are
    float                             number; {"$float": "nan"} and such where JSON has none
    bytes                             {"$bytes": base64}
    list, tuple, set                  array
    dict, map state                   object if all keys are strings, and none begins with $;
                                      else {"$map": [[key, value], ...]}
    Row with names, dataclass         object
    date, time, datetime              text as in ISO 8601
    Decimal, UUID                     text
    timedelta                         seconds
    enum                              its name
    Instant                           {"seconds", "nanos"}

Where a type is declared (an Avro schema, see `state/types/schemas.py`), Python gets back what it had. Where
none is, arrays in keys become tuples, and dates and the like are {"$date": text}, {"$time"}, {"$datetime"},
{"$decimal"} and {"$uuid"} in keys: otherwise they would be taken for strings.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import datetime
import decimal
import enum
import importlib
import json
import math
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from millpond.common.json_values import JsonValue
from millpond.common.time import Instant
from millpond.common.types import Row
from millpond.errors import QueryableStateError

if TYPE_CHECKING:
    from millpond.datastream.formats.avro_schemas import Schema

T = TypeVar("T")
_PLAIN = frozenset({str, int, bool, type(None)})
_BASES: tuple[type[Any], ...] = (int, float, str, list, tuple, dict)
_TAGS: list[tuple[str, type, Callable[[Any], str], Callable[[str], Any]]] = [
    ("$datetime", datetime.datetime, datetime.datetime.isoformat, datetime.datetime.fromisoformat),
    ("$date", datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
    ("$time", datetime.time, datetime.time.isoformat, datetime.time.fromisoformat),
    ("$decimal", decimal.Decimal, str, decimal.Decimal),
    ("$uuid", uuid.UUID, str, uuid.UUID),
]


class NotJsonError(QueryableStateError):
    """A key or value that JSON cannot carry."""


# --- values ------------------------------------------------------------------------------------------


def value_to_json(value: Any) -> JsonValue:
    """Return a value as `json.dumps` takes it. Raises NotJsonError if JSON cannot carry it."""
    kind = type(value)
    if kind in _PLAIN:
        plain: JsonValue = value
        return plain
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if kind is tuple or kind is list:
        return [value_to_json(item) for item in value]
    if kind is dict:
        return _map_to_json(value)
    return _other_to_json(value)


def _map_to_json(entries: dict[Any, Any]) -> JsonValue:
    if all(type(key) is str and not key.startswith("$") for key in entries):
        return {key: value_to_json(value) for key, value in entries.items()}
    return {"$map": [[value_to_json(k), value_to_json(v)] for k, v in entries.items()]}


def _other_to_json(value: object) -> JsonValue:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Row):
        return _map_to_json(value.as_dict()) if value._fields else value_to_json(list(value))
    if isinstance(value, Instant):
        return {"seconds": value.seconds, "nanos": value.nanos}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return _map_to_json({field.name: getattr(value, field.name) for field in fields})
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, (set, frozenset)):
        return [value_to_json(item) for item in value]
    for plain in _BASES:
        if isinstance(value, plain):  # a subclass, such as a named tuple
            return value_to_json(plain(value))
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):  # a number or an array
        return value_to_json(value.tolist())
    raise NotJsonError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be expressed in JSON"
    )


def value_from_json(data: object, schema: Schema | None = None) -> object:
    """Return the value of a schema. Without a schema: lists for arrays, dictionaries for objects, and
    bytes and maps as they were. Raises NotJsonError if it is not of the schema."""
    if schema is not None and not is_any(schema):
        return _typed(data, schema)
    if isinstance(data, list):
        return [value_from_json(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((tag, content),) = data.items()
        if tag == "$bytes":
            return _bytes(content)
        if tag == "$float":
            return float(content)
        if tag == "$map":
            return {key_from_json(key): value_from_json(value) for key, value in content}
    return {key: value_from_json(value) for key, value in data.items()}


# --- keys --------------------------------------------------------------------------------------------


def key_to_json(key: object, schema: Schema | None = None) -> JsonValue:
    """Return a key in the form that `key_from_json` with the same schema makes the key of again. Raises
    NotJsonError if there is none."""
    if schema is not None and not is_any(schema):
        return value_to_json(key)
    kind = type(key)
    if kind in _PLAIN or kind is float or isinstance(key, (bytes, bytearray)):
        return value_to_json(key)
    if isinstance(key, tuple):
        return [key_to_json(item) for item in key]
    for tag, python, to_text, _ in _TAGS:
        if isinstance(key, python):
            return {tag: to_text(key)}
    for plain in (str, int, float):  # subclasses are equal to their plain values
        if isinstance(key, plain):
            return value_to_json(
                getattr(key, "value", key) if isinstance(key, enum.Enum) else plain(key)
            )
    raise NotJsonError(
        f"A key of type {type(key).__name__} cannot be looked up unless its type is declared: "
        "key_by(selector, key_type)."
    )


def key_from_json(data: object, schema: Schema | None = None, classes: bool = True) -> object:
    """Return a key. Raises NotJsonError if it is not of the declared type. Without `classes` nothing is
    imported: dataclasses become tuples, which have the same key group."""
    if schema is not None and not is_any(schema):
        return _typed(data, schema, classes)
    if isinstance(data, list):
        return tuple(key_from_json(item) for item in data)
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((tag, content),) = data.items()
        if tag == "$bytes":
            return _bytes(content)
        if tag == "$float":
            return float(content)
        for known_tag, _, _, from_text in _TAGS:
            if tag == known_tag:
                return _converted(from_text, content, tag[1:])
    raise NotJsonError(
        f"{_short(data)} is not a key: the key type is not declared (key_by(..., key_type))."
    )


def json_of_text(text: str, schema: Schema | None = None) -> JsonValue:
    """Return the JSON of a key as people write it, in an address or on a command line: 42, ann, "42",
    ["ann", 1].

    If the declared type is text, it is text unless it is in quotes. Otherwise it is JSON, and text if it
    is no JSON.
    """
    is_text = schema == "string" or (isinstance(schema, dict) and schema.get("type") == "string")
    if is_text and not text.startswith('"'):
        return text
    try:
        data: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return data


# --- declared types ----------------------------------------------------------------------------------


def is_any(schema: Schema) -> bool:
    """Return True if a schema declares nothing."""
    return isinstance(schema, dict) and schema.get("logicalType") == "pickle"


def _typed(data: object, schema: Schema, classes: bool = True) -> Any:
    if data is None or is_any(schema):
        return value_from_json(data)
    if isinstance(schema, str):
        name = schema
    else:
        name = schema.get("logicalType") or schema["type"]
        if name in ("array", "record"):
            return (_array if name == "array" else _record)(data, schema, classes)
    read = _READ.get(name)
    if read is None:
        raise NotJsonError(f"values of the type {name} cannot be read")
    return read(data)


def _text(data: object) -> str:
    if not isinstance(data, str):
        raise NotJsonError(f"{_short(data)} is not a string")
    return data


def _integer(data: object) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise NotJsonError(f"{_short(data)} is not an integer")
    return data


def _number(data: object) -> float:
    if isinstance(data, dict) and set(data) == {"$float"}:
        return float(data["$float"])
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        raise NotJsonError(f"{_short(data)} is not a number")
    return float(data)


def _boolean(data: object) -> bool:
    if not isinstance(data, bool):
        raise NotJsonError(f"{_short(data)} is neither true nor false")
    return data


def _tagged_bytes(data: object) -> bytes:
    if not isinstance(data, dict) or set(data) != {"$bytes"}:
        raise NotJsonError(f'{_short(data)} is not {{"$bytes": base64}}')
    return _bytes(data["$bytes"])


def _bytes(text: object) -> bytes:
    try:
        return base64.b64decode(_text(text), validate=True)
    except binascii.Error:
        raise NotJsonError(f"{_short(text)} is not base64") from None


def _big_integer(data: object) -> int:
    return _converted(int, data, "integer") if isinstance(data, str) else _integer(data)


def _decimal(data: object) -> decimal.Decimal:
    return _converted(decimal.Decimal, str(data), "decimal")


def _from_text(read: Callable[[str], T], what: str) -> Callable[[object], T]:
    return lambda data: _converted(read, _text(data), what)


_READ: dict[str, Callable[[object], object]] = {
    "string": _text,
    "enum": _text,
    "int": _integer,
    "long": _integer,
    "double": _number,
    "boolean": _boolean,
    "bytes": _tagged_bytes,
    "fixed": _tagged_bytes,
    "big-integer": _big_integer,
    "big-decimal": _decimal,
    "date": _from_text(datetime.date.fromisoformat, "date"),
    "time-micros": _from_text(datetime.time.fromisoformat, "time"),
    "date-time": _from_text(datetime.datetime.fromisoformat, "date and time"),
}


def _array(data: object, schema: dict[str, Any], classes: bool) -> object:
    if schema.get("python") == "map":
        key_type, value_type = (field["type"] for field in schema["items"]["fields"])
        return {
            _typed(key, key_type, classes): _typed(value, value_type, classes)
            for key, value in _entries_of(data)
        }
    if not isinstance(data, list):
        raise NotJsonError(f"{_short(data)} is not an array")
    return [_typed(item, schema["items"], classes) for item in data]


def _entries_of(data: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(data, dict):
        return data["$map"] if set(data) == {"$map"} else data.items()
    raise NotJsonError(f"{_short(data)} is not an object")


def _record(data: object, schema: dict[str, Any], classes: bool) -> Any:
    fields, python = schema["fields"], schema.get("python", "row")
    if isinstance(data, list) and len(data) == len(fields):
        items = data
    elif isinstance(data, dict) and {field["name"] for field in fields} <= set(data):
        items = [data[field["name"]] for field in fields]
    else:
        names = ", ".join(field["name"] for field in fields)
        raise NotJsonError(f"{_short(data)} does not have the fields {names}")
    values = [
        _typed(item, field["type"], classes) for item, field in zip(items, fields, strict=True)
    ]
    named = dict(zip((field["name"] for field in fields), values, strict=True))
    if python == "tuple" or (python == "dataclass" and not classes):
        return tuple(values)
    if python == "instant":
        return Instant(*values)
    if python == "dict":
        return named
    if python == "dataclass":
        return _made(schema["class"], named)
    row = Row(*values)
    row.set_field_names(list(named))
    return row


def _made(reference: str, values: dict[str, Any]) -> Any:
    module, _, name = reference.partition(":")
    try:
        member: Any = importlib.import_module(module)
        for part in name.split("."):
            member = getattr(member, part)
        return member(**values)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise NotJsonError(f"{reference} cannot be made from {_short(values)}: {problem}") from None


def _converted(read: Callable[[str], T], text: object, what: str) -> T:
    try:
        return read(_text(text))
    except (ValueError, decimal.InvalidOperation):
        raise NotJsonError(f"{_short(text)} is not a valid {what}") from None


def _short(data: object) -> str:
    text = repr(data)
    return text if len(text) <= 80 else text[:77] + "..."
