"""State as a function sees it: handles that follow the current key and shard.

A handle keeps the table it reads from; the task binds all handles to another shard's tables when it turns
to that shard. Access is then one dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from millpond.common.basic_types import BasicTypeInfo
from millpond.common.typeinfo import Types
from millpond.core.codec import Frozen, freeze, loads
from millpond.datastream.functions import AggregateFunction, ReduceFunction
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
from millpond.errors import TypeMismatchError
from millpond.state.hash.maps import HashMapTable
from millpond.state.tables import MISSING, ListTable, MapTable, ValueTable

if TYPE_CHECKING:
    from millpond.state.shard_state import ShardState


class CurrentKey:
    """The key whose state is visible. One object per task, shared by all its handles."""

    __slots__ = ("key", "namespace")

    def __init__(self) -> None:
        self.key: Any = None
        self.namespace: Any = None  # the window of the timer that fires


class Handle:
    """What handles of all kinds have in common. `_admit` turns a value into what may rest in a table:
    checked, and immutable or frozen."""

    def __init__(self, descriptor: StateDescriptor, current: CurrentKey) -> None:
        self._descriptor = descriptor
        self._current = current
        self._admit = self._admission(descriptor)
        # Values of these types are admitted without a call: declared strings, declared integers within
        # their limits, and bytes if no type is declared.
        declared = descriptor.type_info
        undeclared = bytes if self._admit is freeze else None
        self._plain: type | None = str if declared == Types.STRING() else undeclared
        limits = declared.limits if isinstance(declared, BasicTypeInfo) else None
        self._low, self._high = limits or (1, 0)
        self._table: Any = None
        self._data: dict[Any, Any] = {}

    @staticmethod
    def _admission(descriptor: StateDescriptor) -> Callable[[Any], Any]:
        check = descriptor.type_info.check()
        if check is None:
            return freeze
        if isinstance(descriptor.type_info, BasicTypeInfo):
            return check  # what passes is immutable
        conform = check
        return lambda value: freeze(conform(value))

    def _refused(self, mismatch: TypeMismatchError) -> TypeMismatchError:
        return TypeMismatchError(f"state '{self._descriptor.name}': {mismatch}")

    def _admit_all(self, values: Iterable[Any]) -> list[Any]:
        try:
            return [self._admit(value) for value in values]
        except TypeMismatchError as mismatch:
            raise self._refused(mismatch) from None

    @property
    def declared(self) -> tuple[str, StateDescriptor]:
        """The name that the state is stored under, and its descriptor."""
        return self._descriptor.name, self._descriptor

    def keys_with_state(self) -> Iterable[Any]:
        """Return the keys of the shard that have something in this state."""
        return list(self._data)

    def bind(self, state: ShardState) -> None:
        """Turn to the table of another shard. Raises IncompatibleCheckpointError if it has content that
        cannot become what is declared."""
        self._table = state.state(self._descriptor)
        self._data = self._table.data


def _thaw(value: object) -> object:
    return loads(value.data) if type(value) is Frozen else value


class ValueStateHandle(Handle, ValueState[Any]):
    """Value state without a time to live."""

    _table: ValueTable

    def value(self) -> Any:
        """Return the current key's value, or None. It is a copy if it is mutable."""
        value = self._data.get(self._current.key)
        return loads(value.data) if type(value) is Frozen else value

    def update(self, value: object) -> None:
        """Set the current key's value; None removes it."""
        if value is None:
            self._table.remove(self._current.key)
        else:
            try:
                value = self._admit(value)
            except TypeMismatchError as mismatch:
                raise self._refused(mismatch) from None
            self._table.set(self._current.key, value)

    def clear(self) -> None:
        """Remove the current key's value."""
        self._table.remove(self._current.key)


class ListStateHandle(Handle, ListState[Any]):
    """List state without a time to live."""

    _table: ListTable

    def get(self) -> Iterable[Any]:
        """Return copies of the current key's elements."""
        return [_thaw(value) for value in self._data.get(self._current.key, ())]

    def add(self, value: object) -> None:
        """Append an element."""
        self._table.extend(self._current.key, self._admit_all((value,)))

    def add_all(self, values: list[Any]) -> None:
        """Append elements."""
        if values:
            self._table.extend(self._current.key, self._admit_all(values))

    def update(self, values: list[Any]) -> None:
        """Replace all elements."""
        self._table.replace(self._current.key, self._admit_all(values))

    def clear(self) -> None:
        """Remove all elements."""
        self._table.replace(self._current.key, [])


class MapStateHandle(Handle, MapState[Any, Any]):
    """Map state over any table. `_own` are the entries of `_owner`, the key last asked for. Iteration returns
    what was there when it began."""

    _table: MapTable
    _owner: object = MISSING
    _own: object = None

    def bind(self, state: ShardState) -> None:
        """Turn to the table of another shard."""
        super().bind(state)
        self._owner = MISSING

    def _entries(self) -> Any:
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._table.entries(owner)
        return self._current_entries

    def get(self, key: object) -> Any:
        """Return the value of an entry, or None. It is a copy if it is mutable."""
        value = self._entries().get(key)
        return loads(value.data) if type(value) is Frozen else value

    def put(self, key: object, value: object) -> None:
        """Set an entry."""
        self._table.put(self._current.key, key, self._admit_all((value,))[0])

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """Set all entries of a dictionary."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: object) -> None:
        """Remove an entry, if it is there."""
        self._table.remove(self._current.key, key)

    def contains(self, key: object) -> bool:
        """Return True if there is such an entry."""
        return key in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries with their values."""
        entries = self._entries().items()
        return ((key, _thaw(value)) for key, value in entries)

    def keys(self) -> Iterable[Any]:
        """Return all entries."""
        entries = self._entries().items()
        return (key for key, _ in entries)

    def values(self) -> Iterable[Any]:
        """Return the values of all entries."""
        entries = self._entries().items()
        return (_thaw(value) for _, value in entries)

    def is_empty(self) -> bool:
        """Return True if the current key has no entries."""
        return not self._entries()

    def clear(self) -> None:
        """Remove all entries of the current key."""
        self._table.clear(self._current.key)


class HashMapStateHandle(MapStateHandle):
    """Map state over a table in memory. `get`, `put` and `remove` do themselves what the table's methods do:
    they are called for every record, and a call costs as much as the work. `_own` are the entries of
    `_owner`, the key last asked for: a function mostly reads and writes the same key."""

    _table: HashMapTable
    _undo: dict[Any, Any]
    _owner: object
    _own: dict[Any, Any] | None

    def bind(self, state: ShardState) -> None:
        """Turn to the table of another shard."""
        super().bind(state)
        self._undo = self._table.undo
        self._owner, self._current_entries = None, self._data.get(None)

    def _entries(self) -> dict[Any, Any]:
        return self._data.get(self._current.key) or {}

    def get(self, key: object) -> Any:
        """Return the value of an entry, or None. It is a copy if it is mutable."""
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._data.get(owner)
        if self._current_entries is None:
            return None
        value = self._current_entries.get(key)
        return loads(value.data) if type(value) is Frozen else value

    def put(self, key: object, value: Any) -> None:
        """Set an entry, as `HashMapTable.put` does."""
        kind = type(value)
        if kind is not self._plain and (kind is not int or not self._low <= value <= self._high):
            try:
                value = self._admit(value)
            except TypeMismatchError as mismatch:
                raise self._refused(mismatch) from None
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._data.get(owner)
        entries = self._current_entries
        if entries is None:
            entries = self._current_entries = self._data[owner] = {}
        undo, location = self._undo, (owner, key)
        if location not in undo:
            undo[location] = entries.get(key, MISSING)
        elif key not in entries:
            self._table.put_again(location)
        entries[key] = value

    def remove(self, key: object) -> None:
        """Remove an entry, if it is there, as `HashMapTable.remove` does."""
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._data.get(owner)
        entries = self._current_entries
        if entries is None or key not in entries:
            return
        location = (owner, key)
        if self._undo.setdefault(location, entries.pop(key)) is MISSING:
            del self._undo[location]
        else:
            self._table.removed_any = True
        if not entries:
            del self._data[owner]
            self._current_entries = None

    def contains(self, key: object) -> bool:
        """Return True if there is such an entry."""
        return key in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries with their values."""
        return [(key, _thaw(value)) for key, value in self._entries().items()]

    def keys(self) -> Iterable[Any]:
        """Return all entries."""
        return list(self._entries())

    def values(self) -> Iterable[Any]:
        """Return the values of all entries."""
        return [_thaw(value) for value in self._entries().values()]

    def clear(self) -> None:
        """Remove all entries of the current key."""
        self._table.clear(self._current.key)
        self._owner, self._current_entries = self._current.key, None


class WatchedMapStateHandle(HashMapStateHandle):
    """Map state over a table in memory that look-ups read, because the state is queryable."""

    def put(self, key: object, value: object) -> None:
        """Set an entry, after the table has noted what it was."""
        self._table.note(self._current.key, key)
        super().put(key, value)

    def remove(self, key: object) -> None:
        """Remove an entry, after the table has noted what it was."""
        self._table.note(self._current.key, key)
        super().remove(key)


class ReducingStateHandle(Handle, ReducingState[Any]):
    """Reducing state without a time to live."""

    _table: ValueTable

    def __init__(self, descriptor: ReducingStateDescriptor, current: CurrentKey) -> None:
        super().__init__(descriptor, current)
        function = descriptor.get_reduce_function()
        self._reduce = function.reduce if isinstance(function, ReduceFunction) else function

    def get(self) -> Any:
        """Return the current key's value, or None."""
        return _thaw(self._data.get(self._current.key))

    def at_rest(self) -> object:
        """Return the value as the table holds it (immutable, or frozen), or None."""
        return self._data.get(self._current.key)

    def add(self, value: object) -> None:
        """Reduce a value into the one that is there."""
        old = self._data.get(self._current.key, MISSING)
        if old is not MISSING:
            value = self._reduce(_thaw(old), value)
        self._table.set(self._current.key, self._admit_all((value,))[0])

    def clear(self) -> None:
        """Remove the current key's value."""
        self._table.remove(self._current.key)


class AggregatingStateHandle(Handle, AggregatingState[Any, Any]):
    """Aggregating state without a time to live."""

    _table: ValueTable

    def __init__(self, descriptor: AggregatingStateDescriptor, current: CurrentKey) -> None:
        super().__init__(descriptor, current)
        self._function: AggregateFunction = descriptor.get_agg_function()

    def get(self) -> Any:
        """Return the result of the current key's accumulator, or None."""
        accumulator = self._data.get(self._current.key, MISSING)
        return None if accumulator is MISSING else self._function.get_result(_thaw(accumulator))

    def add(self, value: object) -> None:
        """Add a value to the accumulator; the first one creates it."""
        old = self._data.get(self._current.key, MISSING)
        accumulator = self._function.create_accumulator() if old is MISSING else _thaw(old)
        accumulator = self._function.add(value, accumulator)
        self._table.set(self._current.key, self._admit_all((accumulator,))[0])

    def clear(self) -> None:
        """Remove the current key's accumulator."""
        self._table.remove(self._current.key)
