"""Checks that declared states fit those that are stored, before a record is read (E47).

A state that a function declares later is checked when it is declared (`ShardState.state`), and so
are the lists of functions without keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.datastream.state import StateDescriptor
from millpond.plan.settings import StoredForm
from millpond.state.kinds.registry import kind_text, stored_kind
from millpond.state.types.declared import (
    CANNOT_CONVERT,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)

Declared = list[tuple[str, StateDescriptor]]


def declared_types(declared: Declared) -> Mapping[str, list[StoredForm]]:
    """Return the form of each declared state, by its name."""
    return {
        name: [(kind_text(descriptor.kind, False), declared_schemas(descriptor))]
        for name, descriptor in declared
    }


def check_types(where: str, declared: Declared, stored: Mapping[str, list[StoredForm]]) -> None:
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
