"""Maps in memory: dictionaries of dictionaries. See `tables.py` for how they are read from other threads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, compress, islice
from operator import itemgetter, not_
from typing import Any

from millpond.core.codec import are_immutable
from millpond.core.columns import decode_list, encode_list
from millpond.state.grouping import Grouping, Parts
from millpond.state.tables import MISSING, ChangeColumns, Changes, MapTable


class HashMapTable(MapTable):
    """key -> entries. Entries are logged one by one, in an order that restores the order of iteration.

    `undo` has every (key, entry) that was touched since the last commit, with the value it had then, but not
    those that have come and gone since. An entry that was removed and put again is listed at its new place,
    and in `moved`. `touched` has all that were touched by key, if the table is watched; until the commit,
    entries are only added to it.
    """

    def __init__(self) -> None:
        self.data: dict[object, dict[object, Any]] = {}
        self.undo: dict[tuple[Any, Any], Any] = {}
        self.moved: set[tuple[Any, Any]] = set()
        self.removed_any = False
        self.touched: dict[object, dict[object, Any]] | None = None

    def watch(self) -> None:
        """Note from now on what entries were, by key."""
        if self.touched is None:
            touched: dict[object, dict[object, Any]] = {}
            for (key, entry), old in self.undo.items():
                touched.setdefault(key, {})[entry] = old
            self.touched = touched

    def note(self, key: object, entry: object) -> None:
        """Remember what an entry is, before it changes. Only if the table is watched."""
        assert self.touched is not None
        noted = self.touched.get(key)
        if noted is None:
            noted = self.touched[key] = {}
        if entry not in noted:
            noted[entry] = self.entry(key, entry)

    def look_up(self, key: object, committed: bool) -> object:
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

    def look_up_entry(self, key: object, entry: object, committed: bool) -> object:
        """Return the value of an entry, now or as it was `committed`, or MISSING."""
        value = self.entry(key, entry)
        touched = self.touched.get(key) if committed and self.touched is not None else None
        return value if touched is None else touched.get(entry, value)

    def put(self, key: object, entry: object, value: object) -> None:
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

    def remove(self, key: object, entry: object) -> None:
        """Remove an entry, if it is there; with the last one the key goes."""
        entries = self.data.get(key)
        if entries is None or entry not in entries:
            return
        if self.touched is not None:
            self.note(key, entry)
        location = (key, entry)
        if self.undo.setdefault(location, entries.pop(entry)) is MISSING:
            del self.undo[location]
        else:
            self.removed_any = True
        if not entries:
            del self.data[key]

    def clear(self, key: object) -> None:
        """Remove all entries of a key."""
        for entry in list(self.data.get(key, ())):
            self.remove(key, entry)

    def entries(self, key: object) -> Any:
        """Return the entries of a key, as a dictionary that must not be changed."""
        return self.data.get(key, {})

    def entry(self, key: object, entry: object) -> Any:
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

    def changes(self) -> Changes:
        """Return keys, how many entries of each follow, the entries, their values; (key, entry) of those that
        are gone; of those that moved to the end."""
        return tuple(map(encode_list, self.change_columns()))

    def change_columns(self) -> ChangeColumns:
        """Return what `changes` returns, before it is encoded."""
        return self._columns_of(list(self.undo), self.moved)

    def grouped_changes(self, grouping: Grouping) -> dict[int, ChangeColumns]:
        """Return `change_columns` by key group. What belongs together is looked up together: that is faster,
        because it fits into the processor's caches."""
        owner_of = itemgetter(1 if grouping.by_entry else 0)

        def split(locations: Iterable[tuple[Any, Any]]) -> Parts:
            own = list(locations)
            return grouping.split(list(map(owner_of, own)), own, with_keys=False)

        moved = split(self.moved)
        return {
            group: self._columns_of(own, *moved.get(group, ([],)))
            for group, (own,) in split(self.undo).items()
        }

    def _columns_of(
        self, locations: list[tuple[Any, Any]], moved: Iterable[tuple[Any, Any]]
    ) -> ChangeColumns:
        """Return the changes at some of the locations in `undo`, of which some moved to the end."""
        get = self.data.get
        nothing: dict[object, Any] = {}
        values = [get(key, nothing).get(entry, MISSING) for key, entry in locations]
        gone: list[tuple[Any, Any]] = []
        if self.removed_any:
            there = [value is not MISSING for value in values]
            gone = list(compress(locations, map(not_, there)))
            locations = list(compress(locations, there))
            values = list(compress(values, there))
        return (
            list(map(itemgetter(0), locations)),
            [1] * len(locations),
            list(map(itemgetter(1), locations)),
            values,
            gone,
            [(key, entry) for key, entry in moved if entry in get(key, nothing)],
        )

    def snapshot(self) -> Changes:
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

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned. This cannot be rolled back."""
        keys, counts, entries, values, gone, moved = map(decode_list, changes)
        data = self.data
        for key, entry in chain(gone, moved):
            key_entries = data.get(key)
            if key_entries is not None:
                key_entries.pop(entry, None)
        rest = zip(entries, values, strict=True)
        for key, count in zip(keys, counts, strict=True):
            key_entries = data.get(key)
            if key_entries is None:
                data[key] = dict(islice(rest, count))
            else:
                key_entries.update(islice(rest, count))
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

    def has_plain_keys(self) -> bool:
        """Return whether all keys and entries are of Python's own types."""
        return are_immutable(self.data) and are_immutable(chain.from_iterable(self.data.values()))

    def is_empty(self) -> bool:
        """Return True if no key has anything."""
        return not self.data
