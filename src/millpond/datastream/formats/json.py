"""Records as JSON, with PyFlink's names. Uses orjson if it is installed, else Python's json."""

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
    """Reads JSON objects as rows. Fields that the type does not have are left out."""

    def __init__(self, type_info: TypeInformation, fail_on_missing: bool, lenient: bool) -> None:
        self._type_info = row_type(type_info, "JsonRowDeserializationSchema")
        self._fail_on_missing = fail_on_missing
        self._lenient = lenient
        self._convert: Callable[[Any], Any] = from_json(self._type_info, fail_on_missing)
        # orjson turns numbers with a fraction, or with more than 64 bits, into floats.
        self._is_exact = any(
            isinstance(inner, BasicTypeInfo)
            and inner.basic_type in (BasicType.BIG_DEC, BasicType.BIG_INT)
            for inner in inner_types(self._type_info)
        )

    @staticmethod
    def builder() -> JsonRowDeserializationSchema.Builder:
        """Return a builder for the schema."""
        return JsonRowDeserializationSchema.Builder()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info, self._fail_on_missing, self._lenient)

    def deserialize(self, data: bytes) -> Any:
        """Return the row; raise ValueError or TypeMismatchError, or with `ignore_parse_errors` return
        None, if it does not fit."""
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

    def _read(self, data: bytes) -> object:
        if _orjson is not None and not self._is_exact:
            return self._convert(_orjson.loads(data))
        return self._convert(_parse(data.decode(), Decimal if self._is_exact else None))

    class Builder:
        """Builds the schema. Setters return the builder itself."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None
            self._fail_on_missing = False
            self._lenient = False

        def type_info(self, type_info: TypeInformation) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the rows, made by Types.ROW or Types.ROW_NAMED."""
            self._type_info = type_info
            return self

        def json_schema(self, json_schema: str) -> JsonRowDeserializationSchema.Builder:
            """Set the type of the rows by a JSON schema."""
            self._type_info = type_of_json_schema(json_schema)
            return self

        def fail_on_missing_field(self) -> JsonRowDeserializationSchema.Builder:
            """Refuse records that lack a field; by default the field is None."""
            self._fail_on_missing = True
            return self

        def ignore_parse_errors(self) -> JsonRowDeserializationSchema.Builder:
            """Skip records that cannot be read instead of failing."""
            self._lenient = True
            return self

        def build(self) -> JsonRowDeserializationSchema:
            """Return the schema; raise ProgramError if it has no type."""
            if self._type_info is None:
                raise ProgramError("JsonRowDeserializationSchema needs type_info or json_schema.")
            return JsonRowDeserializationSchema(
                self._type_info, self._fail_on_missing, self._lenient
            )


class JsonRowSerializationSchema(SerializationSchema):
    """Writes rows as JSON objects, on one line each."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._type_info = row_type(type_info, "JsonRowSerializationSchema")
        self._convert = to_json(self._type_info)

    @staticmethod
    def builder() -> JsonRowSerializationSchema.Builder:
        """Return a builder for the schema."""
        return JsonRowSerializationSchema.Builder()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._type_info,)

    def serialize(self, value: object) -> bytes:
        return _dump(self._convert(value))

    class Builder:
        """Builds the schema."""

        def __init__(self) -> None:
            self._type_info: TypeInformation | None = None

        def with_type_info(self, type_info: TypeInformation) -> JsonRowSerializationSchema.Builder:
            """Set the type of the rows, made by Types.ROW or Types.ROW_NAMED."""
            self._type_info = type_info
            return self

        def build(self) -> JsonRowSerializationSchema:
            """Return the schema; raise ProgramError if it has no type."""
            if self._type_info is None:
                raise ProgramError("JsonRowSerializationSchema needs with_type_info.")
            return JsonRowSerializationSchema(self._type_info)


def _dump(value: object) -> bytes:
    if _orjson is not None:
        try:
            return _orjson.dumps(value, default=_exact)  # type: ignore[no-any-return]
        except _orjson.JSONEncodeError:
            pass  # an integer of more than 64 bits, or an error that json.dumps will name
    numbers: list[str] = []
    text = json.dumps(
        value,
        ensure_ascii=False,
        separators=(",", ":"),
        default=lambda number: _keep(number, numbers),
    )
    # Python's json cannot write Decimals: marks that cannot occur in the data hold their places.
    for number, digits in enumerate(numbers):
        text = text.replace(f'"{_MARK}{number}."', digits, 1)
    return text.encode()


def _parse(text: str, parse_float: Any) -> object:
    parsed = json.loads(text, parse_float=parse_float)
    if "\\ud" in text or "\\uD" in text:
        json.dumps(
            parsed, ensure_ascii=False, default=str
        ).encode()  # refuses half a surrogate pair
    return parsed


def _exact(value: object) -> object:
    if isinstance(value, Decimal) and value.is_finite():
        return _orjson.Fragment(format(value, "f"))
    raise TypeError(f"{value!r} cannot be written as JSON")


def _keep(value: object, numbers: list[str]) -> str:
    if isinstance(value, Decimal) and value.is_finite():
        numbers.append(format(value, "f"))
        return f"{_MARK}{len(numbers) - 1}."
    raise TypeError(f"{value!r} cannot be written as JSON")
