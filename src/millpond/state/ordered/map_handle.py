"""Map state over `StoredMapTable`."""

from __future__ import annotations

from typing import Any

from millpond.core.codec import Frozen, loads
from millpond.errors import TypeMismatchError
from millpond.state.handles import MapStateHandle
from millpond.state.ordered.maps import StoredEntries, StoredMapTable
from millpond.state.ordered.tables import UNKNOWN
from millpond.state.tables import MISSING


class StoredMapStateHandle(MapStateHandle):
    """Does itself what the table's methods would: it is called for every record."""

    _table: StoredMapTable
    _own: StoredEntries

    def get(self, key: object) -> Any:
        """Return the value of an entry, or None. It is a copy if it is mutable."""
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._table.entries(owner)
        value = self._current_entries.known.get(key, UNKNOWN)
        if value is UNKNOWN:
            value = self._current_entries.read(key)
        if value is MISSING:
            return None
        return loads(value.data) if type(value) is Frozen else value

    def put(self, key: object, value: Any) -> None:
        """Set an entry."""
        kind = type(value)
        if kind is not self._plain and (kind is not int or not self._low <= value <= self._high):
            try:
                value = self._admit(value)
            except TypeMismatchError as mismatch:
                raise self._refused(mismatch) from None
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._table.entries(owner)
        entries = self._current_entries
        entries.known[key] = value
        entries.changed[key] = None

    def remove(self, key: object) -> None:
        """Remove an entry, if it is there."""
        owner = self._current.key
        if owner is not self._owner:
            self._owner, self._current_entries = owner, self._table.entries(owner)
        self._current_entries.remove(key)
