"""C18 to C32, C51: windows, triggers, evictors, late data; one operator, driven by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millpond.common import Time, Types, WatermarkStrategy
from millpond.common.time import MAX_TIMESTAMP
from millpond.datastream import (
    AggregateFunction,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    RuntimeContext,
    WindowFunction,
)
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaEvictor,
    DeltaTrigger,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
)
from millpond.driver.planning import plan_job
from millpond.errors import MillpondError, ProgramError
from millpond.plan.identity import identity_of
from millpond.plan.settings import JobStart
from millpond.testing import KeyedHarness, direct_environment

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


class Show(WindowFunction):
    """The number of elements and the window, if it is one of time."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        count = len(list(inputs))
        return [(count, window.start, window.end) if isinstance(window, TimeWindow) else count]


def windowed(
    assigner: Any, finish: Callable[[Any], Any] | None = None, **settings: Any
) -> KeyedHarness:
    """A harness for records ("key", ...) in windows; late ones go to LATE."""

    def build(stream: Any) -> Any:
        windows = stream.key_by(lambda record: record[0]).window(assigner)
        windows = windows.side_output_late_data(LATE)
        result = finish(windows) if finish else windows.apply(Show())
        result.get_side_output(LATE).print()
        return result

    return KeyedHarness(build, **settings)


def feed(harness: KeyedHarness, *steps: int | str) -> list[Any]:
    """Times are elements of key k, "wm 5" is a watermark. Returns what came out, with timestamps."""
    before = len(harness.output)
    for step in steps:
        if isinstance(step, str):
            harness.process_watermark(int(step.split()[1]))
        else:
            harness.process_element(("k", step), step)
    return [entry for entry in harness.output[before:] if len(entry) == 2]


def late(harness: KeyedHarness) -> list[int]:
    return [value[1] for value in harness.side_output(LATE)]


@pytest.mark.parametrize(
    ("timestamp", "offset", "start"),
    [(-1, 0, -7), (-7, 0, -7), (-8, 0, -14), (2, 3, -4), (3, 3, 3), (7, -3, 4)],
)
def test_c18_start_of_a_tumbling_window(timestamp: int, offset: int, start: int) -> None:
    assert TimeWindow.get_window_start_with_offset(timestamp, offset, 7) == start
    assigner = TumblingEventTimeWindows.of(Time.milliseconds(7), Time.milliseconds(offset))
    assert assigner.assign_windows(None, timestamp, None) == [TimeWindow(start, start + 7)]  # type: ignore[arg-type]


def test_c18_days_of_another_time_zone() -> None:
    assigner = TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))
    (window,) = assigner.assign_windows(None, 1470902048450, None)  # type: ignore[arg-type]
    assert window.start == 1470844800000


@pytest.mark.parametrize(
    ("timestamp", "offset", "starts"),
    [
        (0, 0, [-4000, -3000, -2000, -1000, 0]),
        (4999, 0, [0, 1000, 2000, 3000, 4000]),
        (5000, 0, [1000, 2000, 3000, 4000, 5000]),
        (100, 100, [-3900, -2900, -1900, -900, 100]),
    ],
)
def test_c19_windows_of_a_sliding_assigner(timestamp: int, offset: int, starts: list[int]) -> None:
    assigner = SlidingEventTimeWindows.of(
        Time.seconds(5), Time.seconds(1), Time.milliseconds(offset)
    )
    windows = assigner.assign_windows(None, timestamp, None)  # type: ignore[arg-type]
    assert sorted(window.start for window in windows) == starts


def test_c21_element_after_the_end_is_late() -> None:
    harness = windowed(TumblingEventTimeWindows.of(Time.seconds(2)))
    assert feed(harness, 1000, "wm 1985", 1980, "wm 1999") == [((2, 0, 2000), 1999)]
    assert feed(harness, 1998) == []
    assert late(harness) == [1998]
    assert harness.is_state_empty()


def test_c22_allowed_lateness_updates_the_result() -> None:
    harness = windowed(
        TumblingEventTimeWindows.of(Time.seconds(2)),
        lambda windows: (
            windows.allowed_lateness(500)
            .trigger(PurgingTrigger.of(EventTimeTrigger.create()))
            .apply(Show())
        ),
    )
    assert feed(harness, 500, "wm 1500", 1300, "wm 2300") == [((2, 0, 2000), 1999)]
    assert feed(harness, 1997) == [((1, 0, 2000), 1999)]
    assert feed(harness, "wm 6000", 1998) == []
    assert late(harness) == [1998]
    assert harness.is_state_empty()


def test_c23_late_for_one_window_only() -> None:
    harness = windowed(SlidingEventTimeWindows.of(Time.seconds(3), Time.seconds(1)))
    feed(harness, "wm 3000")
    assert feed(harness, 2400, "wm 10000") == [((1, 1000, 4000), 3999), ((1, 2000, 5000), 4999)]
    assert late(harness) == []


def test_c24_lateness_does_not_overflow() -> None:
    harness = windowed(
        TumblingEventTimeWindows.of(Time.seconds(2)),
        lambda windows: windows.allowed_lateness(MAX_TIMESTAMP).apply(Show()),
    )
    feed(harness, 1000)
    assert feed(harness, "wm 1999") == [((1, 0, 2000), 1999)]
    assert feed(harness, "wm 100000", 1500) == [((2, 0, 2000), 1999)]


def test_c25_sessions_merge_when_they_touch() -> None:
    harness = windowed(EventTimeSessionWindows.with_gap(Time.seconds(3)))
    feed(harness, 0, 1000, 2500, 5501, 6000, 6000, 6050)
    assert feed(harness, "wm 12000") == [((3, 0, 5500), 5499), ((4, 5501, 9050), 9049)]
    assert harness.is_state_empty()


def test_c26_sessions_and_late_elements() -> None:
    harness = windowed(EventTimeSessionWindows.with_gap(Time.seconds(3)))
    feed(harness, 1000, 2000, "wm 4998", 4500, 8500, "wm 7400", 7000)
    assert feed(harness, "wm 11501") == [((5, 1000, 11500), 11499)]
    assert feed(harness, 11600, "wm 14600") == [((1, 11600, 14600), 14599)]
    assert feed(harness, 10000) == []
    assert late(harness) == [10000]
    assert feed(harness, 14500, "wm 20000") == [((1, 14500, 17500), 17499)]
    assert harness.is_state_empty()


@pytest.mark.parametrize("how", ["apply", "reduce", "aggregate"])
def test_c27_c51_late_element_joins_sessions_and_nothing_is_lost(how: str) -> None:
    class Count(AggregateFunction):
        def create_accumulator(self) -> int:
            return 0

        def add(self, value: Any, accumulator: int) -> int:
            return accumulator + 1

        def get_result(self, accumulator: int) -> int:
            return accumulator

        def merge(self, acc_a: int, acc_b: int) -> int:
            return acc_a + acc_b

    class Number(WindowFunction):
        def apply(self, key: Any, window: Any, inputs: Any) -> Any:
            (content,) = inputs
            count = content if how == "aggregate" else content[2]
            return [(count, window.start, window.end)]

    def finish(windows: Any) -> Any:
        windows = windows.allowed_lateness(10)
        if how == "apply":
            return windows.apply(Show())
        if how == "reduce":
            return windows.reduce(lambda a, b: (a[0], a[1], a[2] + b[2]), Number())
        return windows.aggregate(Count(), Number())

    harness = windowed(EventTimeSessionWindows.with_gap(Time.seconds(3)), finish)

    def feed1(*steps: Any) -> list[Any]:
        before = len(harness.output)
        for step in steps:
            if isinstance(step, str):
                harness.process_watermark(int(step.split()[1]))
            else:
                harness.process_element(("k", step, 1), step)
        return [entry for entry in harness.output[before:] if len(entry) == 2]

    feed1(1000, 2000, "wm 4998", 4500, 8500, "wm 7400", 7000)
    assert feed1("wm 11501") == [((5, 1000, 11500), 11499)]
    assert feed1(11600, "wm 14600") == [((1, 11600, 14600), 14599)]
    assert feed1(10000) == [((2, 10000, 14600), 14599)]
    assert feed1(14500, "wm 20000") == [((3, 10000, 17500), 17499)]
    assert harness.is_state_empty()


def test_c28_merge_into_the_past_is_an_error() -> None:
    class Shrinking(EventTimeSessionWindows):
        def merge_windows(
            self, windows: Any, callback: MergingWindowAssigner.MergeCallback
        ) -> None:
            known = list(windows)
            if len(known) > 1:
                callback.merge(known, TimeWindow(0, 10))

    harness = windowed(Shrinking(3000))
    feed(harness, 1000, "wm 2000")
    with pytest.raises(MillpondError, match="late already"):
        feed(harness, 2500)


def counted(**settings: Any) -> KeyedHarness:
    return KeyedHarness(
        lambda stream: stream.key_by(lambda record: record[0]).count_window(3).sum(1), **settings
    )


def test_c29_count_window_survives_restore_and_leaves_nothing() -> None:
    harness = counted()
    for number in (1, 2):
        harness.process_element(("k", number))
    restored = counted(restore=harness.snapshot())
    restored.process_element(("k", 3))
    assert restored.values() == [("k", 6)]
    assert restored.is_state_empty()


@pytest.mark.parametrize("how", ["count_window", "assigner"])
def test_c30_sliding_count_windows_fire_when_full(how: str) -> None:
    def build(stream: Any) -> Any:
        keyed = stream.key_by(lambda record: record[0])
        if how == "count_window":
            return keyed.count_window(2, 1).sum(1)
        return keyed.window(CountSlidingWindowAssigner.of(2, 1)).sum(1)

    harness = KeyedHarness(build)
    for number in (1, 3, 5):
        harness.process_element(("k", number))
    assert harness.values() == [("k", 4), ("k", 8)]


def test_tumbling_count_assigner() -> None:
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda record: record[0]).window(CountTumblingWindowAssigner.of(2)).sum(1)
        )
    )
    for number in (1, 2, 3, 4, 5):
        harness.process_element(("k", number))
    assert harness.values() == [("k", 3), ("k", 7)]


def evicting(evictor: Any, trigger: Any) -> KeyedHarness:
    def finish(windows: Any) -> Any:
        return windows.trigger(trigger).evictor(evictor).apply(Show())

    return windowed(GlobalWindows.create(), finish)


def test_c30_evictor_that_evicts_after_the_function() -> None:
    harness = evicting(CountEvictor.of(4, True), CountTrigger.of(2))
    assert [value for value, _ in feed(harness, *range(8))] == [2, 4, 6, 6]


def test_evictor_that_evicts_before_the_function() -> None:
    harness = evicting(CountEvictor.of(3), CountTrigger.of(2))
    assert [value for value, _ in feed(harness, *range(8))] == [2, 3, 3, 3]


def test_c31_time_evictor() -> None:
    harness = evicting(TimeEvictor.of(Time.seconds(2)), CountTrigger.of(4))
    assert [value for value, _ in feed(harness, 1000, 2000, 3000, 4000)] == [2]
    untimed = evicting(TimeEvictor.of(Time.seconds(2)), CountTrigger.of(4))
    for _ in range(4):
        untimed.process_element(("k", 0))
    assert untimed.values() == [4]


def test_delta_evictor_and_delta_trigger() -> None:
    def difference(a: Any, b: Any) -> float:
        return float(b[1] - a[1])

    harness = evicting(DeltaEvictor.of(100, difference), DeltaTrigger.of(50, difference))
    assert [value for value, _ in feed(harness, 0, 40, 60, 100, 120, 200)] == [3, 4, 2]


def test_evictor_with_reduce_and_process() -> None:
    class Last(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            yield (key, list(elements))

    def finish(windows: Any) -> Any:
        windows = windows.trigger(CountTrigger.of(2)).evictor(CountEvictor.of(2))
        return windows.reduce(lambda a, b: (a[0], a[1] + b[1]), Last())

    harness = windowed(GlobalWindows.create(), finish)
    assert [value for value, _ in feed(harness, 1, 2, 3, 4)] == [
        ("k", [("k", 3)]),
        ("k", [("k", 7)]),
    ]


def test_c32_global_windows_are_never_late() -> None:
    harness = windowed(
        GlobalWindows.create(), lambda windows: windows.trigger(CountTrigger.of(2)).apply(Show())
    )
    assert feed(harness, "wm 1000000", 5, 6) == [(2, MAX_TIMESTAMP)]
    assert late(harness) == []


def test_late_records_are_counted_if_nobody_wants_them() -> None:
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda record: record[0])
            .window(TumblingEventTimeWindows.of(Time.seconds(1)))
            .apply(Show())
        )
    )
    feed(harness, "wm 5000", 100, 200)
    assert harness.metric("numLateRecordsDropped") == 2


def test_continuous_event_time_trigger_fires_along_the_window() -> None:
    harness = windowed(
        TumblingEventTimeWindows.of(Time.seconds(10)),
        lambda windows: windows.trigger(ContinuousEventTimeTrigger.of(Time.seconds(3))).apply(
            Show()
        ),
    )
    feed(harness, 1000)
    assert feed(harness, "wm 3000") == [((1, 0, 10000), 9999)]
    feed(harness, 4000)
    assert feed(harness, "wm 7000") == [((2, 0, 10000), 9999)]
    assert feed(harness, "wm 20000") == [((2, 0, 10000), 9999)] * 2  # at 9000 and at the end
    assert harness.is_state_empty()


def processing(assigner: Any, trigger: Any = None) -> KeyedHarness:
    def finish(windows: Any) -> Any:
        return (windows.trigger(trigger) if trigger else windows).apply(Show())

    return windowed(assigner, finish, processing_time_ms=1000)


def test_processing_time_windows_close_without_data() -> None:
    harness = processing(TumblingProcessingTimeWindows.of(Time.seconds(2)))
    feed(harness, 7, 8)
    harness.set_processing_time(1998)
    assert harness.values() == []
    harness.set_processing_time(1999)
    assert harness.values() == [(2, 0, 2000)]
    assert harness.is_state_empty()
    harness = processing(SlidingProcessingTimeWindows.of(Time.seconds(2), Time.seconds(1)))
    feed(harness, 7)
    harness.set_processing_time(10_000)
    assert harness.values() == [(1, 0, 2000), (1, 1000, 3000)]
    harness = processing(ProcessingTimeSessionWindows.with_gap(Time.seconds(2)))
    feed(harness, 7)
    harness.set_processing_time(2500)
    feed(harness, 8)
    harness.set_processing_time(4499)
    assert harness.values() == [(2, 1000, 4500)]
    assert harness.is_state_empty()


def test_continuous_processing_time_trigger() -> None:
    harness = processing(
        GlobalWindows.create(), ContinuousProcessingTimeTrigger.of(Time.seconds(1))
    )
    feed(harness, 7)
    harness.set_processing_time(2000)
    feed(harness, 8)
    harness.set_processing_time(3500)
    assert harness.values() == [1, 2]


def test_dynamic_gap() -> None:
    harness = windowed(DynamicEventTimeSessionWindows.with_dynamic_gap(lambda record: record[1]))
    feed(harness, 10, 15)  # [10, 20), [15, 30)
    assert feed(harness, "wm 1000") == [((2, 10, 30), 29)]


class Every(Trigger):
    """A user's own: fires with every second element, remembers how often, merges its count."""

    counts = ValueStateDescriptor("seen", Types.INT())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        state = ctx.get_partitioned_state(self.counts)
        state.update((state.value() or 0) + 1)
        return TriggerResult.FIRE if state.value() % 2 == 0 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Any) -> None:
        raise AssertionError("never merges")

    def clear(self, window: Window, ctx: Any) -> None:
        """Leaves its state behind: it goes with the window anyway."""


def test_trigger_of_ones_own() -> None:
    harness = windowed(
        TumblingEventTimeWindows.of(Time.seconds(1)),
        lambda windows: windows.trigger(Every()).apply(Show()),
    )
    assert feed(harness, 1, 2, 3, 4) == [((2, 0, 1000), 999), ((4, 0, 1000), 999)]
    assert feed(harness, "wm 1000") == []
    assert harness.is_state_empty()
    with pytest.raises(ProgramError, match="Every cannot be used with EventTimeSessionWindows"):
        windowed(
            EventTimeSessionWindows.with_gap(Time.seconds(1)),
            lambda windows: windows.trigger(Every()).apply(Show()),
        )


class Remember(ProcessWindowFunction):
    """State of the window counts its firings, state of the key those of all windows."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.firings = ValueStateDescriptor("firings", Types.INT())

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        counts = []
        for store in (context.window_state(), context.global_state()):
            state = store.get_state(self.firings)
            state.update((state.value() or 0) + 1)
            counts.append(state.value())
        yield (context.window().start, context.current_watermark(), *counts, len(list(elements)))


def test_state_of_the_window_and_of_the_key() -> None:
    harness = windowed(
        TumblingEventTimeWindows.of(Time.seconds(1)),
        lambda windows: windows.allowed_lateness(5000).process(Remember()),
    )
    feed(harness, 1, "wm 999", 2, 1500, "wm 1999")
    values = harness.values()
    assert values == [(0, 999, 1, 1, 1), (0, 999, 2, 2, 2), (1000, 1999, 1, 3, 1)]
    feed(harness, "wm 100000")
    assert not harness.is_state_empty()  # what belongs to the key is the user's to clear
    assert harness.event_time_timers() == 0


def test_window_state_comes_back_with_timers() -> None:
    assigner = EventTimeSessionWindows.with_gap(Time.seconds(3))
    harness = windowed(assigner)
    feed(harness, 1000, 2000, "wm 1500")
    restored = windowed(assigner, restore=harness.snapshot())
    restored.watermark = 1500
    feed(restored, 4000)
    assert feed(restored, "wm 10000") == [((3, 1000, 7000), 6999)]
    assert restored.is_state_empty()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda keyed: keyed.window(Time.seconds(1)), "takes a WindowAssigner"),
        (lambda keyed: TumblingEventTimeWindows.of(Time.seconds(0)), "at least 1 ms"),
        (
            lambda keyed: TumblingEventTimeWindows.of(Time.seconds(1), Time.seconds(2)),
            "must be smaller than its size",
        ),
        (lambda keyed: keyed.count_window(0), "at least 1"),
        (lambda keyed: keyed.count_window(2).allowed_lateness(-1), "0 or more"),
        (lambda keyed: keyed.count_window(2).apply(lambda *_: []), "takes a WindowFunction"),
        (lambda keyed: keyed.count_window(2).aggregate(len), "takes an AggregateFunction"),
        (lambda keyed: keyed.count_window(2).trigger(CountTrigger), "takes a Trigger"),
    ],
)
def test_misuse_is_refused_when_the_program_is_built(build: Any, message: str) -> None:
    with pytest.raises((ProgramError, TypeError), match=message):
        KeyedHarness(lambda stream: build(stream.key_by(lambda record: record[0])))


def test_record_without_timestamp_is_a_clear_error() -> None:
    harness = windowed(TumblingEventTimeWindows.of(Time.seconds(1)))
    with pytest.raises(MillpondError, match="without a timestamp reached an event-time window"):
        harness.process_element(("k", 1))


class Adds(AggregateFunction):
    """Counts its own work."""

    adds = 0
    merges = 0

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        Adds.adds += 1
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        Adds.merges += 1
        return acc_a + acc_b


@pytest.mark.parametrize("slide_s", [3600, 60, 1])
def test_element_is_added_once_however_many_windows_it_is_in(
    slide_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Adds, "adds", 0)
    assigner = SlidingEventTimeWindows.of(Time.hours(1), Time.seconds(slide_s))
    harness = KeyedHarness(
        lambda stream: stream.key_by(lambda record: record[0]).window(assigner).aggregate(Adds())
    )
    for number in range(10):
        harness.process_element(("k", number), 100_000 + number)
    assert Adds.adds == 10
    harness.process_watermark(10_000_000)
    assert harness.values() == [10] * (3600 // slide_s)
    assert Adds.adds == 10
    assert harness.is_state_empty()


def test_merge_that_returns_nothing_is_a_clear_error() -> None:
    class Forgetful(Adds):
        def merge(self, acc_a: int, acc_b: int) -> Any:
            return None

    assigner = SlidingEventTimeWindows.of(Time.seconds(2), Time.seconds(1))
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda record: record[0]).window(assigner).aggregate(Forgetful())
        )
    )
    feed(harness, 100, 1100)
    with pytest.raises(MillpondError, match=r"Forgetful.merge returned None"):
        feed(harness, "wm 5000")


def test_windows_that_do_not_touch_leave_out_what_is_between() -> None:
    harness = windowed(SlidingEventTimeWindows.of(Time.seconds(1), Time.seconds(3)))
    feed(harness, 500, 1500, 2500, 3500)
    assert feed(harness, "wm 10000") == [((1, 0, 1000), 999), ((1, 3000, 4000), 3999)]
    assert late(harness) == []
    assert harness.is_state_empty()


def test_window_all_sees_the_whole_stream() -> None:
    class Total(ProcessAllWindowFunction):
        def process(self, context: Any, elements: Any) -> Any:
            yield (context.window().start, sum(value for _, value in elements))

    environment = direct_environment({"parallelism.default": 3})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    records = [("a", 100), ("b", 200), ("c", 1100)]
    stream = environment.from_collection(records).assign_timestamps_and_watermarks(strategy)
    windows = stream.window_all(TumblingEventTimeWindows.of(Time.seconds(1)))
    assert sorted(windows.process(Total()).execute_and_collect()) == [(0, 300), (1000, 1100)]
    with pytest.raises(TypeError, match="takes a ProcessAllWindowFunction"):
        windows.process(Remember())


class Firings(ProcessWindowFunction[Any, Any, Any, Any]):
    """Counts the firings of a window in its state."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        state = context.window_state().get_state(ValueStateDescriptor("n", Types.INT()))
        state.update((state.value() or 0) + 1)
        yield state.value()


def test_state_of_a_window_goes_with_it_also_after_a_restart() -> None:
    def finish(windows: Any) -> Any:
        return windows.allowed_lateness(5000).process(Firings())

    assigner = TumblingEventTimeWindows.of(Time.seconds(1))
    harness = windowed(assigner, finish)
    feed(harness, 1, "wm 999")
    restored = windowed(assigner, finish, restore=harness.snapshot())
    restored.watermark = 999
    feed(restored, "wm 100000")
    assert restored.is_state_empty()


def test_state_of_windows_that_merge_is_refused() -> None:
    harness = windowed(
        EventTimeSessionWindows.with_gap(Time.seconds(1)),
        lambda windows: windows.process(Firings()),
    )
    feed(harness, 1)
    with pytest.raises(MillpondError, match="session windows are merged"):
        feed(harness, "wm 5000")


def test_late_element_between_windows_is_late() -> None:
    harness = windowed(SlidingEventTimeWindows.of(Time.seconds(1), Time.seconds(3)))
    feed(harness, "wm 100000", 1500)
    assert late(harness) == [1500]


def test_late_firings_leave_nothing_in_memory() -> None:
    def finish(windows: Any) -> Any:
        return windows.allowed_lateness(5000).aggregate(Adds())

    assigner = SlidingEventTimeWindows.of(Time.seconds(10), Time.seconds(1))
    harness = windowed(assigner, finish)
    feed(harness, "wm 12000")
    for number in range(20):
        harness.process_element((f"key-{number}", 0), 8000)
    feed(harness, "wm 1000000")
    assert harness.is_state_empty()
    assert all(not state.derived for state in harness._states.values())


def test_changed_window_cannot_go_on_with_the_state_of_another() -> None:
    def layout(finish: Any) -> Any:
        environment = direct_environment()
        keyed = environment.from_collection([("a", 1)]).key_by(lambda record: record[0])
        finish(keyed).uid("window").print()
        plan = plan_job(
            environment._pending_graph(), environment._configuration, environment.get_config(), None
        )
        return identity_of(plan.starting_from(JobStart("job")))

    def tumbling(seconds: int) -> Any:
        return TumblingEventTimeWindows.of(Time.seconds(seconds))

    first = layout(lambda keyed: keyed.window(tumbling(10)).sum(1))
    assert first == layout(lambda keyed: keyed.window(tumbling(10)).allowed_lateness(5).sum(1))
    assert first != layout(lambda keyed: keyed.window(tumbling(20)).sum(1))
    purging = PurgingTrigger.of(EventTimeTrigger.create())
    assert first != layout(lambda keyed: keyed.window(tumbling(10)).trigger(purging).sum(1))


def test_process_function_behind_reduce_knows_its_window_also_with_an_evictor() -> None:
    class WithWindow(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            state = context.window_state().get_state(ValueStateDescriptor("n", Types.INT()))
            state.update((state.value() or 0) + 1)
            yield (context.window().start, state.value(), *elements)

    def finish(windows: Any) -> Any:
        evicting_windows = windows.evictor(CountEvictor.of(2))
        return evicting_windows.reduce(lambda a, b: (a[0], a[1] + b[1]), WithWindow())

    harness = windowed(TumblingEventTimeWindows.of(Time.seconds(1)), finish)
    feed(harness, 100, 200, 300)
    assert feed(harness, "wm 1000") == [((0, 1, ("k", 500)), 999)]
    assert harness.is_state_empty()


@pytest.mark.parametrize(
    "lateness", [0, 1]
)  # by the operator made for sessions, and by the general one
def test_sessions_that_become_one_are_merged_in_the_order_of_time(lateness: int) -> None:
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda record: record[0])
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
            .allowed_lateness(lateness)
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
    )
    for name, time_ms in (("b", 20), ("a", 0), ("c", 10)):
        harness.process_element(("k", name), time_ms)
    harness.process_watermark(100)
    assert harness.values() == [("k", "abc")]
