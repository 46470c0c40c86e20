"""Avro schemas as types of states and records, with PyFlink's names. Needs the extra `avro` (fastavro)."""

from __future__ import annotations

import importlib
import io
import json
from pathlib import Path
from types import ModuleType
from typing import Any

from millpond.common.basic_types import TypeInformation
from millpond.common.serialization import (
    BulkWriterFactory,
    DeserializationSchema,
    SerializationSchema,
)
from millpond.datastream.formats.avro_files import AvroFormat, AvroWriterFactory
from millpond.datastream.formats.avro_rows import rows_from_avro, rows_to_avro
from millpond.datastream.formats.avro_schemas import Unfit, read_avro
from millpond.errors import ProgramError, SetupError, TypeMismatchError, UnsupportedFeatureError
from millpond.missing import module_getattr


class AvroSchema:
    """A parsed Avro schema of records. `parsed` is fastavro's form of it, with full names.

    Raise ProgramError if the text is not such a schema, SetupError if fastavro is not installed.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.parsed = _parse(text)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        """Return the schema that the JSON text describes."""
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        """Return the schema in a file; raise ProgramError if the file cannot be read."""
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except OSError as problem:
            raise ProgramError(f"The Avro schema {file_path} cannot be read: {problem}.") from None

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema, (self._text,)


class GenericRecordAvroTypeInfo(TypeInformation):
    """The type of records of an Avro schema, as dictionaries. Fields that are left out get their defaults."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.state_schema, self._check = read_avro(schema.parsed)

    def conform(self, value: object) -> object:
        if value is None:
            return None
        try:
            return self._check(value, "")
        except Unfit as problem:
            raise TypeMismatchError(f"{self._mismatch(value)}: {problem}") from None

    def __repr__(self) -> str:
        return f"Avro<{self.schema.parsed['name']}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GenericRecordAvroTypeInfo) and (
            self.schema.parsed == other.schema.parsed
        )

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return GenericRecordAvroTypeInfo, (self.schema,)


class AvroRowDeserializationSchema(DeserializationSchema):
    """Reads Avro records without a header, written with the schema given here, as rows."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _given_schema(record_class, avro_schema_string)
        self._read = _fastavro("_read").schemaless_reader
        self._convert = rows_from_avro(self._schema.parsed)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, str(self._schema))

    def deserialize(self, data: bytes) -> Any:
        """Return the row; raise ValueError if the bytes are not exactly one record of the schema."""
        file = io.BytesIO(data)
        try:
            record = self._read(file, self._schema.parsed, None)
        except Exception as problem:  # broken bytes can cause any kind of error
            raise self._bad(f"{type(problem).__name__} {problem}") from None
        if file.tell() != len(data):
            raise self._bad(f"the record ends at byte {file.tell()} of {len(data)}")
        return self._convert(record)

    def _bad(self, reason: str) -> ValueError:
        name = self._schema.parsed["name"]
        return ValueError(f"The bytes are not a record of the Avro schema {name}: {reason}")


class AvroRowSerializationSchema(SerializationSchema):
    """Writes rows as Avro records without a header."""

    def __init__(
        self, record_class: str | None = None, avro_schema_string: str | None = None
    ) -> None:
        self._schema = _given_schema(record_class, avro_schema_string)
        self._write = _fastavro("_write").schemaless_writer
        self._convert = rows_to_avro(self._schema.parsed)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, str(self._schema))

    def serialize(self, value: object) -> bytes:
        """Return the bytes of a record; raise ValueError if it does not fit the schema."""
        file = io.BytesIO()
        try:
            self._write(file, self._schema.parsed, self._convert(value))
        except Exception as problem:
            raise ValueError(
                f"{value!r} does not fit the Avro schema {self._schema.parsed['name']}: {problem}"
            ) from None
        return file.getvalue()


class AvroInputFormat:
    """Avro files at a path, for `StreamExecutionEnvironment.create_input`."""

    def __init__(self, path: str, schema: AvroSchema) -> None:
        self.path = path
        self.format = AvroFormat(schema.parsed)
        self._type_info = GenericRecordAvroTypeInfo(schema)

    def get_produced_type(self) -> GenericRecordAvroTypeInfo:
        """Return the type of the records."""
        return self._type_info


class AvroBulkWriters:
    """Factory methods for writers of Avro files, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> BulkWriterFactory:
        """Return a factory of writers for records that are dictionaries."""
        return AvroWriterFactory(schema.parsed)


def _given_schema(record_class: str | None, avro_schema_string: str | None) -> AvroSchema:
    if record_class is not None:
        raise UnsupportedFeatureError(
            f"record_class ({record_class}) is a Java class: use avro_schema_string instead."
        )
    if avro_schema_string is None:
        raise TypeError("avro_schema_string is missing.")
    return AvroSchema(avro_schema_string)


def _fastavro(module: str) -> ModuleType:
    try:
        return importlib.import_module(f"fastavro.{module}")
    except ImportError:
        raise SetupError(
            "Avro schemas need the package fastavro: pip install 'millpond[avro]', on every machine of the "
            "cluster."
        ) from None


def _parse(text: str) -> dict[str, Any]:
    fastavro = _fastavro("schema")
    try:
        parsed = fastavro.parse_schema(json.loads(text))
    except json.JSONDecodeError as problem:
        raise ProgramError(f"The Avro schema is not JSON: {problem}.") from None
    except (fastavro.SchemaParseException, fastavro.UnknownType, KeyError, TypeError) as problem:
        raise ProgramError(
            f"The Avro schema is not valid: {type(problem).__name__}: {problem}."
        ) from None
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise ProgramError("The Avro schema must describe records (type record).")
    return parsed


__getattr__ = module_getattr(__name__)
