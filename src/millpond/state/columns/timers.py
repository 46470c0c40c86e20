"""Event-time timers of a column function: arrays of (time, row)."""

from __future__ import annotations

import numpy

from millpond.core.columns import Numbers
from millpond.state.timers import NEVER_MS

_NONE = numpy.empty(0, numpy.int64)


class ColumnTimers:
    """Sorted runs, each with the timers of later calls than the one before it. A run that has grown to
    half of its neighbour is merged into it, so there are few, and a timer is moved a few times only.

    A (time, row) that was registered twice may lie here twice for a while, and fires once. Equal times
    fire in the order in which they were registered."""

    def __init__(self) -> None:
        self._runs: list[tuple[Numbers, Numbers]] = []

    def __len__(self) -> int:
        return sum(len(times) for times, _ in self._runs)

    def next_ms(self) -> int:
        return min((int(times[0]) for times, _ in self._runs), default=NEVER_MS)

    def add(self, times: Numbers, rows: Numbers) -> Numbers:
        """Returns the rows of repeats that were found and dropped on the way, once for each."""
        if not len(times):
            return _NONE
        runs, dropped = self._runs, []
        runs.append(_sorted(times, rows))
        while True:
            run_times, run_rows = runs.pop()
            kept = _without_repeats(run_times, run_rows)
            if len(kept[0]) < len(run_times):
                room = int(run_rows.max()) + 1
                fewer = numpy.bincount(run_rows, minlength=room)
                fewer = fewer - numpy.bincount(kept[1], minlength=room)
                dropped.append(numpy.repeat(numpy.arange(room), fewer))
            runs.append(kept)
            if len(runs) < 2 or 2 * len(runs[-1][0]) < len(runs[-2][0]):
                return numpy.concatenate(dropped) if dropped else _NONE
            newer, older = runs.pop(), runs.pop()
            runs.append(_sorted(*map(numpy.concatenate, zip(older, newer, strict=True))))

    def due(self, until_ms: int) -> tuple[Numbers, Numbers]:
        """The (times, rows) up to `until_ms`, in the order in which they fire."""
        parts = []
        for times, rows in self._runs:
            end = int(numpy.searchsorted(times, until_ms, side="right"))
            if end:
                parts.append((times[:end], rows[:end]))
        if not parts:
            return _NONE, _NONE
        if len(parts) == 1:
            times, rows = parts[0]
        else:
            times, rows = _sorted(*map(numpy.concatenate, zip(*parts, strict=True)))
        return _without_repeats(times, rows)

    def remove_until(self, until_ms: int) -> Numbers:
        """Remove what is due; the rows they were for, with repeats."""
        gone, kept = [], []
        for times, rows in self._runs:
            end = int(numpy.searchsorted(times, until_ms, side="right"))
            gone.append(rows[:end])
            if end < len(times):
                kept.append((times[end:], rows[end:]))
        self._runs = kept
        return numpy.concatenate(gone) if gone else _NONE

    def remove(self, timers: set[tuple[int, int]]) -> Numbers:
        """Remove these (time, row), as far as they are here; their rows, with repeats."""
        wanted = numpy.array(sorted({time_ms for time_ms, _ in timers}), numpy.int64)
        gone, kept = [], []
        for times, rows in self._runs:
            candidates = numpy.flatnonzero(numpy.isin(times, wanted))
            found = [i for i in candidates.tolist() if (int(times[i]), int(rows[i])) in timers]
            gone.append(rows[found])
            if len(found) < len(times):
                kept.append((numpy.delete(times, found), numpy.delete(rows, found)))
        self._runs = kept
        return numpy.concatenate(gone) if gone else _NONE

    def all(self) -> tuple[Numbers, Numbers]:
        """All (times, rows), in the order in which they were registered as far as it matters."""
        if not self._runs:
            return _NONE, _NONE
        times, rows = map(numpy.concatenate, zip(*self._runs, strict=True))
        return times, rows


def _sorted(times: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    if (times[1:] >= times[:-1]).all():
        return times, rows
    order = numpy.argsort(times, kind="stable")
    return times[order], rows[order]


def _without_repeats(times: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Sorted by time; of equal ones the first stays."""
    if not (times[1:] == times[:-1]).any():
        return times, rows
    order = numpy.lexsort((rows, times))  # stable: the first of equal ones comes first
    same = (times[order][1:] == times[order][:-1]) & (rows[order][1:] == rows[order][:-1])
    stays = numpy.ones(len(times), bool)
    stays[order[1:][same]] = False
    return times[stays], rows[stays]
