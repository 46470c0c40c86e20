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
    """Reads a line of CSV as a row. An empty field is None, unless it is text. Built by its `Builder`."""

    def __init__(self, type_info: RowTypeInfo, settings: dict[str, Any]) -> None:
        self._type_info = type_info
        self._settings = settings
        self._names = type_info.field_names
        null, between = settings.get("null"), settings.get("array", ";")
        self._parts = [_reader_of(field_type, null, between) for field_type in type_info.types]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._settings)

    def deserialize(self, data: bytes) -> Any:
        """Return the row, or None for a comment; raise ValueError, or with `ignore_parse_errors` return
        None, if the line does not fit."""
        try:
            text = data.decode()
            if self._settings.get("comments") and text.startswith("#"):
                return None
            rows = list(csv.reader([text], **_dialect(self._settings), strict=True))
            return self._row(rows[0] if rows else [])
        except (ValueError, csv.Error, TypeMismatchError) as problem:
            if self._settings.get("lenient"):
                return None
            raise ValueError(f"{data[:200]!r} is not a line of this schema: {problem}") from None

    def deserialize_many(self, data: list[bytes]) -> list[Any]:
        if not self._settings.get("comments"):
            try:
                texts = [line.decode() for line in data]
                rows = list(csv.reader(texts, **_dialect(self._settings), strict=True))
                # Otherwise a quote that is never closed has joined several lines.
                if len(rows) == len(texts):
                    return list(map(self._row, rows))
            except (ValueError, csv.Error, TypeMismatchError):
                pass  # reading one by one finds the line that is wrong
        return list(map(self.deserialize, data))

    def _row(self, fields: list[str]) -> object:
        if len(fields) != len(self._parts):
            raise ValueError(f"it has {len(fields)} fields instead of {len(self._parts)}")
        return named_row(
            self._names,
            [convert(field) for convert, field in zip(self._parts, fields, strict=True)],
        )

    class Builder:
        """Builds the schema for rows of a type. Setters return the builder itself."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = row_type(type_info, "CsvRowDeserializationSchema")
            self._settings: dict[str, Any] = {}

        def set_field_delimiter(self, delimiter: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character between fields; a comma by default."""
            return self._set("delimiter", delimiter)

        def set_allow_comments(self, allow_comments: bool) -> CsvRowDeserializationSchema.Builder:
            """Skip lines that begin with #."""
            return self._set("comments", allow_comments)

        def set_array_element_delimiter(
            self, delimiter: str
        ) -> CsvRowDeserializationSchema.Builder:
            """Set the text between the elements of an array; a semicolon by default."""
            return self._set("array", delimiter)

        def set_quote_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character around values that need quotes; a double quote by default."""
            return self._set("quote", c)

        def set_escape_character(self, c: str) -> CsvRowDeserializationSchema.Builder:
            """Set the character that escapes the next one; none by default."""
            return self._set("escape", c)

        def set_null_literal(self, null_literal: str) -> CsvRowDeserializationSchema.Builder:
            """Set the text that stands for None."""
            return self._set("null", null_literal)

        def set_ignore_parse_errors(
            self, ignore_parse_errors: bool
        ) -> CsvRowDeserializationSchema.Builder:
            """Skip lines that cannot be read instead of failing."""
            return self._set("lenient", ignore_parse_errors)

        def build(self) -> CsvRowDeserializationSchema:
            """Return the schema."""
            return CsvRowDeserializationSchema(self._type_info, dict(self._settings))

        def _set(self, name: str, value: object) -> CsvRowDeserializationSchema.Builder:
            self._settings[name] = value
            return self


class CsvRowSerializationSchema(SerializationSchema):
    """Writes a row as a line of CSV. Built by its `Builder`."""

    def __init__(self, type_info: RowTypeInfo, settings: dict[str, Any]) -> None:
        self._type_info = type_info
        self._settings = settings
        null, between = settings.get("null", ""), settings.get("array", ";")
        self._parts = [_writer_of(field_type, null, between) for field_type in type_info.types]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._settings)

    def serialize(self, value: object) -> bytes:
        return self.serialize_many([value])[0]

    def serialize_many(self, values: list[Any]) -> list[bytes]:
        return [line.encode() for line in self.lines(values)]

    def lines(self, values: list[Any]) -> list[str]:
        """Return the line of each record, with its line delimiter."""
        names, parts = self._type_info.field_names, self._parts
        end = self._settings.get("line", "\n")
        lines = _Lines()
        writer = csv.writer(lines, **_dialect(self._settings), lineterminator=end)
        writer.writerows(
            [convert(item) for convert, item in zip(parts, fields_of(value, names), strict=True)]
            for value in values
        )
        return lines.all

    class Builder:
        """Builds the schema for rows of a type. Setters return the builder itself."""

        def __init__(self, type_info: TypeInformation) -> None:
            self._type_info = row_type(type_info, "CsvRowSerializationSchema")
            self._settings: dict[str, Any] = {}

        def set_field_delimiter(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character between fields; a comma by default."""
            return self._set("delimiter", c)

        def set_line_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the text after each line; a line break by default. It may be empty."""
            return self._set("line", delimiter)

        def set_array_element_delimiter(self, delimiter: str) -> CsvRowSerializationSchema.Builder:
            """Set the text between the elements of an array; a semicolon by default."""
            return self._set("array", delimiter)

        def disable_quote_character(self) -> CsvRowSerializationSchema.Builder:
            """Write values without quotes."""
            return self._set("quote", False)

        def set_quote_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character around values that need quotes; a double quote by default."""
            return self._set("quote", c)

        def set_escape_character(self, c: str) -> CsvRowSerializationSchema.Builder:
            """Set the character that escapes the next one; none by default."""
            return self._set("escape", c)

        def set_null_literal(self, s: str) -> CsvRowSerializationSchema.Builder:
            """Set the text that stands for None; empty by default."""
            return self._set("null", s)

        def build(self) -> CsvRowSerializationSchema:
            """Return the schema."""
            return CsvRowSerializationSchema(self._type_info, dict(self._settings))

        def _set(self, name: str, value: object) -> CsvRowSerializationSchema.Builder:
            self._settings[name] = value
            return self


class _Lines:
    """A file for the csv module that keeps every line written to it."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.write = self.all.append


def _dialect(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings as arguments of Python's csv module."""
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
        return lambda text: [element(item) for item in text.split(between)] if text else []
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
        converted = convert(value)
        if type(converted) is str:
            return converted
        if converted is None:
            return null
        if converted is True or converted is False:
            return "true" if converted else "false"
        return format(converted, "f") if isinstance(converted, Decimal) else str(converted)

    return write


def _is_text(type_info: TypeInformation) -> bool:
    return isinstance(type_info, BasicTypeInfo) and type_info.basic_type in (
        BasicType.STRING,
        BasicType.CHAR,
    )
