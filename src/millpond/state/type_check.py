"""Checks that declared states fit those that are stored, before a record is read (E47).

`StoredTypes` has, by uid of the operator and name of the state, the forms (kind, types) that the state is
stored in, one or more. States that a function declares only while it works are checked when it does
(`KeyGroupState.state`), and so are the lists of functions without keys.
"""

from __future__ import annotations

from millpond.datastream.state import StateDescriptor
from millpond.state.kinds.registry import kind_text, stored_kind
from millpond.state.types.declared import (
    CANNOT_CONVERT,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)
from millpond.state.types.schemas import Schemas

Form = tuple[str, Schemas]
StoredTypes = dict[str, dict[str, list[Form]]]


Declared = list[tuple[str, StateDescriptor]]


def declared_types(declared: Declared) -> dict[str, list[Form]]:
    """Return the form of each declared state, by its name."""
    return {
        name: [(kind_text(descriptor.kind, False), declared_schemas(descriptor))]
        for name, descriptor in declared
    }


def check_types(where: str, declared: Declared, stored: dict[str, list[Form]]) -> None:
    """Raise IncompatibleCheckpointError if a declared state cannot read what is stored under its name.
    `where` names the operator."""
    for name, descriptor in declared:
        for text, known in stored.get(name, ()):
            spec, _ = stored_kind(text, where)
            if spec.kind is not descriptor.kind:
                raise another_kind(where, name, spec.kind.value, descriptor.kind.value)
            if known and known != declared_schemas(descriptor):
                try:
                    converters(known, descriptor)
                except CANNOT_CONVERT as problem:
                    raise cannot_convert(where, descriptor, known, problem) from None
