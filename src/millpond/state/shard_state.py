"""Everything one task remembers for one shard: state tables and timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millpond.core.columns import decode_list, encode_list
from millpond.datastream.state import StateDescriptor, StateKind
from millpond.datastream.state_backend import ShardStorage
from millpond.state.columns.table import COLUMNS as COLUMNS
from millpond.state.grouping import WITHOUT_KEY, Grouping
from millpond.state.hash.backend import HashShard
from millpond.state.kinds.registry import kind_text, spec_of, stored_kind
from millpond.state.log_tail import LogTail
from millpond.state.tables import ChangeColumns, DataTable, StateTable
from millpond.state.timers import TimerChanges, Timers
from millpond.state.ttl.expiry import Cleaner, Expiry, drop_times, set_times
from millpond.state.types.declared import (
    CANNOT_CONVERT,
    another_kind,
    cannot_convert,
    converters,
    declared_schemas,
)
from millpond.state.types.schemas import Schemas

_MEMORY = HashShard()
_NO_TIMERS = TimerChanges([], [], []).encode()
Content = dict[str, Any]
"""What changed, or a snapshot: states as (kind, changes) and their types by name, timers by domain."""


class ShardState:
    """The state tables and timers of a shard. A cache of what the change log says; the position that it was
    left at says of which version (`engine/kept_states.py`)."""

    def __init__(
        self,
        number: int,
        storage: ShardStorage | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        self.number = number
        self.grouping = grouping
        self._storage = storage or HashShard()
        self.tables: dict[str, StateTable] = {}
        self.kinds: dict[str, StateKind] = {}
        self.event_timers: Timers = self._storage.timers("event")
        self.processing_timers: Timers = self._storage.timers("processing")
        # What operators have computed from the state, so as not to compute it again. It is not in the log.
        self.derived: dict[Any, Any] = {}
        self.where = f"shard {number}"  # for messages
        # The schemas that values of states were written with, or are declared with now (types/evolution.py).
        self.types: dict[str, Schemas] = {}
        self._unlogged_types: set[str] = set()
        self.is_restored = False  # from a savepoint, which is not in the log yet
        # What is known of all its logs, by their numbers; empty if it has to be read.
        self.log_tails: dict[int, LogTail] = {}
        self._timed: set[str] = set()  # states whose entries rest with their times
        self._cleaners: dict[str, Cleaner] = {}
        self._converted = False  # a state got another type or time to live since the last commit
        self._stored: set[str] = set()  # states that the logs may have
        # What key groups have in another form than the table of the state, until a function asks for it:
        # name -> by key group.
        self._other_forms: dict[str, dict[int, ShardState]] = {}
        self.is_in_new_form = False
        """True if the logs have a state in another form (type, time to live) than it has now. All logs of a
        shard must have it in the same form."""
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
                self.is_in_new_form |= known is not None
            self.types[name] = schemas
        for other in self._other_forms.pop(name, {}).values():
            table.apply(other.state(descriptor, prefix, expiry).snapshot())
            self.is_in_new_form = True
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
            self._cleaners.pop(name, None)
            self._converted = True
            self.is_in_new_form |= name in self._stored
        return table

    def _table(self, name: str, kind: StateKind) -> Any:
        known = self.kinds.get(name)
        if known is None:
            in_memory = spec_of(kind).in_memory_only or name.startswith(WITHOUT_KEY)
            self.tables[name] = (_MEMORY if in_memory else self._storage).table(name, kind)
            self.kinds[name] = kind
        elif known is not kind:
            raise another_kind(self.where, name, known.value, kind.value)
        return self.tables[name]

    # --- time to live ----------------------------------------------------------------------------

    def _let_expire(self, name: str, table: Any, expiry: Expiry) -> None:
        if name not in self._timed:
            self._timed.add(name)
            self.is_in_new_form |= name in self._stored
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
        """Remove all that has expired. Called before a savepoint, and before a snapshot of the tables."""
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
            and not self._other_forms
        )

    def has_changes(self) -> bool:
        """Return True if there is something to write to the log."""
        return (
            self.is_restored
            or self.is_in_new_form
            or self.event_timers.has_changes()
            or self.processing_timers.has_changes()
            or any(table.has_changes() for table in self.tables.values())
        )

    def changes(self) -> Content:
        """Return what has changed since the last commit."""
        changed = self._changed()
        return {
            "states": {
                name: (self._kind_text(name), table.changes()) for name, table in changed.items()
            },
            "types": {name: self.types[name] for name in changed if name in self._unlogged_types},
            "event": self.event_timers.changes().encode(),
            "processing": self.processing_timers.changes().encode(),
        }

    def _changed(self) -> dict[str, StateTable]:
        return {name: table for name, table in self.tables.items() if table.has_changes()}

    def changes_by_key_group(self) -> tuple[dict[int, Content], Content | None]:
        """Return what has changed since the last commit: by key group, and what has no key (None: nothing).
        Only for a shard of several key groups."""
        assert self.grouping is not None
        parts = _Parts()
        own: dict[str, tuple[str, Any]] = {}
        types = {}
        for name, table in self._changed().items():
            if name in self._unlogged_types:
                types[name] = self.types[name]
            if name.startswith(WITHOUT_KEY):
                own[name] = (self._kind_text(name), table.changes())
            else:
                grouping = self.grouping.of_state(name)
                split = table.grouped_changes(grouping)
                if split is None:
                    split = spec_of(self.kinds[name]).split(table.change_columns(), grouping)
                parts.add_state(name, self._kind_text(name), split)
        for domain, timers in self._domains():
            if timers.has_changes():
                parts.add_timers(domain, timers.changes().split(self.grouping))
        return parts.contents, _content(own, types) if own or types else None

    def _domains(self) -> Iterator[tuple[str, Timers]]:
        yield "event", self.event_timers
        yield "processing", self.processing_timers

    def snapshot(self) -> Content:
        """Return everything, in the form of changes to an empty state."""
        return {
            "states": {
                name: (self._kind_text(name), table.snapshot())
                for name, table in self.tables.items()
                if not table.is_empty()
            },
            "types": dict(self.types),
            "event": self.event_timers.snapshot().encode(),
            "processing": self.processing_timers.snapshot().encode(),
        }

    def snapshot_parts(self) -> Iterator[Content]:
        """Return the snapshot in parts: the first as a snapshot, the others as changes that follow it."""
        pieces = {n: t.snapshot_parts() for n, t in self.tables.items() if not t.is_empty()}
        domains = {domain: timers.snapshot_parts() for domain, timers in self._domains()}
        yield {
            "states": {
                name: (self._kind_text(name), next(parts)) for name, parts in pieces.items()
            },
            "types": dict(self.types),  # including those of states that are empty now
            **{domain: next(timers).encode() for domain, timers in domains.items()},
        }
        for name, rest in pieces.items():
            types = {name: self.types[name]} if name in self.types else {}
            for piece in rest:
                yield _content({name: (self._kind_text(name), piece)}, types)
        for domain, timers in domains.items():
            for part in timers:
                yield _content({}, {}) | {domain: part.encode()}
        for others in self._other_forms.values():
            for other in others.values():
                yield from other.snapshot_parts()

    def apply(self, content: Content, key_group: int | None = None) -> None:
        """Take over a snapshot (into an empty state), or the changes of one batch. `key_group` is given if
        the shard has several, each with contents of its own. Raises CorruptDataError if a state is of an
        unknown kind."""
        self.derived.clear()
        for name, (kind, changes) in content["states"].items():
            spec, timed = stored_kind(kind, f"{self.where}, state '{name}'")
            types = content.get("types", {}).get(name)
            table = self._table(name, spec.kind)
            if key_group is not None and self._has_other_form(name, timed, types, key_group):
                others = self._other_forms.setdefault(name, {})
                other = others.setdefault(key_group, ShardState(key_group))
                only = _content({name: (kind, changes)}, {} if types is None else {name: types})
                other.apply(only)
                continue
            table.apply(changes)
            self._stored.add(name)
            (self._timed.add if timed else self._timed.discard)(name)
        for name, types in content.get("types", {}).items():
            if name not in self._other_forms or key_group not in self._other_forms[name]:
                self.types[name] = types
        self.event_timers.apply(content["event"])
        self.processing_timers.apply(content["processing"])

    def _has_other_form(
        self, name: str, timed: bool, types: Schemas | None, key_group: int
    ) -> bool:
        """Return whether a key group has a state in another form than the table, which has something."""
        if key_group in self._other_forms.get(name, {}):
            return True
        if self.tables[name].is_empty():
            return False
        known = self.types.get(name)
        is_other_type = types is not None and known is not None and types != known
        return timed != (name in self._timed) or is_other_type

    def forget_program(self) -> None:
        """Forget what belongs to the functions that have asked for states: others will do so."""
        self.derived.clear()
        self._cleaners.clear()

    def has_plain_keys(self) -> bool:
        """Return whether all keys, entries and windows are of Python's own types, or rest as bytes."""
        return not self._other_forms and all(part.has_plain_keys() for part in self._parts())

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
        self.is_in_new_form = False
        self.is_restored = False

    def rollback(self) -> bool:
        """Return to the content at the last commit. Returns False if that is not possible: then the state
        must be reloaded."""
        self.derived.clear()
        self.log_tails.clear()
        return (
            not self._converted
            and not self.is_in_new_form
            and not self.is_restored
            and self.event_timers.rollback()
            and self.processing_timers.rollback()
            and all(table.rollback() for table in self.tables.values())
        )


def _content(states: dict[str, tuple[str, Any]], types: dict[str, Schemas]) -> Content:
    return {"states": states, "types": types, "event": _NO_TIMERS, "processing": _NO_TIMERS}


class _Parts:
    """Contents by key group, put together state by state."""

    def __init__(self) -> None:
        self.contents: dict[int, Content] = {}

    def _content(self, group: int) -> Content:
        content = self.contents.get(group)
        if content is None:
            content = self.contents[group] = _content({}, {})
        return content

    def add_state(
        self,
        name: str,
        kind: str,
        split: dict[int, ChangeColumns],
        types: Schemas | None = None,
    ) -> None:
        for group, columns in split.items():
            content = self._content(group)
            content["states"][name] = (kind, tuple(map(encode_list, columns)))
            if types is not None:
                content["types"][name] = types

    def add_timers(self, domain: str, split: dict[int, TimerChanges]) -> None:
        for group, changes in split.items():
            self._content(group)[domain] = changes.encode()


def split_content(content: Content, grouping: Grouping) -> tuple[dict[int, Content], Content]:
    """Return a part of a snapshot by key group, and what of it has no key. That also has the types of all
    states, because some may be empty."""
    parts = _Parts()
    own: dict[str, tuple[str, Any]] = {}
    types = content["types"]
    for name, (kind, changes) in content["states"].items():
        if name.startswith(WITHOUT_KEY):
            own[name] = (kind, changes)
            continue
        spec, _ = stored_kind(kind, f"state '{name}'")
        split = spec.split(tuple(map(decode_list, changes)), grouping.of_state(name))
        parts.add_state(name, kind, split, types.get(name))
    for domain in ("event", "processing"):
        parts.add_timers(domain, TimerChanges.decode(content[domain]).split(grouping))
    return parts.contents, _content(own, dict(types))
