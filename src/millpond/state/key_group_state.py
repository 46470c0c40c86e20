"""Everything one task remembers for one key group: state tables and timers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.datastream.state import StateDescriptor, StateKind
from millpond.errors import IncompatibleCheckpointError
from millpond.runtime.task.timers import TimerQueue
from millpond.state.column_table import ColumnTable
from millpond.state.expiry import Cleaner, Expiry, drop_times, set_times
from millpond.state.tables import ListTable, MapTable, StateTable, ValueTable

TTL_MARK = "+ttl"  # after the kind of a state, in the log
COLUMNS = "_columns"  # the name of the one table of a column function
_TABLES: dict[StateKind, Callable[[], StateTable]] = {
    StateKind.VALUE: ValueTable,
    StateKind.LIST: ListTable,
    StateKind.MAP: MapTable,
    StateKind.REDUCING: ValueTable,
    StateKind.AGGREGATING: ValueTable,
    StateKind.COLUMN: ColumnTable,
}


class KeyGroupState:
    """A cache of what the log says; `changelog.CachedState` says which version of it."""

    def __init__(self, key_group: int) -> None:
        self.key_group = key_group
        self.tables: dict[str, StateTable] = {}
        self.kinds: dict[str, StateKind] = {}
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        # What an operator computed from the state and would have to compute again; not in the log.
        self.derived: dict[Any, Any] = {}
        # The descriptors of states that functions have asked for; for the types in savepoints.
        self.declared: dict[str, StateDescriptor] = {}
        self.is_restored = False  # from a savepoint, and the log does not know yet
        self._timed: set[str] = set()  # states whose entries rest with their times
        self._cleaners: dict[str, Cleaner] = {}
        self._converted = False  # a state got, or lost, a time to live since the last commit

    def table(self, name: str, kind: StateKind, expiry: Expiry | None = None) -> Any:
        """The table of a state, made if there is none. `expiry`: its entries have a time to live."""
        table = self._table(name, kind)
        if expiry is not None:
            self._let_expire(name, table, expiry)
        elif name in self._timed:
            drop_times(table)
            self._timed.remove(name)
            self._converted = True
        return table

    def _table(self, name: str, kind: StateKind) -> Any:
        known = self.kinds.get(name)
        if known is None:
            self.kinds[name] = kind
            self.tables[name] = _TABLES[kind]()
        elif known is not kind:
            raise IncompatibleCheckpointError(
                f"State '{name}' is stored as {known.value} state but declared as {kind.value} "
                "state. Give the new state another name."
            )
        return self.tables[name]

    # --- time to live ----------------------------------------------------------------------------

    def _let_expire(self, name: str, table: Any, expiry: Expiry) -> None:
        if name not in self._timed:
            self._timed.add(name)
            if table.data:
                set_times(table, expiry.now_ms())
                self._converted = True
        cleaner = self._cleaners.get(name)
        if cleaner is None or cleaner.expiry is not expiry:
            self._cleaners[name] = Cleaner(table, expiry)

    def clean_some(self) -> None:
        """After a batch: remove some of what has expired."""
        for cleaner in self._cleaners.values():
            cleaner.clean_some()

    def clean_all(self) -> None:
        """Before a snapshot."""
        for cleaner in self._cleaners.values():
            cleaner.clean_all()

    # --- the log ---------------------------------------------------------------------------------

    def _kind_text(self, name: str) -> str:
        return self.kinds[name].value + (TTL_MARK if name in self._timed else "")

    def event_timer_count(self) -> int:
        columns = self.tables.get(COLUMNS)
        own = len(columns.timers) if isinstance(columns, ColumnTable) else 0
        return len(self.event_timers) + own

    def is_empty(self) -> bool:
        return (
            not self.event_timers
            and not self.processing_timers
            and all(table.is_empty() for table in self.tables.values())
        )

    def has_changes(self) -> bool:
        return (
            self.is_restored
            or self.event_timers.has_changes()
            or self.processing_timers.has_changes()
            or any(table.has_changes() for table in self.tables.values())
        )

    def changes(self) -> dict[str, Any]:
        return {
            "states": {
                name: (self._kind_text(name), table.changes())
                for name, table in self.tables.items()
                if table.has_changes()
            },
            "event": self.event_timers.changes(),
            "processing": self.processing_timers.changes(),
        }

    def snapshot(self) -> dict[str, Any]:
        return {
            "states": {
                name: (self._kind_text(name), table.snapshot())
                for name, table in self.tables.items()
                if not table.is_empty()
            },
            "event": self.event_timers.snapshot(),
            "processing": self.processing_timers.snapshot(),
        }

    def apply(self, content: dict[str, Any]) -> None:
        """Take over a snapshot (into an empty state) or one batch's changes."""
        self.derived.clear()
        for name, (kind, changes) in content["states"].items():
            self._table(name, StateKind(kind.removesuffix(TTL_MARK))).apply(changes)
            (self._timed.add if kind.endswith(TTL_MARK) else self._timed.discard)(name)
        self.event_timers.apply(content["event"])
        self.processing_timers.apply(content["processing"])

    def commit(self) -> None:
        for table in self.tables.values():
            table.commit()
        self.event_timers.commit()
        self.processing_timers.commit()
        self._converted = False
        self.is_restored = False

    def rollback(self) -> bool:
        """Back to the last commit; False if the state must be reloaded instead."""
        self.derived.clear()
        return (
            not self._converted
            and not self.is_restored
            and self.event_timers.rollback()
            and self.processing_timers.rollback()
            and all(table.rollback() for table in self.tables.values())
        )
