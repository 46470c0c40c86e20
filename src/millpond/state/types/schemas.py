"""Types of states as Avro schemas, and values as Arrow columns of these schemas.

A schema is what `json.loads` makes of an Avro schema. Every value may be missing (null). Attributes beyond
Avro's tell what Python had: "python": "row", "tuple", "dataclass" (with its "class"), "dict" (a record of an
Avro schema), "map" or "instant". Values of an undeclared type are {"type": "bytes", "logicalType": "pickle"}:
Python pickles.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pyarrow

from millpond.common.basic_types import (
    BasicType,
    BasicTypeInfo,
    ClassTypeInfo,
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millpond.common.composite_types import (
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)
from millpond.common.time import Instant
from millpond.common.typeinfo import Types, to_type_info
from millpond.common.types import Row
from millpond.core.pickling import dumps, find_class, loads, reference_of
from millpond.datastream.formats.avro import GenericRecordAvroTypeInfo
from millpond.datastream.formats.avro_schemas import Schema, default_of, map_schema
from millpond.errors import CorruptDataError, ProgramError

T = TypeVar("T")
Schemas = dict[str, Schema]
PICKLE: Schema = {"type": "bytes", "logicalType": "pickle"}
_BASIC: dict[BasicType, Schema] = {
    BasicType.STRING: "string",
    BasicType.CHAR: "string",
    BasicType.BOOLEAN: "boolean",
    BasicType.BYTE: "int",
    BasicType.SHORT: "int",
    BasicType.INT: "int",
    BasicType.LONG: "long",
    BasicType.FLOAT: "double",  # Python has one kind of float
    BasicType.DOUBLE: "double",
    BasicType.BIG_INT: {"type": "string", "logicalType": "big-integer"},
    BasicType.BIG_DEC: {"type": "string", "logicalType": "big-decimal"},
    BasicType.INSTANT: {
        "type": "record",
        "name": "Instant",
        "python": "instant",
        "fields": [{"name": "seconds", "type": "long"}, {"name": "nanos", "type": "int"}],
    },
}
_CLASSES: dict[type, Schema] = {
    DateTypeInfo: {"type": "int", "logicalType": "date"},
    TimeTypeInfo: {"type": "long", "logicalType": "time-micros"},
    TimestampTypeInfo: {"type": "string", "logicalType": "date-time"},
}
_ARRAYS = (BasicArrayTypeInfo, ListTypeInfo, ObjectArrayTypeInfo, PrimitiveArrayTypeInfo)


# --- types to schemas --------------------------------------------------------------------------------


def schema_of(declared: TypeInformation, within: tuple[type, ...] = ()) -> Schema:
    """Return the schema of a declared type; that of pickles if it has no other. `within` has the dataclasses
    around it, to notice one that holds itself."""
    if isinstance(declared, BasicTypeInfo):
        return _BASIC[declared.basic_type]
    if type(declared) in _CLASSES:
        return _CLASSES[type(declared)]
    if isinstance(declared, PrimitiveArrayTypeInfo) and declared.element_type == Types.BYTE():
        return "bytes"
    if isinstance(declared, _ARRAYS):
        return {"type": "array", "items": schema_of(declared.element_type, within)}
    if isinstance(declared, MapTypeInfo):
        key, value = declared.key_type_info, declared.value_type_info
        return map_schema(schema_of(key, within), schema_of(value, within))
    if isinstance(declared, RowTypeInfo):
        types = [schema_of(field_type, within) for field_type in declared.types]
        return _record("Row", "row", list(zip(declared.field_names, types, strict=True)))
    if isinstance(declared, TupleTypeInfo):
        return _record(
            "Tuple",
            "tuple",
            [
                (f"f{i}", schema_of(field_type, within))
                for i, field_type in enumerate(declared.types)
            ],
        )
    if isinstance(declared, GenericRecordAvroTypeInfo):
        return declared.state_schema
    if isinstance(declared, ClassTypeInfo) and _has_fields(declared.python_class, within):
        return _dataclass_schema(declared.python_class, within)
    return PICKLE


def _has_fields(python_class: type, within: tuple[type, ...]) -> bool:
    """Return True for dataclasses that other processes can find, and that do not hold themselves."""
    is_local = "<locals>" in python_class.__qualname__
    return dataclasses.is_dataclass(python_class) and not is_local and python_class not in within


def _record(name: str, python: str, fields: list[tuple[str, Schema]]) -> Schema:
    if not fields:
        return PICKLE  # Parquet has no such type
    return {
        "type": "record",
        "name": name,
        "python": python,
        "fields": [{"name": field, "type": schema} for field, schema in fields],
    }


def _dataclass_schema(python_class: type, within: tuple[type, ...]) -> Schema:
    try:
        hints = typing.get_type_hints(python_class)
    except (NameError, TypeError):  # a name that only type checkers know
        return PICKLE
    fields = []
    for declared_field in dataclasses.fields(python_class):
        schema = schema_of(_hinted(hints[declared_field.name]), (*within, python_class))
        field: dict[str, Any] = {"name": declared_field.name, "type": schema}
        default = declared_field.default
        if declared_field.default_factory is not dataclasses.MISSING:
            default = declared_field.default_factory()
        if default is None or isinstance(default, (str, int, float, bool)) or default in ([], {}):
            field["default"] = default
        fields.append(field)
    if not fields:
        return PICKLE
    return {
        "type": "record",
        "name": python_class.__name__,
        "python": "dataclass",
        "class": reference_of(python_class),
        "fields": fields,
    }


def _hinted(hint: object) -> TypeInformation:
    try:
        return to_type_info(hint)
    except (ProgramError, TypeError):
        return Types.PICKLED_BYTE_ARRAY()


def schema_of_values(values: list[Any]) -> Schema:
    """Return the schema that plain values of one kind have; that of pickles for any others."""
    kinds = set(map(type, values)) - {type(None)}
    if len(kinds) == 1:
        (kind,) = kinds
        if kind is int:
            numbers = [value for value in values if value is not None]
            return "long" if min(numbers) >= -(1 << 63) and max(numbers) < 1 << 63 else PICKLE
        return {str: "string", float: "double", bool: "boolean", bytes: "bytes"}.get(kind, PICKLE)
    return PICKLE


def is_pickled(schema: Schema) -> bool:
    """Return True if a schema is that of pickles."""
    return isinstance(schema, dict) and schema.get("logicalType") == "pickle"


# --- values to columns -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValueCodec:
    """Turns Python values into an Arrow column and back. None as a function: values stay what they are."""

    arrow: pyarrow.DataType
    to_plain: Callable[[Any], Any] | None = None
    to_python: Callable[[Any], Any] | None = None

    def column(self, values: list[Any]) -> pyarrow.Array:
        """Return values as an Arrow column."""
        plain = values if self.to_plain is None else list(map(self.to_plain, values))
        return pyarrow.array(plain, self.arrow)

    def values(self, column: pyarrow.Array | pyarrow.ChunkedArray) -> list[Any]:
        """Return the Python values of an Arrow column."""
        plain: list[Any] = column.to_pylist()
        return plain if self.to_python is None else list(map(self.to_python, plain))


def codec_of(schema: Schema) -> ValueCodec:
    """Return the codec of a schema. Raises CorruptDataError if the schema is unknown."""
    if isinstance(schema, str):
        return _plain_codec(schema)
    logical = schema.get("logicalType")
    if logical is not None:
        return _logical_codec(logical)
    if schema["type"] == "array":
        return _array_codec(schema)
    if schema["type"] == "record":
        return _record_codec(schema)
    if schema["type"] in ("enum", "fixed"):
        return _plain_codec("string" if schema["type"] == "enum" else "bytes")
    raise CorruptDataError(f"Unknown schema {schema!r}.")


_PLAIN = {
    "string": pyarrow.string(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "bytes": pyarrow.binary(),
}


def _plain_codec(schema: str) -> ValueCodec:
    if schema not in _PLAIN:
        raise CorruptDataError(f"Unknown schema {schema!r}.")
    if schema == "double":
        return ValueCodec(_PLAIN[schema], lambda v: v if v is None else float(v))
    if schema == "bytes":
        return ValueCodec(_PLAIN[schema], lambda v: v if v is None else bytes(v))
    return ValueCodec(_PLAIN[schema])


def _if_any(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else function(value)


def _logical_codec(logical: str) -> ValueCodec:
    if logical == "pickle":
        return ValueCodec(pyarrow.binary(), dumps, loads)
    if logical == "big-integer":
        return ValueCodec(pyarrow.string(), _if_any(str), _if_any(int))
    if logical == "big-decimal":
        return ValueCodec(pyarrow.string(), _if_any(str), _if_any(decimal.Decimal))
    if logical == "date":
        return ValueCodec(pyarrow.date32())
    if logical == "time-micros":
        return ValueCodec(pyarrow.time64("us"))
    if logical == "date-time":
        to_python = datetime.datetime.fromisoformat
        return ValueCodec(pyarrow.string(), _if_any(lambda v: v.isoformat()), _if_any(to_python))
    raise CorruptDataError(f"Unknown logical type {logical!r}.")


def _array_codec(schema: dict[str, Any]) -> ValueCodec:
    items = codec_of(schema["items"])
    arrow = pyarrow.list_(items.arrow)
    to_plain, to_python = items.to_plain or same, items.to_python or same
    if schema.get("python") == "map":
        return ValueCodec(
            arrow,
            _if_any(lambda mapping: [to_plain(entry) for entry in mapping.items()]),
            _if_any(lambda entries: dict(map(to_python, entries))),
        )
    return ValueCodec(
        arrow,
        _if_any(lambda elements: [to_plain(element) for element in elements]),
        _if_any(lambda elements: [to_python(element) for element in elements]),
    )


def same(value: T) -> T:
    """Return the value itself: the conversion where there is nothing to convert."""
    return value


def _record_codec(schema: dict[str, Any]) -> ValueCodec:
    names = [field["name"] for field in schema["fields"]]
    codecs = [codec_of(field["type"]) for field in schema["fields"]]
    to_plain = [codec.to_plain or same for codec in codecs]
    to_python = [codec.to_python or same for codec in codecs]
    arrow = pyarrow.struct([(n, c.arrow) for n, c in zip(names, codecs, strict=True)])
    take_apart, put_together = _record_functions(schema, names)

    def plain(value: object) -> dict[str, Any]:
        fields = zip(names, to_plain, take_apart(value), strict=True)
        return {name: function(field) for name, function, field in fields}

    def python(value: dict[str, Any]) -> object:
        return put_together(
            [function(value[name]) for name, function in zip(names, to_python, strict=True)]
        )

    return ValueCodec(arrow, _if_any(plain), _if_any(python))


def _record_functions(
    schema: dict[str, Any], names: list[str]
) -> tuple[Callable[[Any], list[Any]], Callable[[list[Any]], Any]]:
    kind = schema.get("python", "row")
    if kind == "tuple":
        return list, tuple
    if kind == "dict":
        defaults = {field["name"]: default_of(field) for field in schema["fields"]}
        return (
            lambda value: [value.get(name, defaults[name]) for name in names],
            lambda fields: dict(zip(names, fields, strict=True)),
        )
    if kind == "instant":
        return lambda instant: [instant.seconds, instant.nanos], lambda fields: Instant(*fields)
    if kind == "dataclass":
        python_class = _class_with_fields(schema["class"], names)
        if python_class is not None:
            return (
                lambda value: [getattr(value, name) for name in names],
                lambda fields: _made(python_class, dict(zip(names, fields, strict=True))),
            )

    def row(fields: list[Any]) -> Row:
        made = Row(*fields)
        made.set_field_names(names)
        return made

    return lambda value: [_field(value, name) for name in names], row


def _field(value: object, name: str) -> object:
    if isinstance(value, (tuple, list)):
        return value[int(name[1:])]
    return getattr(value, name, None) if not isinstance(value, Row) else value[name]


def _class_with_fields(reference: str, names: list[str]) -> type | None:
    """Return a dataclass by module and name; None if it is gone, or has other fields now. Then its records
    are rows, until it is known what they are to become (evolution.py)."""
    python_class = find_class(reference)
    if not isinstance(python_class, type) or not dataclasses.is_dataclass(python_class):
        return None
    return (
        python_class
        if {field.name for field in dataclasses.fields(python_class)} == set(names)
        else None
    )


def _made(python_class: type, values: dict[str, Any]) -> object:
    """Return an instance with these values, also of fields that its constructor does not take."""
    fields = dataclasses.fields(python_class)
    made = python_class(**{field.name: values[field.name] for field in fields if field.init})
    for field in fields:
        if not field.init:
            object.__setattr__(made, field.name, values[field.name])
    return made
