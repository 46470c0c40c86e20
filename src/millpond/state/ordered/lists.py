"""Lists in an ordered store. Appending reads nothing. See `tables.py` for the layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any

from millpond.core.columns import encode_list
from millpond.datastream.state_backend import OrderedStore
from millpond.state.ordered.key_bytes import after, encode_key, is_exact
from millpond.state.ordered.tables import StoredTable, Writes, in_order
from millpond.state.ordered.values import pack, pack_with_key, unpack
from millpond.state.tables import MISSING, Changes, ListTable

_NUMBER_BYTES = 8


class StoredListTable(StoredTable, ListTable):
    """key -> list, as one entry of the store per commit that appended to it."""

    def __init__(self, store: OrderedStore, prefix: bytes, next_number: Callable[[], int]) -> None:
        super().__init__(store, prefix)
        self._next_number = next_number
        # key -> (True if the elements replace what is stored, False if they follow it; elements)
        self._waiting: dict[object, tuple[bool, list[Any]]] = {}
        self._known: dict[object, list[Any]] = {}  # the stored elements of keys that were read

    def get(self, key: object, default: Any = None) -> Any:
        """Return the list of a key, or `default`. What was read is remembered until the batch is over."""
        is_all, added = self._waiting.get(key, (False, []))
        if is_all:
            return added or default
        if key not in self._known:
            self._known[key] = self._stored(key)
        return [*self._known[key], *added] or default

    def _read(self, key: object) -> list[Any]:
        """Return the list of a key, like `get`, without remembering it."""
        is_all, added = self._waiting.get(key, (False, []))
        return added if is_all else [*self._stored(key), *added]

    def look_up(self, key: object, committed: bool) -> object:
        """Return a copy of a key's list, now or as it was `committed`, or MISSING."""
        return (self._stored(key) if committed else list(self._read(key))) or MISSING

    def _stored(self, key: object) -> list[Any]:
        address = self._prefix + encode_key(key)
        chunks = [unpack(data) for _, data in self._store.scan(address, after(address))]
        return list(chain.from_iterable(chunks))

    def _in_memory(self) -> Iterable[object]:
        return chain(self._waiting, self._known)

    def __contains__(self, key: object) -> bool:
        return bool(self.get(key))

    def __iter__(self) -> Iterator[Any]:
        waiting = {self._prefix + encode_key(key): key for key in self._waiting}
        for address, data in in_order(self._owners(), waiting):
            if data is not None:
                yield self._key_of(address, data)
            elif waiting[address] in self:
                yield waiting[address]

    def _owners(self) -> Iterator[tuple[bytes, bytes]]:
        """Return what was appended first to each key, under the address of the key."""
        last = b""
        for address, data in self._store.scan(self._prefix, self._end):
            key_address = address[:-_NUMBER_BYTES]
            if key_address != last:
                last = key_address
                yield key_address, data

    def locations(self) -> Iterator[Any]:
        """Return the keys that there are; some may come twice. The table may change meanwhile."""
        last = b""
        for address, data in self._slowly(self._prefix):
            if address[:-_NUMBER_BYTES] != last:
                last = address[:-_NUMBER_BYTES]
                yield self._key_of(address, data)
        yield from list(self._waiting)

    def extend(self, key: object, values: list[Any]) -> None:
        """Append values to the list of a key."""
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = (False, list(values))
        else:
            waiting[1].extend(values)

    def replace(self, key: object, values: list[Any]) -> None:
        """Set the list of a key; an empty one removes it."""
        if not values and key not in self._waiting and self._known.get(key) == []:
            return  # it was read, and is empty
        self._waiting[key] = (True, list(values))

    def changed_count(self) -> int:
        """Return how many lists have changed since the last commit."""
        return len(self._waiting)

    def changes(self) -> Changes:
        """Return what has changed since the last commit, laid out as `HashListTable.changes`."""
        appended = [not is_all for is_all, _ in self._waiting.values()]
        return self._encoded(list(self._waiting), appended, [e for _, e in self._waiting.values()])

    def _pieces(self, size: int) -> Iterator[Changes]:
        keys: list[Any] = []
        lists: list[list[Any]] = []
        elements = 0
        for key in self:
            keys.append(key)
            lists.append(self._read(key))
            elements += len(lists[-1])
            if elements >= size:
                yield self._encoded(keys, [False] * len(keys), lists)
                keys, lists, elements = [], [], 0
        if keys or not elements:
            yield self._encoded(keys, [False] * len(keys), lists)

    @staticmethod
    def _encoded(keys: list[Any], appended: list[bool], lists: list[list[Any]]) -> tuple[Any, ...]:
        """Return columns laid out as `HashListTable.changes`."""
        columns = (keys, appended, list(map(len, lists)), list(chain.from_iterable(lists)))
        return tuple(map(encode_list, columns))

    def _take_over(self, *columns: list[Any]) -> None:
        keys, appended, lengths, elements = columns
        rest = iter(elements)
        for key, is_appended, length in zip(keys, appended, lengths, strict=True):
            (self.extend if is_appended else self.replace)(key, list(islice(rest, length)))

    def _writes(self) -> Writes:
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for key, (is_all, elements) in self._waiting.items():
            address = self._prefix + encode_key(key)
            if is_all:
                deletes.extend(old for old, _ in self._store.scan(address, after(address)))
            if elements:
                number = self._next_number().to_bytes(_NUMBER_BYTES, "big")
                content = tuple(elements)
                exact = is_exact(key)
                puts.append(
                    (address + number, pack(content) if exact else pack_with_key(key, content))
                )
        return puts, deletes

    def rollback(self) -> bool:
        """Forget what waits to be written. Always possible."""
        self._waiting.clear()
        self._known.clear()
        return True

    def rest(self) -> None:
        """Forget what was only read."""
        self._known.clear()
