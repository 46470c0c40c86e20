"""The operators made for frequent windows give what the general one gives, in every respect (E24, E25)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Duration, Time, Types, WatermarkStrategy
from millpond.common.time import MAX_TIMESTAMP
from millpond.datastream import (
    AggregateFunction,
    DataStream,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    WindowedStream,
)
from millpond.datastream.columns import TimestampField, fields
from millpond.datastream.connectors.file_system import FileSource
from millpond.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millpond.datastream.state import ValueStateDescriptor
from millpond.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millpond.engine.passes import Passes, Sent
from millpond.engine.windows import choice
from millpond.errors import ProgramError, UserFunctionError
from millpond.plan.window_strategy import WindowStrategy
from millpond.testing import CUT, KeyedHarness, MarkedSource, direct_environment

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
SIDE = OutputTag("side", Types.PICKLED_BYTE_ARRAY())
ms = Time.milliseconds


class _AllInOneList(AggregateFunction):
    """Changes its accumulator, and what it is given, in place."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: Any, accumulator: list[int]) -> list[int]:
        accumulator.append(value[2])
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        accumulator.sort()
        return accumulator

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        acc_a.extend(acc_b)
        acc_b.clear()
        return acc_a


class _Tell(ProcessWindowFunction[Any, Any, str, Any]):
    """Tells all it knows, counts in both kinds of state, and spoils what it was given."""

    def __init__(self, has_window_state: bool) -> None:
        self._has_window_state = has_window_state

    def process(self, key: str, context: Any, elements: Any) -> Iterator[Any]:
        (content,) = elements
        seen = context.global_state().get_state(ValueStateDescriptor("seen", Types.INT()))
        seen.update((seen.value() or 0) + 1)
        fired = 0
        if self._has_window_state:
            state = context.window_state().get_state(ValueStateDescriptor("fired", Types.INT()))
            state.update((state.value() or 0) + 1)
            fired = state.value()
        window = context.window()
        result = [key, window.start, window.end, list(content), context.current_watermark(), fired]
        yield [*result, seen.value()]
        yield (SIDE, (key, window.start))
        content.clear()


class _TellAndClear(_Tell):
    def clear(self, context: Any) -> None:
        cleared = context.global_state().get_state(ValueStateDescriptor("seen", Types.INT()))
        cleared.update((cleared.value() or 0) + 100)


@contextmanager
def only_the_general_operator(wanted: bool) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if wanted:
            patch.setattr(choice, "window_strategy", lambda operation: WindowStrategy.GENERAL)
        yield


def run(
    build: Callable[[Any], DataStream],
    records: list[Any],
    general: bool = False,
    bound_ms: int = 20,
    max_parallelism: int = 1,
) -> list[Any]:
    environment = direct_environment({"pipeline.max-parallelism": max_parallelism})
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(bound_ms)
    ).with_timestamp_assigner(lambda record, _: record[1])
    stream = environment.from_source(MarkedSource(records), strategy, "records")
    with only_the_general_operator(general):
        results = build(stream.key_by(lambda record: record[0]))
        everything = results.map(lambda result: ("main", result))
        for tag in (LATE, SIDE):
            side = results.get_side_output(tag)
            everything = everything.union(side.map(lambda result, tag=tag: (tag.tag_id, result)))
        return list(everything.execute_and_collect())


def by_output(found: list[Any]) -> dict[str, list[Any]]:
    return {name: [result for own, result in found if own == name] for name, _ in found}


def by_output_and_key(found: list[Any]) -> dict[tuple[str, str], list[Any]]:
    grouped: dict[tuple[str, str], list[Any]] = {}
    for output, result in found:
        grouped.setdefault((output, result[0]), []).append(result)
    return grouped


RECORD = st.tuples(st.sampled_from("abc"), st.integers(-60, 300), st.integers(1, 9))
ASSIGNERS = {
    "tumbling": TumblingEventTimeWindows.of(ms(30), ms(-7)),
    "sliding": SlidingEventTimeWindows.of(ms(30), ms(10), ms(2)),
    "uneven": SlidingEventTimeWindows.of(ms(25), ms(10)),
    "gaps": SlidingEventTimeWindows.of(ms(10), ms(25)),
    "panes": SlidingEventTimeWindows.of(ms(50), ms(5)),
    "sessions": EventTimeSessionWindows.with_gap(ms(15)),
    "dynamic": EventTimeSessionWindows.with_dynamic_gap(lambda record: record[2] * 3),
}


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(list(ASSIGNERS)),
    records=st.lists(RECORD, max_size=40),
    cuts=st.sets(st.integers(0, 40)),
    lateness=st.sampled_from([0, 12, 61]),  # so that no window ends where another one goes
    window_state=st.booleans(),
    clears=st.booleans(),
)
def test_frequent_windows_give_what_the_general_operator_gives(
    kind: str,
    records: list[Any],
    cuts: set[int],
    lateness: int,
    window_state: bool,
    clears: bool,
) -> None:
    has_window_state = window_state and kind not in ("sessions", "dynamic")
    function = (_TellAndClear if clears else _Tell)(has_window_state)

    def build(stream: Any) -> DataStream:
        windows = stream.window(ASSIGNERS[kind]).allowed_lateness(lateness)
        return windows.side_output_late_data(LATE).aggregate(_AllInOneList(), function)  # type: ignore[no-any-return]

    general = run(build, records, general=True)
    special = run(build, records)
    assert by_output_and_key(special) == by_output_and_key(general)
    cut = [part for i, r in enumerate(records) for part in ([r, CUT] if i in cuts else [r])]
    assert by_output(run(build, cut)) == by_output(special)


class _Sum(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[2])

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class _Show(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return [(key, context.window().start, context.window().end, *elements)]


def sums(windows: WindowedStream) -> DataStream:
    return windows.aggregate(_Sum(), _Show())


@pytest.mark.parametrize("lateness", [0, 1000])
def test_batch_that_runs_again_gives_the_same(
    lateness: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that Spark tries again finds the state in memory as the first try left it."""
    records = [
        ("a", 41, 1), ("a", 52, 10), ("a", 63, 100), ("a", 74, 1000), CUT, ("z", 116, 0), CUT,
        ("z", 400, 0),
    ]  # fmt: skip

    def build(stream: Any) -> DataStream:
        return sums(
            stream.window(SlidingEventTimeWindows.of(ms(50), ms(10))).allowed_lateness(lateness)
        )

    once = run(build, records, bound_ms=30, max_parallelism=128)

    run_stage = Passes.run_stage

    def run_twice(
        self: Passes, stage: int, partition: int, epoch: int, blobs: Iterable[bytes]
    ) -> Sent:
        run_stage(self, stage, partition, epoch, blobs)
        return run_stage(self, stage, partition, epoch, blobs)

    monkeypatch.setattr(Passes, "run_stage", run_twice)
    assert run(build, records, bound_ms=30, max_parallelism=128) == once


@pytest.mark.parametrize("kind", ["tumbling", "sessions"])
def test_late_record_of_columns_is_a_record(kind: str, tmp_path: Any) -> None:
    (tmp_path / "views.csv").write_text("ann,1000,1\nann,9000,2\nbob,2000,3\n")
    schema = (
        CsvSchema.builder()
        .add_string_column("user")
        .add_number_column("time", Types.LONG())
        .add_number_column("amount", Types.LONG())
        .build()
    )
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path / "views.csv")
    ).build()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        TimestampField("time")
    )
    assigner: Any = {
        "tumbling": TumblingEventTimeWindows.of(Time.seconds(3)),
        "sessions": EventTimeSessionWindows.with_gap(Time.seconds(3)),
    }[kind]
    windows = (
        direct_environment()
        .from_source(source, strategy, "views")
        .key_by(fields("user"))
        .window(assigner)
        .side_output_late_data(LATE)
    )
    late = sums(windows).get_side_output(LATE)
    found = [tuple(record) for record in late.execute_and_collect()]
    assert found == [("bob", 2000, 3)]


@pytest.mark.parametrize("kind", ["tumbling", "panes"])
@pytest.mark.parametrize("lateness", [MAX_TIMESTAMP, 2**63])
def test_lateness_without_end_drops_nothing(kind: str, lateness: int) -> None:
    """C24."""
    harness = KeyedHarness(
        lambda stream: sums(
            stream.key_by(lambda r: r[0]).window(ASSIGNERS[kind]).allowed_lateness(lateness)
        )
    )
    harness.process_element(("a", 10, 1), 10)
    harness.process_watermark(1000)
    before = len(harness.values())
    harness.process_element(("a", 12, 2), 12)
    assert len(harness.values()) > before
    assert harness.metric("numLateRecordsDropped") == 0


@pytest.mark.parametrize("kind", ["tumbling", "panes", "sessions"])
def test_timestamps_at_the_end_of_time_have_windows(kind: str) -> None:
    def build(stream: Any) -> DataStream:
        return sums(stream.window(ASSIGNERS[kind]))

    records = [("a", MAX_TIMESTAMP - 100, 1), ("a", MAX_TIMESTAMP - 3, 2)]
    assert run(build, records) == run(build, records, general=True)


@pytest.mark.parametrize("kind", ["tumbling", "panes", "sessions"])
def test_late_element_after_the_end_of_event_time_is_late(kind: str) -> None:
    harness = KeyedHarness(
        lambda stream: sums(stream.key_by(lambda r: r[0]).window(ASSIGNERS[kind]))
    )
    harness.process_watermark(MAX_TIMESTAMP)
    harness.process_element(("a", 10, 1), 10)
    assert harness.metric("numLateRecordsDropped") == 1


class _FailsInClear(_Show):
    def clear(self, context: Any) -> None:
        raise ValueError("cannot clear")


class _FailsInMerge(_Sum):
    def merge(self, acc_a: int, acc_b: int) -> int:
        raise ValueError("cannot merge")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda w: w.aggregate(_Sum(), _FailsInClear()), "cannot clear"),
        (lambda w: w.aggregate(_FailsInMerge(), _Show()), "cannot merge"),
    ],
)
def test_failures_at_the_end_of_windows_name_the_operator(build: Any, message: str) -> None:
    records = [("a", 1, 1), ("a", 9, 1), ("a", 200, 1)]
    with pytest.raises(UserFunctionError, match=message) as caught:
        run(lambda stream: build(stream.window(ASSIGNERS["panes"])).name("my windows"), records)
    assert "my windows" in str(caught.value)


@pytest.mark.parametrize("kind", ["tumbling", "sessions"])
def test_record_without_a_timestamp_is_named(kind: str) -> None:
    harness = KeyedHarness(
        lambda stream: sums(stream.key_by(lambda r: r[0]).window(ASSIGNERS[kind]))
    )
    with pytest.raises(UserFunctionError, match="without a timestamp") as caught:
        harness.process_element(("ann", 10, 1))
    assert "'ann', 10, 1" in str(caught.value)


class _WithState(_Sum):
    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(ValueStateDescriptor("mine", Types.INT()))


def test_combining_function_is_refused_state() -> None:
    with pytest.raises((ProgramError, UserFunctionError), match="of a window has no state"):
        run(lambda s: s.window(ASSIGNERS["tumbling"]).aggregate(_WithState()), [("a", 1, 1)])


@pytest.mark.parametrize("kind", ["panes", "sessions"])
def test_keys_with_the_same_hash_come_in_the_same_order(kind: str) -> None:
    """1 and 2**32 have the same hash."""

    def build(stream: Any) -> DataStream:
        return sums(stream.window(ASSIGNERS[kind]))

    records = [(2**32, 1, 1), (1, 1, 2), (2**32, 2, 3), (1, 2, 4)]
    whole = run(build, records)
    for cut in range(1, 4):
        assert run(build, [*records[:cut], CUT, *records[cut:]]) == whole


@pytest.mark.parametrize("general", [False, True])
def test_result_that_changes_after_it_was_given_stays_as_it_was(general: bool) -> None:
    class Changing(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            result = [key, 0]
            yield result
            result[1] = 1
            yield result

    found = run(
        lambda stream: stream.window(ASSIGNERS["tumbling"]).aggregate(_Sum(), Changing()),
        [("a", 1, 1)],
        general,
    )
    assert [result for _, result in found] == [["a", 0], ["a", 1]]
