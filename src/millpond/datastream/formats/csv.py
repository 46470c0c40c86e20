"""CSV files. Arrow reads them as columns; a function that takes single records gets `Row`s."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow import csv

from millpond.common.basic_types import BasicType, BasicTypeInfo
from millpond.common.composite_types import RowTypeInfo
from millpond.common.serialization import BulkWriter, BulkWriterFactory
from millpond.common.typeinfo import TypeInformation, Types
from millpond.datastream.connectors.file_system.formats import StreamFormat
from millpond.datastream.formats.csv_rows import (
    CsvRowDeserializationSchema,
    CsvRowSerializationSchema,
)
from millpond.errors import ProgramError
from millpond.missing import MissingMethods, module_getattr

__all__ = [
    "CsvBulkWriters",
    "CsvReaderFormat",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "CsvSchema",
    "CsvSchemaBuilder",
]
_NUMBERS = {
    BasicType.BYTE: pyarrow.int8(),
    BasicType.SHORT: pyarrow.int16(),
    BasicType.INT: pyarrow.int32(),
    BasicType.LONG: pyarrow.int64(),
    BasicType.FLOAT: pyarrow.float64(),
    BasicType.DOUBLE: pyarrow.float64(),
}


class CsvSchema:
    """The names and types of the columns, and how the file is written. Made by `CsvSchema.builder()`."""

    def __init__(self, columns: dict[str, Any], settings: dict[str, Any]) -> None:
        self.columns = columns
        self.settings = settings

    @staticmethod
    def builder() -> CsvSchemaBuilder:
        """Return a builder for a schema."""
        return CsvSchemaBuilder()

    def size(self) -> int:
        """Return the number of columns."""
        return len(self.columns)


class CsvSchemaBuilder(MissingMethods):
    """Builds a CsvSchema, column by column in the order of the file. Setters return the builder itself."""

    def __init__(self) -> None:
        self._columns: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}

    def add_string_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of text."""
        return self._add(name, pyarrow.string())

    def add_number_column(
        self, name: str, number_type: TypeInformation | None = None
    ) -> CsvSchemaBuilder:
        """Add a column of numbers; `number_type` is Types.LONG() (the default), INT(), DOUBLE() or the
        like."""
        declared = Types.LONG() if number_type is None else number_type
        known = _NUMBERS.get(declared.basic_type) if isinstance(declared, BasicTypeInfo) else None
        if known is None:
            raise ProgramError(
                f"Column '{name}': {declared} is not a number type; use Types.LONG(), INT(), "
                "DOUBLE() or the like."
            )
        return self._add(name, known)

    def add_boolean_column(self, name: str) -> CsvSchemaBuilder:
        """Add a column of booleans."""
        return self._add(name, pyarrow.bool_())

    def set_column_separator(self, char: str) -> CsvSchemaBuilder:
        """Set the character between columns; a comma by default."""
        return self._set("separator", char)

    def set_quote_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character around values that need quotes; a double quote by default."""
        return self._set("quote", char)

    def disable_quote_char(self) -> CsvSchemaBuilder:
        """Read and write values without quotes."""
        return self._set("quote", False)

    def set_escape_char(self, char: str) -> CsvSchemaBuilder:
        """Set the character that escapes the next one; none by default."""
        return self._set("escape", char)

    def set_null_value(self, null_value: str) -> CsvSchemaBuilder:
        """Set the text that stands for None. By default an empty value is None, except in columns of text."""
        return self._set("null", null_value)

    def set_skip_first_data_row(self, skip: bool = True) -> CsvSchemaBuilder:
        """Skip the first line of every file, which is a header."""
        return self._set("header", skip)

    def set_use_header(self, use: bool = True) -> CsvSchemaBuilder:
        """Expect, and write, a header. The columns are those of the schema, in its order, whatever the
        header says."""
        return self._set("header", use)

    def build(self) -> CsvSchema:
        """Return the schema; raise ProgramError if it has no columns."""
        if not self._columns:
            raise ProgramError("A CSV schema needs at least one column.")
        return CsvSchema(dict(self._columns), dict(self._settings))

    def _add(self, name: str, arrow_type: object) -> CsvSchemaBuilder:
        if name in self._columns:
            raise ProgramError(f"The CSV schema already has a column '{name}'.")
        self._columns[name] = arrow_type
        return self

    def _set(self, name: str, value: object) -> CsvSchemaBuilder:
        self._settings[name] = value
        return self


class CsvReaderFormat(StreamFormat):
    """Reads CSV files: one record per line. A value must not contain a line break."""

    block_bytes = 4 * 1024 * 1024

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        self.has_header = bool(schema.settings.get("header"))

    @staticmethod
    def for_schema(schema: CsvSchema) -> CsvReaderFormat:
        """Return the format for files of this schema."""
        return CsvReaderFormat(schema)

    def read(self, block: bytes) -> pyarrow.RecordBatch | None:
        """Return the records in whole lines, or None if there are none."""
        columns, settings = self._schema.columns, self._schema.settings
        null = settings.get("null")
        # Made here rather than once, because Arrow's options cannot be sent to workers.
        read = csv.ReadOptions(
            column_names=list(columns), use_threads=False, block_size=len(block) + 1
        )
        parse = csv.ParseOptions(
            delimiter=settings.get("separator", ","),
            quote_char=settings.get("quote", '"'),
            escape_char=settings.get("escape", False),
            ignore_empty_lines=True,
        )
        convert = csv.ConvertOptions(
            column_types=columns,
            null_values=[""] if null is None else [null],
            strings_can_be_null=null is not None,
            quoted_strings_can_be_null=False,
        )
        table = csv.read_csv(pyarrow.py_buffer(block), read, parse, convert)
        return table.combine_chunks().to_batches()[0] if len(table) else None


class CsvBulkWriters:
    """Factory methods for writers of CSV files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_schema(schema: CsvSchema) -> BulkWriterFactory:
        """Return a factory of writers for files of a schema, with a header if the schema has one
        (`set_use_header`)."""
        return _CsvFactory(schema)


class _CsvFactory(BulkWriterFactory):
    can_join = True

    def __init__(self, schema: CsvSchema) -> None:
        self._schema = schema
        names = {
            "delimiter": "separator",
            "quote": "quote",
            "escape": "escape",
            "null": "null",
        }
        given = {
            setting: schema.settings[n] for setting, n in names.items() if n in schema.settings
        }
        types = [_declared(column) for column in schema.columns.values()]
        row_type = RowTypeInfo(types, list(schema.columns))
        self._lines = CsvRowSerializationSchema(row_type, given)
        header = CsvRowSerializationSchema(
            RowTypeInfo([Types.STRING()] * len(types), list(schema.columns)), given
        )
        has_header = schema.settings.get("header")
        self._header = header.serialize(list(schema.columns)) if has_header else b""

    def create(self, file: BinaryIO) -> BulkWriter:
        file.write(self._header)
        return _CsvWriter(file, self._lines)

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        file.write(self._header)
        for piece in pieces:
            with piece.open("rb") as source:
                source.seek(len(self._header))
                shutil.copyfileobj(source, file, 1024 * 1024)


class _CsvWriter(BulkWriter):
    def __init__(self, file: BinaryIO, lines: CsvRowSerializationSchema) -> None:
        self._file = file
        self._lines = lines

    def add_elements(self, values: Any) -> None:
        self._file.write("".join(self._lines.lines(values)).encode())

    def finish(self) -> None:
        pass


def _declared(column: object) -> TypeInformation:
    if pyarrow.types.is_boolean(column):
        return Types.BOOLEAN()
    if pyarrow.types.is_string(column):
        return Types.STRING()
    return Types.BIG_INT() if pyarrow.types.is_integer(column) else Types.DOUBLE()


__getattr__ = module_getattr(__name__)
