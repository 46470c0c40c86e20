"""From a user's Avro schema to the schema of a state: the same, but every value may be missing, maps are
arrays of entries, and named types stand where they are used.

Logical types are left out: values are those of the type below, as Avro has it for types it does not know.
"""

from __future__ import annotations

from typing import Any

from millpond.errors import ProgramError

_PRIMITIVE = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "double",  # Python has one kind of float
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}


def from_avro(parsed: dict[str, Any]) -> Any:
    """`parsed` by fastavro."""
    return _Reader(parsed["name"]).schema(parsed, "")


def map_schema(key: Any, value: Any) -> Any:
    entry = {
        "type": "record",
        "name": "Entry",
        "python": "tuple",
        "fields": [{"name": "key", "type": key}, {"name": "value", "type": value}],
    }
    return {"type": "array", "items": entry, "python": "map"}


class _Reader:
    def __init__(self, name: str) -> None:
        self._name = name
        self._named: dict[str, Any] = {}

    def schema(self, avro: Any, path: str) -> Any:
        if isinstance(avro, list):
            return self._union(avro, path)
        if isinstance(avro, str):
            return self._by_name(avro, path)
        kind = avro["type"]
        if isinstance(kind, (dict, list)) or kind in _PRIMITIVE:
            return self.schema(kind, path)
        if kind == "array":
            return {"type": "array", "items": self.schema(avro["items"], f"{path}[]")}
        if kind == "map":
            return map_schema("string", self.schema(avro["values"], f"{path}[]"))
        if kind == "enum":
            made = {name: avro[name] for name in ("type", "name", "symbols")}
            if "default" in avro:
                made["default"] = avro["default"]
        elif kind == "fixed":
            made = {name: avro[name] for name in ("type", "name", "size")}
        elif kind in ("record", "error"):
            made = self._record(avro, path)
        else:
            raise self._wrong(path, f"the type {kind!r}")
        self._named[avro["name"]] = made
        return made

    def _record(self, avro: dict[str, Any], path: str) -> Any:
        fields = []
        for own in avro["fields"]:
            below = f"{path}.{own['name']}" if path else own["name"]
            field = {"name": own["name"], "type": self.schema(own["type"], below)}
            if "default" in own:
                field["default"] = _default(own["default"], field["type"])
            if own.get("aliases"):
                field["aliases"] = list(own["aliases"])
            fields.append(field)
        if not fields:
            raise self._wrong(path, "a record without fields")
        return {"type": "record", "name": avro["name"], "python": "dict", "fields": fields}

    def _union(self, avro: list[Any], path: str) -> Any:
        given = [own for own in avro if own != "null"]
        if len(given) != 1:
            raise self._wrong(path, "a union of several types (with null and one type it works)")
        return self.schema(given[0], path)

    def _by_name(self, name: str, path: str) -> Any:
        if name in _PRIMITIVE:
            return _PRIMITIVE[name]
        if name not in self._named:
            raise self._wrong(path, "null alone" if name == "null" else f"'{name}' within itself")
        return self._named[name]

    def _wrong(self, path: str, what: str) -> ProgramError:
        where = f"field {path} of " if path else ""
        return ProgramError(f"{where}the Avro schema {self._name}: state cannot have {what}.")


def _default(value: Any, schema: Any) -> Any:
    """In a schema bytes are written as text."""
    is_bytes = schema == "bytes" or (isinstance(schema, dict) and schema["type"] == "fixed")
    return value.encode("latin-1") if is_bytes and isinstance(value, str) else value
