"""What a function on columns gets (events: records and timers in order) and gives (timers and results)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy
import pyarrow
from numpy.typing import ArrayLike, NDArray

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core.bundle import PHASE_EVENT_TIMER, Bundle
from millpond.core.columns import Numbers
from millpond.core.record_columns import (
    Values,
    as_list,
    cut,
    is_columns,
    join,
    numbers_in,
    take,
)
from millpond.datastream.columns import KeyedColumnFunction, KeyedColumns
from millpond.datastream.output_tag import OutputTag
from millpond.state.columns.table import ColumnTable

_NONE = numpy.empty(0, numpy.int64)


class Records:
    """Records in order, as arrays. `rows` are the rows of their keys in the ColumnTable."""

    def __init__(
        self,
        columns: pyarrow.RecordBatch,
        rows: Numbers,
        times: Numbers,
        clocks: Numbers,
        phases: Numbers,
        sequences: Numbers,
    ) -> None:
        self.columns = columns
        self.rows = rows
        self.times = times
        self.clocks = clocks
        self.phases = phases
        self.sequences = sequences

    @staticmethod
    def of(bundle: Bundle, columns: pyarrow.RecordBatch, rows: Numbers) -> Records:
        """Return the records of a bundle. `columns` are their values, and `rows` those of their keys."""
        count = len(bundle)
        times = bundle.timestamps
        if times is None:
            times = numpy.full(count, MIN_TIMESTAMP, numpy.int64)
        elif isinstance(times, list):
            known = [MIN_TIMESTAMP if time is None else time for time in times]
            times = numpy.array(known, numpy.int64)
        return Records(
            columns,
            rows,
            times,
            numpy.broadcast_to(numpy.asarray(bundle.clocks, numpy.int64), (count,)),
            numpy.broadcast_to(numpy.asarray(bundle.phases, numpy.int64), (count,)),
            bundle.sequences,
        )

    @staticmethod
    def none() -> Records:
        """Return no records."""
        return Records(pyarrow.record_batch({}), _NONE, _NONE, _NONE, _NONE, _NONE)

    def __len__(self) -> int:
        return len(self.rows)

    def count_until(self, clock: int) -> int:
        """Return how many records have a place with a clock up to `clock`."""
        return int(numpy.searchsorted(self.clocks, clock, side="right"))

    def piece(self, start: int, end: int) -> Records:
        """Return the records from `start` to `end - 1`."""
        if start == 0 and end == len(self):
            return self
        return Records(
            cut(self.columns, start, end),
            self.rows[start:end],
            self.times[start:end],
            self.clocks[start:end],
            self.phases[start:end],
            self.sequences[start:end],
        )


class Events(KeyedColumns):
    """Records, and the timers (`times`, `rows`) that fire between them. A timer for t fires when the clock is
    at t, or at `earliest` if that is later, after the records with earlier clocks."""

    def __init__(
        self, records: Records, times: Numbers, rows: Numbers, earliest: int, table: ColumnTable
    ) -> None:
        self._table = table
        self.records = records.columns
        if not len(times):
            self.rows, self.times, self.watermarks = records.rows, records.times, records.clocks
            self.fired = numpy.zeros(len(records), bool)
            self._clocks, self._phases = records.clocks, records.phases
            self._sequences = records.sequences
            return
        fires_at = numpy.maximum(times, earliest)
        count = len(records) + len(times)
        at = numpy.searchsorted(records.clocks, fires_at - 1, side="right")
        self.fired = numpy.zeros(count, bool)
        self.fired[at + numpy.arange(len(times))] = True
        self._seen = ~self.fired
        self.rows = self._merged(records.rows, rows)
        self.times = self._merged(records.times, times)
        self.watermarks = self._merged(records.clocks, fires_at)
        self._clocks = self._merged(records.clocks, fires_at - 1)
        self._phases = self._merged(records.phases, PHASE_EVENT_TIMER)
        self._sequences = self._merged(records.sequences, 0)

    def _merged(self, of_records: Numbers, of_timers: int | Numbers) -> Numbers:
        merged = numpy.empty(len(self.fired), numpy.int64)
        merged[self._seen] = of_records
        merged[self.fired] = of_timers
        return merged

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> NDArray[Any]:
        if not len(self.records):
            return _NONE
        return numbers_in(self.records, name)

    def keys(self, where: NDArray[Any]) -> list[Any]:
        return self._table.keys_of(self.rows[where])

    def bundle(self, positions: Numbers, values: Values) -> Bundle:
        """Return `values`, each in the place of the event at the same index of `positions`."""
        return Bundle(
            values,
            self.times[positions],
            self._clocks[positions],
            self._phases[positions],
            self._sequences[positions],
        )


class EventContext(KeyedColumnFunction.Context):
    """Collects the timers and results of one call of the function."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._calls = 0
        self._registered: list[tuple[Numbers, Numbers, int]] = []  # positions, times, call
        self._deleted: list[tuple[Numbers, Numbers, int]] = []
        self._results: dict[str | None, list[tuple[Numbers, Any]]] = {}

    def register_event_time_timers(self, where: NDArray[Any], times: ArrayLike) -> None:
        self._registered.append(self._timers(where, times))

    def delete_event_time_timers(self, where: NDArray[Any], times: ArrayLike) -> None:
        self._deleted.append(self._timers(where, times))

    def _timers(self, where: NDArray[Any], times: ArrayLike) -> tuple[Numbers, Numbers, int]:
        positions = self._positions(where)
        given = numpy.asarray(times)
        if given.size and given.dtype.kind != "i":
            raise TypeError(f"times of timers must be integers (milliseconds), not {given.dtype}")
        if given.ndim and len(given) != len(positions):
            raise ValueError(f"got {len(given)} times for {len(positions)} events")
        self._calls += 1
        every = numpy.broadcast_to(given.astype(numpy.int64), (len(positions),))
        return positions, every, self._calls

    def collect(
        self, where: NDArray[Any], values: Values, output_tag: OutputTag | None = None
    ) -> None:
        positions = self._positions(where)
        if isinstance(values, pyarrow.Table):
            batches = values.combine_chunks().to_batches()
            values = batches[0] if batches else []
        elif isinstance(values, (pyarrow.Array, pyarrow.ChunkedArray)):
            values = values.to_pylist()
        elif not is_columns(values):
            values = as_list(values) if isinstance(values, numpy.ndarray) else list(values)
        if len(values) != len(positions):
            raise ValueError(f"collect got {len(values)} values for {len(positions)} events")
        if len(positions):
            tag = None if output_tag is None else output_tag.tag_id
            self._results.setdefault(tag, []).append((positions, values))

    def _positions(self, where: NDArray[Any]) -> Numbers:
        mask = numpy.asarray(where)
        if mask.dtype == bool:
            if len(mask) != len(self._events):
                raise ValueError(f"got a mask of {len(mask)} for {len(self._events)} events")
            return numpy.flatnonzero(mask)
        return mask.astype(numpy.int64)

    # --- what came of it -------------------------------------------------------------------------

    def first_wrong(self) -> int:
        """Return the position of the first event that should not have come next: a timer that was registered
        is due before it, or it is a timer that was deleted. Return the number of events if there is none."""
        first = len(self._events)
        for positions, times, _ in self._registered:
            if len(times):
                first = min(first, self._first_too_early(positions, times))
        if self._deleted:
            first = min(first, self._first_deleted())
        return first

    def _first_too_early(self, positions: Numbers, times: Numbers) -> int:
        events = self._events
        clocks = numpy.minimum(events.watermarks[positions], MAX_TIMESTAMP - 1)
        # A timer for the past fires when the clock moves if a record has set it, and at once if a timer has.
        earliest = numpy.maximum(times, clocks + ~events.fired[positions])
        if int(earliest.min()) > int(events.watermarks[-1]):
            return len(events)
        seen, fired = numpy.flatnonzero(~events.fired), numpy.flatnonzero(events.fired)
        next_record = numpy.searchsorted(events.watermarks[seen], earliest, side="left")
        next_timer = numpy.maximum(
            numpy.searchsorted(events.times[fired], times, side="right"),
            numpy.searchsorted(fired, positions, side="right"),
        )
        ends = numpy.array([len(events)])
        candidates = numpy.append(seen, ends)[next_record], numpy.append(fired, ends)[next_timer]
        return int(min(candidates[0].min(), candidates[1].min()))

    def _first_deleted(self) -> int:
        events = self._events
        fired = numpy.flatnonzero(events.fired)
        pairs = zip(events.times[fired].tolist(), events.rows[fired].tolist(), strict=True)
        position_of = dict(zip(pairs, fired.tolist(), strict=True))
        found = (
            (position_of.get((time_ms, row), -1), position)
            for time_ms, row, position, _ in self._each(self._deleted)
        )
        return min((at for at, position in found if at > position), default=len(events))

    def registered(self) -> tuple[Numbers, Numbers]:
        """Return (times, rows) of the registered timers, in the order of the events that registered them."""
        if not self._registered:
            return _NONE, _NONE
        positions = numpy.concatenate([positions for positions, _, _ in self._registered])
        times = numpy.concatenate([times for _, times, _ in self._registered])
        if len(self._registered) > 1:
            order = numpy.argsort(positions, kind="stable")
            positions, times = positions[order], times[order]
        return times, self._events.rows[positions]

    def deleted(self) -> set[tuple[int, int]]:
        """Return (time, row) of the timers that were deleted and not registered again after that."""
        if not self._deleted:
            return set()
        everything = chain(
            ((position, call, True, time_ms, row)
             for time_ms, row, position, call in self._each(self._deleted)),
            ((position, call, False, time_ms, row)
             for time_ms, row, position, call in self._each(self._registered)),
        )  # fmt: skip
        gone = {(time_ms, row): is_gone for _, _, is_gone, time_ms, row in sorted(everything)}
        return {timer for timer, is_gone in gone.items() if is_gone}

    def _each(
        self, calls: list[tuple[Numbers, Numbers, int]]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield (time, row, position of the event, number of the call) of each timer."""
        for positions, times, call in calls:
            rows = self._events.rows[positions].tolist()
            for time_ms, row, position in zip(
                times.tolist(), rows, positions.tolist(), strict=True
            ):
                yield time_ms, row, position, call

    def outputs(self) -> dict[str | None, Bundle]:
        """Return the results by output tag (None: the main output), in the order of their events."""
        return {tag: self._bundle(parts) for tag, parts in self._results.items()}

    def _bundle(self, parts: list[tuple[Numbers, Any]]) -> Bundle:
        positions = numpy.concatenate([positions for positions, _ in parts])
        values = join([values for _, values in parts])
        if (positions[1:] < positions[:-1]).any():
            order = numpy.argsort(positions, kind="stable")
            positions, values = positions[order], take(values, order)
        return self._events.bundle(positions, values)
