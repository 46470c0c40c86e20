"""Tables whose entries lie in an ordered store, each under an address of its own:

    value   prefix, key            value
    map     prefix, key, entry     value (maps.py)
    list    prefix, key, number    the elements that one commit appended; numbers grow (lists.py)

Changes wait in memory until they are committed, so rolling back is forgetting them. What a batch reads is
kept until the batch is over: functions mostly read a key more than once.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from millpond.core.codec import are_immutable
from millpond.core.columns import decode_list, encode_list
from millpond.datastream.state_backend import OrderedStore
from millpond.state.ordered.key_bytes import KeyBytes, after, decode_key, encode_key, is_exact
from millpond.state.ordered.values import kept_key, pack, pack_with_key, unpack
from millpond.state.tables import MISSING, Changes, DataTable, ValueTable

UNKNOWN = object()
_KEYS_AT_ONCE = 256
ENTRIES_AT_ONCE = 4096  # in one part of a snapshot
Writes = tuple[list[tuple[bytes, bytes]], list[bytes]]  # what to put, what to delete


def in_order(
    stored: Iterable[tuple[bytes, bytes]], waiting: Iterable[bytes]
) -> Iterator[tuple[bytes, bytes | None]]:
    """Return addresses in order, with what is stored there; None where something waits to be written."""
    rest = deque(sorted(waiting))
    for address, data in stored:
        while rest and rest[0] < address:
            yield rest.popleft(), None
        if rest and rest[0] == address:
            yield rest.popleft(), None
        else:
            yield address, data
    for address in rest:
        yield address, None


class StoredTable(DataTable):
    """A table that can be asked like the dictionary that `data` is in memory."""

    def __init__(self, store: OrderedStore, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix
        self._end = after(prefix)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """The table itself."""
        return self

    def get(self, key: object, default: Any = None) -> Any:
        """Return what a key has, or `default`."""
        raise NotImplementedError

    def __getitem__(self, key: object) -> object:
        value = self.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[Any]:
        """Return all keys."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        return next(iter(self), UNKNOWN) is not UNKNOWN

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def keys(self) -> set[Any]:
        """Return all keys, as a set."""
        return set(self)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return all keys with what they have."""
        for key in self:
            yield key, self[key]

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self

    def has_plain_keys(self) -> bool:
        """Return whether all keys and entries in memory are of Python's own types; all others are bytes."""
        return are_immutable(self._in_memory())

    def _in_memory(self) -> Iterable[object]:
        """Return the keys and entries that are in memory."""
        raise NotImplementedError

    def watch(self) -> None:
        """Do nothing: what waits is apart from what is stored, and so from what `look_up` reads."""

    def has_changes(self) -> bool:
        """Return True if anything has changed since the last commit."""
        return self.changed_count() > 0

    def waiting_count(self) -> int:
        """Return how many changes wait in memory: all of them."""
        return self.changed_count()

    def _key_of(self, address: bytes, data: bytes) -> object:
        if data[0] == 0x01:
            return kept_key(data)
        return decode_key(address, len(self._prefix))[0]

    def _slowly(self, start: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from `start` on, by new scans, because the table may be committed in between."""
        while True:
            entries = list(islice(self._store.scan(start, self._end), _KEYS_AT_ONCE))
            yield from entries
            if len(entries) < _KEYS_AT_ONCE:
                return
            start = entries[-1][0] + b"\x00"

    def snapshot(self) -> Changes:
        """Return everything, in the form of changes to an empty table."""
        (everything,) = self._pieces(sys.maxsize)
        return everything

    def snapshot_parts(self) -> Iterator[Changes]:
        """Return the snapshot in parts of about ENTRIES_AT_ONCE entries."""
        return self._pieces(ENTRIES_AT_ONCE)

    def _pieces(self, size: int) -> Iterator[Changes]:
        """Return the snapshot in parts of about `size` entries, at least one."""
        raise NotImplementedError

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned, and commit."""
        self._take_over(*map(decode_list, changes))
        self.commit()

    def _take_over(self, *columns: list[Any]) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        """Write what waits to the store."""
        if self.has_changes():
            puts, deletes = self._writes()
            self._store.write(puts, deletes)
        self.rollback()

    def _writes(self) -> Writes:
        raise NotImplementedError


class StoredValueTable(StoredTable, ValueTable):
    """key -> one value."""

    def __init__(self, store: OrderedStore, prefix: bytes, key_bytes: KeyBytes) -> None:
        super().__init__(store, prefix)
        self._key_bytes = key_bytes
        self._get = store.getter()
        self._known: dict[object, Any] = {}  # read or changed in this batch; MISSING: not there
        self._changed: dict[object, None] = {}

    def get(self, key: object, default: Any = None) -> Any:
        """Return the value of a key, or `default`. What was read is remembered until the batch is over."""
        value = self._known.get(key, UNKNOWN)
        if value is UNKNOWN:
            data = self._get(self._prefix + self._key_bytes.of(key))
            value = self._known[key] = MISSING if data is None else unpack(data)
        return default if value is MISSING else value

    def look_up(self, key: object, committed: bool) -> object:
        """Return the value of a key, now or as it was `committed`, or MISSING."""
        # Not with `_key_bytes`, which belongs to the thread that works.
        if not committed and key in self._changed:
            return self._known[key]
        data = self._get(self._prefix + encode_key(key))
        return MISSING if data is None else unpack(data)

    def __contains__(self, key: object) -> bool:
        return self.get(key, MISSING) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return all keys with their values."""
        waiting = {self._prefix + encode_key(key): (key, self._known[key]) for key in self._changed}
        stored = self._store.scan(self._prefix, self._end)
        for address, data in in_order(stored, waiting):
            if data is not None:
                yield self._key_of(address, data), unpack(data)
            elif waiting[address][1] is not MISSING:
                yield waiting[address]

    def locations(self) -> Iterator[Any]:
        """Return the keys that there are; some may come twice, and some be gone. The table may change
        meanwhile."""
        for address, data in self._slowly(self._prefix):
            yield self._key_of(address, data)
        yield from list(self._changed)

    def set(self, key: object, value: object) -> None:
        """Set the value of a key."""
        self._known[key] = value
        self._changed[key] = None

    def remove(self, key: object) -> None:
        """Remove the value of a key. Nothing is written if it was looked for and is not there."""
        if self._known.get(key) is MISSING and key not in self._changed:
            return  # it was looked for, and is not there
        self._known[key] = MISSING
        self._changed[key] = None

    def _in_memory(self) -> Iterable[object]:
        return self._known

    def changed_count(self) -> int:
        """Return how many keys have changed since the last commit."""
        return len(self._changed)

    def changes(self) -> Changes:
        """Return what has changed since the last commit, laid out as `HashValueTable.changes`."""
        known = self._known
        gone = [key for key in self._changed if known[key] is MISSING]
        keys = [key for key in self._changed if known[key] is not MISSING]
        return encode_list(keys), encode_list([known[key] for key in keys]), encode_list(gone)

    def _pieces(self, size: int) -> Iterator[Changes]:
        items = self.items()
        part = list(islice(items, size))
        while True:
            keys, values = [key for key, _ in part], [value for _, value in part]
            yield encode_list(keys), encode_list(values), encode_list([])
            part = list(islice(items, size))
            if not part:
                return

    def _take_over(self, *columns: list[Any]) -> None:
        keys, values, gone = columns
        for key in gone:
            self.remove(key)
        self._known.update(zip(keys, values, strict=True))
        self._changed.update(dict.fromkeys(keys))

    def _writes(self) -> Writes:
        prefix = self._prefix
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key in self._changed:
            value, address = self._known[key], prefix + encode_key(key)
            if value is MISSING:
                deletes.append(address)
            else:
                puts.append((address, pack(value) if is_exact(key) else pack_with_key(key, value)))
        return puts, deletes

    def rollback(self) -> bool:
        """Forget what waits to be written. Always possible."""
        self._known.clear()
        self._changed.clear()
        return True

    def rest(self) -> None:
        """Forget what was only read."""
        known = self._known
        self._known = {key: known[key] for key in self._changed}
