"""State as Python objects in the memory of the slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.datastream.state import StateKind
from millpond.datastream.state_backend import KeyGroupStorage, StateBackend
from millpond.state.columns.table import ColumnTable
from millpond.state.hash.tables import HashListTable, HashMapTable, HashValueTable
from millpond.state.tables import StateTable
from millpond.state.timers import TimerQueue

_TABLES: dict[StateKind, Callable[[], StateTable]] = {
    StateKind.VALUE: HashValueTable,
    StateKind.LIST: HashListTable,
    StateKind.MAP: HashMapTable,
    StateKind.REDUCING: HashValueTable,
    StateKind.AGGREGATING: HashValueTable,
    StateKind.COLUMN: ColumnTable,
}


class HashKeyGroup(KeyGroupStorage):
    def table(self, name: str, kind: Any) -> Any:
        return _TABLES[kind]()

    def timers(self, domain: str) -> Any:
        return TimerQueue()


class HashMapStateBackend(StateBackend):
    in_memory = True
    reads_from_any_thread = True

    def key_group(self, operator: int, number: int) -> KeyGroupStorage:
        return HashKeyGroup()


class MemoryStateBackend(HashMapStateBackend):
    """Without a log."""

    keeps_log = False
