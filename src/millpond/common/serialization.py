"""How records become bytes or lines, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, BinaryIO, Generic

from millpond.common.type_variables import T
from millpond.common.types import Row
from millpond.missing import module_getattr


class SerializationSchema(ABC, Generic[T]):
    """Turns records into bytes, for a sink."""

    @abstractmethod
    def serialize(self, value: T) -> bytes:
        """Return the bytes of a record."""

    def serialize_many(self, values: list[T]) -> list[bytes]:
        """Return the bytes of each record, in order. Override it if many can be done faster at once."""
        return list(map(self.serialize, values))


class DeserializationSchema(ABC, Generic[T]):
    """Turns bytes into records, for a source."""

    @abstractmethod
    def deserialize(self, data: bytes) -> T | None:
        """Return the record in the bytes, or None to leave it out."""

    def deserialize_many(self, data: list[bytes]) -> list[T | None]:
        """Return the record of each message, in order. Override it if many can be done faster at once."""
        return list(map(self.deserialize, data))


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a character set. `serialize` takes any value and writes its `str`."""

    def __init__(self, charset: str = "UTF-8") -> None:
        self._charset = charset

    def serialize(self, value: object) -> bytes:
        return str(value).encode(self._charset)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self._charset)


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes, unchanged."""

    def serialize(self, value: Any) -> bytes:
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        return data


class RowFieldExtractorSchema(SerializationSchema):
    """One field of a row, which must hold bytes; for example, as the key of a Kafka message."""

    def __init__(self, field_index: int) -> None:
        if field_index < 0:
            raise ValueError(f"The field index must not be negative, but is {field_index}.")
        self._field_index = field_index

    def serialize(self, value: Any) -> bytes:
        """Return the bytes of the field; raise ValueError if it holds something else."""
        field = value[self._field_index]
        if not isinstance(field, (bytes, bytearray)):
            raise ValueError(f"Field {self._field_index} must hold bytes, not {field!r}.")
        return bytes(field)


class Encoder:
    """Writes a record as a line of a row-format file."""

    def __init__(self, charset_name: str) -> None:
        self._charset = charset_name

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Return an encoder that writes the text of each record, as `print` would show it."""
        return Encoder(charset_name)

    @staticmethod
    def for_lines(serialization_schema: SerializationSchema) -> Encoder:
        """Return an encoder that writes lines with a schema, such as JsonRowSerializationSchema. Beyond
        PyFlink."""
        return _SchemaEncoder(serialization_schema)

    def encode(self, value: object) -> bytes:
        """Return the line of a record, with its line break."""
        return (record_to_text(value) + "\n").encode(self._charset)

    def encode_all(self, values: list[Any]) -> bytes:
        """Return the lines of many records."""
        if type(self) is not Encoder:
            return b"".join(map(self.encode, values))
        return ("\n".join(map(record_to_text, values)) + "\n").encode(self._charset)


class _SchemaEncoder(Encoder):
    def __init__(self, schema: SerializationSchema) -> None:
        super().__init__("UTF-8")
        self._schema = schema

    def encode(self, value: object) -> bytes:
        return self.encode_all([value])

    def encode_all(self, values: list[Any]) -> bytes:
        lines = self._schema.serialize_many(values)
        if lines and lines[0].endswith(b"\n"):  # lines of CSV already have their line breaks
            return b"".join(lines)
        return b"\n".join(lines) + b"\n" if lines else b""


class BulkWriter(ABC):
    """Writes a file whose records are encoded many at a time."""

    @abstractmethod
    def add_elements(self, values: Any) -> None:
        """Write a list of records, or an Arrow record batch if the factory takes columns."""

    def unwritten_bytes(self) -> int:
        """Return an estimate of how many bytes `finish` will still write."""
        return 0

    @abstractmethod
    def finish(self) -> None:
        """Write what is left. Whoever opened the file closes it."""


class BulkWriterFactory(ABC):
    """Creates the writers of a file format.

    `can_join`: several files can be joined into one, so that many small files become a few large ones.
    `takes_columns`: writers take Arrow record batches as well as lists.
    """

    can_join = False
    takes_columns = False

    @abstractmethod
    def create(self, file: BinaryIO) -> BulkWriter:
        """Return a writer for a file that is open for writing."""

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        """Write the records of all pieces to `file`, in order. Called only if `can_join` is True."""
        raise NotImplementedError(type(self).__name__)


class RowDataBulkWriterFactory(BulkWriterFactory):
    """A factory of writers for rows of a known type."""

    def __init__(self, row_type: object) -> None:
        self._row_type = row_type

    def get_row_type(self) -> Any:
        """Return the type of the rows."""
        return self._row_type


def record_to_text(value: object) -> str:
    """Return a record as `print` and the string encoder show it: rows as `+I[a, b]`, anything else as its
    `str`."""
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{','.join(str(item) for item in value)}]"
    return value if isinstance(value, str) else str(value)


__getattr__ = module_getattr(__name__)
