"""Runs a task record by record: takes records in, fires timers, advances the clocks. The caller hands time
in.

Event time passes through every instant: while a timer for t fires, the watermark is t, whether it got there
step by step or in one leap. So what a task sees and emits depends neither on where batches are cut nor on how
many watermarks it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import repeat
from typing import Any

from millpond.core.bundle import (
    PHASE_AFTER,
    PHASE_BEFORE,
    PHASE_EVENT_TIMER,
    Bundle,
    BundleBuilder,
    Place,
)
from millpond.core.codec import freeze, thaw_all
from millpond.core.columns import Numbers
from millpond.datastream.time_domain import TimeDomain
from millpond.engine.chain import OperatorChain
from millpond.engine.operators.base import Handler, Outputs, TimerContext, is_tagged
from millpond.state.shard_state import ShardState


class Task:
    """An opened chain, bound to one shard at a time. For each shard, call `bind`, then `run` and the
    methods that advance the clocks, then `finish`, which sends the results down the chain."""

    def __init__(self, chain: OperatorChain) -> None:
        self.chain = chain
        self._clock = chain.clock
        self._root = chain.root
        self._by_record = chain.root.by_record()
        self._handlers: list[Handler] = []
        self._on_timer: Handler = lambda time_ms, context: None
        self._context: TimerContext | None = None
        self._add: Callable[[Any, int | None, Place], None] = self._add_value
        self._tell_horizon: Callable[[int], None] | None = None
        if self._by_record is not None:
            self._tell_horizon = self._by_record.horizon_listener()
            self._handlers = self._by_record.handlers()
            self._on_timer = self._by_record.timer_handler()
            self._context = self._by_record.context
            if self._by_record.stamps_results:
                self._add = self._add_stamped
        self._state = ShardState(0)
        self._output = BundleBuilder()
        self._side_outputs: dict[str, BundleBuilder] = {}

    def bind(self, state: ShardState, watermark: int, processing_time_ms: int) -> None:
        """Turn to a shard, with the clocks at the given times."""
        self._state = state
        self._clock.watermark = watermark
        self._clock.processing_time_ms = processing_time_ms
        self._clock.bind(state)
        if self._tell_horizon is not None:
            self._tell_horizon(watermark)

    def reset(self) -> None:
        """Forget what was collected, so that it does not come out later. Called after a failure."""
        self._clock.in_processing_timer = False
        self._output = BundleBuilder()
        self._side_outputs.clear()
        self.chain.router.reset()
        self.chain.metrics.take()

    def run(self, bundle: Bundle, end_clock: int) -> None:
        """Process records in order. Before each one, the clock advances to the record's place, at most to
        `end_clock`, and due timers fire."""
        clock = self._clock
        bundle = bundle.within(min(clock.watermark, end_clock), end_clock)
        root = self._by_record
        if root is None:
            self._root.process(bundle)
            return
        if self._tell_horizon is not None and _later_input_is_first(bundle.inputs):
            self._tell_horizon(end_clock)
        timers, current, context = self._state.event_timers, clock.current, self._context
        watermark = clock.watermark
        value: object = None
        try:
            for place_clock, key, value, timestamp, sequence, phase, handle in zip(  # noqa: B905
                bundle.each_clock(),
                repeat(None) if bundle.keys is None else thaw_all(bundle.keys),
                bundle.open_values(),
                bundle.each_timestamp(),
                bundle.sequences.tolist(),
                _each(bundle.phases),
                self._each_handler(bundle.inputs),
            ):
                if place_clock > watermark:
                    if place_clock >= timers.next_ms:
                        self._fire_event_timers(place_clock)
                    clock.watermark = watermark = place_clock
                current.key = key
                clock.timestamp = timestamp
                results = handle(value, context)
                if results is not None:
                    for result in results:
                        self._add(result, timestamp, (watermark, phase, sequence))
        except Exception as problem:
            raise root.failed(problem, root.action, value) from None

    def _each_handler(self, inputs: int | list[int]) -> Iterable[Handler]:
        if isinstance(inputs, int):
            return repeat(self._handlers[inputs])
        return map(self._handlers.__getitem__, inputs)

    def advance_watermark(self, watermark: int) -> None:
        """Fire all event-time timers up to `watermark`, in order, and leave the clock there."""
        clock = self._clock
        if watermark > clock.watermark:
            if watermark >= self._state.event_timers.next_ms:
                self._fire_event_timers(watermark)
            clock.watermark = watermark

    def _fire_event_timers(self, watermark: int) -> None:
        """Fire the event-time timers up to `watermark`.

        A timer is removed before its callback, which may register the same time again. A timer that a
        callback registers and that is due already fires in this same advance (C13, C52)."""
        clock, current = self._clock, self._clock.current
        on_timer, context = self._on_timer, self._context
        if context is not None:
            context.domain = TimeDomain.EVENT_TIME
        base = clock.watermark
        timers = self._state.event_timers
        while timers.next_ms <= watermark:
            timer = timers.pop_due(watermark)
            if timer is None:
                break
            time_ms, key, current.namespace = timer
            # A timer set for the past fires as soon as the clock moves at all.
            now = clock.watermark = max(time_ms, clock.watermark, base + 1)
            clock.timestamp = time_ms
            current.key = key
            try:
                results = on_timer(time_ms, context)
                if results is not None:
                    for result in results:
                        self._add(result, time_ms, (now - 1, PHASE_EVENT_TIMER, 0))
            except Exception as problem:
                raise self._timer_failed(problem, time_ms, TimeDomain.EVENT_TIME) from None

    def advance_processing_time(self, processing_time_ms: int, after_records: bool = False) -> None:
        """Fire all processing-time timers up to the given time, including those that are overdue (C16).
        `after_records` says on which side of the batch's records their results have their place."""
        clock, timers = self._clock, self._state.processing_timers
        clock.processing_time_ms = processing_time_ms
        context = self._context
        if context is not None:
            context.domain = TimeDomain.PROCESSING_TIME
        phase = PHASE_AFTER if after_records else PHASE_BEFORE
        clock.in_processing_timer = True
        while (timer := timers.pop_due(processing_time_ms)) is not None:
            time_ms, clock.current.key, clock.current.namespace = timer
            clock.timestamp = time_ms
            try:
                for result in self._on_timer(time_ms, context) or ():
                    self._add(result, None, (clock.watermark, phase, 0))
            except Exception as problem:
                raise self._timer_failed(problem, time_ms, TimeDomain.PROCESSING_TIME) from None
        clock.in_processing_timer = False

    def finish(self) -> None:
        """Send the results of this shard down the chain."""
        self._state.clean_some()
        self._root.send(self._collected())

    def _collected(self) -> Outputs:
        """Yield and forget what has been collected, side outputs first."""
        for tag, output in (*self._side_outputs.items(), (None, self._output)):
            bundle = output.build()
            if bundle is not None:
                yield tag, bundle

    def _add_stamped(self, result: tuple[Any, int], _: int | None, place: Place) -> None:
        self._add_value(result[0], result[1], place)

    def _add_value(self, result: object, timestamp: int | None, place: Place) -> None:
        # Frozen at once, because the function may change it before it yields the next result.
        if is_tagged(result):
            tag = result[0].tag_id
            output = self._side_outputs.setdefault(tag, BundleBuilder())
            output.add(freeze(result[1]), timestamp, place)
        else:
            self._output.add(freeze(result), timestamp, place)

    def _timer_failed(self, problem: Exception, time_ms: int, domain: TimeDomain) -> Exception:
        key = self._clock.current.key
        action = f"on_timer at {time_ms} ({domain.name}) for key {key!r}"
        return self._root.failed(problem, action, None)


def _later_input_is_first(inputs: int | list[int]) -> bool:
    """Return True if no record of input 1 comes after one of input 0."""
    return isinstance(inputs, int) or 1 not in inputs[inputs.index(0) if 0 in inputs else 0 :]


def _each(numbers: int | Numbers) -> Iterable[int]:
    return repeat(numbers) if isinstance(numbers, int) else numbers.tolist()  # type: ignore[no-any-return]
