"""Maps declared types and Avro schemas to Arrow types, and records to Arrow columns and back."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow

from millpond.common.basic_types import (
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from millpond.common.composite_types import (
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    _ElementsTypeInfo,
)
from millpond.common.time import Instant
from millpond.common.types import named_row
from millpond.datastream.formats.fields import fields_of
from millpond.datastream.formats.json_values import is_bytes
from millpond.errors import ProgramError

Convert = Callable[[Any], Any]
_BASIC = {
    BasicType.STRING: pyarrow.string(),
    BasicType.CHAR: pyarrow.string(),
    BasicType.BOOLEAN: pyarrow.bool_(),
    BasicType.BYTE: pyarrow.int8(),
    BasicType.SHORT: pyarrow.int16(),
    BasicType.INT: pyarrow.int32(),
    BasicType.LONG: pyarrow.int64(),
    BasicType.FLOAT: pyarrow.float32(),
    BasicType.DOUBLE: pyarrow.float64(),
    BasicType.BIG_INT: pyarrow.decimal128(38, 0),
    BasicType.BIG_DEC: pyarrow.decimal128(38, 18),
    BasicType.INSTANT: pyarrow.timestamp("us", "UTC"),
}
_AVRO = {
    "boolean": pyarrow.bool_(),
    "int": pyarrow.int32(),
    "long": pyarrow.int64(),
    "float": pyarrow.float32(),
    "double": pyarrow.float64(),
    "bytes": pyarrow.binary(),
    "string": pyarrow.string(),
    "enum": pyarrow.string(),
}
_LOGICAL = {
    "date": pyarrow.date32(),
    "time-millis": pyarrow.time32("ms"),
    "time-micros": pyarrow.time64("us"),
    "timestamp-millis": pyarrow.timestamp("ms", "UTC"),
    "timestamp-micros": pyarrow.timestamp("us", "UTC"),
}
_UTC = datetime.timezone.utc  # noqa: UP017 (datetime is the module here)


class RowColumns:
    """Converts rows of a type, `Types.ROW_NAMED` or a `pyarrow.Schema`, to Arrow columns and back."""

    def __init__(self, row_type: object) -> None:
        if isinstance(row_type, pyarrow.Schema):
            self.schema = row_type
            self._to, self._back = {}, {}
        elif isinstance(row_type, RowTypeInfo):
            named = list(zip(row_type.field_names, row_type.types, strict=True))
            self.schema = pyarrow.schema(
                [(name, arrow_type(field_type)) for name, field_type in named]
            )
            self._to = {n: convert for n, field_type in named if (convert := _to_arrow(field_type))}
            self._back = {
                n: convert for n, field_type in named if (convert := _from_arrow(field_type))
            }
        else:
            raise ProgramError(
                f"The row type of a file must be Types.ROW_NAMED or a pyarrow.Schema, not {row_type!r}."
            )
        self._names: list[str] = self.schema.names

    def columns_of(self, values: Any) -> pyarrow.RecordBatch:
        """Return a list of records as columns; columns that are given already are cast to the schema."""
        if isinstance(values, pyarrow.RecordBatch):
            return values.select(self._names).cast(self.schema)
        names = self._names
        fields = zip(*(fields_of(value, names) for value in values), strict=True)
        arrays = []
        for field, column in zip(self.schema, fields, strict=True):
            convert = self._to.get(field.name)
            arrays.append(pyarrow.array(map(convert, column) if convert else column, field.type))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def records_of(self, columns: pyarrow.RecordBatch) -> pyarrow.RecordBatch | list[Any]:
        """Return the columns unchanged if their values are those of the types; otherwise return rows."""
        if not self._back:
            return columns
        lists = []
        for name in self._names:
            column, convert = columns.column(name).to_pylist(), self._back.get(name)
            lists.append(list(map(convert, column)) if convert else column)
        return [named_row(self._names, list(fields)) for fields in zip(*lists, strict=True)]


def arrow_type(type_info: TypeInformation) -> pyarrow.DataType:
    """Return the Arrow type for a declared type; raise ProgramError if there is none."""
    if isinstance(type_info, BasicTypeInfo):
        return _BASIC[type_info.basic_type]
    if is_bytes(type_info):
        return pyarrow.binary()
    if isinstance(type_info, _ElementsTypeInfo):
        return pyarrow.list_(arrow_type(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        key, value = type_info.key_type_info, type_info.value_type_info
        return pyarrow.map_(arrow_type(key), arrow_type(value))
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        named = zip(_names(type_info), type_info.types, strict=True)
        return pyarrow.struct([(name, arrow_type(field_type)) for name, field_type in named])
    simple = [
        (TimestampTypeInfo, pyarrow.timestamp("us")),
        (DateTypeInfo, pyarrow.date32()),
        (TimeTypeInfo, pyarrow.time64("us")),
    ]
    for kind, simple_type in simple:
        if isinstance(type_info, kind):
            return simple_type
    raise ProgramError(
        f"{type_info} cannot be a column of a file: declare a type that says what it is made of."
    )


def _names(type_info: RowTypeInfo | TupleTypeInfo) -> list[str]:
    if isinstance(type_info, RowTypeInfo):
        return type_info.field_names
    return [f"f{number}" for number in range(len(type_info.types))]


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _to_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the conversion from values to what Arrow takes, or None if Arrow takes them unchanged."""
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        names = _names(type_info)
        parts = [_to_arrow(field_type) or _same for field_type in type_info.types]
        return _or_none(
            lambda value: {
                name: convert(item)
                for name, convert, item in zip(names, parts, fields_of(value, names), strict=True)
            }
        )
    if isinstance(type_info, MapTypeInfo):
        convert = _to_arrow(type_info.value_type_info) or _same
        return _or_none(lambda value: [(key, convert(item)) for key, item in value.items()])
    if isinstance(type_info, _ElementsTypeInfo) and not is_bytes(type_info):
        element = _to_arrow(type_info.element_type)
        return None if element is None else _or_none(lambda value: list(map(element, value)))
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.BIG_INT:
        return _or_none(Decimal)
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.INSTANT:
        return _or_none(
            lambda value: datetime.datetime.fromtimestamp(value.seconds, _UTC).replace(
                microsecond=value.nanos // 1000
            )
        )
    return None


def _from_arrow(type_info: TypeInformation) -> Convert | None:
    """Return the conversion from Arrow's values, or None if they need none."""
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        names = _names(type_info)
        parts = [_from_arrow(field_type) or _same for field_type in type_info.types]
        is_row = isinstance(type_info, RowTypeInfo)

        def read(value: dict[str, Any]) -> object:
            fields = [convert(value[name]) for name, convert in zip(names, parts, strict=True)]
            return named_row(names, fields) if is_row else tuple(fields)

        return _or_none(read)
    if isinstance(type_info, MapTypeInfo):
        convert = _from_arrow(type_info.value_type_info) or _same
        return _or_none(lambda value: {key: convert(item) for key, item in value})
    if isinstance(type_info, _ElementsTypeInfo) and not is_bytes(type_info):
        element = _from_arrow(type_info.element_type)
        return None if element is None else _or_none(lambda value: list(map(element, value)))
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.BIG_INT:
        return _or_none(int)
    if isinstance(type_info, BasicTypeInfo) and type_info.basic_type is BasicType.INSTANT:
        return _or_none(
            lambda value: Instant(
                int(value.replace(microsecond=0).timestamp()), value.microsecond * 1000
            )
        )
    return None


def _same(value: object) -> object:
    return value


# --- Avro --------------------------------------------------------------------------------------------


def avro_to_arrow(parsed: dict[str, Any]) -> pyarrow.Schema:
    """Return the Arrow schema for an Avro schema that fastavro has parsed.

    Records are dictionaries, as Arrow takes and gives them; maps are lists of pairs.
    """
    named: dict[str, pyarrow.DataType] = {}
    return pyarrow.schema(list(_avro_type(parsed, named)[0]))


def _avro_type(avro: Any, named: dict[str, pyarrow.DataType]) -> tuple[pyarrow.DataType, bool]:
    """Return the Arrow type, and whether a value may be missing."""
    if isinstance(avro, list):
        return _avro_union(avro, named)
    if isinstance(avro, str):
        simple = _AVRO.get(avro, named.get(avro))
        if simple is None:
            raise ProgramError(f"The Avro type '{avro}' cannot be a column of a file.")
        return simple, False
    kind = avro["type"]
    if avro.get("logicalType") in _LOGICAL:
        return _LOGICAL[avro["logicalType"]], False
    if avro.get("logicalType") == "decimal":
        return pyarrow.decimal128(avro["precision"], avro.get("scale", 0)), False
    if kind == "array":
        return pyarrow.list_(_avro_type(avro["items"], named)[0]), False
    if kind == "map":
        return pyarrow.map_(pyarrow.string(), _avro_type(avro["values"], named)[0]), False
    if kind == "fixed":
        made = pyarrow.binary(avro["size"])
    elif kind in ("record", "error"):
        fields = [(field["name"], *_avro_type(field["type"], named)) for field in avro["fields"]]
        made = pyarrow.struct([pyarrow.field(n, t, nullable=may) for n, t, may in fields])
    else:
        return _avro_type(kind, named)
    named[avro["name"]] = made
    return made, False


def _avro_union(
    branches: list[Any], named: dict[str, pyarrow.DataType]
) -> tuple[pyarrow.DataType, bool]:
    given = [branch for branch in branches if branch != "null"]
    if len(given) != 1:
        raise ProgramError("A union of several Avro types cannot be a column of a file.")
    return _avro_type(given[0], named)[0], len(given) < len(branches)
