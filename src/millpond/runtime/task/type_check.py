"""Whether states that are declared fit those that are stored: asked before a record is read (E47).

`StoredTypes`: uid -> name of a state -> the (kind, types) that it is stored with, one or more. A state that a
function declares later, while it works, is checked when it does (`KeyGroupState.state`), and so are the lists
of functions without keys.
"""

from __future__ import annotations

from typing import Any

from millpond.datastream.state import StateDescriptor
from millpond.runtime.task.chain import OperatorChain
from millpond.state.key_group_state import (
    CANNOT_CONVERT,
    TTL_MARK,
    Schemas,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)

Form = tuple[str, Schemas]
StoredTypes = dict[str, dict[str, list[Form]]]


def declared_types(chain: OperatorChain) -> dict[str, list[Form]]:
    return {
        name: [(descriptor.kind.value, declared_schemas(descriptor))]
        for name, descriptor in _declared(chain)
    }


def check_types(chain: OperatorChain, stored: dict[str, list[Form]]) -> None:
    where = f"state of operator '{chain.root.name}' (uid '{chain.root.plan.uid}')"
    for name, descriptor in _declared(chain):
        for kind_text, known in stored.get(name, ()):
            kind = kind_text.removesuffix(TTL_MARK)
            if kind != descriptor.kind.value:
                raise another_kind(where, name, kind, descriptor.kind.value)
            if known and known != declared_schemas(descriptor):
                try:
                    converters(known, descriptor)
                except CANNOT_CONVERT as problem:
                    raise cannot_convert(where, descriptor, known, problem) from None


def _declared(chain: OperatorChain) -> list[tuple[str, StateDescriptor]]:
    found: list[Any] = [getattr(follower, "declared", None) for follower in chain.clock.bound]
    return [declared for declared in found if declared is not None]
