"""The part of an ordered store that belongs to one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millpond.datastream.state_backend import OrderedStore
from millpond.state.ordered.key_bytes import KeyBytes


@dataclass(frozen=True)
class TableRegion:
    """All keys of a store that begin with `prefix`, and what the tables of a shard share."""

    store: OrderedStore
    prefix: bytes
    key_bytes: KeyBytes
    """Encodes the current key once for all tables of the shard."""
    next_number: Callable[[], int]
    """Returns a larger number with every call, for tables that keep entries in the order they came."""
