"""A shard in an ordered store. The keys of the store begin with:

operator (4 bytes), shard (2 bytes), table or timers (2 bytes), then what the table makes of it
"""

from __future__ import annotations

import itertools
import struct

from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import OrderedStore, ShardStorage
from millpond.state.kinds.registry import spec_of
from millpond.state.ordered.key_bytes import KeyBytes, after
from millpond.state.ordered.region import TableRegion
from millpond.state.ordered.timers import StoredTimers
from millpond.state.tables import StateTable
from millpond.state.timers import Timers

_PREFIX = struct.Struct(">IH")
# Numbers of what is appended to lists. They grow as long as the process lives, and a store lives no longer.
_numbers = itertools.count()


class StoredShard(ShardStorage):
    """The tables and timers of a shard in an ordered store. What the store had of it is deleted first."""

    def __init__(self, store: OrderedStore, operator: int, number: int) -> None:
        self._store = store
        self._prefix = _PREFIX.pack(operator & 0xFFFFFFFF, number)
        self._regions = itertools.count()
        self._key_bytes = KeyBytes()
        store.delete_range(self._prefix, after(self._prefix))

    def table(self, name: str, kind: StateKind) -> StateTable:
        """Return an empty table in a region of its own."""
        region = TableRegion(self._store, self._next_prefix(), self._key_bytes, _numbers.__next__)
        return spec_of(kind).ordered_table(region)  # type: ignore[no-any-return]

    def timers(self, domain: str) -> Timers:
        """Return empty timers in a region of their own."""
        return StoredTimers(self._store, self._next_prefix(), self._key_bytes)

    def _next_prefix(self) -> bytes:
        return self._prefix + next(self._regions).to_bytes(2, "big")
