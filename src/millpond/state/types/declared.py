"""The types that a program declares for a state, next to those its values were written with."""

from __future__ import annotations

from millpond.datastream.state import StateDescriptor
from millpond.errors import IncompatibleCheckpointError, TypeMismatchError
from millpond.state.kinds.kind import ENTRY, VALUE
from millpond.state.kinds.registry import spec_of
from millpond.state.types.evolution import CannotBecome, Convert, type_text
from millpond.state.types.schemas import Schemas, schema_of

# What converting a value to another type may raise: a user's class may be gone, or refuse the value.
CANNOT_CONVERT = (
    CannotBecome,
    TypeMismatchError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    ImportError,
)


def declared_schemas(descriptor: StateDescriptor) -> Schemas:
    """Return the schemas of the types that a descriptor declares, by savepoint column. The same object for
    every call with the same descriptor."""
    schemas: Schemas | None = descriptor.__dict__.get("_schemas")
    if schemas is None:
        types = spec_of(descriptor.kind).declared_types(descriptor)
        schemas = {column: schema_of(declared) for column, declared in types.items()}
        descriptor.__dict__["_schemas"] = schemas
    return schemas


def converters(written: Schemas, descriptor: StateDescriptor) -> tuple[Convert, Convert | None]:
    """Return the functions from values and entries at rest, as they were written, to what is declared now.
    Raises one of CANNOT_CONVERT."""
    return spec_of(descriptor.kind).converters(written, descriptor)


def another_kind(where: str, name: str, stored: str, declared: str) -> IncompatibleCheckpointError:
    """Return the error for a state that is stored as another kind than it is declared as."""
    return IncompatibleCheckpointError(
        f"{where}: state '{name}' is stored as {stored} state but declared as {declared} state. Give the new "
        "state another name."
    )


def cannot_convert(
    where: str, descriptor: StateDescriptor, written: Schemas, problem: Exception
) -> IncompatibleCheckpointError:
    """Return the error for a state whose values cannot become what is declared now."""
    return IncompatibleCheckpointError(
        f"{where}: state '{descriptor.name}' was written as {_text(written)} and is declared as "
        f"{_text(declared_schemas(descriptor))} now: {problem}. Give the new state another name."
    )


def _text(schemas: Schemas) -> str:
    entry = f"{type_text(schemas[ENTRY])} -> " if ENTRY in schemas else ""
    return entry + type_text(schemas[VALUE])
