"""Tables in memory: Python dictionaries. `maps.py` has those of maps.

Values at rest are immutable or `Frozen`, so a table can remember old values by reference.

What was there before is remembered before it changes, and `look_up` reads in the opposite order: first what
is there, then what is remembered. So another thread never takes a change for what was there at the last
commit: if it has seen the change, it finds what is remembered, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

from millpond.core.codec import are_immutable
from millpond.core.columns import decode_list, encode_list
from millpond.state.grouping import Grouping
from millpond.state.tables import MISSING, ChangeColumns, Changes, ListTable, ValueTable


class HashValueTable(ValueTable):
    """key -> one value. `undo` has every key that was touched since the last commit, with the value it had
    then, or MISSING."""

    def __init__(self) -> None:
        self.data: dict[object, Any] = {}
        self.undo: dict[object, Any] = {}

    def set(self, key: object, value: object) -> None:
        """Set the value of a key."""
        if key not in self.undo:
            self.undo[key] = self.data.get(key, MISSING)
        self.data[key] = value

    def remove(self, key: object) -> None:
        """Remove the value of a key, if there is one."""
        if key in self.data:
            if key not in self.undo:
                self.undo[key] = self.data[key]
            del self.data[key]

    def watch(self) -> None:
        """Do nothing: `undo` is all that `look_up` needs."""

    def look_up(self, key: object, committed: bool) -> object:
        """Return the value of a key, now or as it was `committed`, or MISSING."""
        value = self.data.get(key, MISSING)
        return self.undo.get(key, value) if committed else value

    def locations(self) -> Iterator[Any]:
        """Return the keys that there are now."""
        return iter(list(self.data))

    def has_changes(self) -> bool:
        """Return True if anything has changed since the last commit."""
        return bool(self.undo)

    def changed_count(self) -> int:
        """Return how many keys were touched since the last commit."""
        return len(self.undo)

    def changes(self) -> Changes:
        """Return (keys, their values, keys that are gone)."""
        return tuple(map(encode_list, self.change_columns()))

    def change_columns(self) -> ChangeColumns:
        """Return (keys, their values, keys that are gone)."""
        return self._columns_of(list(self.undo))

    def _columns_of(self, touched: list[Any]) -> ChangeColumns:
        data = self.data
        gone = [key for key in touched if key not in data]
        keys = [key for key in touched if key in data] if gone else touched
        return keys, [data[key] for key in keys], gone

    def grouped_changes(self, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return `change_columns` by key group. What belongs together is looked up together: that is faster,
        because it fits into the processor's caches."""
        parts = grouping.split(list(self.undo))
        return {group: self._columns_of(keys) for group, (keys,) in parts.items()}

    def snapshot(self) -> Changes:
        """Return everything, in the form of changes to an empty table."""
        return encode_list(list(self.data)), encode_list(list(self.data.values())), encode_list([])

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned. This cannot be rolled back."""
        keys, values, gone = map(decode_list, changes)
        self.data.update(zip(keys, values, strict=True))
        for key in gone:
            self.data.pop(key, None)

    def commit(self) -> None:
        """Make the current content the one that `rollback` returns to."""
        self.undo.clear()

    def rollback(self) -> bool:
        """Put the old values back. Always possible."""
        for key, old in self.undo.items():
            if old is MISSING:
                self.data.pop(key, None)
            else:
                self.data[key] = old
        self.undo.clear()
        return True

    def has_plain_keys(self) -> bool:
        """Return whether all keys are of Python's own types."""
        return are_immutable(self.data)

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data


class HashListTable(ListTable):
    """key -> list. An append costs and logs only what is appended."""

    def __init__(self) -> None:
        self.data: dict[object, list[Any]] = {}
        # key -> (length at the last commit, the list as it was if it was replaced since)
        self.undo: dict[object, tuple[int, list[Any] | None]] = {}

    def extend(self, key: object, values: list[Any]) -> None:
        """Append values to the list of a key."""
        elements = self.data.get(key)
        if elements is None:
            elements = self.data[key] = []
        if key not in self.undo:
            self.undo[key] = (len(elements), None)
        elements.extend(values)

    def watch(self) -> None:
        """Do nothing: `undo` is all that `look_up` needs."""

    def look_up(self, key: object, committed: bool) -> object:
        """Return a copy of a key's list, now or as it was `committed`, or MISSING."""
        elements = list(self.data.get(key, ()))
        undone = self.undo.get(key) if committed else None
        if undone is not None:
            length, replaced = undone
            elements = elements[:length] if replaced is None else list(replaced)
        return elements or MISSING

    def locations(self) -> Iterator[Any]:
        """Return the keys that there are now."""
        return iter(list(self.data))

    def replace(self, key: object, values: list[Any]) -> None:
        """Set the list of a key; an empty one removes it. The table keeps `values`."""
        if not values and key not in self.data:
            return
        old = self.data.get(key, [])
        length, replaced = self.undo.get(key, (len(old), None))
        if replaced is None:
            self.undo[key] = (length, old[:length])
        if values:
            self.data[key] = values
        else:
            self.data.pop(key, None)

    def has_changes(self) -> bool:
        """Return True if anything has changed since the last commit."""
        return bool(self.undo)

    def changed_count(self) -> int:
        """Return how many lists were touched since the last commit."""
        return len(self.undo)

    def changes(self) -> Changes:
        """Return (keys, whether elements are appended to each, how many elements each has, all elements)."""
        return tuple(map(encode_list, self.change_columns()))

    def change_columns(self) -> ChangeColumns:
        """Return (keys, whether elements are appended to each, how many elements each has, all elements)."""
        lists = []
        for key, (length, replaced) in self.undo.items():
            elements = self.data.get(key, [])
            lists.append(elements[length:] if replaced is None else elements)
        appended = [replaced is None for _, replaced in self.undo.values()]
        return self._columns(list(self.undo), appended, lists)

    def snapshot(self) -> Changes:
        """Return everything, in the form of changes to an empty table."""
        columns = self._columns(list(self.data), [False] * len(self.data), list(self.data.values()))
        return tuple(map(encode_list, columns))

    @staticmethod
    def _columns(keys: list[Any], appended: list[bool], lists: list[list[Any]]) -> ChangeColumns:
        return keys, appended, list(map(len, lists)), list(chain.from_iterable(lists))

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned. This cannot be rolled back."""
        keys, appended, lengths, all_elements = map(decode_list, changes)
        rest = iter(all_elements)
        for key, is_appended, length in zip(keys, appended, lengths, strict=True):
            elements = list(islice(rest, length))
            if is_appended:
                self.data.setdefault(key, []).extend(elements)
            elif elements:
                self.data[key] = elements
            else:
                self.data.pop(key, None)

    def commit(self) -> None:
        """Make the current content the one that `rollback` returns to."""
        self.undo.clear()

    def rollback(self) -> bool:
        """Cut off what was appended, and put back what was replaced. Always possible."""
        for key, (length, replaced) in self.undo.items():
            if replaced is None:
                del self.data[key][length:]
            else:
                self.data[key] = replaced
            if not self.data[key]:
                del self.data[key]
        self.undo.clear()
        return True

    def has_plain_keys(self) -> bool:
        """Return whether all keys are of Python's own types."""
        return are_immutable(self.data)

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data
