"""Tables in memory: Python dictionaries.

Values at rest are immutable or `Frozen`, so a table can remember old values by reference.

What was there before is remembered before it changes, and `look_up` reads in the opposite order: first what
is there, then what is remembered. So another thread never takes a change for what was there at the last
commit: if it has seen the change, it finds what is remembered, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, compress, islice
from operator import itemgetter
from typing import Any

from millpond.core.columns import ConstantColumn, decode_list, encode_list
from millpond.state.tables import MISSING, ListTable, MapTable, ValueTable


class HashValueTable(ValueTable):
    """key -> one value. `undo` has every key that was touched since the last commit, with the value it had
    then, or MISSING."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.undo: dict[Any, Any] = {}

    def set(self, key: Any, value: Any) -> None:
        """Set the value of a key."""
        if key not in self.undo:
            self.undo[key] = self.data.get(key, MISSING)
        self.data[key] = value

    def remove(self, key: Any) -> None:
        """Remove the value of a key, if there is one."""
        if key in self.data:
            if key not in self.undo:
                self.undo[key] = self.data[key]
            del self.data[key]

    def watch(self) -> None:
        """Do nothing: `undo` is all that `look_up` needs."""

    def look_up(self, key: Any, committed: bool) -> Any:
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

    def changes(self) -> tuple[Any, ...]:
        """Return (keys, their values, keys that are gone)."""
        data = self.data
        gone = [key for key in self.undo if key not in data]
        keys = [key for key in self.undo if key in data] if gone else list(self.undo)
        return (
            encode_list(keys),
            encode_list([data[key] for key in keys]),
            encode_list(gone),
        )

    def snapshot(self) -> tuple[Any, ...]:
        """Return everything, in the form of changes to an empty table."""
        return encode_list(list(self.data)), encode_list(list(self.data.values())), encode_list([])

    def apply(self, changes: tuple[Any, ...]) -> None:
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

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data


class HashListTable(ListTable):
    """key -> list. An append costs and logs only what is appended."""

    def __init__(self) -> None:
        self.data: dict[Any, list[Any]] = {}
        # key -> (length at the last commit, the list as it was if it was replaced since)
        self.undo: dict[Any, tuple[int, list[Any] | None]] = {}

    def extend(self, key: Any, values: list[Any]) -> None:
        """Append values to the list of a key."""
        elements = self.data.get(key)
        if elements is None:
            elements = self.data[key] = []
        if key not in self.undo:
            self.undo[key] = (len(elements), None)
        elements.extend(values)

    def watch(self) -> None:
        """Do nothing: `undo` is all that `look_up` needs."""

    def look_up(self, key: Any, committed: bool) -> Any:
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

    def replace(self, key: Any, values: list[Any]) -> None:
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

    def changes(self) -> tuple[Any, ...]:
        """Return (keys, whether elements are appended to each, how many elements each has, all elements)."""
        lists = []
        for key, (length, replaced) in self.undo.items():
            elements = self.data.get(key, [])
            lists.append(elements[length:] if replaced is None else elements)
        appended = [replaced is None for _, replaced in self.undo.values()]
        return self._encoded(list(self.undo), appended, lists)

    def snapshot(self) -> tuple[Any, ...]:
        """Return everything, in the form of changes to an empty table."""
        return self._encoded(list(self.data), [False] * len(self.data), list(self.data.values()))

    @staticmethod
    def _encoded(keys: list[Any], appended: list[bool], lists: list[list[Any]]) -> tuple[Any, ...]:
        return (
            encode_list(keys),
            encode_list(appended),
            encode_list(list(map(len, lists))),
            encode_list(list(chain.from_iterable(lists))),
        )

    def apply(self, changes: tuple[Any, ...]) -> None:
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

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data


class HashMapTable(MapTable):
    """key -> entries. Entries are logged one by one, in an order that restores the order of iteration.

    `undo` has every (key, entry) that was touched since the last commit, with the value it had then; an entry
    that was removed and put again is listed at its new position, and in `moved`. `touched` has the same by
    key, if the table is watched; until the commit, entries are only added to it.
    """

    def __init__(self) -> None:
        self.data: dict[Any, dict[Any, Any]] = {}
        self.undo: dict[tuple[Any, Any], Any] = {}
        self.moved: set[tuple[Any, Any]] = set()
        self.removed_any = False
        self.touched: dict[Any, dict[Any, Any]] | None = None

    def watch(self) -> None:
        """Note from now on what entries were, by key."""
        if self.touched is None:
            touched: dict[Any, dict[Any, Any]] = {}
            for (key, entry), old in self.undo.items():
                touched.setdefault(key, {})[entry] = old
            self.touched = touched

    def note(self, key: Any, entry: Any) -> None:
        """Remember what an entry is, before it changes. Only if the table is watched."""
        assert self.touched is not None
        own = self.touched.get(key)
        if own is None:
            own = self.touched[key] = {}
        if entry not in own:
            own[entry] = self.entry(key, entry)

    def look_up(self, key: Any, committed: bool) -> Any:
        """Return a copy of a key's entries, now or as they were `committed`, or MISSING."""
        entries = dict(self.data.get(key, ()))
        touched = self.touched.get(key) if committed and self.touched is not None else None
        if touched is not None:
            for entry, old in touched.copy().items():
                if old is MISSING:
                    entries.pop(entry, None)
                else:
                    entries[entry] = old
        return entries or MISSING

    def look_up_entry(self, key: Any, entry: Any, committed: bool) -> Any:
        """Return the value of an entry, now or as it was `committed`, or MISSING."""
        value = self.entry(key, entry)
        touched = self.touched.get(key) if committed and self.touched is not None else None
        return value if touched is None else touched.get(entry, value)

    def put(self, key: Any, entry: Any, value: Any) -> None:
        """Set the value of an entry."""
        if self.touched is not None:
            self.note(key, entry)
        entries = self.data.get(key)
        if entries is None:
            entries = self.data[key] = {}
        undo, location = self.undo, (key, entry)
        if location not in undo:
            undo[location] = entries.get(entry, MISSING)
        elif entry not in entries:
            self.put_again(location)
        entries[entry] = value

    def put_again(self, location: tuple[Any, Any]) -> None:
        """Note that an entry which was removed in this batch is put again: it moves to the end."""
        self.undo[location] = self.undo.pop(location)
        self.moved.add(location)

    def remove(self, key: Any, entry: Any) -> None:
        """Remove an entry, if it is there; with the last one the key goes."""
        entries = self.data.get(key)
        if entries is None or entry not in entries:
            return
        if self.touched is not None:
            self.note(key, entry)
        old = entries.pop(entry)
        self.removed_any = True
        self.undo.setdefault((key, entry), old)
        if not entries:
            del self.data[key]

    def clear(self, key: Any) -> None:
        """Remove all entries of a key."""
        for entry in list(self.data.get(key, ())):
            self.remove(key, entry)

    def entries(self, key: Any) -> Any:
        """Return the entries of a key, as a dictionary that must not be changed."""
        return self.data.get(key, {})

    def entry(self, key: Any, entry: Any) -> Any:
        """Return the value of an entry, or MISSING."""
        entries = self.data.get(key)
        return MISSING if entries is None else entries.get(entry, MISSING)

    def locations(self) -> Iterator[Any]:
        """Return the (key, entry) that there are, key by key. The table may change meanwhile."""
        # Lists, because a dictionary cannot be iterated over while it changes.
        for key in list(self.data):
            for entry in list(self.data.get(key, ())):
                yield key, entry

    def has_changes(self) -> bool:
        """Return True if anything has changed since the last commit."""
        return bool(self.undo)

    def changed_count(self) -> int:
        """Return how many entries were touched since the last commit."""
        return len(self.undo)

    def changes(self) -> tuple[Any, ...]:
        """Return keys, how many entries of each follow, the entries, their values; (key, entry) of those that
        are gone; of those that moved to the end."""
        get = self.data.get
        nothing: dict[Any, Any] = {}
        locations = list(self.undo)
        values = [get(key, nothing).get(entry, MISSING) for key, entry in locations]
        gone: list[tuple[Any, Any]] = []
        if self.removed_any:
            undo = self.undo
            gone = [
                location
                for location, value in zip(locations, values, strict=True)
                if value is MISSING and undo[location] is not MISSING
            ]
            there = [value is not MISSING for value in values]
            locations = list(compress(locations, there))
            values = list(compress(values, there))
        moved = [(key, entry) for key, entry in self.moved if entry in get(key, nothing)]
        return (
            encode_list(list(map(itemgetter(0), locations))),
            ConstantColumn(1, len(locations)).encode(),
            encode_list(list(map(itemgetter(1), locations))),
            encode_list(values),
            encode_list(gone),
            encode_list(moved),
        )

    def snapshot(self) -> tuple[Any, ...]:
        """Return everything, in the form of changes to an empty table."""
        maps = list(self.data.values())
        return (
            encode_list(list(self.data)),
            encode_list(list(map(len, maps))),
            encode_list(list(chain.from_iterable(maps))),
            encode_list(list(chain.from_iterable(map(dict.values, maps)))),
            encode_list([]),
            encode_list([]),
        )

    def apply(self, changes: tuple[Any, ...]) -> None:
        """Take over what `changes` or `snapshot` returned. This cannot be rolled back."""
        keys, counts, entries, values, gone, moved = map(decode_list, changes)
        data = self.data
        for key, entry in chain(gone, moved):
            own = data.get(key)
            if own is not None:
                own.pop(entry, None)
        rest = zip(entries, values, strict=True)
        for key, count in zip(keys, counts, strict=True):
            own = data.get(key)
            if own is None:
                data[key] = dict(islice(rest, count))
            else:
                own.update(islice(rest, count))
        for key, _ in gone:
            if key in data and not data[key]:
                del data[key]

    def commit(self) -> None:
        """Make the current content the one that `rollback` returns to."""
        self.undo.clear()
        self.moved.clear()
        self.removed_any = False
        if self.touched is not None:
            self.touched = {}

    def rollback(self) -> bool:
        """Put the old values back. Returns False if an entry was removed: it would come back at the end."""
        if self.removed_any:
            return False  # putting an entry back would put it at the end
        for (key, entry), old in self.undo.items():
            entries = self.data[key]
            if old is not MISSING:
                entries[entry] = old
            else:
                del entries[entry]
                if not entries:
                    del self.data[key]
        self.commit()
        return True

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data
