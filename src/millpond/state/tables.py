"""Keyed state of one key group: one table per state name. What tables of every backend have in common.

Values at rest are immutable or `Frozen`. Each table knows what changed since the last commit: `changes()` is
what goes into the log, `rollback()` takes it back. The log is the same whatever the backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from millpond.errors import UnsupportedFeatureError


class _Missing:
    """Marks the absence of a value where None could be one. Lives in memory only."""

    def __repr__(self) -> str:
        return "MISSING"

    def __deepcopy__(self, _: Any) -> _Missing:
        return self


MISSING = _Missing()


class StateTable(ABC):
    """What the change log needs from a table."""

    @abstractmethod
    def has_changes(self) -> bool: ...

    @abstractmethod
    def changes(self) -> Any:
        """Since the last commit."""

    @abstractmethod
    def apply(self, changes: Any) -> None:
        """Take over what `changes` or `snapshot` gave. Not to be rolled back."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Everything, in the form of changes to an empty table."""

    def snapshot_parts(self) -> Iterator[Any]:
        """The same in pieces, at least one, to be taken one after the other: none should be very large."""
        yield self.snapshot()

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def rollback(self) -> bool:
        """Back to the last commit; False if that cannot be done exactly (then: reload)."""

    @abstractmethod
    def is_empty(self) -> bool: ...

    def waiting_count(self) -> int:
        """How many changes wait in memory for the commit, and would not otherwise be there."""
        return 0

    def rest(self) -> None:
        """A batch is over: give up memory that only served it."""


class DataTable(StateTable):
    """`data` is a dictionary, or can be asked like one: `get`, `in`, `keys`, `items`, truth."""

    data: Any

    @abstractmethod
    def changed_count(self) -> int:
        """Entries that changed since the last commit."""

    @abstractmethod
    def places(self) -> Iterator[Any]:
        """Keys (in a map: (key, entry)) that are there now. The table may change while they are taken."""

    def watch(self) -> None:
        """`look_up` will be called from now on."""
        raise UnsupportedFeatureError(
            f"State cannot be queryable with this backend: its {type(self).__name__} has no look_up."
        )

    def look_up(self, key: Any, committed: bool) -> Any:
        """What is there for a key, at rest (of lists and maps a copy), or MISSING; `committed`: what was
        there at the last commit.

        Called from another thread, for queryable state. With `committed` the table may be changed meanwhile
        by its own methods, else not. Nothing is promised if it is committed, rolled back or applied to
        meanwhile: whoever calls this notices (`state_views.py`) and asks again."""
        raise NotImplementedError


class ValueTable(DataTable):
    """key -> one value. Also holds the accumulators of reducing and aggregating state."""

    @abstractmethod
    def set(self, key: Any, value: Any) -> None: ...

    @abstractmethod
    def remove(self, key: Any) -> None: ...


class ListTable(DataTable):
    """key -> list."""

    @abstractmethod
    def extend(self, key: Any, values: list[Any]) -> None:
        """Costs and logs only what is appended."""

    @abstractmethod
    def replace(self, key: Any, values: list[Any]) -> None: ...


class MapTable(DataTable):
    """key -> entries. Each is read, written and logged alone."""

    @abstractmethod
    def entries(self, key: Any) -> Any:
        """Of a key, to be asked like a dictionary until the batch is over."""

    @abstractmethod
    def entry(self, key: Any, entry: Any) -> Any:
        """MISSING if there is none."""

    @abstractmethod
    def put(self, key: Any, entry: Any, value: Any) -> None: ...

    @abstractmethod
    def remove(self, key: Any, entry: Any) -> None: ...

    @abstractmethod
    def clear(self, key: Any) -> None: ...

    def look_up_entry(self, key: Any, entry: Any, committed: bool) -> Any:
        """As `look_up`, one entry."""
        raise NotImplementedError


def change_all(
    table: Any, change: Callable[[Any], Any], change_entry: Callable[[Any], Any] | None = None
) -> None:
    """Put something else in the place of every value at rest, and of every entry of a map."""
    for key, content in list(table.data.items()):
        if isinstance(table, ValueTable):
            table.set(key, change(content))
        elif isinstance(table, ListTable):
            table.replace(key, list(map(change, content)))
        else:
            entries = list(content.items())
            if change_entry is not None:
                table.clear(key)
            for entry, value in entries:
                table.put(key, change_entry(entry) if change_entry else entry, change(value))
