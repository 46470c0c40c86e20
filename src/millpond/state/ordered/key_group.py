"""A key group in an ordered store: which bytes each table and timer begins with.

operator (4 bytes), key group (2 bytes), table (2 bytes), then what the table makes of it
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import KeyGroupStorage, OrderedStore
from millpond.state.ordered.key_bytes import KeyBytes, after
from millpond.state.ordered.lists import StoredListTable
from millpond.state.ordered.maps import StoredMapTable
from millpond.state.ordered.tables import StoredValueTable
from millpond.state.ordered.timers import StoredTimers

_PREFIX = struct.Struct(">IH")
# Numbers of what is appended to lists. They grow as long as the process lives, and the store no longer.
_numbers = itertools.count()


class StoredKeyGroup(KeyGroupStorage):
    def __init__(self, store: OrderedStore, operator: int, number: int) -> None:
        self._store = store
        self._prefix = _PREFIX.pack(operator & 0xFFFFFFFF, number)
        self._tables = itertools.count()
        self._key_bytes = KeyBytes()
        store.delete_range(self._prefix, after(self._prefix))

    def table(self, name: str, kind: Any) -> Any:
        prefix = self._next_prefix()
        if kind is StateKind.LIST:
            return StoredListTable(self._store, prefix, _numbers.__next__)
        table = StoredMapTable if kind is StateKind.MAP else StoredValueTable
        return table(self._store, prefix, self._key_bytes)

    def timers(self, domain: str) -> Any:
        return StoredTimers(self._store, self._next_prefix(), self._key_bytes)

    def _next_prefix(self) -> bytes:
        return self._prefix + next(self._tables).to_bytes(2, "big")
