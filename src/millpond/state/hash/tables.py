"""Tables in memory: Python dictionaries.

Values at rest are immutable or `Frozen`, so a table can remember old values by reference. Each
table knows what changed since the last commit: `changes()` is what goes into the log, `rollback()`
takes it back.

What was there before is remembered before it changes, and `look_up` reads in the opposite order: first what
is there, then what is remembered. So another thread never takes a change for what was there at the last
commit: if it has seen the change, then it finds what is remembered, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, compress, islice
from operator import itemgetter
from typing import Any

from millpond.core.columns import ConstantColumn, decode_list, encode_list
from millpond.state.tables import MISSING, ListTable, MapTable, ValueTable


class HashValueTable(ValueTable):
    """key -> one value. Also holds the accumulators of reducing and aggregating state."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.undo: dict[Any, Any] = {}

    def set(self, key: Any, value: Any) -> None:
        if key not in self.undo:
            self.undo[key] = self.data.get(key, MISSING)
        self.data[key] = value

    def remove(self, key: Any) -> None:
        if key in self.data:
            if key not in self.undo:
                self.undo[key] = self.data[key]
            del self.data[key]

    def watch(self) -> None:
        """`undo` is all that is needed."""

    def look_up(self, key: Any, committed: bool) -> Any:
        value = self.data.get(key, MISSING)
        return self.undo.get(key, value) if committed else value

    def locations(self) -> Iterator[Any]:
        return iter(list(self.data))

    def has_changes(self) -> bool:
        return bool(self.undo)

    def changed_count(self) -> int:
        return len(self.undo)

    def changes(self) -> tuple[Any, ...]:
        """(keys, their values, keys that are gone)."""
        data = self.data
        gone = [key for key in self.undo if key not in data]
        keys = [key for key in self.undo if key in data] if gone else list(self.undo)
        return (
            encode_list(keys),
            encode_list([data[key] for key in keys]),
            encode_list(gone),
        )

    def snapshot(self) -> tuple[Any, ...]:
        return encode_list(list(self.data)), encode_list(list(self.data.values())), encode_list([])

    def apply(self, changes: tuple[Any, ...]) -> None:
        keys, values, gone = map(decode_list, changes)
        self.data.update(zip(keys, values, strict=True))
        for key in gone:
            self.data.pop(key, None)

    def commit(self) -> None:
        self.undo.clear()

    def rollback(self) -> bool:
        for key, old in self.undo.items():
            if old is MISSING:
                self.data.pop(key, None)
            else:
                self.data[key] = old
        self.undo.clear()
        return True

    def is_empty(self) -> bool:
        return not self.data


class HashListTable(ListTable):
    """key -> list. An append costs and logs only what is appended."""

    def __init__(self) -> None:
        self.data: dict[Any, list[Any]] = {}
        # key -> (length at the last commit, the list as it was if it was replaced since)
        self.undo: dict[Any, tuple[int, list[Any] | None]] = {}

    def extend(self, key: Any, values: list[Any]) -> None:
        elements = self.data.get(key)
        if elements is None:
            elements = self.data[key] = []
        if key not in self.undo:
            self.undo[key] = (len(elements), None)
        elements.extend(values)

    def watch(self) -> None:
        """`undo` is all that is needed."""

    def look_up(self, key: Any, committed: bool) -> Any:
        elements = list(self.data.get(key, ()))
        undone = self.undo.get(key) if committed else None
        if undone is not None:
            length, replaced = undone
            elements = elements[:length] if replaced is None else list(replaced)
        return elements or MISSING

    def locations(self) -> Iterator[Any]:
        return iter(list(self.data))

    def replace(self, key: Any, values: list[Any]) -> None:
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
        return bool(self.undo)

    def changed_count(self) -> int:
        return len(self.undo)

    def changes(self) -> tuple[Any, ...]:
        """(keys, whether elements are appended to each, how many elements, all elements)."""
        lists = []
        for key, (length, replaced) in self.undo.items():
            elements = self.data.get(key, [])
            lists.append(elements[length:] if replaced is None else elements)
        appended = [replaced is None for _, replaced in self.undo.values()]
        return self._encoded(list(self.undo), appended, lists)

    def snapshot(self) -> tuple[Any, ...]:
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
        self.undo.clear()

    def rollback(self) -> bool:
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
        return not self.data


class HashMapTable(MapTable):
    """key -> entries. Entries are logged one by one, in an order that restores the order of
    iteration.

    `undo` has every (key, entry) touched since the last commit with the value it had then; an entry
    that was removed and put again is listed at its new place and in `moved`.
    `touched` has the same by key, if the table is watched; entries are only added to it until the commit."""

    def __init__(self) -> None:
        self.data: dict[Any, dict[Any, Any]] = {}
        self.undo: dict[tuple[Any, Any], Any] = {}
        self.moved: set[tuple[Any, Any]] = set()
        self.removed_any = False
        self.touched: dict[Any, dict[Any, Any]] | None = None

    def watch(self) -> None:
        if self.touched is None:
            touched: dict[Any, dict[Any, Any]] = {}
            for (key, entry), old in self.undo.items():
                touched.setdefault(key, {})[entry] = old
            self.touched = touched

    def note(self, key: Any, entry: Any) -> None:
        """Before an entry changes, if the table is watched."""
        assert self.touched is not None
        own = self.touched.get(key)
        if own is None:
            own = self.touched[key] = {}
        if entry not in own:
            own[entry] = self.entry(key, entry)

    def look_up(self, key: Any, committed: bool) -> Any:
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
        value = self.entry(key, entry)
        touched = self.touched.get(key) if committed and self.touched is not None else None
        return value if touched is None else touched.get(entry, value)

    def put(self, key: Any, entry: Any, value: Any) -> None:
        if self.touched is not None:
            self.note(key, entry)
        entries = self.data.get(key)
        if entries is None:
            entries = self.data[key] = {}
        undo, place = self.undo, (key, entry)
        if place not in undo:
            undo[place] = entries.get(entry, MISSING)
        elif entry not in entries:
            self.put_again(place)
        entries[entry] = value

    def put_again(self, place: tuple[Any, Any]) -> None:
        """An entry that was removed in this batch is put again: it moves to the end."""
        self.undo[place] = self.undo.pop(place)
        self.moved.add(place)

    def remove(self, key: Any, entry: Any) -> None:
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
        for entry in list(self.data.get(key, ())):
            self.remove(key, entry)

    def entries(self, key: Any) -> Any:
        return self.data.get(key, {})

    def entry(self, key: Any, entry: Any) -> Any:
        entries = self.data.get(key)
        return MISSING if entries is None else entries.get(entry, MISSING)

    def locations(self) -> Iterator[Any]:
        # Lists of references: a dictionary that changes cannot be iterated over, nor be entered at a place.
        for key in list(self.data):
            for entry in list(self.data.get(key, ())):
                yield key, entry

    def has_changes(self) -> bool:
        return bool(self.undo)

    def changed_count(self) -> int:
        return len(self.undo)

    def changes(self) -> tuple[Any, ...]:
        """Keys, how many entries of each follow, the entries, their values; (key, entry) of those
        that are gone; of those that moved to the end."""
        get = self.data.get
        nothing: dict[Any, Any] = {}
        places = list(self.undo)
        values = [get(key, nothing).get(entry, MISSING) for key, entry in places]
        gone: list[tuple[Any, Any]] = []
        if self.removed_any:
            undo = self.undo
            gone = [
                place
                for place, value in zip(places, values, strict=True)
                if value is MISSING and undo[place] is not MISSING
            ]
            there = [value is not MISSING for value in values]
            places = list(compress(places, there))
            values = list(compress(values, there))
        moved = [(key, entry) for key, entry in self.moved if entry in get(key, nothing)]
        return (
            encode_list(list(map(itemgetter(0), places))),
            ConstantColumn(1, len(places)).encode(),
            encode_list(list(map(itemgetter(1), places))),
            encode_list(values),
            encode_list(gone),
            encode_list(moved),
        )

    def snapshot(self) -> tuple[Any, ...]:
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
        self.undo.clear()
        self.moved.clear()
        self.removed_any = False
        if self.touched is not None:
            self.touched = {}

    def rollback(self) -> bool:
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
        return not self.data
