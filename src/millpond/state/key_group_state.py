"""Everything one task remembers for one key group: state tables and timers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from millpond.core.codec import thaw
from millpond.core.columns import encode_list
from millpond.datastream.state import MapStateDescriptor, StateDescriptor, StateKind
from millpond.datastream.state_backend import KeyGroupStorage
from millpond.errors import IncompatibleCheckpointError, TypeMismatchError
from millpond.state.columns.table import ColumnTable
from millpond.state.hash.backend import HashKeyGroup
from millpond.state.tables import StateTable, change_all
from millpond.state.timers import Timers
from millpond.state.ttl.expiry import Cleaner, Expiry, drop_times, set_times
from millpond.state.types.evolution import CannotBecome, at_rest_converter, type_text
from millpond.state.types.schemas import Schema, schema_of

TTL_MARK = "+ttl"  # after the kind of a state, in the log
Schemas = dict[str, Schema]
COLUMNS = "_columns"  # the name of the one table of a column function
# What every key group (or subtask) has of it is little, or made of arrays.
ALWAYS_IN_MEMORY = ("_broadcast.", "_operator.", "_union.", "_watermark")
_MEMORY = HashKeyGroup()
# What may happen when a value becomes one of another type.
CANNOT_CONVERT = (
    CannotBecome,
    TypeMismatchError,
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    ImportError,
)
_NO_TIMERS = (encode_list([]), encode_list([]))


class KeyGroupState:
    """A cache of what the log says; `changelog.CachedState` says which version of it."""

    def __init__(self, key_group: int, storage: KeyGroupStorage | None = None) -> None:
        self.key_group = key_group
        self._storage = storage or HashKeyGroup()
        self.tables: dict[str, StateTable] = {}
        self.kinds: dict[str, StateKind] = {}
        self.event_timers: Timers = self._storage.timers("event")
        self.processing_timers: Timers = self._storage.timers("processing")
        # What an operator computed from the state and would have to compute again; not in the log.
        self.derived: dict[Any, Any] = {}
        self.where = f"key group {key_group}"  # for messages
        # What the values of states are, as they were written or are declared now; see evolution.py.
        self.types: dict[str, Schemas] = {}
        self._unlogged_types: set[str] = set()
        self.is_restored = False  # from a savepoint, and the log does not know yet
        self.fresh_changes: Any = None  # kept for the log, see changelog.py
        self._timed: set[str] = set()  # states whose entries rest with their times
        self._cleaners: dict[str, Cleaner] = {}
        self._converted = False  # a state got another type or time to live since the last commit
        self.readable: set[str] = set()  # tables of queryable states, in the form that is declared

    def state(
        self, descriptor: StateDescriptor, prefix: str = "", expiry: Expiry | None = None
    ) -> Any:
        """The table of a state that a function declares. What was written with another type becomes what
        is declared now, or is refused."""
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
        """True if what was there at the last commit has another form than what is there now."""
        return self._converted

    def _convert(self, name: str, table: Any, known: Schemas, descriptor: StateDescriptor) -> None:
        try:
            value, entry = converters(known, descriptor)
            if name in self._timed:
                change_all(table, lambda timed: (timed[0], value(timed[1])), entry)
            else:
                change_all(table, value, entry)
        except CANNOT_CONVERT as problem:
            raise cannot_convert(self.where, descriptor, known, problem) from None
        self._converted = True

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
            small = kind is StateKind.COLUMN or name.startswith(ALWAYS_IN_MEMORY)
            self.tables[name] = (_MEMORY if small else self._storage).table(name, kind)
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
        """The same in pieces: the first as a snapshot, the others as changes that follow it."""
        pieces = {n: t.snapshot_parts() for n, t in self.tables.items() if not t.is_empty()}
        domains = {
            "event": self.event_timers.snapshot_parts(),
            "processing": self.processing_timers.snapshot_parts(),
        }
        yield {
            "states": {name: (self._kind_text(name), next(own)) for name, own in pieces.items()},
            "types": dict(self.types),  # also of states that are empty now
            **{domain: next(timers) for domain, timers in domains.items()},
        }
        nothing = {"states": {}, "types": {}, "event": _NO_TIMERS, "processing": _NO_TIMERS}
        for name, rest in pieces.items():
            types = {name: self.types[name]} if name in self.types else {}
            for piece in rest:
                yield nothing | {"states": {name: (self._kind_text(name), piece)}, "types": types}
        for domain, timers in domains.items():
            for some in timers:
                yield nothing | {domain: some}

    def apply(self, content: dict[str, Any]) -> None:
        """Take over a snapshot (into an empty state) or one batch's changes."""
        self.derived.clear()
        for name, (kind, changes) in content["states"].items():
            self._table(name, StateKind(kind.removesuffix(TTL_MARK))).apply(changes)
            (self._timed.add if kind.endswith(TTL_MARK) else self._timed.discard)(name)
        self.types.update(content.get("types", {}))
        self.event_timers.apply(content["event"])
        self.processing_timers.apply(content["processing"])

    def waiting_count(self) -> int:
        """Changes that wait in memory until they are committed."""
        return sum(part.waiting_count() for part in self._parts())

    def rest(self) -> None:
        """A batch is over."""
        for part in self._parts():
            part.rest()

    def _parts(self) -> Iterator[StateTable | Timers]:
        yield from self.tables.values()
        yield self.event_timers
        yield self.processing_timers

    def commit(self) -> None:
        written = {name for name in self._unlogged_types if self.tables[name].has_changes()}
        self._unlogged_types -= written
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


def declared_schemas(descriptor: StateDescriptor) -> Schemas:
    """Column -> schema; computed once for a descriptor."""
    schemas: Schemas | None = descriptor.__dict__.get("_schemas")
    if schemas is None:
        schemas = {"value": schema_of(descriptor.type_info)}
        if isinstance(descriptor, MapStateDescriptor):
            schemas["entry"] = schema_of(descriptor.key_type_info)
        descriptor.__dict__["_schemas"] = schemas
    return schemas


def converters(
    known: Schemas, descriptor: StateDescriptor
) -> tuple[Callable[[Any], Any], Callable[[Any], Any] | None]:
    """From values and entries at rest, as they were written, to what is declared now; raises one of
    CANNOT_CONVERT."""
    value = at_rest_converter(known["value"], descriptor.type_info)
    entry = None
    schemas = declared_schemas(descriptor)
    if isinstance(descriptor, MapStateDescriptor) and known["entry"] != schemas["entry"]:
        frozen = at_rest_converter(known["entry"], descriptor.key_type_info)
        entry = _thawing(frozen)  # entries are never frozen: they are looked up
    return value, entry


def another_kind(where: str, name: str, known: str, kind: str) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"{where}: state '{name}' is stored as {known} state but declared as {kind} state. Give the new "
        "state another name."
    )


def cannot_convert(
    where: str, descriptor: StateDescriptor, known: Schemas, problem: Exception
) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"{where}: state '{descriptor.name}' was written as {_text(known)} and is declared as "
        f"{_text(declared_schemas(descriptor))} now: {problem}. Give the new state another name."
    )


def _thawing(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: thaw(convert(value))


def _text(schemas: Schemas) -> str:
    entry = f"{type_text(schemas['entry'])} -> " if "entry" in schemas else ""
    return entry + type_text(schemas["value"])
