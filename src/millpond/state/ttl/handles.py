"""State with a time to live, as a function sees it. See `expiry.py` for how it rests.

Where the configuration says ReturnExpiredIfNotCleanedUp, reading what has expired returns it one last
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from millpond.core.codec import thaw
from millpond.datastream.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    MapState,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
)
from millpond.state.combining import Combining
from millpond.state.handles import CurrentKey, Handle
from millpond.state.tables import MISSING, ListTable, MapTable, Timed, ValueTable
from millpond.state.ttl.expiry import Expiry

if TYPE_CHECKING:
    from millpond.state.shard_state import ShardState


class _TtlHandle(Handle):
    def __init__(self, descriptor: StateDescriptor, current: CurrentKey, expiry: Expiry) -> None:
        super().__init__(descriptor, current)
        self._expiry = expiry

    def bind(self, state: ShardState) -> None:
        self._table = state.state(self._descriptor, expiry=self._expiry)
        self._data = self._table.data

    def keys_with_state(self) -> Iterable[Any]:
        """Of the shard; those with something that has not expired."""
        return [key for key, content in list(self._data.items()) if self._has_live(key, content)]

    def _has_live(self, key: object, content: object) -> bool:
        raise NotImplementedError

    def _timed(self, value: object) -> Timed:
        return (self._expiry.now_ms(), self._admit_all((value,))[0])


class _OneValue(_TtlHandle):
    _table: ValueTable

    def _read(self) -> Any:
        """Return the value at rest, or MISSING if there is none any more. Reading may make it young again."""
        key = self._current.key
        timed = self._data.get(key)
        if timed is None:
            return MISSING
        time_ms, value = timed
        if self._expiry.is_expired(key, time_ms):
            self._table.remove(key)
            return value if self._expiry.returns_expired else MISSING
        now_ms = self._expiry.now_ms()
        if self._expiry.reading_counts and now_ms > time_ms:
            self._table.set(key, (now_ms, value))
        return value

    def _has_live(self, key: object, content: Any) -> bool:
        return not self._expiry.is_expired(key, content[0])

    def _write(self, value: object) -> None:
        self._table.set(self._current.key, self._timed(value))

    def clear(self) -> None:
        """Remove the current key's value."""
        self._table.remove(self._current.key)


class TtlValueState(_OneValue, ValueState[Any]):
    """Value state whose value expires."""

    def value(self) -> Any:
        """Return the current key's value, or None if there is none or it has expired."""
        value = self._read()
        return None if value is MISSING else thaw(value)

    def update(self, value: object) -> None:
        """Set the current key's value; None removes it."""
        if value is None:
            self.clear()
        else:
            self._write(value)


class _Combined(_OneValue):
    _combining: Combining

    def get(self) -> Any:
        """Return the result of what is there, or None if there is nothing or it has expired."""
        content = self._read()
        return None if content is MISSING else self._combining.result(thaw(content))

    def add(self, value: object) -> None:
        """Add a value to what is there; to nothing if that has expired."""
        content = self._read()
        content = content if content is MISSING else thaw(content)
        self._write(self._combining.added(content, value))


class TtlReducingState(_Combined, ReducingState[Any]):
    """Reducing state whose value expires."""

    def __init__(
        self, descriptor: ReducingStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> None:
        super().__init__(descriptor, current, expiry)
        self._combining = Combining(descriptor.get_reduce_function())


class TtlAggregatingState(_Combined, AggregatingState[Any, Any]):
    """Aggregating state whose accumulator expires."""

    def __init__(
        self, descriptor: AggregatingStateDescriptor, current: CurrentKey, expiry: Expiry
    ) -> None:
        super().__init__(descriptor, current, expiry)
        self._combining = Combining(descriptor.get_agg_function())


class TtlListState(_TtlHandle, ListState[Any]):
    """List state whose elements expire one by one."""

    _table: ListTable

    def get(self) -> Iterable[Any]:
        """Return copies of the elements that have not expired, and remove the others."""
        key, expiry = self._current.key, self._expiry
        elements = self._data.get(key)
        if not elements:
            return []
        live = [timed for timed in elements if not expiry.is_expired(key, timed[0])]
        returned = elements if expiry.returns_expired else live
        if expiry.reading_counts:
            now_ms = expiry.now_ms()
            live = [(max(now_ms, time_ms), value) for time_ms, value in live]
        if live != elements:
            self._table.replace(key, live)
        return [thaw(value) for _, value in returned]

    def _has_live(self, key: object, content: Any) -> bool:
        return any(not self._expiry.is_expired(key, time_ms) for time_ms, _ in content)

    def add(self, value: object) -> None:
        """Append an element."""
        self._table.extend(self._current.key, [self._timed(value)])

    def add_all(self, values: list[Any]) -> None:
        """Append elements."""
        if values:
            self._table.extend(self._current.key, list(map(self._timed, values)))

    def update(self, values: list[Any]) -> None:
        """Replace all elements."""
        self._table.replace(self._current.key, list(map(self._timed, values)))

    def clear(self) -> None:
        """Remove all elements."""
        self._table.replace(self._current.key, [])


class TtlMapState(_TtlHandle, MapState[Any, Any]):
    """Map state whose entries expire one by one."""

    _table: MapTable

    def _read(self, entry: object) -> Any:
        owner = self._current.key
        timed = self._table.entry(owner, entry)
        return MISSING if timed is MISSING else self._seen(owner, entry, timed)

    def _seen(self, owner: object, entry: object, timed: tuple[int, Any]) -> object:
        """Return the value of an entry that is there, or MISSING if it has expired. Reading may make it young
        again."""
        time_ms, value = timed
        if self._expiry.is_expired(owner, time_ms):
            self._table.remove(owner, entry)
            return value if self._expiry.returns_expired else MISSING
        now_ms = self._expiry.now_ms()
        if self._expiry.reading_counts and now_ms > time_ms:
            self._table.put(owner, entry, (now_ms, value))
        return value

    def _has_live(self, key: object, content: Any) -> bool:
        return any(not self._expiry.is_expired(key, time_ms) for time_ms, _ in content.values())

    def get(self, key: object) -> Any:
        """Return the value of an entry, or None if there is none or it has expired."""
        value = self._read(key)
        return None if value is MISSING else thaw(value)

    def put(self, key: object, value: object) -> None:
        """Set an entry. One that has expired goes first, so that the new one comes last."""
        owner, timed = self._current.key, self._timed(value)
        old = self._table.entry(owner, key)
        if old is not MISSING and self._expiry.is_expired(owner, old[0]):
            self._table.remove(
                owner, key
            )  # the new entry comes last, whether or not it was cleaned up before
        self._table.put(owner, key, timed)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """Set all entries of a dictionary."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: object) -> None:
        """Remove an entry, if it is there."""
        self._table.remove(self._current.key, key)

    def contains(self, key: object) -> bool:
        """Return True if there is such an entry and it has not expired."""
        return self._read(key) is not MISSING

    def _live(self) -> Iterator[tuple[Any, Any]]:
        """Return the entries that are there now; one by one, if they are not in memory anyway."""
        owner = self._current.key
        entries = self._table.entries(owner)
        items = entries.items()
        return self._each_live(owner, list(items) if isinstance(entries, dict) else items)

    def _each_live(self, owner: object, items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        table, expiry = self._table, self._expiry
        for entry, timed in items:
            if expiry.reading_counts or expiry.is_expired(owner, timed[0]):
                now = table.entry(owner, entry)
                # It may have changed since the iteration began: then it is not ours to touch.
                if now is MISSING or now[0] != timed[0]:
                    if not expiry.is_expired(owner, timed[0]):
                        yield entry, timed[1]
                    continue
                value = self._seen(owner, entry, timed)
                if value is not MISSING:
                    yield entry, value
            else:
                yield entry, timed[1]

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return the entries that have not expired, with their values."""
        live = self._live()
        return ((entry, thaw(value)) for entry, value in live)

    def keys(self) -> Iterable[Any]:
        """Return the entries that have not expired."""
        live = self._live()
        return (entry for entry, _ in live)

    def values(self) -> Iterable[Any]:
        """Return the values of the entries that have not expired."""
        live = self._live()
        return (thaw(value) for _, value in live)

    def is_empty(self) -> bool:
        """Return True if no entry is left. Reads nothing, so nothing becomes younger, and nothing is returned
        for the last time."""
        key = self._current.key
        content = self._data.get(key)
        if content is None or self._expiry.returns_expired:
            return not content
        return not self._has_live(key, content)

    def clear(self) -> None:
        """Remove all entries of the current key."""
        self._table.clear(self._current.key)
