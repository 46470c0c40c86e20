"""What happens to state whose type has changed (E47, C40): Avro's rules for reading with another schema.

int becomes long or double, long becomes double, strings and bytes become each other. Fields of records are
matched by name, or by an alias that an Avro schema gives them: a new one gets its default (null, if it may be
missing), one that is gone is dropped. An enum may get more symbols. Anything else is refused. A state that
had no declared type may get one if all its values fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.common.basic_types import TypeInformation
from millpond.core.codec import Frozen, freeze, thaw
from millpond.datastream.formats.avro_schemas import Schema, default_of
from millpond.state.types.as_written import load_as_written, stored_classes
from millpond.state.types.schemas import codec_of, is_pickled, same, schema_of

Convert = Callable[[Any], Any]
_PROMOTIONS: dict[tuple[str, str], Convert] = {
    ("int", "long"): lambda value: value,
    ("int", "double"): float,
    ("long", "double"): float,
    ("string", "bytes"): str.encode,
    ("bytes", "string"): bytes.decode,
}


class CannotBecome(Exception):
    """One schema cannot be read as another. The text says which part of it."""


def at_rest_converter(written: Schema, declared: TypeInformation) -> Convert:
    """Return the function from a value at rest, of the schema it was written with, to one of the type that is
    declared now. Raises CannotBecome."""
    read = schema_of(declared)
    if is_pickled(read):
        return same
    if is_pickled(written):
        check = declared.check() or same
        return lambda value: freeze(check(thaw(value)))
    plain = resolve(written, read) or same
    to_plain = codec_of(written).to_plain or same
    to_python = codec_of(read).to_python or same
    classes = stored_classes(written)
    return lambda value: freeze(to_python(plain(to_plain(_thaw_as_written(value, classes)))))


def _thaw_as_written(value: object, classes: dict[str, type]) -> object:
    if type(value) is not Frozen or not classes:
        return thaw(value)
    return load_as_written(value.data, classes)


def resolve(written: Schema, read: Schema, path: str = "") -> Convert | None:
    """Return the function from plain values of one schema to those of another; None if there is nothing to
    do. Raises CannotBecome, which names the field at `path`."""
    if written == read:
        return None
    if isinstance(written, str) and isinstance(read, str):
        promotion = _PROMOTIONS.get((written, read))
        if promotion is not None:
            return lambda value: None if value is None else promotion(value)
    elif isinstance(written, dict) and isinstance(read, dict) and written["type"] == read["type"]:
        if written["type"] == "array" and written.get("python") == read.get("python"):
            return _resolve_array(written, read, path)
        if written["type"] == "record":
            return _resolve_record(written, read, path)
        if written["type"] == "enum":
            return _resolve_enum(written, read, path)
        if written.get("size") is not None and written["size"] == read["size"]:
            return None
    where = f" (field {path})" if path else ""
    raise CannotBecome(f"{type_text(written)} cannot become {type_text(read)}{where}")


def _resolve_array(written: dict[str, Any], read: dict[str, Any], path: str) -> Convert | None:
    items = resolve(written["items"], read["items"], f"{path}[]")
    if items is None:
        return None
    return lambda values: None if values is None else list(map(items, values))


def _resolve_record(written: dict[str, Any], read: dict[str, Any], path: str) -> Convert:
    known = {field["name"]: field["type"] for field in written["fields"]}
    taken: list[tuple[str, str, Convert | None]] = []
    added: dict[str, Any] = {}
    for field in read["fields"]:
        name = field["name"]
        below = f"{path}.{name}" if path else name
        before = next(
            (candidate for candidate in (name, *field.get("aliases", ())) if candidate in known),
            None,
        )
        if before is not None:
            taken.append((name, before, resolve(known[before], field["type"], below)))
        elif "default" in field or read.get("python") not in ("dataclass", "dict"):
            to_plain = codec_of(field["type"]).to_plain or same
            added[name] = to_plain(default_of(field))
        else:
            raise CannotBecome(f"the new field {below} of {read['name']} has no default")

    if not taken:
        raise CannotBecome(f"{type_text(written)} has no field in common with {type_text(read)}")

    def convert(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        fields = {
            name: convert_field(value[old]) if convert_field else value[old]
            for name, old, convert_field in taken
        }
        return fields | added

    return convert


def _resolve_enum(written: dict[str, Any], read: dict[str, Any], path: str) -> Convert | None:
    symbols, default = set(read["symbols"]), read.get("default")
    if symbols.issuperset(written["symbols"]):
        return None

    def convert(value: str | None) -> str | None:
        if value is None or value in symbols:
            return value
        if default is None:
            where = f" (field {path})" if path else ""
            raise CannotBecome(f"{read['name']} has no symbol '{value}', which is stored{where}")
        return str(default)

    return convert


def type_text(schema: Schema) -> str:
    """Return a schema in few words, for messages."""
    if isinstance(schema, str):
        return schema
    if schema.get("logicalType"):
        return str(schema["logicalType"])
    if schema["type"] == "array":
        if schema.get("python") == "map":
            key, value = schema["items"]["fields"]
            return f"map of {type_text(key['type'])} to {type_text(value['type'])}"
        return f"array of {type_text(schema['items'])}"
    if schema["type"] == "enum":
        return f"{schema['name']} ({', '.join(schema['symbols'])})"
    if schema["type"] == "fixed":
        return f"{schema['name']} ({schema['size']} bytes)"
    fields = ", ".join(f"{f['name']} {type_text(f['type'])}" for f in schema["fields"])
    return f"{schema['name']} ({fields})"
