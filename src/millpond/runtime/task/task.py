"""A task at work: records in, timers fired, clocks advanced. Whoever drives it hands time in.

Event time passes through every instant: while a timer for t fires, the watermark is t, whether the
watermark came step by step or in one leap. So what a task sees and emits does not depend on where
batches are cut, nor on how many watermarks it was told.
"""

from __future__ import annotations

from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream.time_domain import TimeDomain
from millpond.runtime.task.chain import OperatorChain
from millpond.runtime.task.frames import (
    PHASE_AFTER,
    PHASE_BEFORE,
    PHASE_EVENT_TIMER,
    PHASE_RECORD,
    Place,
)
from millpond.state.key_group_state import KeyGroupState


class Task:
    """An opened chain bound to one key group at a time."""

    def __init__(self, chain: OperatorChain) -> None:
        self.chain = chain
        self._clock = chain.clock
        self._root = chain.root
        self._router = chain.router
        self._state = KeyGroupState(0)
        self._last_place: Place = (MIN_TIMESTAMP, 0, 0)

    def bind(self, state: KeyGroupState, watermark: int, processing_time_ms: int) -> None:
        """Turn to a key group whose clocks stand at the given times."""
        self._state = state
        self._clock.bind(state)
        self._clock.watermark = watermark
        self._clock.processing_time_ms = processing_time_ms
        self._last_place = (MIN_TIMESTAMP, 0, 0)

    @property
    def watermark(self) -> int:
        return self._clock.watermark

    def process(
        self,
        input_index: int,
        key: Any,
        value: Any,
        timestamp: int | None,
        sequence: int,
        phase: int = PHASE_RECORD,
    ) -> None:
        """`phase` and `sequence` are those of the record's place: what it causes inherits them."""
        self._set_place(self._clock.watermark, phase, sequence)
        self._clock.current.key = key
        self._root.process_input(input_index, value, timestamp)

    def advance_watermark(self, watermark: int) -> None:
        """Fire all event-time timers up to `watermark`, in order, then stand there.

        A timer is removed before its callback, which may register the same time again; one that a
        callback registers and that is due already fires in this same advance (C13, C52)."""
        clock, timers = self._clock, self._state.event_timers
        if watermark <= clock.watermark:
            return
        base = clock.watermark
        while (timer := timers.pop_due(watermark)) is not None:
            time_ms, key, _ = timer
            # A timer set for the past fires as soon as the clock moves at all.
            clock.watermark = max(time_ms, clock.watermark, base + 1)
            self._set_place(clock.watermark - 1, PHASE_EVENT_TIMER, 0)
            clock.current.key = key
            self._root.on_timer(time_ms, TimeDomain.EVENT_TIME)
        clock.watermark = watermark

    def advance_processing_time(self, processing_time_ms: int, after_records: bool = False) -> None:
        """Fire all processing-time timers up to now. Overdue ones fire at once (C16)."""
        clock, timers = self._clock, self._state.processing_timers
        clock.processing_time_ms = processing_time_ms
        phase = PHASE_AFTER if after_records else PHASE_BEFORE
        while (timer := timers.pop_due(processing_time_ms)) is not None:
            time_ms, key, _ = timer
            self._set_place(clock.watermark, phase, 0)
            clock.current.key = key
            self._root.on_timer(time_ms, TimeDomain.PROCESSING_TIME)

    def _set_place(self, clock: int, phase: int, sequence: int) -> None:
        place = (clock, phase, sequence)
        if place < self._last_place:
            place = self._last_place
        self._last_place = self._router.place = place
