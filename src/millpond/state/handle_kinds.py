"""Which handle a state has."""

from __future__ import annotations

from typing import Any

from millpond.datastream.state import StateDescriptor, StateKind
from millpond.datastream.state_backend import StateBackend
from millpond.state.columns.handle import ColumnStateHandle
from millpond.state.handles import (
    HANDLES,
    CurrentKey,
    HashMapStateHandle,
    MapStateHandle,
    WatchedMapStateHandle,
)
from millpond.state.ordered.backend import OrderedBackend
from millpond.state.ordered.map_handle import StoredMapStateHandle
from millpond.state.ttl.expiry import Clock, Expiry
from millpond.state.ttl.handles import TTL_HANDLES


def map_handle(backend: StateBackend) -> type[MapStateHandle]:
    """Which handle maps of a backend have: one that knows its tables, if there is one."""
    if backend.in_memory:
        return HashMapStateHandle
    return StoredMapStateHandle if isinstance(backend, OrderedBackend) else MapStateHandle


def make_handle(
    descriptor: StateDescriptor, current: CurrentKey, clock: Clock, maps: type[MapStateHandle]
) -> Any:
    if descriptor.kind is StateKind.COLUMN:
        return ColumnStateHandle(descriptor, current)  # type: ignore[arg-type]
    if descriptor.ttl_config is not None:
        return TTL_HANDLES[descriptor.kind](
            descriptor, current, Expiry(descriptor.ttl_config, clock)
        )
    if descriptor.kind is StateKind.MAP:
        if descriptor.is_queryable() and maps is HashMapStateHandle:
            maps = WatchedMapStateHandle
        return maps(descriptor, current)
    return HANDLES[descriptor.kind](descriptor, current)
