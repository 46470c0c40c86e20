"""Functions on columns (issue: vectorised functions; E20-E23): what they see and give is what a function
that takes one record at a time sees and gives, wherever batches are cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Duration, RestartStrategies, Row, Types, WatermarkStrategy
from millpond.common.time import MAX_TIMESTAMP
from millpond.datastream import KeyedProcessFunction, OutputTag, RuntimeContext
from millpond.datastream.columns import (
    ColumnStateDescriptor,
    KeyedColumnFunction,
    KeyedColumns,
    TimestampField,
    fields,
)
from millpond.datastream.connectors.base import Source
from millpond.datastream.connectors.file_system import FileSource
from millpond.datastream.formats.csv import CsvReaderFormat, CsvSchema
from millpond.datastream.state import ValueStateDescriptor
from millpond.errors import MillpondError, ProgramError, UserFunctionError
from millpond.testing import CUT, KeyedHarness, MarkedSource, direct_environment

RECORD = st.tuples(st.sampled_from("abcde"), st.integers(0, 60), st.integers(1, 30))


class Delay(KeyedProcessFunction):
    """Sums what came since the last timer; emits it when a timer fires, also one in the past."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: tuple[str, int, int], ctx: Any) -> Any:
        key, time_ms, delay_ms = value
        self.total.update((self.total.value() or 0) + delay_ms)
        ctx.timer_service().register_event_time_timer(time_ms + delay_ms - 10)
        if delay_ms % 5 == 0:
            ctx.timer_service().delete_event_time_timer(time_ms + delay_ms - 5)
        yield (key, "in", time_ms, ctx.timer_service().current_watermark())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        total = self.total.value()
        if total is not None:
            self.total.clear()
            ctx.timer_service().register_event_time_timer(timestamp + 7)
            yield (ctx.get_current_key(), "timer", timestamp, total)


class DelayOnColumns(KeyedColumnFunction):
    """The same, event by event: the point here is what it gets, not how fast it is."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_column_state(ColumnStateDescriptor("total", Types.LONG()))
        self.events = runtime_context.get_metrics_group().counter("events")

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        delays = iter(events.column("f2").tolist())
        self.events.inc(len(events))
        for number in range(len(events)):
            at, row = numpy.array([number]), events.rows[number : number + 1]
            (key,), time_ms = events.keys(at), int(events.times[number])
            if not events.fired[number]:
                delay_ms = next(delays)
                self.total.put(row, self.total.get(row) + delay_ms)
                ctx.register_event_time_timers(at, time_ms + delay_ms - 10)
                if delay_ms % 5 == 0:
                    ctx.delete_event_time_timers(at, time_ms + delay_ms - 5)
                ctx.collect(at, [(key, "in", time_ms, int(events.watermarks[number]))])
            elif (total := int(self.total.get(row)[0])) != 0:
                self.total.put(row, 0)
                ctx.register_event_time_timers(at, time_ms + 7)
                ctx.collect(at, [(key, "timer", time_ms, total)])


class Journal(KeyedProcessFunction):
    """Numbers what it gets."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        yield (self.number.value(), value, ctx.timestamp())


def run(
    source: Source, function: Any, parallelism: int, batch_records: int, bound_ms: int
) -> list[Any]:
    environment = direct_environment(
        {"parallelism.default": parallelism, "millpond.batch.max-records": batch_records}
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(bound_ms)
    ).with_timestamp_assigner(lambda record, _: record[1])
    keyed = environment.from_source(source, strategy, "records").key_by(fields(0))
    if isinstance(function, KeyedColumnFunction):
        delayed = keyed.process_columns(function)
    else:
        delayed = keyed.process(function)
    results = delayed.key_by(lambda event: event[0]).process(Journal()).execute_and_collect()
    return sorted(results, key=repr)


@given(
    records=st.lists(st.one_of(RECORD, RECORD, RECORD, st.just(CUT)), max_size=40),
    parallelism=st.integers(1, 3),
    batch_records=st.sampled_from([3, 10, 1000]),
    bound_ms=st.sampled_from([0, 5, 20]),
)
@settings(max_examples=60, deadline=None)
def test_function_on_columns_gives_what_one_on_records_gives(
    records: list[Any], parallelism: int, batch_records: int, bound_ms: int
) -> None:
    """Timers in the past and within the stretch, deleted timers, timers that set timers (C12, C13)."""
    expected = run(MarkedSource(records), Delay(), 1, 1000, bound_ms)
    result = run(MarkedSource(records), DelayOnColumns(), parallelism, batch_records, bound_ms)
    assert result == expected


class Count(KeyedColumnFunction):
    """Views per key within 100 ms, with NumPy."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_column_state(ColumnStateDescriptor("counts", Types.INT()))
        self.calls = runtime_context.get_metrics_group().counter("calls")

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        self.calls.inc(len(events))
        counts = self.counts.running_sum(events.rows, numpy.where(events.fired, -1, 1))
        seen = ~events.fired
        ctx.register_event_time_timers(seen, events.times[seen] + 100)
        ctx.collect(seen, counts[seen])


def count_harness(**settings: Any) -> KeyedHarness:
    return KeyedHarness(lambda s: s.key_by(lambda r: r[0]).process_columns(Count()), **settings)


def test_key_without_content_leaves_nothing_behind() -> None:
    harness = count_harness()
    for time_ms in (10, 20, 30):
        harness.process_element(("ann",), time_ms)
    harness.process_element(("bob",), 40)
    assert harness.values() == [1, 2, 3, 1]
    assert harness.event_time_timers() == 4
    harness.process_watermark(125)
    harness.process_element(("ann",), 126)
    assert harness.values()[-1] == 2
    harness.process_watermark(10_000)
    assert harness.event_time_timers() == 0
    assert harness.is_state_empty()


def test_state_and_timers_come_back_from_a_snapshot_at_another_parallelism() -> None:
    harness = count_harness()
    for number in range(20):
        harness.process_element((f"user-{number}",), number)
    harness.process_watermark(105)  # the views up to 5 are gone
    harness.process_element(("user-0",), 106)
    snapshot = harness.snapshot()
    seen: dict[str, int] = {}
    for subtask in range(2):
        restored = count_harness(parallelism=2, subtask=subtask, restore=snapshot)
        restored.watermark = 105
        for number in range(20):
            try:
                restored.process_element((f"user-{number}",), 200)
            except ValueError:  # a key of the other subtask
                continue
            seen[f"user-{number}"] = restored.values()[-1]
    assert seen == {f"user-{n}": 1 if 0 < n <= 5 else 2 for n in range(20)}


def test_timer_set_twice_fires_once_and_end_of_time_fires_all() -> None:
    harness = count_harness()
    harness.process_element(("ann",), 10)
    harness.process_element(("ann",), 10)
    fired: list[int] = []

    class Watch(Count):
        def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
            fired.extend(events.times[events.fired].tolist())
            seen = ~events.fired
            ctx.register_event_time_timers(seen, events.times[seen] + 100)
            ctx.register_event_time_timers(seen, MAX_TIMESTAMP)

    harness = KeyedHarness(lambda s: s.key_by(lambda r: r[0]).process_columns(Watch()))
    for _ in range(2):
        harness.process_element(("ann",), 10)
    harness.process_watermark(MAX_TIMESTAMP)
    assert fired == [110, MAX_TIMESTAMP]


def test_taken_back_calls_are_not_counted_twice() -> None:
    """A stretch that turns out to be too long is done again; metrics count its events once."""
    environment = direct_environment({"parallelism.default": 1})
    records = [("ann", time_ms) for time_ms in range(0, 1000, 10)]
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        TimestampField(1)
    )
    stream = environment.from_collection(records).assign_timestamps_and_watermarks(strategy)
    stream.key_by(fields(0)).process_columns(Count()).name("count").print()
    result = environment.execute()
    assert result.get_accumulator_result("count.calls") == 200  # views and timers


class Numbers(KeyedColumnFunction):
    """Runs one statement on the state, to see what it says."""

    def __init__(self, what: Any) -> None:
        self.what = what

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_column_state(ColumnStateDescriptor("n", Types.INT()))
        self.real = runtime_context.get_column_state(ColumnStateDescriptor("x", Types.DOUBLE()))

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        results = self.what(self, events, ctx)
        if results is not None:
            ctx.collect(~events.fired, results)


def results_of(what: Any, records: list[Any] | None = None) -> list[Any]:
    environment = direct_environment({"parallelism.default": 1})
    given_records = records or [("a", 1), ("b", 5), ("a", 3), ("a", -2), ("b", 0)]
    keyed = environment.from_collection(given_records).key_by(fields(0))
    stream = keyed.process_columns(Numbers(what)).name("numbers")
    return sorted(stream.execute_and_collect())


def test_running_aggregates_go_on_from_record_to_record() -> None:
    by_sum = results_of(lambda f, e, c: f.number.running_sum(e.rows, e.column("f1")))
    assert by_sum == [1, 2, 4, 5, 5]
    by_max = results_of(lambda f, e, c: f.number.running_max(e.rows, e.column("f1")))
    assert by_max == [1, 3, 3, 5, 5]
    by_min = results_of(lambda f, e, c: f.number.running_min(e.rows, e.column("f1")))
    assert by_min == [-2, 0, 0, 0, 0]  # 0 is what a key without a value has
    halves = results_of(lambda f, e, c: f.real.running_sum(e.rows, e.column("f1") / 2))
    assert halves == [0.5, 1.0, 2.0, 2.5, 2.5]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            lambda f, e, c: f.number.put(e.rows, e.column("f1") / 2),
            "float64 .* do not fit .*'n'|'n'",
        ),
        (lambda f, e, c: f.number.put(e.rows, e.column("f1") + 2**40), "state 'n': values of type"),
        (lambda f, e, c: f.number.put(e.rows, [1]), "1 values for 3 rows"),
        (lambda f, e, c: c.collect(~e.fired, [1]), "collect got 1 values for 3 events"),
        (lambda f, e, c: c.collect(numpy.array([True]), [1]), "a mask of 1 for 3 events"),
        (lambda f, e, c: c.register_event_time_timers(e.rows, e.times[:1]), "1 times for 3 events"),
        (lambda f, e, c: c.register_event_time_timers(e.rows, 0.5), r"integers \(milliseconds\)"),
        (lambda f, e, c: e.column("missing"), "missing"),
    ],
)
def test_misuse_names_operator_and_what_is_wrong(what: Any, message: str) -> None:
    with pytest.raises(UserFunctionError, match=message) as failure:
        results_of(what, [("a", 1), ("a", 2), ("a", 3)])
    assert "numbers" in str(failure.value)
    assert "process_columns" in str(failure.value)


def test_missing_values_are_not_taken_for_numbers() -> None:
    with pytest.raises(UserFunctionError, match="column 'f1' has missing values: 1"):
        results_of(lambda f, e, c: e.column("f1"), [("a", 1), ("a", None)])


def test_records_that_make_no_columns_are_a_clear_error() -> None:
    with pytest.raises(UserFunctionError, match="converting records to columns") as failure:
        results_of(lambda f, e, c: None, [("a", 1), ("a", "one")])
    assert "numbers" in str(failure.value)


def test_states_of_records_and_of_columns_do_not_mix() -> None:
    class Wrong(Numbers):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("v", Types.INT()))

    class AlsoWrong(Delay):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_column_state(ColumnStateDescriptor("v", Types.INT()))

    environment = direct_environment({"parallelism.default": 1})
    keyed = environment.from_collection([("a", 1)]).key_by(fields(0))
    with pytest.raises(MillpondError, match="column states only"):
        list(keyed.process_columns(Wrong(None)).execute_and_collect())
    with pytest.raises(MillpondError, match="column states only"):
        list(keyed.process(AlsoWrong()).execute_and_collect())
    with pytest.raises(TypeError, match="takes a KeyedColumnFunction, not Delay"):
        keyed.process_columns(Delay())  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="columns hold numbers"):
        ColumnStateDescriptor("name", Types.STRING())


def test_columns_go_on_as_columns_and_to_side_outputs() -> None:
    odd = OutputTag("odd", Types.INT())

    class Split(KeyedColumnFunction):
        def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
            numbers = events.column("f1")
            ctx.collect(numbers % 2 == 1, numbers[numbers % 2 == 1], odd)
            batch = pyarrow.record_batch({"half": numbers // 2, "number": numbers})
            ctx.collect(numpy.arange(len(numbers)), batch)

    class Sum(KeyedColumnFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.sum = runtime_context.get_column_state(ColumnStateDescriptor("s", Types.LONG()))

        def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
            sums = self.sum.running_sum(events.rows, events.column("number"))
            ctx.collect(
                ~events.fired, list(zip(events.keys(~events.fired), sums.tolist(), strict=True))
            )

    environment = direct_environment({"parallelism.default": 2})
    records = [("a", number) for number in range(6)]
    split = environment.from_collection(records).key_by(fields(0)).process_columns(Split())
    odds = split.get_side_output(odd).map(lambda number: ("odd", number))
    sums = split.key_by(fields("half")).process_columns(Sum())
    rows = split.map(lambda row: ("row", row.half, row["number"]))
    results = list(sums.union(odds, rows).execute_and_collect())
    assert sorted(r for r in results if r[0] == "odd") == [("odd", 1), ("odd", 3), ("odd", 5)]
    assert sorted(r for r in results if r[0] == "row") == [("row", n // 2, n) for n in range(6)]
    plain = sorted(r for r in results if isinstance(r[0], int))
    assert plain == [(0, 0), (0, 1), (1, 2), (1, 5), (2, 4), (2, 9)]


# --- CSV -------------------------------------------------------------------------------------------


def csv_source(folder: Path, text: str, **settings: Any) -> FileSource:
    path = folder / "views.csv"
    path.write_text(text)
    builder = CsvSchema.builder().add_string_column("user").add_number_column("at")
    builder = builder.add_number_column("price", Types.DOUBLE()).add_boolean_column("paid")
    for name, value in settings.items():
        builder = getattr(builder, name)(value)
    schema = CsvReaderFormat.for_schema(builder.build())
    return FileSource.for_record_stream_format(schema, str(path)).build()


def read(source: FileSource) -> list[Any]:
    environment = direct_environment({"parallelism.default": 1, "millpond.batch.max-records": 2})
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "csv")
    return list(stream.map(lambda row: row).execute_and_collect())


def test_csv_gives_rows_to_functions_of_single_records(tmp_path: Path) -> None:
    text = 'user;at;price;paid\nann;1;0.5;true\n"b;b";2;1e3;false\n\nünï;3;-;true\n'
    source = csv_source(
        tmp_path,
        text,
        set_column_separator=";",
        set_skip_first_data_row=True,
        set_null_value="-",
    )
    assert read(source) == [
        Row(user="ann", at=1, price=0.5, paid=True),
        Row(user="b;b", at=2, price=1000.0, paid=False),
        Row(user="ünï", at=3, price=None, paid=True),
    ]


@pytest.mark.parametrize(
    ("line", "message"), [("ann,1,0.5", "Expected 4 columns, got 3"), ("ann,x,0.5,true", "'x'")]
)
def test_csv_line_that_does_not_fit_is_shown(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(UserFunctionError, match=message) as failure:
        read(csv_source(tmp_path, f"bob,1,0.5,true\n{line}\n"))
    assert "reading the source" in str(failure.value)


def test_timestamp_field_of_columns_and_of_records_is_the_same(tmp_path: Path) -> None:
    lines = "".join(f"u{n % 3},{(n * 37) % 101},0,true\n" for n in range(50))
    source = csv_source(tmp_path, lines)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(20))

    class Clock(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Any:
            yield value.at, ctx.timestamp(), ctx.timer_service().current_watermark()

    seen = []
    for assigner in (TimestampField("at"), lambda row, _: row.at):
        environment = direct_environment({"parallelism.default": 1})
        stream = environment.from_source(
            source, strategy.with_timestamp_assigner(assigner), "views"
        )
        seen.append(list(stream.key_by(fields("user")).process(Clock()).execute_and_collect()))
    assert seen[0] == seen[1]
    assert len(seen[0]) == 50


def test_field_that_is_not_there_is_named(tmp_path: Path) -> None:
    environment = direct_environment({"parallelism.default": 1})
    source = csv_source(tmp_path, "ann,1,0.5,true\n")
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "views")
    with pytest.raises(MillpondError, match="key_by asks for field 'ad'; the records have"):
        list(stream.key_by(fields("ad")).process_columns(Count()).execute_and_collect())


def test_sum_that_is_too_large_for_its_state_is_refused() -> None:
    class Long(Numbers):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.number = runtime_context.get_column_state(ColumnStateDescriptor("n", Types.LONG()))

    def add(function: Any, events: Any, _: Any) -> Any:
        return function.number.running_sum(events.rows, events.column("f1"))

    environment = direct_environment({"parallelism.default": 1})
    keyed = environment.from_collection([("a", 2**63 - 1), ("a", 1)]).key_by(fields(0))
    with pytest.raises(UserFunctionError, match=r"state 'n'.*do not fit"):
        list(keyed.process_columns(Long(add)).execute_and_collect())


def test_default_that_equals_nothing_is_refused() -> None:
    with pytest.raises(ProgramError, match="NaN"):
        ColumnStateDescriptor("x", Types.DOUBLE(), float("nan"))


def test_timer_registered_by_every_record_is_kept_once() -> None:
    class SameTimer(KeyedColumnFunction):
        def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
            ctx.register_event_time_timers(~events.fired, 10**9)

    harness = KeyedHarness(lambda s: s.key_by(lambda r: r[0]).process_columns(SameTimer()))
    for number in range(200):
        harness.process_element(("a",), number)
    assert harness.event_time_timers() <= 2
    harness.process_watermark(2 * 10**9)
    assert harness.is_state_empty()


def test_timers_at_zero_and_before_stay_fired_after_a_restore() -> None:
    def build(stream: Any) -> Any:
        return stream.key_by(lambda record: record[0]).process_columns(Count())

    harness = KeyedHarness(build)
    harness.process_element(("a",), -200)  # a timer for -100
    harness.process_element(("a",), -100)  # and one for 0
    harness.snapshot()
    harness.process_watermark(5)
    restored = KeyedHarness(build, restore=harness.snapshot())
    assert restored.event_time_timers() == 0


class _FailOnce(KeyedProcessFunction):
    def __init__(self, mark: str) -> None:
        self._mark = mark

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[1] == 30 and not Path(self._mark).exists():
            Path(self._mark).touch()
            raise ValueError("once")
        yield value, ctx.timer_service().current_watermark()


def test_retried_batch_meets_the_watermarks_of_the_first_attempt(tmp_path: Path) -> None:
    def seen(mark: Path) -> list[Any]:
        environment = direct_environment(
            {"parallelism.default": 1, "millpond.batch.max-records": 2}
        )
        environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
            TimestampField(1)
        )
        records = [("a", time_ms) for time_ms in (10, 20, 25, 30, 28)]
        stream = environment.from_source(MarkedSource(records), strategy, "records")
        function = _FailOnce(str(mark))
        return list(stream.key_by(fields(0)).process(function).execute_and_collect())

    assert seen(tmp_path / "mark") == seen(tmp_path / "mark")  # the second run finds the mark
