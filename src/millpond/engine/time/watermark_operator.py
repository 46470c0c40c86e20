"""Assigns event time: timestamps, and a watermark after every record (C11)."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy

from millpond.common.time import MIN_TIMESTAMP
from millpond.common.watermark_strategy import (
    BoundedOutOfOrdernessGenerator,
    NoWatermarksGenerator,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from millpond.core.bundle import Bundle
from millpond.core.columns import Numbers
from millpond.core.record_columns import as_list, is_columns, numbers_in
from millpond.datastream.columns import TimestampField
from millpond.engine.context import TaskClock
from millpond.engine.exchange.frames import Producer
from millpond.engine.exchange.router import Router
from millpond.engine.operators.base import Operator
from millpond.plan.physical import OperatorPlan

# (generator, watermark, last active at ms, newest timestamp); the last one is missing in what was written
# before 0.1.0.
Saved = tuple[Any, int, int, int] | tuple[Any, int, int]


class WatermarkOperator(Operator):
    """Assigns timestamps and computes the watermark after every record (C11).

    It is a watermark origin: what follows sees its watermark, not the one from before. The generator belongs
    to one split at a time; `resume` and `suspend` exchange its state."""

    keeps_state = True

    def __init__(self, plan: OperatorPlan, clock: TaskClock, subtask: int) -> None:
        super().__init__(plan, clock, subtask)
        self.strategy: WatermarkStrategy = plan.function
        self._extract = _extractor(self.strategy)
        self.batch_mode = False
        self.router: Router | None = None
        self.resume(None, 0)

    def resume(self, saved: Saved | None, now_ms: int) -> None:
        """Turn to a split: continue with what `suspend` has returned, or from the beginning if it is None."""
        if saved is None:
            saved = (self.strategy.create_generator(), MIN_TIMESTAMP, now_ms)
        self._generator: WatermarkGenerator
        self._generator, watermark, self._active_at_ms, *rest = saved
        self._newest: int = rest[0] if rest else MIN_TIMESTAMP
        self._output = WatermarkOutput(watermark)
        self._records = 0

    def suspend(self, now_ms: int) -> Saved:
        """Return what the split needs to continue in the next batch."""
        active_at_ms = now_ms if self._records else self._active_at_ms
        return self._generator, self._output.watermark, active_at_ms, self._newest

    def go_to(self, event_time_ms: int) -> None:
        """Advance the watermark to the time of the newest record of all splits. Called when there is nothing
        more to read for now."""
        self._output.emit_watermark(event_time_ms)

    def go_on_when_idle(self, now_ms: int) -> None:
        """Advance the watermark of an idle split by the time since the idle timeout, or since the last call,
        if the strategy wants event time to go on."""
        timeout_ms = self.strategy.idle_timeout_ms
        if not self.strategy.goes_on_when_idle or timeout_ms is None or self.is_active(now_ms):
            return
        if self._output.watermark > MIN_TIMESTAMP:  # otherwise there is no event time yet
            passed_ms = now_ms - self._active_at_ms - timeout_ms
            self._output.emit_watermark(self._output.watermark + passed_ms)
        self._active_at_ms = now_ms - timeout_ms

    def is_active(self, now_ms: int) -> bool:
        """Return False if the split has had no records for the idle timeout."""
        timeout_ms = self.strategy.idle_timeout_ms
        return timeout_ms is None or bool(self._records) or now_ms - self._active_at_ms < timeout_ms

    def idle_at_ms(self, now_ms: int) -> int | None:
        """Return when the split becomes idle, or goes on, if no records come; None if never."""
        timeout_ms = self.strategy.idle_timeout_ms
        if timeout_ms is None:
            return None
        if not self.is_active(now_ms):
            return now_ms + timeout_ms if self.strategy.goes_on_when_idle else None
        return (now_ms if self._records else self._active_at_ms) + timeout_ms

    @property
    def watermark(self) -> int:
        """The watermark after the last record of the split."""
        return self._output.watermark

    def process(self, bundle: Bundle) -> None:
        self._records += len(bundle)
        values = bundle.values
        numbers = self._column_of_timestamps(bundle)
        timestamps: list[int | None] | Numbers | None = numbers
        clocks = None if numbers is None else self._watermarks_of_column(numbers)
        if clocks is None:
            opened = bundle.open_values()
            values = values if is_columns(values) else opened
            listed = self._timestamps(opened, bundle)
            timestamps = numbers = _numbers(listed)
            clocks = None if numbers is None else self._watermarks_of_column(numbers)
            if clocks is None:
                clocks = self._watermarks_before(opened, listed)
            if numbers is None and listed.count(None) < len(listed):
                timestamps = listed
        if timestamps is not None and type(self._generator) is not NoWatermarksGenerator:
            times = (time for time in timestamps if time is not None)
            newest = max(times) if isinstance(timestamps, list) else int(timestamps.max())
            self._newest = max(self._newest, newest)
        after = Bundle(
            values,
            timestamps,
            MIN_TIMESTAMP if self.batch_mode else clocks,
            bundle.phases,
            bundle.sequences,
        )
        router = self.router
        if router is None:
            self.emit(after)
        else:
            producer = router.producer
            router.producer = Producer(self.plan.id, producer.number)
            self.emit(after)
            router.producer = producer

    def _column_of_timestamps(self, bundle: Bundle) -> Numbers | None:
        """Return the timestamps without making records, if a column holds them; otherwise None."""
        assigner = self.strategy.timestamp_assigner
        if not is_columns(bundle.values) or not isinstance(assigner, TimestampField):
            return None
        try:
            return numbers_in(bundle.values, assigner.name).astype(numpy.int64, casting="safe")
        except Exception as problem:
            raise self.failed(problem, "extract_timestamp", None) from None

    def _watermarks_of_column(self, timestamps: Numbers) -> int | Numbers | None:
        """Return the watermark before each record; None if the generator must see records one by one."""
        if type(self._generator) is NoWatermarksGenerator:
            return self._output.watermark
        if type(self._generator) is BoundedOutOfOrdernessGenerator:
            return self._generator.watermarks(timestamps, self._output)
        return None

    def _timestamps(self, values: list[Any], bundle: Bundle) -> list[int | None]:
        extract = self._extract
        given = None if bundle.timestamps is None else as_list(bundle.timestamps)
        if extract is None:
            return [None] * len(values) if given is None else given
        timestamps: list[int | None] = []
        before = [MIN_TIMESTAMP if time is None else time for time in given] if given else None
        try:
            timestamps.extend(map(extract, values, before or itertools.repeat(MIN_TIMESTAMP)))
        except Exception as problem:
            value = values[len(timestamps)]
            raise self.failed(problem, "extract_timestamp", value) from None
        return timestamps

    def _watermarks_before(self, values: list[Any], timestamps: list[int | None]) -> int | Numbers:
        """Return the watermark before each record, after the generator has seen all of them one by one."""
        generator, output = self._generator, self._output
        if type(generator) is NoWatermarksGenerator:
            return output.watermark
        each = numpy.empty(len(values), numpy.int64)
        value = None
        try:
            for position, (value, timestamp) in enumerate(zip(values, timestamps, strict=True)):
                each[position] = output.watermark
                event_time = MIN_TIMESTAMP if timestamp is None else timestamp
                generator.on_event(value, event_time, output)
                generator.on_periodic_emit(output)
        except Exception as problem:
            raise self.failed(problem, "the watermark generator", value) from None
        return each


def _numbers(timestamps: list[int | None]) -> Numbers | None:
    """Return timestamps as an array, or None if they are not all 64-bit integers."""
    if set(map(type, timestamps)) != {int}:
        return None
    try:
        return numpy.array(timestamps, numpy.int64)
    except OverflowError:
        return None


def _extractor(strategy: WatermarkStrategy) -> Callable[[Any, int], int] | None:
    assigner = strategy.timestamp_assigner
    return None if assigner is None else getattr(assigner, "function", assigner.extract_timestamp)
