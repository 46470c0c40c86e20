"""Everything one task remembers for one key group: state tables and timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millpond.core.columns import encode_list
from millpond.datastream.state import StateDescriptor, StateKind
from millpond.datastream.state_backend import KeyGroupStorage
from millpond.state.columns.table import COLUMNS as COLUMNS
from millpond.state.hash.backend import HashKeyGroup
from millpond.state.kinds.registry import kind_text, spec_of, stored_kind
from millpond.state.tables import DataTable, StateTable
from millpond.state.timers import Timers
from millpond.state.ttl.expiry import Cleaner, Expiry, drop_times, set_times
from millpond.state.types.declared import (
    CANNOT_CONVERT,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)
from millpond.state.types.schemas import Schemas

if TYPE_CHECKING:
    from millpond.state.change_log import FreshChanges

# How the names of states begin that are small in every key group (or subtask), and so stay in memory.
ALWAYS_IN_MEMORY = ("_broadcast.", "_operator.", "_union.", "_watermark")
_MEMORY = HashKeyGroup()
_NO_TIMERS = (encode_list([]), encode_list([]))


class KeyGroupState:
    """The state tables and timers of a key group. A cache of what the change log says;
    `change_log.CachedState` says of which version."""

    def __init__(self, key_group: int, storage: KeyGroupStorage | None = None) -> None:
        self.key_group = key_group
        self._storage = storage or HashKeyGroup()
        self.tables: dict[str, StateTable] = {}
        self.kinds: dict[str, StateKind] = {}
        self.event_timers: Timers = self._storage.timers("event")
        self.processing_timers: Timers = self._storage.timers("processing")
        # What operators have computed from the state, so as not to compute it again. It is not in the log.
        self.derived: dict[Any, Any] = {}
        self.where = f"key group {key_group}"  # for messages
        # The schemas that values of states were written with, or are declared with now (types/evolution.py).
        self.types: dict[str, Schemas] = {}
        self._unlogged_types: set[str] = set()
        self.is_restored = False  # from a savepoint, which is not in the log yet
        self.fresh_changes: FreshChanges | None = None
        self._timed: set[str] = set()  # states whose entries rest with their times
        self._cleaners: dict[str, Cleaner] = {}
        self._converted = False  # a state got another type or time to live since the last commit
        self.readable: set[str] = set()  # tables of queryable states, in the form that is declared

    def state(
        self, descriptor: StateDescriptor, prefix: str = "", expiry: Expiry | None = None
    ) -> Any:
        """Return the table of a state that a function declares. Content that was written with another type
        becomes what is declared now.

        Raises IncompatibleCheckpointError if that is not possible, or the state is of another kind.
        """
        name = prefix + descriptor.name
        table = self.table(name, descriptor.kind, expiry)
        schemas, known = declared_schemas(descriptor), self.types.get(name)
        if known is not schemas:
            if known is not None and known != schemas and not table.is_empty():
                self._convert(name, table, known, descriptor)
            if known != schemas:
                self._unlogged_types.add(name)
            self.types[name] = schemas
        if descriptor.queryable_name is not None and name not in self.readable:
            table.watch()
            self.readable.add(name)
        return table

    @property
    def is_converted(self) -> bool:
        """True if the content at the last commit has another form than the content now has, so that neither a
        rollback nor a look-up can go back to it."""
        return self._converted

    def _convert(
        self, name: str, table: DataTable, known: Schemas, descriptor: StateDescriptor
    ) -> None:
        try:
            value, entry = converters(known, descriptor)
            if name in self._timed:
                table.change_all(lambda timed: (timed[0], value(timed[1])), entry)
            else:
                table.change_all(value, entry)
        except CANNOT_CONVERT as problem:
            raise cannot_convert(self.where, descriptor, known, problem) from None
        self._converted = True

    def table(self, name: str, kind: StateKind, expiry: Expiry | None = None) -> Any:
        """Return the table of a state, which is made if there is none. With `expiry`, its entries have a time
        to live."""
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
            in_memory = spec_of(kind).in_memory_only or name.startswith(ALWAYS_IN_MEMORY)
            self.tables[name] = (_MEMORY if in_memory else self._storage).table(name, kind)
            self.kinds[name] = kind
        elif known is not kind:
            raise another_kind(self.where, name, known.value, kind.value)
        return self.tables[name]

    # --- time to live ----------------------------------------------------------------------------

    def _let_expire(self, name: str, table: Any, expiry: Expiry) -> None:
        if name not in self._timed:
            self._timed.add(name)
            if table.data:
                set_times(table, expiry.clock_ms())
                self._converted = True
        cleaner = self._cleaners.get(name)
        if cleaner is None or cleaner.expiry is not expiry:
            self._cleaners[name] = Cleaner(table, expiry)

    def clean_some(self) -> None:
        """Remove some of what has expired. Called after every batch."""
        for cleaner in self._cleaners.values():
            cleaner.clean_some()

    def clean_all(self) -> None:
        """Remove all that has expired. Called before a snapshot."""
        for cleaner in self._cleaners.values():
            cleaner.clean_all()

    # --- the log ---------------------------------------------------------------------------------

    def _kind_text(self, name: str) -> str:
        return kind_text(self.kinds[name], name in self._timed)

    def event_timer_count(self) -> int:
        """Return how many event-time timers there are, in timers and tables."""
        in_tables = sum(table.event_timer_count() for table in self.tables.values())
        return len(self.event_timers) + in_tables

    def is_empty(self) -> bool:
        """Return True if there are neither timers nor any content of a table."""
        return (
            not self.event_timers
            and not self.processing_timers
            and all(table.is_empty() for table in self.tables.values())
        )

    def has_changes(self) -> bool:
        """Return True if there is something to write to the log."""
        return (
            self.is_restored
            or self.event_timers.has_changes()
            or self.processing_timers.has_changes()
            or any(table.has_changes() for table in self.tables.values())
        )

    def changes(self) -> dict[str, Any]:
        """Return what has changed since the last commit: states (kind, changes) and their types by name,
        timers."""
        changed = {name: table for name, table in self.tables.items() if table.has_changes()}
        return {
            "states": {
                name: (self._kind_text(name), table.changes()) for name, table in changed.items()
            },
            "types": {name: self.types[name] for name in changed if name in self._unlogged_types},
            "event": self.event_timers.changes(),
            "processing": self.processing_timers.changes(),
        }

    def snapshot(self) -> dict[str, Any]:
        """Return everything, in the form of changes to an empty state."""
        return {
            "states": {
                name: (self._kind_text(name), table.snapshot())
                for name, table in self.tables.items()
                if not table.is_empty()
            },
            "types": dict(self.types),
            "event": self.event_timers.snapshot(),
            "processing": self.processing_timers.snapshot(),
        }

    def snapshot_parts(self) -> Iterator[dict[str, Any]]:
        """Return the snapshot in parts: the first as a snapshot, the others as changes that follow it."""
        pieces = {n: t.snapshot_parts() for n, t in self.tables.items() if not t.is_empty()}
        domains = {
            "event": self.event_timers.snapshot_parts(),
            "processing": self.processing_timers.snapshot_parts(),
        }
        yield {
            "states": {
                name: (self._kind_text(name), next(parts)) for name, parts in pieces.items()
            },
            "types": dict(self.types),  # including those of states that are empty now
            **{domain: next(timers) for domain, timers in domains.items()},
        }
        nothing = {"states": {}, "types": {}, "event": _NO_TIMERS, "processing": _NO_TIMERS}
        for name, rest in pieces.items():
            types = {name: self.types[name]} if name in self.types else {}
            for piece in rest:
                yield nothing | {"states": {name: (self._kind_text(name), piece)}, "types": types}
        for domain, timers in domains.items():
            for part in timers:
                yield nothing | {domain: part}

    def apply(self, content: dict[str, Any]) -> None:
        """Take over a snapshot (into an empty state), or the changes of one batch. Raises CorruptDataError if
        a state is of an unknown kind."""
        self.derived.clear()
        for name, (kind, changes) in content["states"].items():
            spec, timed = stored_kind(kind, f"{self.where}, state '{name}'")
            self._table(name, spec.kind).apply(changes)
            (self._timed.add if timed else self._timed.discard)(name)
        self.types.update(content.get("types", {}))
        self.event_timers.apply(content["event"])
        self.processing_timers.apply(content["processing"])

    def waiting_count(self) -> int:
        """Return how many changes wait in memory until they are committed."""
        return sum(part.waiting_count() for part in self._parts())

    def rest(self) -> None:
        """Give up memory that only served the batch that is over."""
        for part in self._parts():
            part.rest()

    def _parts(self) -> Iterator[StateTable | Timers]:
        yield from self.tables.values()
        yield self.event_timers
        yield self.processing_timers

    def commit(self) -> None:
        """Make the current content the one that `rollback` returns to."""
        written = {name for name in self._unlogged_types if self.tables[name].has_changes()}
        self._unlogged_types -= written
        for table in self.tables.values():
            table.commit()
        self.event_timers.commit()
        self.processing_timers.commit()
        self._converted = False
        self.is_restored = False

    def rollback(self) -> bool:
        """Return to the content at the last commit. Returns False if that is not possible: then the state
        must be reloaded."""
        self.derived.clear()
        return (
            not self._converted
            and not self.is_restored
            and self.event_timers.rollback()
            and self.processing_timers.rollback()
            and all(table.rollback() for table in self.tables.values())
        )
