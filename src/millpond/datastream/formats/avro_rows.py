"""Converts Avro records, which are dictionaries, to rows and back; the functions are made once per schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.common.types import Row, named_row
from millpond.datastream.formats.fields import fields_of

Convert = Callable[[Any], Any]


def rows_from_avro(parsed: object) -> Convert:
    """Return the conversion to rows, for a schema that fastavro has parsed."""
    return _Maker(_read_record).convert(parsed)


def rows_to_avro(parsed: object) -> Convert:
    """Return the conversion from rows, for a schema that fastavro has parsed."""
    return _Maker(_write_record).convert(parsed)


def _as_it_is(value: object) -> object:
    return value


def _read_record(names: list[str], parts: list[Convert]) -> Convert:
    def read(value: object) -> object:
        # In a union, the value may be of another type.
        if not isinstance(value, dict):
            return value
        return named_row(
            names, [convert(value.get(name)) for name, convert in zip(names, parts, strict=True)]
        )

    return read


def _write_record(names: list[str], parts: list[Convert]) -> Convert:
    def write(value: Any) -> object:
        if not isinstance(value, (Row, list, tuple, dict)):
            return value
        given = zip(names, parts, fields_of(value, names), strict=True)
        return {name: convert(item) for name, convert, item in given}

    return write


class _Maker:
    def __init__(self, record: Callable[[list[str], list[Convert]], Convert]) -> None:
        self._record = record
        self._named: dict[str, Convert] = {}

    def convert(self, schema: Any) -> Convert:
        if isinstance(schema, str):
            # A record may contain itself: by the time the conversion is called, it is known.
            name = schema
            return self._named.get(name, _as_it_is)
        if isinstance(schema, list):
            given = [convert for convert in map(self.convert, schema) if convert is not _as_it_is]
            return _or_none(given[0]) if given else _as_it_is
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record_of(schema)
        if kind in ("array", "map"):
            convert = self.convert(schema["items" if kind == "array" else "values"])
            if convert is _as_it_is:
                return _as_it_is
            if kind == "array":
                return lambda value: [convert(item) for item in value]
            return lambda value: {key: convert(item) for key, item in value.items()}
        return self.convert(kind) if isinstance(kind, (dict, list)) else _as_it_is

    def _record_of(self, schema: dict[str, Any]) -> Convert:
        made: list[Convert] = []
        self._named[schema["name"]] = lambda value: made[0](value)
        names = [field["name"] for field in schema["fields"]]
        made.append(self._record(names, [self.convert(f["type"]) for f in schema["fields"]]))
        return made[0]


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
