"""Maps in an ordered store: an entry of its own for every entry. See `stored_tables.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from millpond.core.columns import encode_list
from millpond.datastream.state_backend import OrderedStore
from millpond.state.ordered.key_bytes import (
    EXACT,
    KeyBytes,
    after,
    decode_key,
    encode_key,
    is_exact,
)
from millpond.state.ordered.tables import UNKNOWN, StoredTable, Writes, in_order
from millpond.state.ordered.values import kept_key, pack, pack_with_key, unpack
from millpond.state.tables import MISSING, MapTable

Get = Callable[[bytes], bytes | None]
Scan = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]


class StoredEntries:
    """The entries of one key: as the dictionary that they are in memory, but read one by one.

    `known` are those that were read or changed in this batch, MISSING where there is none."""

    __slots__ = ("_get", "_scan", "changed", "known", "places", "prefix")

    def __init__(self, get: Get, scan: Scan, prefix: bytes) -> None:
        self._get = get
        self._scan = scan
        self.prefix = prefix
        self.known: dict[Any, Any] = {}
        self.places: dict[Any, bytes] = {}  # of entries that were read
        self.changed: dict[Any, None] = {}

    def read(self, entry: Any) -> Any:
        """What is stored; called if it is not known yet."""
        place = self.places[entry] = self.prefix + encode_key(entry)
        data = self._get(place)
        value = self.known[entry] = MISSING if data is None else unpack(data)
        return value

    def put(self, entry: Any, value: Any) -> None:
        self.known[entry] = value
        self.changed[entry] = None

    def remove(self, entry: Any) -> None:
        if self.known.get(entry) is MISSING and entry not in self.changed:
            return  # it was looked for, and is not there
        self.put(entry, MISSING)

    def get(self, entry: Any, default: Any = None) -> Any:
        value = self.known.get(entry, UNKNOWN)
        if value is UNKNOWN:
            value = self.read(entry)
        return default if value is MISSING else value

    def __contains__(self, entry: Any) -> bool:
        return self.get(entry, MISSING) is not MISSING

    def __getitem__(self, entry: Any) -> Any:
        value = self.get(entry, MISSING)
        if value is MISSING:
            raise KeyError(entry)
        return value

    def items(self) -> Iterator[tuple[Any, Any]]:
        """As they are now, whatever changes meanwhile."""
        prefix, known = self.prefix, self.known
        waiting = {prefix + encode_key(entry): (entry, known[entry]) for entry in self.changed}
        return _merged(prefix, self._scan(prefix, after(prefix)), waiting)

    def __iter__(self) -> Iterator[Any]:
        return (entry for entry, _ in self.items())

    keys = __iter__

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def __bool__(self) -> bool:
        return next(self.items(), None) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def rest(self) -> None:
        """Forget what was only read."""
        if len(self.changed) < len(self.known):
            self.known = {entry: self.known[entry] for entry in self.changed}
            self.places = {e: place for e, place in self.places.items() if e in self.changed}


def _merged(
    prefix: bytes, stored: Iterator[tuple[bytes, bytes]], waiting: dict[bytes, tuple[Any, Any]]
) -> Iterator[tuple[Any, Any]]:
    for place, data in in_order(stored, waiting):
        if data is not None:
            kept = kept_key(data)
            entry = decode_key(place, len(prefix))[0] if kept is None else kept[1]
            yield entry, unpack(data)
        elif waiting[place][1] is not MISSING:
            yield waiting[place]


class StoredMapTable(StoredTable, MapTable):
    """In `data` a key has its entries, whether there are any or not."""

    def __init__(self, store: OrderedStore, prefix: bytes, key_bytes: KeyBytes) -> None:
        super().__init__(store, prefix)
        self._key_bytes = key_bytes
        self._get = store.getter()
        self._owners: dict[Any, StoredEntries] = {}  # of keys that this batch has asked for

    def entries(self, key: Any) -> StoredEntries:
        entries = self._owners.get(key)
        if entries is None:
            prefix = self._prefix + self._key_bytes.of(key)
            entries = self._owners[key] = StoredEntries(self._get, self._store.scan, prefix)
        return entries

    def look_up(self, key: Any, committed: bool) -> Any:
        prefix = self._prefix + encode_key(key)
        own = None if committed else self._owners.get(key)
        waiting: dict[bytes, tuple[Any, Any]] = {}
        if own is not None:
            waiting = {prefix + encode_key(e): (e, own.known[e]) for e in own.changed}
        entries = dict(_merged(prefix, self._store.scan(prefix, after(prefix)), waiting))
        return entries or MISSING

    def look_up_entry(self, key: Any, entry: Any, committed: bool) -> Any:
        own = None if committed else self._owners.get(key)
        if own is not None and entry in own.changed:
            return own.known[entry]
        data = self._get(self._prefix + encode_key(key) + encode_key(entry))
        return MISSING if data is None else unpack(data)

    def get(self, key: Any, default: Any = None) -> Any:
        return self.entries(key)

    def __contains__(self, key: Any) -> bool:
        return bool(self.entries(key))

    def entry(self, key: Any, entry: Any) -> Any:
        return self.entries(key).get(entry, MISSING)

    def put(self, key: Any, entry: Any, value: Any) -> None:
        self.entries(key).put(entry, value)

    def remove(self, key: Any, entry: Any) -> None:
        self.entries(key).remove(entry)

    def clear(self, key: Any) -> None:
        entries = self.entries(key)
        for entry in [entry for entry, _ in entries.items()]:
            entries.put(entry, MISSING)

    def __iter__(self) -> Iterator[Any]:
        waiting = {own.prefix: key for key, own in self._owners.items() if own.changed}
        for place, data in in_order(self._stored_owners(), waiting):
            if data is not None:
                yield self._place_of(place, data)[0]
            elif self.entries(waiting[place]):
                yield waiting[place]

    def _stored_owners(self) -> Iterator[tuple[bytes, bytes]]:
        """The first entry of each key, under the key's place."""
        start = self._prefix
        while (first := next(self._store.scan(start, self._end), None)) is not None:
            key, _ = self._place_of(*first)
            own = self._prefix + encode_key(key)
            yield own, pack_with_key((key, None), None)
            start = after(own)

    def _place_of(self, place: bytes, data: bytes) -> tuple[Any, Any]:
        kept = kept_key(data)
        if kept is not None:
            return kept  # type: ignore[no-any-return]
        key, end = decode_key(place, len(self._prefix))
        return key, decode_key(place, end)[0]

    def locations(self) -> Iterator[Any]:
        for place, data in self._slowly(self._prefix):
            yield self._place_of(place, data)
        for key, own in list(self._owners.items()):
            for entry in list(own.changed):
                yield key, entry

    def changed_count(self) -> int:
        return sum(len(own.changed) for own in self._owners.values())

    def has_changes(self) -> bool:
        return any(own.changed for own in self._owners.values())

    # --- the log ---------------------------------------------------------------------------------

    def changes(self) -> tuple[Any, ...]:
        keys: list[Any] = []
        counts: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        gone: list[tuple[Any, Any]] = []
        for key, own in self._owners.items():
            before = len(entries)
            for entry in own.changed:
                value = own.known[entry]
                if value is MISSING:
                    gone.append((key, entry))
                else:
                    entries.append(entry)
                    values.append(value)
            if len(entries) > before:
                keys.append(key)
                counts.append(len(entries) - before)
        return _encoded(keys, counts, entries, values, gone)

    def _pieces(self, size: int) -> Iterator[tuple[Any, ...]]:
        waiting = {
            own.prefix + encode_key(entry): (key, entry, own.known[entry])
            for key, own in self._owners.items()
            for entry in own.changed
        }
        keys: list[Any] = []
        counts: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        owner, own_prefix = UNKNOWN, b""
        for place, data in in_order(self._store.scan(self._prefix, self._end), waiting):
            if data is None:
                key, entry, value = waiting[place]
                if value is MISSING:
                    continue
            elif own_prefix and place.startswith(own_prefix) and data[0] != 0x01:
                key, entry, value = owner, decode_key(place, len(own_prefix))[0], unpack(data)
            else:
                (key, entry), value = self._place_of(place, data), unpack(data)
            if len(entries) == size:
                yield _encoded(keys, counts, entries, values, [])
                keys, counts, entries, values, own_prefix = [], [], [], [], b""
            if not own_prefix or not place.startswith(own_prefix):
                owner, own_prefix = key, self._prefix + encode_key(key)
                keys.append(key)
                counts.append(0)
            counts[-1] += 1
            entries.append(entry)
            values.append(value)
        yield _encoded(keys, counts, entries, values, [])

    def _take_over(self, *columns: list[Any]) -> None:
        keys, counts, entries, values, gone, _ = columns
        for key, entry in gone:
            self.remove(key, entry)
        rest = zip(entries, values, strict=True)
        for key, count in zip(keys, counts, strict=True):
            own = self.entries(key)
            for entry, value in islice(rest, count):
                own.put(entry, value)

    def _writes(self) -> Writes:
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, own in self._owners.items():
            if not own.changed:
                continue
            prefix, values, places, is_own_exact = own.prefix, own.known, own.places, is_exact(key)
            for entry in own.changed:
                value = values[entry]
                place = places.get(entry) or prefix + encode_key(entry)
                if value is MISSING:
                    deletes.append(place)
                elif is_own_exact and (type(entry) in EXACT or is_exact(entry)):
                    puts.append((place, pack(value)))
                else:
                    puts.append((place, pack_with_key((key, entry), value)))
        return puts, deletes

    def rollback(self) -> bool:
        self._owners.clear()
        return True

    def rest(self) -> None:
        self._owners = {key: own for key, own in self._owners.items() if own.changed}
        for own in self._owners.values():
            own.rest()


def _encoded(
    keys: list[Any], counts: list[int], entries: list[Any], values: list[Any], gone: list[Any]
) -> tuple[Any, ...]:
    """In the form of `HashMapTable.changes`."""
    return tuple(map(encode_list, (keys, counts, entries, values, gone, [])))
