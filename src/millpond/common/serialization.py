"""How records become bytes or lines, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from millpond.common.types import Row
from millpond.missing import module_getattr


class SerializationSchema(ABC):
    @abstractmethod
    def serialize(self, value: Any) -> bytes: ...


class DeserializationSchema(ABC):
    @abstractmethod
    def deserialize(self, data: bytes) -> Any: ...


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
