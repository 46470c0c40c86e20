"""Window join, co-group and interval join (E24), on the direct executor and by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Duration, Time, Types, WatermarkStrategy
from millpond.datastream import DataStream, KeySelector, OutputTag, RuntimeContext
from millpond.datastream.joins import CoGroupFunction, JoinFunction, ProcessJoinFunction
from millpond.datastream.state import MapStateDescriptor
from millpond.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from millpond.errors import ProgramError
from millpond.testing import KeyedHarness, MarkedSource, direct_environment

RECORDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=12)
LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())


def two_streams(
    first: list[Any], second: list[Any], bound_ms: int = 100, **settings_: Any
) -> tuple[DataStream, DataStream]:
    environment = direct_environment({"parallelism.default": 2, **settings_})
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(bound_ms)
    ).with_timestamp_assigner(lambda record, _: record[1])
    one, two = (
        environment.from_source(MarkedSource(records), strategy, "records")
        for records in (first, second)
    )
    return one, two


class Both(CoGroupFunction):
    def co_group(self, first: Any, second: Any) -> Any:
        yield (sorted(time for _, time in first), sorted(time for _, time in second))


class Pair(JoinFunction):
    def join(self, first: Any, second: Any) -> Any:
        return (first[0], first[1], second[1])


@settings(max_examples=20, deadline=None)
@given(RECORDS, RECORDS, st.sampled_from([1, 3, 1000]))
def test_window_join_gives_all_pairs_of_a_window(
    first: list[Any], second: list[Any], batch_records: int
) -> None:
    one, two = two_streams(first, second, **{"millpond.batch.max-records": batch_records})
    windows = one.join(two).where(lambda r: r[0]).equal_to(lambda r: r[0])
    joined = windows.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).apply(Pair())
    expected = [
        (key, left, right)
        for key, left in first
        for other, right in second
        if key == other and left // 20 == right // 20
    ]
    assert sorted(joined.execute_and_collect()) == sorted(expected)


def test_co_group_sees_sides_without_partner() -> None:
    one, two = two_streams([("a", 1), ("a", 2), ("b", 3)], [("a", 4), ("c", 25)])
    groups = one.co_group(two).where(lambda r: r[0]).equal_to(lambda r: r[0])
    result = groups.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).apply(Both())
    assert sorted(result.execute_and_collect()) == [([], [25]), ([1, 2], [4]), ([3], [])]


def test_plain_function_and_sessions() -> None:
    one, two = two_streams([("a", 1), ("a", 50)], [("a", 8), ("a", 90)])
    joined = one.join(two).where(lambda r: r[0]).equal_to(lambda r: r[0])
    result = joined.window(EventTimeSessionWindows.with_gap(Time.milliseconds(10))).apply(
        lambda first, second: (first[1], second[1])
    )
    assert list(result.execute_and_collect()) == [(1, 8)]


class Show(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        assert ctx.get_left_timestamp() == left[1]
        assert ctx.get_right_timestamp() == right[1]
        yield (left[0], left[1], right[1], ctx.get_timestamp())


@settings(max_examples=25, deadline=None)
@given(
    RECORDS,
    RECORDS,
    st.sampled_from([(-5, 5), (0, 10), (-20, -3), (3, 9)]),
    st.booleans(),
    st.sampled_from([1, 3, 1000]),
)
def test_interval_join_gives_all_pairs_within_the_interval(
    first: list[Any],
    second: list[Any],
    bounds: tuple[int, int],
    exclusive: bool,
    batch_records: int,
) -> None:
    one, two = two_streams(first, second, **{"millpond.batch.max-records": batch_records})
    lower, upper = bounds
    join = one.key_by(lambda r: r[0]).interval_join(two.key_by(lambda r: r[0]))
    join = join.between(Time.milliseconds(lower), Time.milliseconds(upper))
    if exclusive:
        join = join.lower_bound_exclusive().upper_bound_exclusive()
        lower, upper = lower + 1, upper - 1
    expected = [
        (key, left, right, max(left, right))
        for key, left in first
        for other, right in second
        if key == other and left + lower <= right <= left + upper
    ]
    assert sorted(join.process(Show()).execute_and_collect()) == sorted(expected)


def interval_harness() -> KeyedHarness:
    def build(left: Any, right: Any) -> Any:
        join = left.key_by(lambda r: r[0]).interval_join(right.key_by(lambda r: r[0]))
        join = join.between(Time.milliseconds(-5), Time.milliseconds(10))
        result = join.side_output_left_late_data(LATE).process(Show())
        result.get_side_output(LATE).print()
        return result

    return KeyedHarness(build, inputs=2)


def test_results_carry_the_larger_timestamp_and_nothing_is_left_behind() -> None:
    harness = interval_harness()
    harness.process_element(("k", 100), 100, input=0)
    harness.process_element(("k", 96), 96, input=1)
    harness.process_element(("k", 110), 110, input=1)
    harness.process_element(("k", 111), 111, input=1)
    assert harness.output == [(("k", 100, 96, 100), 100), (("k", 100, 110, 110), 110)]
    harness.process_watermark(200)
    assert harness.is_state_empty()
    assert harness.event_time_timers() == 0


def test_late_elements_are_dropped_and_counted_or_put_aside() -> None:
    harness = interval_harness()
    harness.process_watermark(1000)
    harness.process_element(("k", 10), 10, input=0)
    harness.process_element(("k", 10), 10, input=1)
    assert harness.values() == []
    assert harness.side_output(LATE) == [("k", 10)]
    assert harness.metric("numLateRecordsDropped") == 1
    assert harness.is_state_empty()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda one, two: one.join(two).window(None), r"call where\(...\)"),
        (
            lambda one, two: one.key_by(id).interval_join(two.key_by(id)).process(Show()),
            "needs bounds",
        ),
        (
            lambda one, two: (
                one.key_by(id)
                .interval_join(two.key_by(id))
                .between(Time.seconds(2), Time.seconds(1))
            ),
            "is above the upper one",
        ),
    ],
)
def test_misuse_is_refused(build: Any, message: str) -> None:
    one, two = two_streams([], [])
    with pytest.raises(ProgramError, match=message):
        build(one, two)


def test_key_selectors_of_a_join_are_opened() -> None:
    class First(KeySelector):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.position = 0

        def get_key(self, value: Any) -> Any:
            return value[self.position]

    one, two = two_streams([("a", 1)], [("a", 2)])
    joined = one.join(two).where(First()).equal_to(First())
    result = joined.window(TumblingEventTimeWindows.of(Time.milliseconds(20))).apply(Pair())
    assert list(result.execute_and_collect()) == [("a", 1, 2)]


def test_function_of_an_interval_join_may_call_its_state_left() -> None:
    class Counting(ProcessJoinFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.left = runtime_context.get_map_state(
                MapStateDescriptor("left", Types.STRING(), Types.INT())
            )

        def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
            self.left.put("pairs", (self.left.get("pairs") or 0) + 1)
            yield self.left.get("pairs")

    one, two = two_streams([("a", 1)], [("a", 2), ("a", 3)])
    join = one.key_by(lambda r: r[0]).interval_join(two.key_by(lambda r: r[0]))
    join = join.between(Time.milliseconds(0), Time.milliseconds(9))
    assert list(join.process(Counting()).execute_and_collect()) == [1, 2]
