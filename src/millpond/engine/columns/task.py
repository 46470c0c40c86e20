"""The counterpart of `Task` for functions on columns. It is called in the same way.

The function gets all events of a stretch of event time at once: records, and the timers that fire between
them. A timer that it registers may be due within the stretch, between records that it has already seen. Then
the call is undone, and repeated with a stretch that ends just before the timer. So the function sees exactly
what it would see event by event, and is called rarely if its timers are far ahead.
"""

from __future__ import annotations

import numpy

from millpond.core.bundle import Bundle
from millpond.core.codec import thaw_all
from millpond.core.record_columns import as_columns, is_columns
from millpond.datastream.columns import KeyedColumnFunction
from millpond.datastream.state import StateKind
from millpond.engine.chain import OperatorChain
from millpond.engine.columns.events import EventContext, Events, Records
from millpond.state.columns.table import ColumnTable
from millpond.state.shard_state import COLUMNS, ShardState

_TRY_LONGER_AFTER = 32
_NONE = numpy.empty(0, numpy.int64)


class ColumnTask:
    """An opened chain, bound to one shard at a time. For each shard, call `bind`, then `run` and the
    methods that advance the clocks, then `finish`, which sends the results down the chain."""

    def __init__(self, chain: OperatorChain) -> None:
        self.chain = chain
        self._clock = chain.clock
        self._root = chain.root
        self._function: KeyedColumnFunction = chain.root.plan.function
        self._table = ColumnTable()
        self._outputs: dict[str | None, list[Bundle]] = {}
        self._stretch = _Stretch()
        self._timers_go_on = False  # the last event was a timer, and more may fire at the same time

    def bind(self, state: ShardState, watermark: int, processing_time_ms: int) -> None:
        """Turn to a shard, with the clocks at the given times."""
        self._clock.watermark = watermark
        self._clock.processing_time_ms = processing_time_ms
        self._clock.bind(state)
        self._table = state.table(COLUMNS, StateKind.COLUMN)
        self._timers_go_on = False

    def reset(self) -> None:
        """Forget what was collected, so that it does not come out later. Called after a failure."""
        self._outputs.clear()
        self.chain.router.reset()
        self.chain.metrics.take()

    def run(self, bundle: Bundle, end_clock: int) -> None:
        """Process records, and the timers that are due between them, at most up to `end_clock`."""
        clock = self._clock
        bundle = bundle.within(min(clock.watermark, end_clock), end_clock)
        try:
            columns = as_columns(
                bundle.values if is_columns(bundle.values) else bundle.open_values()
            )
        except Exception as problem:
            raise self._root.failed(problem, "converting records to columns", None) from None
        records = Records.of(bundle, columns, self._table.rows_of(thaw_all(bundle.keys or [])))
        last = int(records.clocks[-1])
        while len(records):
            records = self._run_stretch(records, last)

    def advance_watermark(self, watermark: int) -> None:
        """Fire all timers up to `watermark`, and leave the clock there."""
        clock, timers = self._clock, self._table.timers
        while self._earliest() <= watermark and timers.next_ms() <= watermark:
            self._run_stretch(Records.none(), watermark)
        clock.watermark = max(clock.watermark, watermark)
        self._timers_go_on = False

    def advance_processing_time(self, processing_time_ms: int, after_records: bool = False) -> None:
        """Set the processing time. Functions on columns have no processing-time timers."""
        self._clock.processing_time_ms = processing_time_ms

    def finish(self) -> None:
        """Send the results of this shard down the chain."""
        self._table.release_rows()
        outputs, self._outputs = self._outputs, {}
        self._root.send((tag, Bundle.joined(bundles)) for tag, bundles in outputs.items())

    # --- one call --------------------------------------------------------------------------------

    def _run_stretch(self, records: Records, last: int) -> Records:
        """Call the function with the next events, at most up to clock `last`. Return the records left."""
        table, metrics = self._table, self.chain.metrics
        earliest = self._earliest()
        first = max(table.timers.next_ms(), earliest)
        until = self._stretch.end(
            min(first, int(records.clocks[0])) if len(records) else first, last
        )
        times, rows = table.timers.due(until) if earliest <= until else (_NONE, _NONE)
        record_count, timer_count = records.count_until(until), len(times)
        while True:
            events = Events(
                records.piece(0, record_count),
                times[:timer_count],
                rows[:timer_count],
                earliest,
                table,
            )
            context = EventContext(events)
            before = metrics.mark()
            try:
                self._function.process_columns(events, context)
            except Exception as problem:
                raise self._root.failed(problem, "process_columns", None) from None
            count = context.first_wrong()
            if count == len(events):
                break
            table.undo_call()
            metrics.back_to(before)
            timer_count = int(events.fired[:count].sum())
            record_count = count - timer_count
            self._stretch.was_too_long(int(events.watermarks[0]), int(events.watermarks[count - 1]))
        if timer_count:
            table.remove_fired(times, rows, timer_count)
        self._accept(events, context)
        return records.piece(record_count, len(records))

    def _earliest(self) -> int:
        """Return when a timer for the past fires: as soon as the clock moves. While timers fire, and no
        record has come since, the clock is moving."""
        return self._clock.watermark + (not self._timers_go_on)

    def _accept(self, events: Events, context: EventContext) -> None:
        table, clock = self._table, self._clock
        table.accept_call()
        times, rows = context.registered()
        if len(times):
            table.register(times, rows)
        table.remove_timers(context.deleted())
        for tag, bundle in context.outputs().items():
            self._outputs.setdefault(tag, []).append(bundle)
        if len(events):
            clock.watermark = max(clock.watermark, int(events.watermarks[-1]))
            self._timers_go_on = bool(events.fired[-1])


class _Stretch:
    """Decides how long stretches may be: as long as the last one that worked, and sometimes longer."""

    def __init__(self) -> None:
        self._length: int | None = None  # in ms; None if there is no limit
        self._limited = 0

    def end(self, first: int, last: int) -> int:
        if self._length is None or last - first < self._length:
            return last
        self._limited += 1
        if self._limited == _TRY_LONGER_AFTER:
            self._limited = 0
            self._length *= 2
        return min(last, first + self._length - 1)

    def was_too_long(self, first: int, until: int) -> None:
        self._length = max(1, until - first + 1)
