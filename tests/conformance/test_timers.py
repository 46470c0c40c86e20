"""C12-C17 and C52: timers, through the operator harness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millpond.common import Types
from millpond.common.time import MAX_TIMESTAMP
from millpond.datastream import KeyedProcessFunction, RuntimeContext, TimeDomain
from millpond.datastream.state import ValueStateDescriptor
from millpond.testing import KeyedHarness, Watermark

Act = Callable[[Any, Any], Any]


class Scripted(KeyedProcessFunction):
    """`element(value, timer service)` and `timer(time, timer service)` say what to do."""

    def __init__(self, element: Act, timer: Act = lambda time, timers: None) -> None:
        self._element = element
        self._timer = timer

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._element(value, ctx.timer_service())
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self._timer(timestamp, ctx.timer_service())
        yield (ctx.get_current_key(), timestamp, ctx.time_domain())


def event_times(harness: KeyedHarness) -> list[tuple[Any, int]]:
    return [(key, time) for key, time, domain in harness.values()]


def key_of(value: Any) -> Any:
    return value[0]


def register(value: Any, timers: Any) -> None:
    timers.register_event_time_timer(value[1])


def test_c12_same_time_is_one_timer_per_key() -> None:
    harness = KeyedHarness.of(Scripted(register), key_of)
    for _ in range(3):
        harness.process_element(("a", 5))
    harness.process_element(("b", 5))
    assert harness.event_time_timers() == 2
    harness.process_watermark(5)
    assert sorted(event_times(harness)) == [("a", 5), ("b", 5)]


def test_c12_time_domains_are_separate() -> None:
    def both(value: Any, timers: Any) -> None:
        timers.register_event_time_timer(5)
        timers.register_processing_time_timer(5)

    harness = KeyedHarness.of(Scripted(both), key_of)
    harness.process_element(("a",))
    harness.process_watermark(5)
    assert [v[2] for v in harness.values()] == [TimeDomain.EVENT_TIME]
    harness.set_processing_time(5)
    assert [v[2] for v in harness.values()][1:] == [TimeDomain.PROCESSING_TIME]


def test_c12_deleting_an_absent_timer_does_nothing() -> None:
    def element(value: Any, timers: Any) -> None:
        timers.delete_event_time_timer(99)
        timers.delete_processing_time_timer(99)
        timers.register_event_time_timer(5)

    harness = KeyedHarness.of(Scripted(element), key_of)
    harness.process_element(("a",))
    harness.process_watermark(100)
    assert event_times(harness) == [("a", 5)]


def test_c13_timers_fire_when_due_in_ascending_order() -> None:
    harness = KeyedHarness.of(Scripted(register), key_of)
    for key, time in [("a", 30), ("b", 10), ("c", 20), ("a", 5), ("d", 31)]:
        harness.process_element((key, time))
    harness.process_watermark(30)
    assert event_times(harness) == [("a", 5), ("b", 10), ("c", 20), ("a", 30)]


def test_c13_same_time_can_be_registered_again_in_the_callback() -> None:
    fired: list[int] = []

    def again(time: int, timers: Any) -> None:
        fired.append(time)
        if len(fired) == 1:
            timers.register_event_time_timer(time)

    harness = KeyedHarness.of(Scripted(register, again), key_of)
    harness.process_element(("a", 5))
    harness.process_watermark(5)
    assert event_times(harness) == [("a", 5), ("a", 5)]


def test_c13_c52_past_time_registered_in_a_callback_fires_in_the_same_advance() -> None:
    def past(time: int, timers: Any) -> None:
        if time == 10:
            timers.register_event_time_timer(3)
            timers.register_event_time_timer(15)

    harness = KeyedHarness.of(Scripted(register, past), key_of)
    harness.process_element(("a", 10))
    harness.process_element(("a", 20))
    harness.process_watermark(20)
    assert event_times(harness) == [("a", 10), ("a", 3), ("a", 15), ("a", 20)]


def test_c52_also_at_the_end_of_the_input() -> None:
    def past(time: int, timers: Any) -> None:
        if time == 10:
            timers.register_event_time_timer(MAX_TIMESTAMP)

    harness = KeyedHarness.of(Scripted(register, past), key_of)
    harness.process_element(("a", 10))
    harness.process_watermark(MAX_TIMESTAMP)
    assert event_times(harness) == [("a", 10), ("a", MAX_TIMESTAMP)]


def test_c52_deleting_a_timer_due_at_the_same_watermark_prevents_it() -> None:
    def delete(time: int, timers: Any) -> None:
        if time == 10:
            timers.delete_event_time_timer(11)

    harness = KeyedHarness.of(Scripted(register, delete), key_of)
    for time in (10, 11, 12):
        harness.process_element(("a", time))
    harness.process_watermark(12)
    assert event_times(harness) == [("a", 10), ("a", 12)]


def test_past_timer_fires_at_the_next_advance() -> None:
    harness = KeyedHarness.of(Scripted(register), key_of)
    harness.process_watermark(100)
    harness.process_element(("a", 50))
    assert harness.values() == []
    harness.process_watermark(101)
    assert event_times(harness) == [("a", 50)]


def test_watermark_is_the_time_of_the_timer_that_fires() -> None:
    seen: list[int] = []
    harness = KeyedHarness.of(
        Scripted(register, lambda time, timers: seen.append(timers.current_watermark())), key_of
    )
    harness.process_element(("a", 10))
    harness.process_element(("a", 20))
    harness.process_watermark(1000)
    assert seen == [10, 20]


def test_c14_output_has_the_timers_timestamp_and_precedes_the_watermark() -> None:
    harness = KeyedHarness.of(Scripted(register), key_of)
    harness.process_element(("a", 7), timestamp=1)
    harness.process_watermark(9)
    assert harness.output == [(("a", 7, TimeDomain.EVENT_TIME), 7), Watermark(9)]


class _Scenario15(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("state", Types.INT()))

    def process_element(self, value: int, ctx: Any) -> Any:
        timers = ctx.timer_service()
        if self.state.value() is not None:
            timers.delete_event_time_timer(timers.current_watermark() + 4)
            self.state.clear()
            return
        yield f"INPUT:{value}"
        self.state.update(value)
        timers.register_event_time_timer(timers.current_watermark() + 5)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"STATE:{self.state.value()}"


@pytest.mark.parametrize("snapshot", [False, True])
def test_c15(snapshot: bool) -> None:
    harness = KeyedHarness.of(_Scenario15(), lambda value: value)
    harness.process_watermark(1)
    harness.process_element(17)
    harness.process_element(13)
    harness.process_watermark(2)
    harness.process_element(42)
    harness.process_element(13)
    harness.output.clear()
    if snapshot:
        stored = harness.snapshot()
        harness = KeyedHarness.of(_Scenario15(), lambda value: value, restore=stored)
    harness.process_watermark(6)
    harness.process_watermark(7)
    harness.process_watermark(100)
    emitted = [entry for entry in harness.output if not isinstance(entry, Watermark)]
    assert emitted == [("STATE:17", 6), ("STATE:42", 7)]


def test_c16_overdue_processing_time_timers_fire_at_once_after_restore() -> None:
    def element(value: Any, timers: Any) -> None:
        timers.register_processing_time_timer(value[1])

    harness = KeyedHarness.of(Scripted(element), key_of)
    for time in (100, 200, 900):
        harness.process_element(("a", time))
    restored = KeyedHarness.of(
        Scripted(element), key_of, restore=harness.snapshot(), processing_time_ms=500
    )
    assert event_times(restored) == [("a", 100), ("a", 200)]
    restored.set_processing_time(900)
    assert event_times(restored)[2:] == [("a", 900)]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (1, 4), (2, 1), (3, 2), (4, 4)])
def test_c17_timers_fire_exactly_once_after_a_rescale(before: int, after: int) -> None:
    keys = [f"key-{number}" for number in range(60)]
    merged: dict[int, Any] = {}
    for subtask in range(before):
        harness = KeyedHarness.of(
            Scripted(register), key_of, parallelism=before, subtask=subtask, max_parallelism=16
        )
        for key in keys:
            try:
                harness.process_element((key, 10))
            except ValueError:
                continue  # a key of another subtask
        merged.update(harness.snapshot())
    fired: list[Any] = []
    for subtask in range(after):
        restored = KeyedHarness.of(
            Scripted(register),
            key_of,
            parallelism=after,
            subtask=subtask,
            max_parallelism=16,
            restore=merged,
        )
        restored.process_watermark(10)
        fired.extend(key for key, _ in event_times(restored))
    assert sorted(fired) == sorted(keys)
