"""Event-time timers of a column function: arrays of (time, row)."""

from __future__ import annotations

import numpy

from millpond.core.columns import Numbers
from millpond.state.timers import NEVER_MS

_NONE = numpy.empty(0, numpy.int64)


class ColumnTimers:
    """Sorted layers of timers, each registered by later calls than the layer before it. A layer that has
    grown to half of its neighbour is merged into it, so there are few, and a timer is moved a few times only.

    A (time, row) that was registered twice may be here twice for a while, and fires once. Equal times fire in
    the order in which they were registered.
    """

    def __init__(self) -> None:
        self._layers: list[tuple[Numbers, Numbers]] = []

    def __len__(self) -> int:
        return sum(len(times) for times, _ in self._layers)

    def next_ms(self) -> int:
        """Return the earliest time; NEVER_MS if there is none."""
        return min((int(times[0]) for times, _ in self._layers), default=NEVER_MS)

    def add(self, times: Numbers, rows: Numbers) -> Numbers:
        """Add timers. Return the rows of repeats that were found and dropped on the way, once for each."""
        if not len(times):
            return _NONE
        layers, dropped = self._layers, []
        layers.append(_sorted(times, rows))
        while True:
            layer_times, layer_rows = layers.pop()
            kept = _without_repeats(layer_times, layer_rows)
            if len(kept[0]) < len(layer_times):
                room = int(layer_rows.max()) + 1
                fewer = numpy.bincount(layer_rows, minlength=room)
                fewer = fewer - numpy.bincount(kept[1], minlength=room)
                dropped.append(numpy.repeat(numpy.arange(room), fewer))
            layers.append(kept)
            if len(layers) < 2 or 2 * len(layers[-1][0]) < len(layers[-2][0]):
                return numpy.concatenate(dropped) if dropped else _NONE
            newer, older = layers.pop(), layers.pop()
            layers.append(_sorted(*map(numpy.concatenate, zip(older, newer, strict=True))))

    def due(self, until_ms: int) -> tuple[Numbers, Numbers]:
        """Return the (times, rows) up to `until_ms`, in the order in which they fire."""
        parts = []
        for times, rows in self._layers:
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
        """Remove what is due at `until_ms`. Return the rows they were for, with repeats."""
        gone, kept = [], []
        for times, rows in self._layers:
            end = int(numpy.searchsorted(times, until_ms, side="right"))
            gone.append(rows[:end])
            if end < len(times):
                kept.append((times[end:], rows[end:]))
        self._layers = kept
        return numpy.concatenate(gone) if gone else _NONE

    def remove(self, timers: set[tuple[int, int]]) -> Numbers:
        """Remove these (time, row), as far as they are there. Return their rows, with repeats."""
        wanted = numpy.array(sorted({time_ms for time_ms, _ in timers}), numpy.int64)
        gone, kept = [], []
        for times, rows in self._layers:
            candidates = numpy.flatnonzero(numpy.isin(times, wanted))
            matching = [i for i in candidates.tolist() if (int(times[i]), int(rows[i])) in timers]
            gone.append(rows[matching])
            if len(matching) < len(times):
                kept.append((numpy.delete(times, matching), numpy.delete(rows, matching)))
        self._layers = kept
        return numpy.concatenate(gone) if gone else _NONE

    def all(self) -> tuple[Numbers, Numbers]:
        """Return all (times, rows), in the order in which they were registered as far as it matters."""
        if not self._layers:
            return _NONE, _NONE
        times, rows = map(numpy.concatenate, zip(*self._layers, strict=True))
        return times, rows


def _sorted(times: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    if (times[1:] >= times[:-1]).all():
        return times, rows
    order = numpy.argsort(times, kind="stable")
    return times[order], rows[order]


def _without_repeats(times: Numbers, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return timers, sorted by time, with only the first of equal ones."""
    if not (times[1:] == times[:-1]).any():
        return times, rows
    order = numpy.lexsort((rows, times))  # stable: the first of equal ones comes first
    same = (times[order][1:] == times[order][:-1]) & (rows[order][1:] == rows[order][:-1])
    stays = numpy.ones(len(times), bool)
    stays[order[1:][same]] = False
    return times[stays], rows[stays]
