"""How records become bytes or lines, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, BinaryIO

from millpond.common.types import Row
from millpond.missing import module_getattr


class SerializationSchema(ABC):
    @abstractmethod
    def serialize(self, value: Any) -> bytes: ...

    def serialize_many(self, values: list[Any]) -> list[bytes]:
        """One after the other. A schema that can do it faster overrides this."""
        return list(map(self.serialize, values))


class DeserializationSchema(ABC):
    @abstractmethod
    def deserialize(self, data: bytes) -> Any:
        """The record; None if there is none in it: sources leave it out."""

    def deserialize_many(self, data: list[bytes]) -> list[Any]:
        """One after the other. A schema that can do it faster overrides this."""
        return list(map(self.deserialize, data))


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text, in a character set."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = charset

    def serialize(self, value: Any) -> bytes:
        return str(value).encode(self._charset)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self._charset)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes as they are."""

    def serialize(self, value: Any) -> bytes:
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        return data


class RowFieldExtractorSchema(SerializationSchema):
    """A field of a row, which must be bytes already: as the key of a Kafka message, say."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"Field index must be non-negative, got: {field_index}")
        self._field_index = field_index

    def serialize(self, value: Any) -> bytes:
        field = value[self._field_index]
        if not isinstance(field, (bytes, bytearray)):
            raise ValueError(f"field {self._field_index} must be bytes, not {field!r}")
        return bytes(field)


class Encoder:
    """Writes a record as a line of a row-format file."""

    def __init__(self, charset_name: str) -> None:
        self._charset = charset_name

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        return Encoder(charset_name)

    @staticmethod
    def for_lines(serialization_schema: SerializationSchema) -> Encoder:
        """Beyond PyFlink: lines as a schema writes them, such as JsonRowSerializationSchema."""
        return _SchemaEncoder(serialization_schema)

    def encode(self, value: Any) -> bytes:
        return (record_to_text(value) + "\n").encode(self._charset)

    def encode_all(self, values: list[Any]) -> bytes:
        """The lines of many records."""
        if type(self) is not Encoder:
            return b"".join(map(self.encode, values))
        return ("\n".join(map(record_to_text, values)) + "\n").encode(self._charset)


class _SchemaEncoder(Encoder):
    def __init__(self, schema: SerializationSchema) -> None:
        super().__init__("UTF-8")
        self._schema = schema

    def encode(self, value: Any) -> bytes:
        return self.encode_all([value])

    def encode_all(self, values: list[Any]) -> bytes:
        lines = self._schema.serialize_many(values)
        if lines and lines[0].endswith(b"\n"):  # of CSV they have their ends already
            return b"".join(lines)
        return b"\n".join(lines) + b"\n" if lines else b""


class BulkWriter(ABC):
    """Writes a file whose records are encoded many at a time."""

    @abstractmethod
    def add_elements(self, values: Any) -> None:
        """A list of records, or an Arrow record batch if the factory takes columns."""

    def unwritten_bytes(self) -> int:
        """About how much `finish` will still write."""
        return 0

    @abstractmethod
    def finish(self) -> None:
        """Write what is left. The file is closed by whoever opened it."""


class BulkWriterFactory(ABC):
    """Makes the writers of a format. `can_join`: files can be joined to one, so that many small ones become
    few large ones. `takes_columns`: writers take Arrow record batches as well as lists."""

    can_join = False
    takes_columns = False

    @abstractmethod
    def create(self, file: BinaryIO) -> BulkWriter: ...

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        """Write the records of all pieces, in order."""
        raise NotImplementedError(type(self).__name__)


class RowDataBulkWriterFactory(BulkWriterFactory):
    """One for rows of a known type."""

    def __init__(self, row_type: Any) -> None:
        self._row_type = row_type

    def get_row_type(self) -> Any:
        return self._row_type


def record_to_text(value: Any) -> str:
    """How `print` and the string encoder show a record: rows as `+I[a, b]`, the rest as str."""
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{','.join(str(item) for item in value)}]"
    return value if isinstance(value, str) else str(value)


__getattr__ = module_getattr(__name__)
