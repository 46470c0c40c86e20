"""The state of a column function in one key group: a row per key, an array per state.

A key gets a row when its first record comes. At the end of a batch, rows without content (all cells at their
defaults, no timers) are given back; so the log needs no key to say what a row held.
"""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from millpond.core.codec import are_immutable
from millpond.core.columns import (
    FloatColumn,
    IntColumn,
    Numbers,
    decode_column,
    decode_list,
    encode_list,
)
from millpond.errors import IncompatibleCheckpointError
from millpond.state.columns.timers import ColumnTimers
from millpond.state.tables import MISSING, Changes, StateTable

COLUMNS = "_columns"  # the name of the one table of a column function
Cells = NDArray[Any]
_NONE = numpy.empty(0, numpy.int64)
_MIN_ROWS = 16


class ColumnTable(StateTable):
    """The rows of a key group. `undo_call` takes back what one call of the function wrote. A whole batch
    cannot be undone: it is reloaded from the log, which happens after failures only."""

    def __init__(self) -> None:
        self._row_of: dict[Any, int] = {}
        self._keys: list[Any] = []  # row -> key
        self._free: list[int] | None = []  # rows without a key; None: not computed yet
        self._cells: dict[str, Cells] = {}
        self._defaults: dict[str, Any] = {}
        self._timers_of = numpy.zeros(0, numpy.int32)  # row -> its number of timers
        self.timers = ColumnTimers()
        self._call: list[tuple[str, Numbers, Cells]] = []  # what the call overwrote
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._new: list[int] = []  # rows that were given to keys since the last commit
        self._freed: list[int] = []  # rows that were in use at the last commit, and are free now
        self._released: list[int] = []  # the same, and rows that were given and freed since then
        self._touched: list[Numbers] = []
        self._written: dict[str, list[Numbers]] = {}
        self._fired_until_ms: int | None = None
        self._removed: set[tuple[int, int]] = set()  # timers (time, row) that were deleted
        self._registered: list[tuple[Numbers, Numbers]] = []  # (times, rows) still to come

    # --- rows ------------------------------------------------------------------------------------

    def rows_of(self, keys: list[Any]) -> Numbers:
        """Return the rows of these keys, in order; new keys get new rows."""
        row_of = self._row_of
        new = [key for key in dict.fromkeys(keys) if key not in row_of]
        if new:
            self._give_rows(new)
        rows = numpy.fromiter(map(row_of.__getitem__, keys), numpy.int64, len(keys))
        self._touched.append(rows)
        return rows

    def _give_rows(self, keys: list[Any]) -> None:
        if self._free is None:
            self._free = [row for row, key in enumerate(self._keys) if key is MISSING]
        reused = self._free[-len(keys) :]
        del self._free[len(self._free) - len(reused) :]
        for row, key in zip(reused, keys, strict=False):
            self._keys[row] = key
        first = len(self._keys)
        self._keys.extend(keys[len(reused) :])
        rows = reused + list(range(first, len(self._keys)))
        self._row_of.update(zip(keys, rows, strict=True))
        self._new.extend(rows)
        self._make_room()

    def _make_room(self) -> None:
        """Make the arrays long enough for all rows."""
        room = len(self._timers_of)
        if room >= len(self._keys):
            return
        wanted = max(_MIN_ROWS, 2 * room, len(self._keys))
        self._timers_of = _extended(self._timers_of, wanted, 0)
        for name, cells in self._cells.items():
            self._cells[name] = _extended(cells, wanted, self._defaults[name])

    def keys_of(self, rows: Numbers) -> list[Any]:
        """Return the keys of these rows, in order."""
        return list(map(self._keys.__getitem__, rows.tolist()))

    def release_rows(self) -> None:
        """Take back the rows of keys that have left nothing. Called at the end of a batch."""
        if not self._touched:
            return
        rows, self._touched = self._distinct(self._touched), []
        empty = self._timers_of[rows] == 0
        for name, cells in self._cells.items():
            empty &= cells[rows] == self._defaults[name]
        released = rows[empty].tolist()
        if not released:
            return
        self._released.extend(released)
        new = set(self._new)
        self._forget(released)
        if self._free is not None:
            self._free.extend(released)
        known = [row for row in released if row not in new] if new else released
        self._freed.extend(known)
        if len(known) < len(released):
            gone = set(released)
            self._new = [row for row in self._new if row not in gone]

    def _forget(self, rows: list[int]) -> None:
        keys, row_of = self._keys, self._row_of
        if len(rows) == len(row_of):
            row_of.clear()
            keys[:] = [MISSING] * len(keys)
            return
        for row in rows:
            del row_of[keys[row]]
            keys[row] = MISSING

    def _distinct(self, parts: list[Numbers], without: list[int] | None = None) -> Numbers:
        """Return the rows in these arrays, once each, sorted."""
        marked = numpy.zeros(len(self._timers_of), bool)
        for rows in parts:
            marked[rows] = True
        if without:
            marked[without] = False
        return numpy.flatnonzero(marked)

    # --- cells -----------------------------------------------------------------------------------

    def declare(self, name: str, dtype: numpy.dtype[Any], default: object) -> None:
        """Make a column for a state of the function, unless it is there. Raises IncompatibleCheckpointError
        if it is there with another type or default."""
        cells = self._cells.get(name)
        if cells is None:
            self._cells[name] = numpy.full(len(self._timers_of), default, dtype)
            self._defaults[name] = default
        elif cells.dtype != dtype or self._defaults[name] != default:
            raise IncompatibleCheckpointError(
                f"Column state '{name}' is stored as {cells.dtype} with default "
                f"{self._defaults[name]} but declared as {dtype} with default {default}. Give the "
                "new state another name."
            )

    def get(self, name: str, rows: Numbers) -> Cells:
        """Return copies of the cells of a state in these rows."""
        return self._cells[name][rows]

    def put(self, name: str, rows: Numbers, values: Cells) -> None:
        """Set the cells of a state in these rows."""
        cells = self._cells[name]
        self._call.append((name, rows, cells[rows]))
        cells[rows] = values

    def undo_call(self) -> None:
        """Take back what was put since `accept_call`."""
        for name, rows, old in reversed(self._call):
            self._cells[name][rows] = old
        self._call.clear()

    def accept_call(self) -> None:
        """Keep what was put: `undo_call` does not reach behind this."""
        for name, rows, _ in self._call:
            self._written.setdefault(name, []).append(rows)
        self._call.clear()

    # --- timers ----------------------------------------------------------------------------------

    def register(self, times: Numbers, rows: Numbers) -> None:
        """Add event-time timers: a time for each row. A timer that is there already is added once only."""
        repeats = self.timers.add(times, rows)
        self._count_timers(rows, 1)
        if len(repeats):
            self._count_timers(repeats, -1)
        self._registered.append((times, rows))

    def _count_timers(self, rows: Numbers, by: int) -> None:
        room = len(self._timers_of)
        if len(rows) * 8 > room:
            self._timers_of += (by * numpy.bincount(rows, minlength=room)).astype(numpy.int32)
        else:
            numpy.add.at(self._timers_of, rows, by)

    def remove_fired(self, times: Numbers, rows: Numbers, count: int) -> None:
        """Remove the first `count` timers of those that are due, in order: they have fired."""
        until_ms = int(times[count - 1])
        self._drop_until(until_ms)
        if self._fired_until_ms is None or until_ms > self._fired_until_ms:
            self._fired_until_ms = until_ms
        end = int(numpy.searchsorted(times, until_ms, side="right"))
        if (
            end > count
        ):  # others of the same time: they fire in this batch, so the log need not have them
            self.timers.add(times[count:end], rows[count:end])
            self._count_timers(rows[count:end], 1)

    def _drop_until(self, until_ms: int) -> None:
        rows = self.timers.remove_until(until_ms)
        if len(rows):
            self._count_timers(rows, -1)
            self._touched.append(rows)
        self._registered = [
            (times[times > until_ms], rows[times > until_ms]) for times, rows in self._registered
        ]

    def remove_timers(self, timers: set[tuple[int, int]]) -> None:
        """Remove these (time, row), as far as they are there."""
        if not timers:
            return
        rows = self.timers.remove(timers)
        self._count_timers(rows, -1)
        self._touched.append(rows)
        self._removed |= timers
        for number, (times, own_rows) in enumerate(self._registered):
            pairs = zip(times.tolist(), own_rows.tolist(), strict=True)
            stays = numpy.array([pair not in timers for pair in pairs], bool)
            self._registered[number] = times[stays], own_rows[stays]

    # --- the log ---------------------------------------------------------------------------------

    def has_changes(self) -> bool:
        """Return True if anything has changed since the last commit."""
        return bool(
            self._new
            or self._freed
            or self._written
            or self._registered
            or self._removed
            or self._fired_until_ms is not None
        )

    def changes(self) -> Changes:
        """Return what has changed since the last commit: until when timers have fired (None: none have);
        (time, row) of deleted timers; rows that are free again; rows that are new, and their keys; the cells
        that were written, by state; times and rows of the timers that came."""
        times, rows = _joined(self._registered)
        unused = [row for row in self._released if self._keys[row] is MISSING]
        cells = {}
        for name, written in self._written.items():
            cells[name] = self._encoded_cells(name, self._distinct(written, unused))
        return (
            self._fired_until_ms,
            encode_list(sorted(self._removed)),
            encode_list(self._freed),
            encode_list(self._new),
            encode_list([self._keys[row] for row in self._new]),
            cells,
            _encode_numbers(times),
            _encode_numbers(rows),
        )

    def snapshot(self) -> Changes:
        """Return everything, in the form of changes to an empty table."""
        used = list(self._row_of.values())
        rows = numpy.array(used, numpy.int64)
        times, timer_rows = self.timers.all()
        return (
            None,
            encode_list([]),
            encode_list([]),
            encode_list(used),
            encode_list(list(self._row_of)),
            {name: self._encoded_cells(name, rows) for name in self._cells},
            _encode_numbers(times),
            _encode_numbers(timer_rows),
        )

    def _encoded_cells(self, name: str, rows: Numbers) -> tuple[Any, ...]:
        cells, default = self._cells[name], self._defaults[name]
        encoded = cells.dtype.name, default.item(), _encode_numbers(rows)
        return *encoded, _encode_numbers(cells[rows])

    def apply(self, changes: Changes) -> None:
        """Take over what `changes` or `snapshot` returned, and commit."""
        fired_until_ms, removed, freed, new, keys, cells, times, timer_rows = changes
        if fired_until_ms is not None:
            self._drop_until(fired_until_ms)
        self.remove_timers(set(map(tuple, decode_list(removed))))
        freed_rows = decode_list(freed)
        self._forget(freed_rows)
        for name, column in self._cells.items():
            column[freed_rows] = self._defaults[name]
        self._restore_rows(decode_list(new), decode_list(keys))
        for name, (dtype, default, rows, values) in cells.items():
            kind = numpy.dtype(dtype)
            self.declare(name, kind, kind.type(default))
            self._cells[name][_decode_numbers(rows)] = _decode_numbers(values)
        self.register(_decode_numbers(times), _decode_numbers(timer_rows))
        self._begin_batch()

    def _restore_rows(self, rows: list[int], keys: list[Any]) -> None:
        missing = max(rows, default=-1) + 1 - len(self._keys)
        self._keys.extend([MISSING] * missing)
        self._make_room()
        for row, key in zip(rows, keys, strict=True):
            self._keys[row] = key
        self._row_of.update(zip(keys, rows, strict=True))
        self._free = None

    def commit(self) -> None:
        """Forget what has changed."""
        self._begin_batch()

    def rollback(self) -> bool:
        """Return True if nothing has changed since the last commit. Changes cannot be taken back: reload."""
        return not self.has_changes()

    def is_empty(self) -> bool:
        """Return True if no key has a row."""
        return not self._row_of

    def has_plain_keys(self) -> bool:
        """Return whether all keys are of Python's own types."""
        return are_immutable(self._row_of)

    def event_timer_count(self) -> int:
        """Return how many timers there are."""
        return len(self.timers)


def _extended(cells: Cells, length: int, default: object) -> Cells:
    extended = numpy.full(length, default, cells.dtype)
    extended[: len(cells)] = cells
    return extended


def _joined(timers: list[tuple[Numbers, Numbers]]) -> tuple[Numbers, Numbers]:
    if not timers:
        return _NONE, _NONE
    times, rows = map(numpy.concatenate, zip(*timers, strict=True))
    return times, rows


def _encode_numbers(numbers: Cells) -> tuple[Any, ...]:
    if not len(numbers):
        return encode_list([])
    if numbers.dtype.kind == "f":
        return FloatColumn(numbers).encode()
    return IntColumn(numbers.astype(numpy.int64)).encode()


def _decode_numbers(encoded: tuple[Any, ...]) -> Cells:
    column = decode_column(encoded)
    if isinstance(column, (IntColumn, FloatColumn)):
        return column.numbers
    return numpy.array(column.to_list(), numpy.int64)
