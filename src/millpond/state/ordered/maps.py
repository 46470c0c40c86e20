"""Maps in an ordered store: every entry is an entry of the store. See `tables.py` for the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from millpond.core.columns import decode_list, encode_list
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
from millpond.state.tables import MISSING, Changes, MapTable

Get = Callable[[bytes], bytes | None]
Scan = Callable[[bytes, bytes], Iterator[tuple[bytes, bytes]]]


class StoredEntries:
    """The entries of one key, asked like the dictionary that they are in memory, but read one by one.

    `known` has those that were read or changed in this batch, MISSING where there is none.
    """

    __slots__ = ("_get", "_scan", "addresses", "changed", "known", "prefix")

    def __init__(self, get: Get, scan: Scan, prefix: bytes) -> None:
        self._get = get
        self._scan = scan
        self.prefix = prefix
        self.known: dict[object, Any] = {}
        self.addresses: dict[object, bytes] = {}  # addresses of entries that were read
        self.changed: dict[object, None] = {}

    def read(self, entry: object) -> object:
        """Return what the store has for an entry, or MISSING, and remember it. Called if the entry is not
        known."""
        address = self.addresses[entry] = self.prefix + encode_key(entry)
        data = self._get(address)
        value = self.known[entry] = MISSING if data is None else unpack(data)
        return value

    def put(self, entry: object, value: object) -> None:
        """Set the value of an entry; MISSING removes it."""
        self.known[entry] = value
        self.changed[entry] = None

    def remove(self, entry: object) -> None:
        """Remove an entry. Nothing is written if it was looked for and is not there."""
        if self.known.get(entry) is MISSING and entry not in self.changed:
            return  # it was looked for, and is not there
        self.put(entry, MISSING)

    def get(self, entry: object, default: Any = None) -> Any:
        """Return the value of an entry, or `default`."""
        value = self.known.get(entry, UNKNOWN)
        if value is UNKNOWN:
            value = self.read(entry)
        return default if value is MISSING else value

    def __contains__(self, entry: object) -> bool:
        return self.get(entry, MISSING) is not MISSING

    def __getitem__(self, entry: object) -> object:
        value = self.get(entry, MISSING)
        if value is MISSING:
            raise KeyError(entry)
        return value

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return all entries with their values, as they are now, whatever changes meanwhile."""
        prefix, known = self.prefix, self.known
        waiting = {prefix + encode_key(entry): (entry, known[entry]) for entry in self.changed}
        return _merged(prefix, self._scan(prefix, after(prefix)), waiting)

    def __iter__(self) -> Iterator[Any]:
        return (entry for entry, _ in self.items())

    keys = __iter__

    def values(self) -> Iterator[Any]:
        """Return the values of all entries."""
        return (value for _, value in self.items())

    def __bool__(self) -> bool:
        return next(self.items(), None) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self.items())

    def rest(self) -> None:
        """Forget what was only read."""
        if len(self.changed) < len(self.known):
            self.known = {entry: self.known[entry] for entry in self.changed}
            self.addresses = {
                e: address for e, address in self.addresses.items() if e in self.changed
            }


def _merged(
    prefix: bytes, stored: Iterator[tuple[bytes, bytes]], waiting: dict[bytes, tuple[Any, Any]]
) -> Iterator[tuple[Any, Any]]:
    for address, data in in_order(stored, waiting):
        if data is not None:
            kept = kept_key(data)
            entry = decode_key(address, len(prefix))[0] if kept is None else kept[1]
            yield entry, unpack(data)
        elif waiting[address][1] is not MISSING:
            yield waiting[address]


class StoredMapTable(StoredTable, MapTable):
    """key -> entries. In `data` every key has entries, whether there are any or not."""

    def __init__(self, store: OrderedStore, prefix: bytes, key_bytes: KeyBytes) -> None:
        super().__init__(store, prefix)
        self._key_bytes = key_bytes
        self._get = store.getter()
        self._owners: dict[object, StoredEntries] = {}  # the keys that this batch has asked for

    def entries(self, key: object) -> StoredEntries:
        """Return the entries of a key, to be asked until the batch is over."""
        entries = self._owners.get(key)
        if entries is None:
            prefix = self._prefix + self._key_bytes.of(key)
            entries = self._owners[key] = StoredEntries(self._get, self._store.scan, prefix)
        return entries

    def look_up(self, key: object, committed: bool) -> object:
        """Return the entries of a key, now or as they were `committed`, or MISSING."""
        prefix = self._prefix + encode_key(key)
        key_entries = None if committed else self._owners.get(key)
        waiting: dict[bytes, tuple[Any, Any]] = {}
        if key_entries is not None:
            waiting = {
                prefix + encode_key(e): (e, key_entries.known[e]) for e in key_entries.changed
            }
        entries = dict(_merged(prefix, self._store.scan(prefix, after(prefix)), waiting))
        return entries or MISSING

    def look_up_entry(self, key: object, entry: object, committed: bool) -> object:
        """Return the value of an entry, now or as it was `committed`, or MISSING."""
        key_entries = None if committed else self._owners.get(key)
        if key_entries is not None and entry in key_entries.changed:
            return key_entries.known[entry]
        data = self._get(self._prefix + encode_key(key) + encode_key(entry))
        return MISSING if data is None else unpack(data)

    def get(self, key: object, default: Any = None) -> Any:
        """Return the entries of a key, also if there are none."""
        return self.entries(key)

    def __contains__(self, key: object) -> bool:
        return bool(self.entries(key))

    def entry(self, key: object, entry: object) -> Any:
        """Return the value of an entry, or MISSING."""
        return self.entries(key).get(entry, MISSING)

    def put(self, key: object, entry: object, value: object) -> None:
        """Set the value of an entry."""
        self.entries(key).put(entry, value)

    def remove(self, key: object, entry: object) -> None:
        """Remove an entry, if it is there."""
        self.entries(key).remove(entry)

    def clear(self, key: object) -> None:
        """Remove all entries of a key."""
        entries = self.entries(key)
        for entry in [entry for entry, _ in entries.items()]:
            entries.put(entry, MISSING)

    def __iter__(self) -> Iterator[Any]:
        waiting = {
            key_entries.prefix: key
            for key, key_entries in self._owners.items()
            if key_entries.changed
        }
        for address, data in in_order(self._stored_owners(), waiting):
            if data is not None:
                yield self._location_of(address, data)[0]
            elif self.entries(waiting[address]):
                yield waiting[address]

    def _in_memory(self) -> Iterable[object]:
        return chain(self._owners, *(key_entries.known for key_entries in self._owners.values()))

    def _stored_owners(self) -> Iterator[tuple[bytes, bytes]]:
        """Return the first stored entry of each key, under the address of the key."""
        start = self._prefix
        while (first := next(self._store.scan(start, self._end), None)) is not None:
            key, _ = self._location_of(*first)
            key_address = self._prefix + encode_key(key)
            yield key_address, pack_with_key((key, None), None)
            start = after(key_address)

    def _location_of(self, address: bytes, data: bytes) -> tuple[Any, Any]:
        kept = kept_key(data)
        if kept is not None:
            return kept  # type: ignore[no-any-return]
        key, end = decode_key(address, len(self._prefix))
        return key, decode_key(address, end)[0]

    def locations(self) -> Iterator[Any]:
        """Return the (key, entry) that there are; some may come twice, and some be gone. The table may change
        meanwhile."""
        for address, data in self._slowly(self._prefix):
            yield self._location_of(address, data)
        for key, key_entries in list(self._owners.items()):
            for entry in list(key_entries.changed):
                yield key, entry

    def changed_count(self) -> int:
        """Return how many entries have changed since the last commit."""
        return sum(len(key_entries.changed) for key_entries in self._owners.values())

    def has_changes(self) -> bool:
        """Return True if an entry has changed since the last commit."""
        return any(key_entries.changed for key_entries in self._owners.values())

    # --- the log ---------------------------------------------------------------------------------

    def changes(self) -> Changes:
        """Return what has changed since the last commit, laid out as `HashMapTable.changes`."""
        keys: list[Any] = []
        counts: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        gone: list[tuple[Any, Any]] = []
        for key, key_entries in self._owners.items():
            before = len(entries)
            for entry in key_entries.changed:
                value = key_entries.known[entry]
                if value is MISSING:
                    gone.append((key, entry))
                else:
                    entries.append(entry)
                    values.append(value)
            if len(entries) > before:
                keys.append(key)
                counts.append(len(entries) - before)
        return _encoded(keys, counts, entries, values, gone)

    def _pieces(self, size: int) -> Iterator[Changes]:
        waiting = {
            key_entries.prefix + encode_key(entry): (key, entry, key_entries.known[entry])
            for key, key_entries in self._owners.items()
            for entry in key_entries.changed
        }
        keys: list[Any] = []
        counts: list[int] = []
        entries: list[Any] = []
        values: list[Any] = []
        owner, key_prefix = UNKNOWN, b""
        for address, data in in_order(self._store.scan(self._prefix, self._end), waiting):
            if data is None:
                key, entry, value = waiting[address]
                if value is MISSING:
                    continue
            elif key_prefix and address.startswith(key_prefix) and data[0] != 0x01:
                key, entry, value = owner, decode_key(address, len(key_prefix))[0], unpack(data)
            else:
                (key, entry), value = self._location_of(address, data), unpack(data)
            if len(entries) == size:
                yield _encoded(keys, counts, entries, values, [])
                keys, counts, entries, values, key_prefix = [], [], [], [], b""
            if not key_prefix or not address.startswith(key_prefix):
                owner, key_prefix = key, self._prefix + encode_key(key)
                keys.append(key)
                counts.append(0)
            counts[-1] += 1
            entries.append(entry)
            values.append(value)
        yield _encoded(keys, counts, entries, values, [])

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned, and commit."""
        keys, counts, entries, values, gone, _ = map(decode_list, changes)
        prefix = self._prefix
        deletes = [prefix + encode_key(key) + encode_key(entry) for key, entry in gone]
        self.commit()
        # Straight from the columns: a restore may have to put millions of entries.
        self._store.write(self._puts(keys, counts, entries, values), deletes)

    def _puts(
        self, keys: list[Any], counts: list[int], entries: list[Any], values: list[Any]
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield the addresses of entries, and what is stored there."""
        encoded: dict[str, bytes] = {}  # strings mostly recur
        rest = zip(entries, values, strict=True)
        for key, count in zip(keys, counts, strict=True):
            key_prefix, is_key_exact = self._prefix + encode_key(key), is_exact(key)
            for entry, value in islice(rest, count):
                if type(entry) is str:
                    tail = encoded.get(entry)
                    if tail is None:
                        tail = encoded[entry] = encode_key(entry)
                else:
                    tail = encode_key(entry)
                if is_key_exact and (type(entry) in EXACT or is_exact(entry)):
                    yield key_prefix + tail, pack(value)
                else:
                    yield key_prefix + tail, pack_with_key((key, entry), value)

    def _writes(self) -> Writes:
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, key_entries in self._owners.items():
            if not key_entries.changed:
                continue
            prefix, values, addresses, is_key_exact = (
                key_entries.prefix,
                key_entries.known,
                key_entries.addresses,
                is_exact(key),
            )
            for entry in key_entries.changed:
                value = values[entry]
                address = addresses.get(entry) or prefix + encode_key(entry)
                if value is MISSING:
                    deletes.append(address)
                elif is_key_exact and (type(entry) in EXACT or is_exact(entry)):
                    puts.append((address, pack(value)))
                else:
                    puts.append((address, pack_with_key((key, entry), value)))
        return puts, deletes

    def rollback(self) -> bool:
        """Forget what waits to be written. Always possible."""
        self._owners.clear()
        return True

    def rest(self) -> None:
        """Forget what was only read."""
        self._owners = {
            key: key_entries for key, key_entries in self._owners.items() if key_entries.changed
        }
        for key_entries in self._owners.values():
            key_entries.rest()


def _encoded(
    keys: list[Any], counts: list[int], entries: list[Any], values: list[Any], gone: list[Any]
) -> tuple[Any, ...]:
    """Return columns laid out as `HashMapTable.changes`."""
    return tuple(map(encode_list, (keys, counts, entries, values, gone, [])))
