"""Maps in an ordered store: an entry of its own for every entry. See `stored_tables.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from millpond.datastream.state_backend import OrderedStore
from millpond.runtime.task.columns import encode_list
from millpond.state.key_bytes import after, decode_key, encode_key, is_exact
from millpond.state.stored_tables import UNKNOWN, StoredTable, Writes, in_order
from millpond.state.stored_values import kept_key, pack, pack_with_key, unpack
from millpond.state.tables import MISSING, MapTable


class StoredMapTable(StoredTable, MapTable):
    """In `data` a key has a view of its entries, whether it has any or not."""

    def __init__(self, store: OrderedStore, prefix: bytes) -> None:
        super().__init__(store, prefix)
        self._known: dict[Any, dict[Any, Any]] = {}  # read or changed; MISSING: not there
        self._changed: dict[tuple[Any, Any], None] = {}
        self._owner: Any = UNKNOWN  # the key that was last asked for, and its prefix
        self._owner_prefix = b""

    def get(self, key: Any, default: Any = None) -> Any:
        return StoredEntries(self, key)

    def __contains__(self, key: Any) -> bool:
        return bool(StoredEntries(self, key))

    def _prefix_of(self, key: Any) -> bytes:
        if key is not self._owner:
            self._owner, self._owner_prefix = key, self._prefix + encode_key(key)
        return self._owner_prefix

    def entry(self, key: Any, entry: Any) -> Any:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {}
        value = known.get(entry, UNKNOWN)
        if value is UNKNOWN:
            data = self._store.get(self._prefix_of(key) + encode_key(entry))
            value = known[entry] = MISSING if data is None else unpack(data)
        return value

    def put(self, key: Any, entry: Any, value: Any) -> None:
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = {}
        known[entry] = value
        self._changed[key, entry] = None

    def remove(self, key: Any, entry: Any) -> None:
        self.put(key, entry, MISSING)

    def clear(self, key: Any) -> None:
        for entry in list(self.entries(key)):
            self.remove(key, entry[0])

    def entries(self, key: Any) -> Iterator[tuple[Any, Any]]:
        """(entry, value) of a key, as they are now, whatever changes meanwhile."""
        prefix = self._prefix_of(key)
        waiting = {
            prefix + encode_key(entry): (entry, value)
            for entry, value in self._known.get(key, {}).items()
            if (key, entry) in self._changed
        }
        return self._merged(prefix, self._store.scan(prefix, after(prefix)), waiting)

    @staticmethod
    def _merged(
        prefix: bytes,
        stored: Iterator[tuple[bytes, bytes]],
        waiting: dict[bytes, tuple[Any, Any]],
    ) -> Iterator[tuple[Any, Any]]:
        for place, data in in_order(stored, waiting):
            if data is not None:
                kept = kept_key(data)
                entry = decode_key(place, len(prefix))[0] if kept is None else kept[1]
                yield entry, unpack(data)
            elif waiting[place][1] is not MISSING:
                yield waiting[place]

    def _place_of(self, place: bytes, data: bytes) -> tuple[Any, Any]:
        if data[0] == 0x01:
            both: tuple[Any, Any] = kept_key(data)
            return both
        key, end = decode_key(place, len(self._prefix))
        return key, decode_key(place, end)[0]

    def __iter__(self) -> Iterator[Any]:
        waiting = {self._prefix + encode_key(key): key for key, _ in self._changed}
        for place, data in in_order(self._owners(), waiting):
            if data is not None:
                yield self._place_of(place, data)[0]
            elif self.get(waiting[place]):
                yield waiting[place]

    def _owners(self) -> Iterator[tuple[bytes, bytes]]:
        """The first entry of each key, under the key's place."""
        start = self._prefix
        while (first := next(self._store.scan(start, self._end), None)) is not None:
            key, _ = self._place_of(*first)
            own = self._prefix + encode_key(key)
            yield own, pack_with_key((key, None), None)
            start = after(own)

    def places(self) -> Iterator[Any]:
        for place, data in self._slowly(self._prefix):
            yield self._place_of(place, data)
        yield from list(self._changed)

    def changed_count(self) -> int:
        return len(self._changed)

    def changes(self) -> tuple[Any, ...]:
        known = self._known
        places = [place for place in self._changed if known[place[0]][place[1]] is not MISSING]
        gone = [place for place in self._changed if known[place[0]][place[1]] is MISSING]
        values = [known[key][entry] for key, entry in places]
        return self._encoded([(key, 1) for key, _ in places], [e for _, e in places], values, gone)

    def snapshot(self) -> tuple[Any, ...]:
        counts: list[tuple[Any, int]] = []
        entries: list[Any] = []
        values: list[Any] = []
        for key in self:
            before = len(entries)
            for entry, value in self.entries(key):
                entries.append(entry)
                values.append(value)
            counts.append((key, len(entries) - before))
        return self._encoded(counts, entries, values, [])

    @staticmethod
    def _encoded(
        counts: list[tuple[Any, int]], entries: list[Any], values: list[Any], gone: list[Any]
    ) -> tuple[Any, ...]:
        """In the form of `HashMapTable.changes`."""
        keys, numbers = [key for key, _ in counts], [count for _, count in counts]
        return tuple(map(encode_list, (keys, numbers, entries, values, gone, [])))

    def _take_over(self, *columns: list[Any]) -> None:
        keys, counts, entries, values, gone, _ = columns
        for key, entry in gone:
            self.remove(key, entry)
        rest = zip(entries, values, strict=True)
        for key, count in zip(keys, counts, strict=True):
            for entry, value in islice(rest, count):
                self.put(key, entry, value)

    def _writes(self) -> Writes:
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, entry in self._changed:
            value = self._known[key][entry]
            place = self._prefix_of(key) + encode_key(entry)
            if value is MISSING:
                deletes.append(place)
            elif is_exact(key) and is_exact(entry):
                puts.append((place, pack(value)))
            else:
                puts.append((place, pack_with_key((key, entry), value)))
        return puts, deletes

    def rollback(self) -> bool:
        self._known.clear()
        self._changed.clear()
        self._owner = UNKNOWN
        return True

    def rest(self) -> None:
        known, self._known = self._known, {}
        for key, entry in self._changed:
            self._known.setdefault(key, {})[entry] = known[key][entry]
        self._owner = UNKNOWN


class StoredEntries:
    """The entries of one key, as the dictionary that they are in memory."""

    __slots__ = ("_key", "_table")

    def __init__(self, table: StoredMapTable, key: Any) -> None:
        self._table = table
        self._key = key

    def get(self, entry: Any, default: Any = None) -> Any:
        value = self._table.entry(self._key, entry)
        return default if value is MISSING else value

    def __contains__(self, entry: Any) -> bool:
        return self._table.entry(self._key, entry) is not MISSING

    def __iter__(self) -> Iterator[Any]:
        return (entry for entry, _ in self.items())

    keys = __iter__

    def __getitem__(self, entry: Any) -> Any:
        value = self._table.entry(self._key, entry)
        if value is MISSING:
            raise KeyError(entry)
        return value

    def items(self) -> Iterator[tuple[Any, Any]]:
        return self._table.entries(self._key)

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def __bool__(self) -> bool:
        return next(self.items(), None) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self.items())
