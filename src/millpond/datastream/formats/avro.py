"""Avro schemas as types of states and records, with PyFlink's names. Needs the extra `avro` (fastavro)."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from millpond.common.basic_types import TypeInformation
from millpond.errors import ProgramError, SetupError, TypeMismatchError
from millpond.missing import module_getattr
from millpond.state.avro_schemas import Unfit, read_avro


class AvroSchema:
    """A parsed schema. `parsed` is fastavro's form of it: names are full."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.parsed = _parse(text)

    @staticmethod
    def parse_string(json_schema: str) -> AvroSchema:
        return AvroSchema(json_schema)

    @staticmethod
    def parse_file(file_path: str) -> AvroSchema:
        try:
            return AvroSchema(Path(file_path).read_text(encoding="utf-8"))
        except OSError as problem:
            raise ProgramError(f"The Avro schema {file_path} cannot be read: {problem}.") from None

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroSchema, (self._text,)


class GenericRecordAvroTypeInfo(TypeInformation):
    """Records of a schema, as dictionaries. Fields that are left out get their defaults."""

    def __init__(self, schema: AvroSchema) -> None:
        self.schema = schema
        self.state_schema, self._check = read_avro(schema.parsed)

    def conform(self, value: Any) -> Any:
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


def _fastavro(module: str) -> Any:
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
            f"The Avro schema is wrong: {type(problem).__name__}: {problem}."
        ) from None
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise ProgramError("The Avro schema must be one of records.")
    return parsed


__getattr__ = module_getattr(__name__)
