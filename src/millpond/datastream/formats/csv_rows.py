"""Records as lines of CSV, one per message, with PyFlink's names."""

from __future__ import annotations

import csv
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millpond.common.basic_types import BasicType, BasicTypeInfo, TypeInformation
from millpond.common.composite_types import RowTypeInfo, _ElementsTypeInfo
from millpond.common.serialization import DeserializationSchema, SerializationSchema
from millpond.common.types import named_row
from millpond.datastream.formats.fields import fields_of, row_type
from millpond.datastream.formats.json_values import Convert, from_json, to_json
from millpond.errors import ProgramError, TypeMismatchError

csv.field_size_limit(2**31 - 1)  # Python's own limit, 128 KB, is too small for some messages


class CsvRowDeserializationSchema(DeserializationSchema):
    """A line of CSV as a row of a type. A field that is empty is None, unless it is text."""

    def __init__(self, type_info: RowTypeInfo, settings: dict[str, Any]) -> None:
        self._type_info = type_info
        self._settings = settings
        self._names = type_info.field_names
        null, between = settings.get("null"), settings.get("array", ";")
        self._parts = [_reader_of(own, null, between) for own in type_info.types]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._settings)

    def deserialize(self, data: bytes) -> Any:
        try:
            text = data.decode()
            if self._settings.get("comments") and text.startswith("#"):
                return None
            rows = list(csv.reader([text], **_dialect(self._settings), strict=True))
            return self._row(rows[0] if rows else [])
        except (ValueError, csv.Error, TypeMismatchError) as problem:
            if self._settings.get("lenient"):
                return None
            raise ValueError(f"{data[:200]!r} is not such a line: {problem}") from None

    def deserialize_many(self, data: list[bytes]) -> list[Any]:
        if not self._settings.get("comments"):
            try:
                texts = [own.decode() for own in data]
                found = list(csv.reader(texts, **_dialect(self._settings), strict=True))
                if len(found) == len(
                    texts
                ):  # else a quote that is never closed took lines together
                    return list(map(self._row, found))
            except (ValueError, csv.Error, TypeMismatchError):
                pass  # one by one it will turn out which one it is
        return list(map(self.deserialize, data))

    def _row(self, fields: list[str]) -> Any:
        if len(fields) != len(self._parts):
            raise ValueError(f"it has {len(fields)} fields, expected {len(self._parts)}")
        return named_row(
            self._names, [own(field) for own, field in zip(self._parts, fields, strict=True)]
        )

    class Builder:
        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = row_type(type_info, "CsvRowDeserializationSchema")
            self._settings: dict[str, Any] = {}

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            return self._set("delimiter", delimiter)

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Lines that begin with # are left out."""
            return self._set("comments", allow_comments)

        def set_array_element_delimiter(
            self, delimiter: str
        ) -> CsvRowDeserializationSchema.Builder:
            return self._set("array", delimiter)

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._set("quote", c)

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            return self._set("escape", c)

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            return self._set("null", null_literal)

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """What cannot be read is left out."""
            return self._set("lenient", ignore_parse_errors)

        def build(self) -> CsvRowDeserializationSchema:
            return CsvRowDeserializationSchema(self._type_info, dict(self._settings))

        def _set(self, name: str, value: Any) -> CsvRowDeserializationSchema.Builder:
            self._settings[name] = value
            return self


class CsvRowSerializationSchema(SerializationSchema):
    """A row as a line of CSV."""

    def __init__(self, type_info: RowTypeInfo, settings: dict[str, Any]) -> None:
        self._type_info = type_info
        self._settings = settings
        null, between = settings.get("null", ""), settings.get("array", ";")
        self._parts = [_writer_of(own, null, between) for own in type_info.types]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._settings)

    def serialize(self, value: Any) -> bytes:
        return self.serialize_many([value])[0]

    def serialize_many(self, values: list[Any]) -> list[bytes]:
        return [line.encode() for line in self.lines(values)]

    def lines(self, values: list[Any]) -> list[str]:
        names, parts = self._type_info.field_names, self._parts
        end = self._settings.get("line", "\n")
        lines = _Lines()
        writer = csv.writer(lines, **_dialect(self._settings), lineterminator=end)
        writer.writerows(
            [own(item) for own, item in zip(parts, fields_of(value, names), strict=True)]
            for value in values
        )
        return lines.all

    class Builder:
        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = row_type(type_info, "CsvRowSerializationSchema")
            self._settings: dict[str, Any] = {}

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set("delimiter", c)

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """What follows a line; may be empty."""
            return self._set("line", delimiter)

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            return self._set("array", delimiter)

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            return self._set("quote", False)

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set("quote", c)

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            return self._set("escape", c)

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            return self._set("null", s)

        def build(self) -> CsvRowSerializationSchema:
            return CsvRowSerializationSchema(self._type_info, dict(self._settings))

        def _set(self, name: str, value: Any) -> CsvRowSerializationSchema.Builder:
            self._settings[name] = value
            return self


class _Lines:
    """What the csv module writes to: a call for each line."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.write = self.all.append


def _dialect(settings: dict[str, Any]) -> dict[str, Any]:
    """For Python's csv module."""
    quote = settings.get("quote", '"')
    return {
        "delimiter": settings.get("delimiter", ","),
        "quotechar": quote or None,
        "quoting": csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        "escapechar": settings.get("escape"),
    }


def _reader_of(type_info: TypeInformation, null: str | None, between: str) -> Convert:
    if isinstance(type_info, _ElementsTypeInfo):
        element = _reader_of(type_info.element_type, null, between)
        return lambda text: [element(own) for own in text.split(between)] if text else []
    convert = from_json(type_info, False)
    if _is_text(type_info):
        return lambda text: None if text == null else text
    if null is None:
        return lambda text: convert(text) if text else None
    return lambda text: None if text == null else convert(text)


def _writer_of(type_info: TypeInformation, null: str, between: str) -> Callable[[Any], str]:
    if isinstance(type_info, _ElementsTypeInfo):
        element = _writer_of(type_info.element_type, null, between)
        return lambda value: null if value is None else between.join(map(element, value))
    if isinstance(type_info, RowTypeInfo):
        raise ProgramError(f"A column of CSV holds one value or a list, not {type_info}.")
    convert = to_json(type_info)

    def write(value: Any) -> str:
        own = convert(value)
        if type(own) is str:
            return own
        if own is None:
            return null
        if own is True or own is False:
            return "true" if own else "false"
        return format(own, "f") if isinstance(own, Decimal) else str(own)

    return write


def _is_text(type_info: TypeInformation) -> bool:
    return isinstance(type_info, BasicTypeInfo) and type_info.basic_type in (
        BasicType.STRING,
        BasicType.CHAR,
    )
