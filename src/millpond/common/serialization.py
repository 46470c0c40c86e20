"""How records become bytes or lines, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

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

    def encode(self, value: Any) -> bytes:
        return (record_to_text(value) + "\n").encode(self._charset)

    def encode_all(self, values: list[Any]) -> bytes:
        """The lines of many records."""
        if type(self) is not Encoder:
            return b"".join(map(self.encode, values))
        return ("\n".join(map(record_to_text, values)) + "\n").encode(self._charset)


def record_to_text(value: Any) -> str:
    """How `print` and the string encoder show a record: rows as `+I[a, b]`, the rest as str."""
    if isinstance(value, Row):
        return f"{value.get_row_kind()}[{','.join(str(item) for item in value)}]"
    return value if isinstance(value, str) else str(value)


__getattr__ = module_getattr(__name__)
