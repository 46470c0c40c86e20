"""Tables: the contents of one state of one shard. The contracts that tables of every backend fulfil.

Values at rest are immutable or `Frozen`. A table knows what changed since the last commit: `changes` is what
goes into the change log, `rollback` takes it back. The change log is the same whatever the backend."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from millpond.core.columns import decode_list
from millpond.errors import UnsupportedFeatureError
from millpond.state.grouping import Grouping


class _Missing:
    """Marks the absence of a value where None could be one. Lives in memory only."""

    def __repr__(self) -> str:
        return "MISSING"

    def __deepcopy__(self, _: object) -> _Missing:
        return self


MISSING = _Missing()
Changes = tuple[Any, ...]
"""What `changes` and `snapshot` return: encoded columns, laid out as the state's kind defines."""
ChangeColumns = tuple[list[Any], ...]
"""Changes before they are encoded, which is done column by column (`encode_list`)."""
Timed = tuple[int, Any]
"""A value of a state with a time to live, as it rests: (when it was written or last read, value)."""


class StateTable(ABC):
    """What a change log needs from a table."""

    @abstractmethod
    def has_changes(self) -> bool:
        """Return True if the table has changed since the last commit."""

    @abstractmethod
    def changes(self) -> Changes:
        """Return what has changed since the last commit, in the layout of the state's kind."""

    def change_columns(self) -> ChangeColumns:
        """Return what `changes` returns, before it is encoded."""
        return tuple(map(decode_list, self.changes()))

    def grouped_changes(self, grouping: Grouping) -> dict[int, ChangeColumns] | None:
        """Return what `change_columns` returns, by key group; None if the table knows no better way than to
        split that."""
        return None

    @abstractmethod
    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned. This cannot be rolled back."""

    @abstractmethod
    def snapshot(self) -> Changes:
        """Return everything, in the form of changes to an empty table."""

    def snapshot_parts(self) -> Iterator[Changes]:
        """Return the snapshot in one or more parts, to be applied one after the other. None is very large."""
        yield self.snapshot()

    @abstractmethod
    def commit(self) -> None:
        """Make the current content the one that `rollback` returns to."""

    @abstractmethod
    def rollback(self) -> bool:
        """Return to the content at the last commit. Returns False if that cannot be done exactly: then the
        table must be reloaded."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Return True if no key has anything."""

    def has_plain_keys(self) -> bool:
        """Return whether all keys and entries are of Python's own types, or rest as bytes; False if that is
        not known."""
        return False

    def waiting_count(self) -> int:
        """Return how many changes are in memory only because they wait for the commit."""
        return 0

    def event_timer_count(self) -> int:
        """Return how many event-time timers the table holds. Most tables hold none."""
        return 0

    def rest(self) -> None:
        """Give up memory that only served the batch that is over."""


class DataTable(StateTable):
    """A table with something per key. `data` is a dictionary by key, or can be asked like one: `get`, `in`,
    `keys`, `items`, truth."""

    data: Any

    @abstractmethod
    def changed_count(self) -> int:
        """Return how many entries have changed since the last commit."""

    @abstractmethod
    def locations(self) -> Iterator[Any]:
        """Return the keys (in a map: (key, entry)) that there are now. The table may change while the
        iterator is in use."""

    @abstractmethod
    def clear(self, key: object) -> None:
        """Remove everything that a key has."""

    @abstractmethod
    def change_all(
        self, change: Callable[[Any], Any], change_entry: Callable[[Any], Any] | None = None
    ) -> None:
        """Replace every value at rest by what `change` returns for it and, in a map, every entry by what
        `change_entry` returns."""

    @abstractmethod
    def drop_expired(self, location: object, is_expired: Callable[[Any, Timed], bool]) -> int:
        """Remove what has expired at one of `locations`, if it is still there; `is_expired` is given the key
        and a timed value. Return how many values were looked at."""

    def watch(self) -> None:
        """Prepare for `look_up`, which will be called from now on.

        Raises UnsupportedFeatureError if the table has no `look_up`.
        """
        raise UnsupportedFeatureError(
            f"State cannot be queryable with this backend: its {type(self).__name__} has no look_up."
        )

    def look_up(self, key: object, committed: bool) -> object:
        """Return what a key has, at rest (of lists and maps a copy), or MISSING; if `committed`, what it had
        at the last commit.

        Called from another thread, for queryable state. With `committed` the table may be changed meanwhile
        by its own methods, otherwise not. The result is undefined if the table is committed, rolled back or
        applied to meanwhile: the caller notices (`engine/state_views.py`) and asks again."""
        raise NotImplementedError


class ValueTable(DataTable):
    """key -> one value. Also holds the accumulators of reducing and aggregating state."""

    @abstractmethod
    def set(self, key: object, value: object) -> None:
        """Set the value of a key."""

    @abstractmethod
    def remove(self, key: object) -> None:
        """Remove the value of a key, if there is one."""

    def clear(self, key: object) -> None:
        """Remove the value of a key, if there is one."""
        self.remove(key)

    def change_all(
        self, change: Callable[[Any], Any], change_entry: Callable[[Any], Any] | None = None
    ) -> None:
        """Replace every value by what `change` returns for it."""
        for key, value in list(self.data.items()):
            self.set(key, change(value))

    def drop_expired(self, location: object, is_expired: Callable[[Any, Timed], bool]) -> int:
        """Remove the value of a key if it has expired."""
        timed = self.data.get(location)
        if timed is not None and is_expired(location, timed):
            self.remove(location)
        return 1


class ListTable(DataTable):
    """key -> list."""

    @abstractmethod
    def extend(self, key: object, values: list[Any]) -> None:
        """Append values to the list of a key. Costs and logs only what is appended."""

    @abstractmethod
    def replace(self, key: object, values: list[Any]) -> None:
        """Set the list of a key; an empty one removes it."""

    def clear(self, key: object) -> None:
        """Remove the list of a key, if there is one."""
        self.replace(key, [])

    def change_all(
        self, change: Callable[[Any], Any], change_entry: Callable[[Any], Any] | None = None
    ) -> None:
        """Replace every element by what `change` returns for it."""
        for key, elements in list(self.data.items()):
            self.replace(key, list(map(change, elements)))

    def drop_expired(self, location: object, is_expired: Callable[[Any, Timed], bool]) -> int:
        """Remove the expired elements of a key, if they are at least half of all: a list is written as a
        whole."""
        elements = self.data.get(location)
        if elements is None:
            return 1
        live = [timed for timed in elements if not is_expired(location, timed)]
        if len(live) <= len(elements) // 2:
            self.replace(location, live)
        return len(elements)


class MapTable(DataTable):
    """key -> entries. Each entry is read, written and logged alone."""

    @abstractmethod
    def entries(self, key: object) -> Any:
        """Return the entries of a key, which can be asked like a dictionary until the batch is over."""

    @abstractmethod
    def entry(self, key: object, entry: object) -> Any:
        """Return the value of an entry, or MISSING."""

    @abstractmethod
    def put(self, key: object, entry: object, value: object) -> None:
        """Set the value of an entry."""

    @abstractmethod
    def remove(self, key: object, entry: object) -> None:
        """Remove an entry, if it is there."""

    def change_all(
        self, change: Callable[[Any], Any], change_entry: Callable[[Any], Any] | None = None
    ) -> None:
        """Replace every value by what `change` returns, and every entry by what `change_entry` returns."""
        for key, content in list(self.data.items()):
            entries = list(content.items())
            if change_entry is not None:
                self.clear(key)
            for entry, value in entries:
                self.put(key, change_entry(entry) if change_entry else entry, change(value))

    def drop_expired(self, location: Any, is_expired: Callable[[Any, Timed], bool]) -> int:
        """Remove an entry if it has expired."""
        key, entry = location
        timed = self.entry(key, entry)
        if timed is not MISSING and is_expired(key, timed):
            self.remove(key, entry)
        return 1

    def look_up_entry(self, key: object, entry: object, committed: bool) -> object:
        """Return what `look_up` would have for one entry, or MISSING."""
        raise NotImplementedError
