"""Which handle a state has."""

from __future__ import annotations

from typing import Any

from millpond.datastream.state import StateDescriptor, StateKind
from millpond.state.column_state import ColumnStateHandle
from millpond.state.expiry import Clock, Expiry
from millpond.state.handles import HANDLES, CurrentKey
from millpond.state.ttl_handles import TTL_HANDLES


def make_handle(descriptor: StateDescriptor, current: CurrentKey, clock: Clock) -> Any:
    if descriptor.kind is StateKind.COLUMN:
        return ColumnStateHandle(descriptor, current)  # type: ignore[arg-type]
    if descriptor.ttl_config is not None:
        return TTL_HANDLES[descriptor.kind](
            descriptor, current, Expiry(descriptor.ttl_config, clock)
        )
    return HANDLES[descriptor.kind](descriptor, current)
