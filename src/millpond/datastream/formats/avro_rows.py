"""From Avro's records, which are dictionaries, to rows, and back: functions made once for a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.common.types import Row, named_row
from millpond.datastream.formats.fields import fields_of

Convert = Callable[[Any], Any]


def rows_from_avro(parsed: Any) -> Convert:
    """Of a schema that fastavro has parsed."""
    return _Maker(_read_record).convert(parsed)


def rows_to_avro(parsed: Any) -> Convert:
    return _Maker(_write_record).convert(parsed)


def _as_it_is(value: Any) -> Any:
    return value


def _read_record(names: list[str], parts: list[Convert]) -> Convert:
    def read(value: Any) -> Any:
        # In a union it may be another of its types.
        if not isinstance(value, dict):
            return value
        return named_row(
            names, [own(value.get(name)) for name, own in zip(names, parts, strict=True)]
        )

    return read


def _write_record(names: list[str], parts: list[Convert]) -> Convert:
    def write(value: Any) -> Any:
        if not isinstance(value, (Row, list, tuple, dict)):
            return value
        given = zip(names, parts, fields_of(value, names), strict=True)
        return {name: own(item) for name, own, item in given}

    return write


class _Maker:
    def __init__(self, record: Callable[[list[str], list[Convert]], Convert]) -> None:
        self._record = record
        self._named: dict[str, Convert] = {}

    def convert(self, schema: Any) -> Convert:
        if isinstance(schema, str):
            # A record may be within itself: it is known by the time it is needed.
            name = schema
            return self._named.get(name, _as_it_is)
        if isinstance(schema, list):
            given = [own for own in map(self.convert, schema) if own is not _as_it_is]
            return _or_none(given[0]) if given else _as_it_is
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record_of(schema)
        if kind in ("array", "map"):
            own = self.convert(schema["items" if kind == "array" else "values"])
            if own is _as_it_is:
                return _as_it_is
            if kind == "array":
                return lambda value: [own(item) for item in value]
            return lambda value: {key: own(item) for key, item in value.items()}
        return self.convert(kind) if isinstance(kind, (dict, list)) else _as_it_is

    def _record_of(self, schema: dict[str, Any]) -> Convert:
        found: list[Convert] = []
        self._named[schema["name"]] = lambda value: found[0](value)
        names = [field["name"] for field in schema["fields"]]
        found.append(self._record(names, [self.convert(f["type"]) for f in schema["fields"]]))
        return found[0]


def _or_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)
