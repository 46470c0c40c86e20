"""Records as JSON, with PyFlink's names. With orjson if it is installed, else with Python's json."""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from millpond.common.basic_types import BasicType, BasicTypeInfo, TypeInformation
from millpond.common.serialization import DeserializationSchema, SerializationSchema
from millpond.datastream.formats.fields import row_type
from millpond.datastream.formats.json_schema import type_of_json_schema
from millpond.datastream.formats.json_values import from_json, inner_types, to_json
from millpond.errors import ProgramError, TypeMismatchError

__all__ = ["JsonRowDeserializationSchema", "JsonRowSerializationSchema"]

try:
    _orjson: Any = importlib.import_module("orjson")
except ImportError:
    _orjson = None
_MARK = uuid.uuid4().hex + "."


class JsonRowDeserializationSchema(DeserializationSchema):
    """JSON objects as rows of a type. Fields that the type does not have are left out."""

    def __init__(self, type_info: TypeInformation, fail_on_missing: bool, lenient: bool) -> None:
        self._type_info = row_type(type_info, "JsonRowDeserializationSchema")
        self._fail_on_missing = fail_on_missing
        self._lenient = lenient
        self._convert: Callable[[Any], Any] = from_json(self._type_info, fail_on_missing)
        # orjson makes a float of a number with a fraction, or of more than 64 bits.
        self._is_exact = any(
            isinstance(own, BasicTypeInfo)
            and own.basic_type in (BasicType.BIG_DEC, BasicType.BIG_INT)
            for own in inner_types(self._type_info)
        )

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        return JsonRowDeserializationSchema.Builder()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._fail_on_missing, self._lenient)

    def deserialize(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except (ValueError, TypeMismatchError):
            if self._lenient:
                return None
            raise

    def deserialize_many(self, data: list[bytes]) -> list[Any]:
        if self._lenient:
            return list(map(self.deserialize, data))
        return list(map(self._read, data))

    def _read(self, data: bytes) -> Any:
        if _orjson is not None and not self._is_exact:
            return self._convert(_orjson.loads(data))
        return self._convert(_parse(data.decode(), Decimal if self._is_exact else None))

    class Builder:
        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing = False
            self._lenient = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """The type, written as a JSON schema."""
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Otherwise the field is None."""
            self._fail_on_missing = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """What cannot be read is left out."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            if self._type_info is None:
                raise ProgramError("JsonRowDeserializationSchema needs type_info or json_schema.")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing, self._lenient
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Rows as JSON objects, on one line each."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = row_type(type_info, "JsonRowSerializationSchema")
        self._convert = to_json(self._type_info)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        return JsonRowSerializationSchema.Builder()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)

    def serialize(self, value: Any) -> bytes:
        return _dump(self._convert(value))

    class Builder:
        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            if self._type_info is None:
                raise ProgramError("JsonRowSerializationSchema needs with_type_info.")
            return JsonRowSerializationSchema(self._type_info)


def _dump(value: Any) -> bytes:
    if _orjson is not None:
        try:
            return _orjson.dumps(value, default=_exact)  # type: ignore[no-any-return]
        except _orjson.JSONEncodeError:
            pass  # an integer of more than 64 bits, or what the other way will name
    numbers: list[str] = []
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=lambda own: _keep(own, numbers)
    )
    # Python's json writes no numbers but its own: marks nobody can guess hold their places.
    for place, digits in enumerate(numbers):
        text = text.replace(f'"{_MARK}{place}."', digits, 1)
    return text.encode()


def _parse(text: str, parse_float: Any) -> Any:
    parsed = json.loads(text, parse_float=parse_float)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(parsed, ensure_ascii=False, default=str).encode()  # half of a character: refused
    return parsed


def _exact(value: Any) -> Any:
    if isinstance(value, Decimal) and value.is_finite():
        return _orjson.Fragment(format(value, "f"))
    raise TypeError(f"{value!r} cannot be written as JSON")


def _keep(value: Any, numbers: list[str]) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        numbers.append(format(value, "f"))
        return f"{_MARK}{len(numbers) - 1}."
    raise TypeError(f"{value!r} cannot be written as JSON")
