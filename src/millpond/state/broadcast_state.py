"""Broadcast state: a map of which every shard has its own copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millpond.core.codec import freeze, thaw
from millpond.datastream.state import BroadcastState, MapStateDescriptor, StateDescriptor
from millpond.errors import ProgramError, TypeMismatchError
from millpond.state.hash.maps import HashMapTable
from millpond.state.shard_state import ShardState
from millpond.state.tables import MapTable

PREFIX = "_broadcast."
_OWNER = None  # the table has one key


class BroadcastStateHandle(BroadcastState[Any, Any]):
    """The broadcast state of a descriptor, as `process_broadcast_element` sees it."""

    def __init__(self, descriptor: MapStateDescriptor) -> None:
        self._descriptor = descriptor
        self._check_key = descriptor.key_type_info.check()
        self._check_value = descriptor.type_info.check()
        self._table: MapTable = HashMapTable()

    def bind(self, state: ShardState) -> None:
        """Turn to the copy of another shard."""
        self._table = state.state(self._descriptor, PREFIX)

    @property
    def declared(self) -> tuple[str, StateDescriptor]:
        """The name that the state is stored under, and its descriptor."""
        return PREFIX + self._descriptor.name, self._descriptor

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._table.data.get(_OWNER, {})
        return entries

    def get(self, key: object) -> Any:
        """Return the value of an entry, or None."""
        return thaw(self._entries().get(key))

    def contains(self, key: object) -> bool:
        """Return True if there is such an entry."""
        return key in self._entries()

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return all entries with their values."""
        return [(key, thaw(value)) for key, value in self._entries().items()]

    def keys(self) -> Iterable[Any]:
        """Return all entries."""
        return list(self._entries())

    def values(self) -> Iterable[Any]:
        """Return the values of all entries."""
        return [thaw(value) for value in self._entries().values()]

    def is_empty(self) -> bool:
        """Return True if there are no entries."""
        return not self._entries()

    def put(self, key: object, value: object) -> None:
        """Set an entry. Raises TypeMismatchError if it, or its value, is not of the declared type."""
        key, value = self._conform(self._check_key, key), self._conform(self._check_value, value)
        self._table.put(_OWNER, key, freeze(value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        """Set all entries of a dictionary."""
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: object) -> None:
        """Remove an entry, if it is there."""
        self._table.remove(_OWNER, key)

    def clear(self) -> None:
        """Remove all entries."""
        self._table.clear(_OWNER)

    def _conform(self, check: Callable[[Any], Any] | None, value: object) -> object:
        if check is None:
            return value
        try:
            return check(value)
        except TypeMismatchError as mismatch:
            raise TypeMismatchError(
                f"broadcast state '{self._descriptor.name}': {mismatch}"
            ) from None


class ReadOnlyBroadcastStateHandle(BroadcastStateHandle):
    """The same where it must not change, because every subtask would see something else."""

    def _refuse(self, *_: object) -> object:
        raise ProgramError(
            f"Broadcast state '{self._descriptor.name}' is read-only here: it changes in "
            "process_broadcast_element only, where all subtasks do the same."
        )

    put: Any = _refuse
    put_all: Any = _refuse
    remove: Any = _refuse
    clear: Any = _refuse
