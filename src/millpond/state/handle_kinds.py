"""Which handle a state has."""

from __future__ import annotations

from typing import Any

from millpond.datastream.state import StateDescriptor, StateKind
from millpond.state.column_state import ColumnStateHandle
from millpond.state.expiry import Clock, Expiry
from millpond.state.handles import HANDLES, CurrentKey, HashMapStateHandle
from millpond.state.ttl_handles import TTL_HANDLES


def make_handle(
    descriptor: StateDescriptor, current: CurrentKey, clock: Clock, in_memory: bool
) -> Any:
    """`in_memory`: the tables of the backend are dictionaries."""
    if descriptor.kind is StateKind.COLUMN:
        return ColumnStateHandle(descriptor, current)  # type: ignore[arg-type]
    if descriptor.ttl_config is not None:
        return TTL_HANDLES[descriptor.kind](
            descriptor, current, Expiry(descriptor.ttl_config, clock)
        )
    if in_memory and descriptor.kind is StateKind.MAP:
        return HashMapStateHandle(descriptor, current)
    return HANDLES[descriptor.kind](descriptor, current)
