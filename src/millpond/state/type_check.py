"""Whether states that are declared fit those that are stored: asked before a record is read (E47).

A state that a
function declares later, while it works, is checked when it does (`KeyGroupState.state`), and so are the lists
of functions without keys.
"""

from __future__ import annotations

from collections.abc import Mapping

from millpond.datastream.state import StateDescriptor
from millpond.plan.settings import StoredForm
from millpond.state.key_group_state import (
    CANNOT_CONVERT,
    TTL_MARK,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)

Declared = list[tuple[str, StateDescriptor]]


def declared_types(declared: Declared) -> Mapping[str, list[StoredForm]]:
    return {
        name: [(descriptor.kind.value, declared_schemas(descriptor))]
        for name, descriptor in declared
    }


def check_types(where: str, declared: Declared, stored: Mapping[str, list[StoredForm]]) -> None:
    """Raise if a declared state cannot read what is stored under its name. `where` names the operator."""
    for name, descriptor in declared:
        for kind_text, known in stored.get(name, ()):
            kind = kind_text.removesuffix(TTL_MARK)
            if kind != descriptor.kind.value:
                raise another_kind(where, name, kind, descriptor.kind.value)
            if known and known != declared_schemas(descriptor):
                try:
                    converters(known, descriptor)
                except CANNOT_CONVERT as problem:
                    raise cannot_convert(where, descriptor, known, problem) from None
