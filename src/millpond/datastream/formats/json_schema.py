"""The type that a JSON schema describes, with the types that Flink chooses."""

from __future__ import annotations

import json

from millpond.common.basic_types import TypeInformation
from millpond.common.typeinfo import Types
from millpond.errors import ProgramError

_FORMATS = {"date": Types.SQL_DATE, "time": Types.SQL_TIME, "date-time": Types.SQL_TIMESTAMP}


def type_of_json_schema(text: str) -> TypeInformation:
    """Return the type for a JSON schema; raise ProgramError if it is not valid or cannot be used."""
    try:
        schema = json.loads(text)
    except ValueError as problem:
        raise ProgramError(f"The JSON schema is not JSON: {problem}.") from None
    return _type_of(schema, schema, "it")


def _type_of(schema: object, root: object, where: str) -> TypeInformation:
    if not isinstance(schema, dict):
        raise ProgramError(f"The JSON schema is not valid: {where} is {schema!r}.")
    if "$ref" in schema:
        return _type_of(_find(schema["$ref"], root), root, where)
    kind = schema.get("type")
    if isinstance(kind, list):
        given = [name for name in kind if name != "null"]
        kind = given[0] if len(given) == 1 else kind
    if kind == "object":
        properties = schema.get("properties")
        if not properties:
            raise ProgramError(f"The JSON schema is not valid: {where} has no properties.")
        types = [_type_of(item, root, f"'{name}'") for name, item in properties.items()]
        return Types.ROW_NAMED(list(properties), types)
    if kind == "array":
        return Types.OBJECT_ARRAY(_type_of(schema.get("items"), root, f"an item of {where}"))
    if kind == "string" and schema.get("contentEncoding") == "base64":
        return Types.PRIMITIVE_ARRAY(Types.BYTE())
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), Types.STRING)()
    simple = {"integer": Types.BIG_INT, "number": Types.BIG_DEC, "boolean": Types.BOOLEAN}
    if not isinstance(kind, str) or kind not in simple:
        raise ProgramError(f"The JSON schema cannot be used: {where} has the type {kind!r}.")
    return simple[kind]()


def _find(reference: str, root: object) -> object:
    target = root
    for name in reference.removeprefix("#/").split("/"):
        if not isinstance(target, dict) or name not in target:
            raise ProgramError(f"The JSON schema is not valid: {reference} does not exist.")
        target = target[name]
    return target
