"""Reads instances of dataclasses as they were written, where the class of today would read them wrongly.

A frozen dataclass with slots was once pickled as the values of its fields, without their names: if its fields
change their order, it would take one for the other. (Today: `core/pickling.py`.) One with slots that has lost
a field cannot take its value. And a class that is gone cannot read at all. All are read by stand-ins.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from typing import Any

from millpond.core.pickling import find_class, with_fields
from millpond.datastream.formats.avro_schemas import Schema
from millpond.errors import IncompatibleCheckpointError


def load_as_written(data: bytes, classes: dict[str, type]) -> object:
    """Return the object in a pickle, reading instances of the classes named in `classes` (module:name) as
    those."""
    return _AsWritten(io.BytesIO(data), classes).load()


def stored_classes(schema: Schema) -> dict[str, type]:
    """Return what to read instances as, by module:name, for the dataclasses in a schema that need a
    stand-in."""
    if isinstance(schema, str) or "logicalType" in schema:
        return {}
    if schema["type"] == "array":
        return stored_classes(schema["items"])
    stand_ins: dict[str, type] = {}
    if schema["type"] == "record":
        for field in schema["fields"]:
            stand_ins |= stored_classes(field["type"])
        if schema.get("python") == "dataclass" and _needs_stand_in(schema["class"]):
            members = {
                "_names": [field["name"] for field in schema["fields"]],
                "_reference": schema["class"],
            }
            stand_ins[schema["class"]] = type(schema["name"], (_StandIn,), members)
    return stand_ins


def _needs_stand_in(reference: str) -> bool:
    python_class = find_class(reference)
    if python_class is None or not dataclasses.is_dataclass(python_class):
        return True
    attributes = vars(python_class)
    made_by_hand = "__reduce__" in attributes or "__reduce_ex__" in attributes
    getstate = attributes.get("__getstate__")
    if getstate is not None and getstate.__module__ != dataclasses.__name__:
        made_by_hand = True
    return "__slots__" in attributes and not made_by_hand


class _AsWritten(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, classes: dict[str, type]) -> None:
        super().__init__(file)
        self._classes = classes

    def find_class(self, module: str, name: str) -> object:
        return self._classes.get(f"{module}:{name}") or super().find_class(module, name)


class _StandIn:
    """An instance as it was written. Pickled, it is one of its class again."""

    _names: list[str]
    _reference: str

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, tuple):  # (attributes, slots)
            state = {name: value for part in state if part for name, value in part.items()}
        elif isinstance(state, list):
            state = dict(zip(self._names, state, strict=True))
        self.__dict__.update(state)

    def __reduce__(self) -> tuple[Any, ...]:
        return _as_today, (self._reference, dict(self.__dict__))


def _as_today(reference: str, values: dict[str, Any]) -> object:
    """Return an instance of the class of today, for one within something that has no declared type: fields by
    name, new ones by default."""
    python_class = find_class(reference)
    if python_class is None:
        raise IncompatibleCheckpointError(
            f"The class {reference} is gone, but state has instances of it where no type is declared."
        )
    return with_fields(python_class, tuple(values), tuple(values.values()))
