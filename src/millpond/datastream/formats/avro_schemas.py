"""Derives from a user's Avro schema the schema of a state, and the check of its values.

The schema is the same, except that every value may be missing, maps are arrays of entries, and named types
are written out where they are used. Logical types are left out: values have the underlying type, as Avro
prescribes for logical types that a reader does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from millpond.errors import ProgramError

Schema = str | dict[str, Any]  # as `json.loads` returns it
Check = Callable[[Any, str], Any]  # (value, where it is) -> the value with all its fields


class AvroType(NamedTuple):
    """The schema of a type in state, and the check of its values."""

    schema: Schema
    check: Check


class Unfit(Exception):
    """A value does not fit its schema; the message says where."""


def read_avro(parsed: dict[str, Any]) -> AvroType:
    """Return the type for a record schema that fastavro has parsed; raise ProgramError if state cannot
    have it."""
    return _Reader(parsed["name"]).type_of(parsed, "")


def map_schema(key: Schema, value: Schema) -> Schema:
    """Return the schema of a map: an array of entries."""
    entry = {
        "type": "record",
        "name": "Entry",
        "python": "tuple",
        "fields": [{"name": "key", "type": key}, {"name": "value", "type": value}],
    }
    return {"type": "array", "items": entry, "python": "map"}


def default_of(field: dict[str, Any]) -> object:
    """Return the default of a field of a schema, or None if it has none. Schemas write bytes as text."""
    return _from_json(field.get("default"), field["type"])


def _from_json(value: Any, schema: Schema) -> object:
    if value is None or isinstance(schema, str):
        return value.encode("latin-1") if schema == "bytes" and isinstance(value, str) else value
    if schema["type"] == "fixed":
        return value.encode("latin-1")
    if schema["type"] == "record" and schema.get("python") == "dict":
        defaults = {field["name"]: default_of(field) for field in schema["fields"]}
        given = {f["name"]: f["type"] for f in schema["fields"] if f["name"] in value}
        return defaults | {
            name: _from_json(value[name], field_type) for name, field_type in given.items()
        }
    if schema["type"] == "array" and schema.get("python") == "map":
        of_value = schema["items"]["fields"][1]["type"]
        return {key: _from_json(item, of_value) for key, item in value.items()}
    if schema["type"] == "array":
        return [_from_json(item, schema["items"]) for item in value]
    return value


def _wrong(value: object, where: str, expected: str) -> Unfit:
    return Unfit(f"{where or 'it'} is {value!r}, expected {expected}")


def _check_of(kinds: tuple[type, ...], expected: str) -> Check:
    def check(value: object, where: str) -> object:
        if type(value) in kinds:
            return value
        raise _wrong(value, where, expected)

    return check


def _check_integer(bits: int) -> Check:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1

    def check(value: object, where: str) -> object:
        if type(value) is int and low <= value <= high:
            return value
        raise _wrong(value, where, f"an integer of {bits} bits")

    return check


def _check_float(value: object, where: str) -> object:
    if type(value) is float or type(value) is int:
        return float(value)
    raise _wrong(value, where, "a number")


_PRIMITIVE = {
    "boolean": AvroType("boolean", _check_of((bool,), "true or false")),
    "int": AvroType("int", _check_integer(32)),
    "long": AvroType("long", _check_integer(64)),
    "float": AvroType("double", _check_float),  # Python has one kind of float
    "double": AvroType("double", _check_float),
    "bytes": AvroType("bytes", _check_of((bytes,), "bytes")),
    "string": AvroType("string", _check_of((str,), "text")),
}


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._named: dict[str, AvroType] = {}

    def type_of(self, avro: Any, path: str) -> AvroType:
        if isinstance(avro, list):
            return self._union(avro, path)
        if isinstance(avro, str):
            return self._by_name(avro, path)
        kind = avro["type"]
        if isinstance(kind, (dict, list)) or kind in _PRIMITIVE:
            return self.type_of(kind, path)
        if kind == "array":
            return self._array(self.type_of(avro["items"], f"{path}[]"))
        if kind == "map":
            return self._map(self.type_of(avro["values"], f"{path}[]"))
        if kind == "enum":
            made = self._enum(avro)
        elif kind == "fixed":
            made = self._fixed(avro)
        elif kind in ("record", "error"):
            made = self._record(avro, path)
        else:
            raise self._unsupported(path, f"the type {kind!r}")
        self._named[avro["name"]] = made
        return made

    @staticmethod
    def _array(items: AvroType) -> AvroType:
        def check(value: object, where: str) -> object:
            if not isinstance(value, (list, tuple)):
                raise _wrong(value, where, "a list")
            return [items.check(item, f"{where}[{n}]") for n, item in enumerate(value)]

        return AvroType({"type": "array", "items": items.schema}, check)

    @staticmethod
    def _map(values: AvroType) -> AvroType:
        def check(value: object, where: str) -> object:
            if not isinstance(value, dict) or set(map(type, value)) - {str}:
                raise _wrong(value, where, "a dictionary whose keys are text")
            return {key: values.check(item, f"{where}[{key!r}]") for key, item in value.items()}

        return AvroType(map_schema("string", values.schema), check)

    @staticmethod
    def _enum(avro: dict[str, Any]) -> AvroType:
        symbols = frozenset(avro["symbols"])

        def check(value: object, where: str) -> object:
            if value not in symbols:
                raise _wrong(value, where, f"one of {', '.join(avro['symbols'])}")
            return value

        names = [name for name in ("type", "name", "symbols", "default") if name in avro]
        return AvroType({name: avro[name] for name in names}, check)

    @staticmethod
    def _fixed(avro: dict[str, Any]) -> AvroType:
        def check(value: object, where: str) -> object:
            if type(value) is not bytes or len(value) != avro["size"]:
                raise _wrong(value, where, f"{avro['size']} bytes")
            return value

        return AvroType({name: avro[name] for name in ("type", "name", "size")}, check)

    def _record(self, avro: dict[str, Any], path: str) -> AvroType:
        fields: list[dict[str, Any]] = []
        checks: dict[str, Check] = {}
        for declared in avro["fields"]:
            name = declared["name"]
            below = f"{path}.{name}" if path else name
            if name in checks:
                raise self._unsupported(below, "two fields with the same name")
            schema, checks[name] = self.type_of(declared["type"], below)
            field = {"name": name, "type": schema}
            field |= {
                extra: declared[extra] for extra in ("default", "aliases") if extra in declared
            }
            fields.append(field)
        if not fields:
            raise self._unsupported(path, "a record without fields")
        defaults = {field["name"]: default_of(field) for field in fields if "default" in field}

        def check(value: object, where: str) -> object:
            if not isinstance(value, dict):
                raise _wrong(value, where, "a dictionary")
            if not checks.keys() >= value.keys():
                unknown = sorted(map(str, value.keys() - checks.keys()))
                raise Unfit(f"{where or 'it'} has no field {', '.join(unknown)}")
            before = f"{where}." if where else ""
            whole = defaults | value
            return {
                name: check_field(whole.get(name), before + name)
                for name, check_field in checks.items()
            }

        made = {"type": "record", "name": avro["name"], "python": "dict", "fields": fields}
        return AvroType(made, check)

    def _union(self, avro: list[Any], path: str) -> AvroType:
        given = [branch for branch in avro if branch != "null"]
        if len(given) != 1:
            raise self._unsupported(path, "a union of several types (only null and one other type)")
        schema, check = self.type_of(given[0], path)
        if len(given) == len(avro):
            return AvroType(schema, check)
        return AvroType(schema, lambda value, where: None if value is None else check(value, where))

    def _by_name(self, name: str, path: str) -> AvroType:
        if name in _PRIMITIVE:
            return _PRIMITIVE[name]
        if name not in self._named:
            what = "the type null on its own" if name == "null" else f"'{name}' inside itself"
            raise self._unsupported(path, what)
        return self._named[name]

    def _unsupported(self, path: str, what: str) -> ProgramError:
        where = f"field {path} of " if path else ""
        return ProgramError(
            f"State cannot use {what}, which occurs in {where}the Avro schema {self._name}."
        )
