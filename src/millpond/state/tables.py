"""Keyed state of one key group in memory: one table per state name.

Values at rest are immutable or `Frozen`, so a table can remember old values by reference. Each
table knows what changed since the last commit: `changes()` is what goes into the log, `rollback()`
takes it back.
"""

from __future__ import annotations

from typing import Any, Protocol

from millpond.datastream.state import StateKind


class _Missing:
    """Marks the absence of a value where None could be one. Pickles to the same object."""

    def __reduce__(self) -> str:
        return "MISSING"

    def __repr__(self) -> str:
        return "MISSING"


MISSING = _Missing()


class StateTable(Protocol):
    """What the change log needs from a table."""

    def has_changes(self) -> bool: ...

    def changes(self) -> Any: ...

    def apply(self, changes: Any) -> None: ...

    def snapshot(self) -> Any: ...

    def commit(self) -> None: ...

    def rollback(self) -> bool:
        """Back to the last commit; False if that cannot be done exactly (then: reload)."""
        ...

    def is_empty(self) -> bool: ...


class ValueTable:
    """key -> one value. Also holds the accumulators of reducing and aggregating state."""

    def __init__(self) -> None:
        self.data: dict[Any, Any] = {}
        self.undo: dict[Any, Any] = {}

    def set(self, key: Any, value: Any) -> None:
        if key not in self.undo:
            self.undo[key] = self.data.get(key, MISSING)
        self.data[key] = value

    def remove(self, key: Any) -> None:
        old = self.data.pop(key, MISSING)
        if old is not MISSING and key not in self.undo:
            self.undo[key] = old

    def has_changes(self) -> bool:
        return bool(self.undo)

    def changes(self) -> dict[Any, Any]:
        data = self.data
        return {key: data.get(key, MISSING) for key in self.undo}

    def apply(self, changes: dict[Any, Any]) -> None:
        data = self.data
        for key, value in changes.items():
            if value is MISSING:
                data.pop(key, None)
            else:
                data[key] = value

    def snapshot(self) -> dict[Any, Any]:
        return self.data

    def commit(self) -> None:
        self.undo.clear()

    def rollback(self) -> bool:
        self.apply(self.undo)
        self.undo.clear()
        return True

    def is_empty(self) -> bool:
        return not self.data


class ListTable:
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

    def replace(self, key: Any, values: list[Any]) -> None:
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

    def changes(self) -> dict[Any, tuple[bool, list[Any]]]:
        """key -> (True, appended elements) or (False, all elements)."""
        result = {}
        for key, (length, replaced) in self.undo.items():
            elements = self.data.get(key, [])
            result[key] = (True, elements[length:]) if replaced is None else (False, elements)
        return result

    def apply(self, changes: dict[Any, tuple[bool, list[Any]]]) -> None:
        for key, (appended, elements) in changes.items():
            if appended:
                self.data.setdefault(key, []).extend(elements)
            elif elements:
                self.data[key] = list(elements)
            else:
                self.data.pop(key, None)

    def snapshot(self) -> dict[Any, tuple[bool, list[Any]]]:
        return {key: (False, elements) for key, elements in self.data.items()}

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


class MapTable:
    """key -> entries. Entries are logged one by one, in an order that restores the order of
    iteration: `touched` lists them by the time they were last put where nothing was."""

    def __init__(self) -> None:
        self.data: dict[Any, dict[Any, Any]] = {}
        self.touched: dict[Any, dict[Any, bool]] = {}  # key -> entry key -> was removed meanwhile
        self.undo: dict[tuple[Any, Any], Any] = {}
        self._removed_any = False

    def put(self, key: Any, entry: Any, value: Any) -> None:
        entries = self.data.get(key)
        if entries is None:
            entries = self.data[key] = {}
        touched = self.touched.get(key)
        if touched is None:
            touched = self.touched[key] = {}
        if entry not in touched:
            touched[entry] = False
            self.undo[key, entry] = entries.get(entry, MISSING)
        elif entry not in entries:  # removed in this batch, now put again: it moves to the end
            del touched[entry]
            touched[entry] = True
        entries[entry] = value

    def remove(self, key: Any, entry: Any) -> None:
        entries = self.data.get(key)
        if entries is None or entry not in entries:
            return
        old = entries.pop(entry)
        self._removed_any = True
        touched = self.touched.setdefault(key, {})
        if entry not in touched:
            self.undo[key, entry] = old
        touched[entry] = True
        if not entries:
            del self.data[key]

    def clear(self, key: Any) -> None:
        for entry in list(self.data.get(key, ())):
            self.remove(key, entry)

    def has_changes(self) -> bool:
        return bool(self.touched)

    def changes(self) -> dict[Any, list[tuple[Any, bool, Any]]]:
        """key -> [(entry key, was removed meanwhile, value or MISSING)]."""
        result = {}
        for key, touched in self.touched.items():
            entries = self.data.get(key, {})
            result[key] = [(e, removed, entries.get(e, MISSING)) for e, removed in touched.items()]
        return result

    def apply(self, changes: dict[Any, list[tuple[Any, bool, Any]]]) -> None:
        for key, touched in changes.items():
            entries = self.data.setdefault(key, {})
            for entry, removed, value in touched:
                if removed or value is MISSING:
                    entries.pop(entry, None)
                if value is not MISSING:
                    entries[entry] = value
            if not entries:
                del self.data[key]

    def snapshot(self) -> dict[Any, list[tuple[Any, bool, Any]]]:
        return {
            key: [(entry, False, value) for entry, value in entries.items()]
            for key, entries in self.data.items()
        }

    def commit(self) -> None:
        self.touched.clear()
        self.undo.clear()
        self._removed_any = False

    def rollback(self) -> bool:
        if self._removed_any:
            return False  # putting an entry back would put it at the end
        for (key, entry), old in self.undo.items():
            if old is not MISSING:
                self.data[key][entry] = old
            else:
                del self.data[key][entry]
                if not self.data[key]:
                    del self.data[key]
        self.commit()
        return True

    def is_empty(self) -> bool:
        return not self.data


def create_table(kind: StateKind) -> ValueTable | ListTable | MapTable:
    if kind is StateKind.LIST:
        return ListTable()
    if kind is StateKind.MAP:
        return MapTable()
    return ValueTable()
