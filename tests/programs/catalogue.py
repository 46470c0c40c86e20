"""Programs with known results. One suite: every program must give its result on the direct
executor and on Spark, with any parallelism and any batch size (E1, E22).

A program is a function from an environment to a stream. Results are compared as sorted lists, since
the order between keys is not promised; programs that promise an order say so in their records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy

from millpond.common import Duration, Row, Time, Types, WatermarkStrategy
from millpond.datastream import (
    AggregateFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    DataStream,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millpond.datastream.columns import (
    ColumnStateDescriptor,
    KeyedColumnFunction,
    KeyedColumns,
    TimestampField,
    fields,
)
from millpond.datastream.connectors.number_seq import NumberSequenceSource
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millpond.datastream.window import (
    ContinuousEventTimeTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
)
from millpond.testing import MarkedSource

Program = Callable[[StreamExecutionEnvironment], DataStream]
PROGRAMS: dict[str, tuple[Program, list[Any]]] = {}


def program(expected: list[Any]) -> Callable[[Program], Program]:
    def register(build: Program) -> Program:
        PROGRAMS[build.__name__] = (build, expected)
        return build

    return register


WORDS = ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question", "to", "be"]
VIEWS = [
    # (user, ad, time): out of order by up to 3 s
    ("u1", "a", 1000),
    ("u2", "a", 2500),
    ("u1", "b", 1500),
    ("u1", "a", 4000),
    ("u3", "c", 3000),
    ("u2", "a", 6000),
    ("u1", "a", 5500),
    ("u2", "b", 9000),
    ("u3", "c", 8000),
    ("u1", "b", 12000),
    ("u3", "a", 10000),
]


def with_event_time(stream: DataStream, bound_ms: int = 3000) -> DataStream:
    return stream.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_millis(bound_ms)
        ).with_timestamp_assigner(lambda view, _: view[2])
    )


@program([("be", 1), ("be", 2), ("be", 3), ("is", 1), ("not", 1), ("or", 1), ("question", 1)]
         + [("that", 1), ("the", 1), ("to", 1), ("to", 2), ("to", 3)])  # fmt: skip
def word_count(env: StreamExecutionEnvironment) -> DataStream:
    pairs = env.from_collection(WORDS).map(
        lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()])
    )
    return pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))


@program([("be", 3), ("is", 1), ("not", 1), ("or", 1), ("question", 1), ("that", 1), ("the", 1)]
         + [("to", 3)])  # fmt: skip
def word_count_in_batch_mode(env: StreamExecutionEnvironment) -> DataStream:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    return word_count(env)


@program(
    [("max", 1, 5), ("max", 1, 5), ("max", 1, 7)]
    + [("max_by", 1, 5, "a"), ("max_by", 1, 5, "a"), ("max_by", 1, 7, "c")]
    + [("min", 1, 2), ("min", 1, 2), ("min", 1, 5)]
    + [("min_by", 1, 2, "b"), ("min_by", 1, 2, "b"), ("min_by", 1, 5, "a")]
    + [("sum", 1, 5), ("sum", 1, 7), ("sum", 1, 14)]
)
def rolling_aggregations(env: StreamExecutionEnvironment) -> DataStream:
    keyed = env.from_collection([(1, 5, "a"), (1, 2, "b"), (1, 7, "c")]).key_by(lambda v: v[0])
    streams = [
        keyed.sum(1).map(lambda v: ("sum", *v[:2])),
        keyed.min(1).map(lambda v: ("min", *v[:2])),
        keyed.max(1).map(lambda v: ("max", *v[:2])),
        keyed.min_by(1).map(lambda v: ("min_by", *v)),
        keyed.max_by(1).map(lambda v: ("max_by", *v)),
    ]
    return streams[0].union(*streams[1:])


class _Average(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


class _AllStates(KeyedProcessFunction):
    """Uses every kind of keyed state, with values that are changed in place."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.INT()))
        self.by_parity = runtime_context.get_map_state(
            MapStateDescriptor("by_parity", Types.STRING(), Types.LIST(Types.INT()))
        )
        self.total = runtime_context.get_reducing_state(
            ReducingStateDescriptor("total", lambda a, b: a + b, Types.LONG())
        )
        self.average = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("average", _Average(), Types.PICKLED_BYTE_ARRAY())
        )

    def process_element(self, value: tuple[str, int], ctx: Any) -> Any:
        number = value[1]
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(number)
        parity = "even" if number % 2 == 0 else "odd"
        same = self.by_parity.get(parity) or []
        same.append(number)
        self.by_parity.put(parity, same)
        self.total.add(number)
        self.average.add(number)
        if self.count.value() == 3:
            yield (
                ctx.get_current_key(),
                tuple(self.seen.get()),
                tuple((parity, tuple(numbers)) for parity, numbers in self.by_parity.items()),
                self.total.get(),
                self.average.get(),
            )
            for state in (self.count, self.seen, self.by_parity, self.total, self.average):
                state.clear()
            assert self.by_parity.is_empty()


@program(
    [
        ("x", (1, 2, 3), (("odd", (1, 3)), ("even", (2,))), 6, 2.0),
        ("x", (4, 5, 6), (("even", (4, 6)), ("odd", (5,))), 15, 5.0),
        ("y", (10, 20, 30), (("even", (10, 20, 30)),), 60, 20.0),
    ]
)
def all_kinds_of_state(env: StreamExecutionEnvironment) -> DataStream:
    records = [("x", 1), ("y", 10), ("x", 2), ("y", 20), ("x", 3), ("x", 4), ("y", 30)]
    records += [("x", 5), ("x", 6), ("y", 40)]
    return env.from_collection(records).key_by(lambda v: v[0]).process(_AllStates())


class _CappedViews(KeyedProcessFunction):
    """Counts views of the last 5 s per ad; each view ages out at its own time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.STRING(), Types.INT())
        )
        self.ends = runtime_context.get_map_state(
            MapStateDescriptor("ends", Types.LONG(), Types.LIST(Types.STRING()))
        )

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> Any:
        _, ad, time_ms = value
        count = (self.counts.get(ad) or 0) + 1
        self.counts.put(ad, count)
        end = time_ms + 5000
        self.ends.put(end, [*(self.ends.get(end) or []), ad])
        ctx.timer_service().register_event_time_timer(end)
        yield ("seen", value[0], ad, count, ctx.timestamp())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        for ad in self.ends.get(timestamp):
            count = self.counts.get(ad) - 1
            if count:
                self.counts.put(ad, count)
            else:
                self.counts.remove(ad)
            yield ("aged", ctx.get_current_key(), ad, count, timestamp)
        self.ends.remove(timestamp)


@program(
    [
        ("aged", "u1", "a", 0, 10500),
        ("aged", "u1", "a", 1, 9000),
        ("aged", "u1", "a", 2, 6000),
        ("aged", "u1", "b", 1, 6500),
        ("aged", "u1", "b", 0, 17000),
        ("aged", "u2", "a", 0, 11000),
        ("aged", "u2", "a", 1, 7500),
        ("aged", "u2", "b", 0, 14000),
        ("aged", "u3", "a", 0, 15000),
        ("aged", "u3", "c", 0, 13000),
        ("aged", "u3", "c", 1, 8000),
        ("seen", "u1", "a", 1, 1000),
        ("seen", "u1", "a", 2, 4000),
        ("seen", "u1", "a", 3, 5500),
        ("seen", "u1", "b", 1, 1500),
        ("seen", "u1", "b", 2, 12000),
        ("seen", "u2", "a", 1, 2500),
        ("seen", "u2", "a", 2, 6000),
        ("seen", "u2", "b", 1, 9000),
        ("seen", "u3", "a", 1, 10000),
        ("seen", "u3", "c", 1, 3000),
        ("seen", "u3", "c", 2, 8000),
    ]
)
def event_time_timers(env: StreamExecutionEnvironment) -> DataStream:
    views = with_event_time(env.from_collection(VIEWS))
    return views.key_by(lambda view: view[0]).process(_CappedViews())


class _InOrder(KeyedProcessFunction):
    """Numbers what arrives at one key: shows the order in which stage 2 receives stage 1's output."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.number.value() or 0) + 1
        self.number.update(number)
        yield (number, *value, ctx.timer_service().current_watermark())


@program(
    [
        (1, "seen", "u1", "a", 1, 1000, -(2**63)),
        (2, "seen", "u2", "a", 1, 2500, -2001),
        (3, "seen", "u1", "b", 1, 1500, -501),
        (4, "seen", "u1", "a", 2, 4000, -501),
        (5, "seen", "u3", "c", 1, 3000, 999),
        (6, "seen", "u2", "a", 2, 6000, 999),
        (7, "seen", "u1", "a", 3, 5500, 2999),
        (8, "seen", "u2", "b", 1, 9000, 2999),
        (9, "seen", "u3", "c", 2, 8000, 5999),
        (10, "seen", "u1", "b", 1 + 1, 12000, 5999),
        (11, "aged", "u1", "a", 2, 6000, 5999),
        (12, "aged", "u1", "b", 1, 6500, 6499),
        (13, "aged", "u2", "a", 1, 7500, 7499),
        (14, "aged", "u3", "c", 1, 8000, 7999),
        (15, "seen", "u3", "a", 1, 10000, 8999),
        (16, "aged", "u1", "a", 1, 9000, 8999),
        (17, "aged", "u1", "a", 0, 10500, 10499),
        (18, "aged", "u2", "a", 0, 11000, 10999),
        (19, "aged", "u3", "c", 0, 13000, 12999),
        (20, "aged", "u2", "b", 0, 14000, 13999),
        (21, "aged", "u3", "a", 0, 15000, 14999),
        (22, "aged", "u1", "b", 0, 17000, 16999),
    ]
)
def second_stage_receives_in_event_time_order(env: StreamExecutionEnvironment) -> DataStream:
    return event_time_timers(env).key_by(lambda _: "one key").process(_InOrder())


class _Matched(KeyedCoProcessFunction):
    """Pairs orders with payments; what is not paid 4 s after the order is reported."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order", Types.LONG()))
        self.payment = runtime_context.get_state(ValueStateDescriptor("payment", Types.LONG()))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        if self.payment.value() is not None:
            yield ("paid", ctx.get_current_key())
            self.payment.clear()
            return
        self.order.update(value[2])
        ctx.timer_service().register_event_time_timer(value[2] + 4000)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        if self.order.value() is None:
            self.payment.update(value[2])
            return
        ctx.timer_service().delete_event_time_timer(self.order.value() + 4000)
        self.order.clear()
        yield ("paid", ctx.get_current_key())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("unpaid", ctx.get_current_key(), timestamp)
        self.order.clear()


@program([("paid", "o1"), ("paid", "o3"), ("unpaid", "o2", 6000)])
def connected_keyed_streams(env: StreamExecutionEnvironment) -> DataStream:
    orders = [("o1", "book", 1000), ("o2", "pen", 2000), ("o3", "cup", 9000)]
    payments = [("o1", "card", 3000), ("o3", "cash", 8000)]
    return (
        with_event_time(env.from_collection(orders), 0)
        .connect(with_event_time(env.from_collection(payments), 0))
        .key_by(lambda order: order[0], lambda payment: payment[0])
        .process(_Matched())
    )


class _CountingFlatMap(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def flat_map(self, value: str) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        if count % 2 == 0:
            yield f"{value}#{count}"


@program(["be#2", "to#2"])
def keyed_flat_map_with_state(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection(WORDS).key_by(lambda word: word).flat_map(_CountingFlatMap())


ODD = OutputTag("odd", Types.STRING())
BIG = OutputTag("big", Types.INT())


class _Split(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Any:
        yield value
        if value % 2:
            yield ODD, f"odd {value}"
        if value > 7:
            yield BIG, value * 100


@program([*range(1, 10), 800, 900, "odd 1", "odd 3", "odd 5", "odd 7", "odd 9"])
def side_outputs(env: StreamExecutionEnvironment) -> DataStream:
    main = env.from_collection(list(range(1, 10))).process(_Split(), output_type=Types.INT())
    return main.union(main.get_side_output(ODD), main.get_side_output(BIG))


class _Tagged(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return ("left", value)

    def map2(self, value: Any) -> Any:
        return ("right", value) if value != "skip" else None


class _Repeated(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Any:
        return [value, value]

    def flat_map2(self, value: Any) -> Any:
        return [] if value == "skip" else [value]


class _Named(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield ("first", value)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield ("second", value)


@program([1, 1, 2, 2, "a"] + [("first", 1), ("first", 2), ("second", "a"), ("second", "skip")]
         + [("left", 1), ("left", 2), ("right", "a")])  # fmt: skip
def connected_streams_without_key(env: StreamExecutionEnvironment) -> DataStream:
    numbers, letters = env.from_collection([1, 2]), env.from_collection(["a", "skip"])
    both = numbers.connect(letters)
    return both.map(_Tagged()).union(both.flat_map(_Repeated()), both.process(_Named()))


@program([(way, number) for way in ("custom", "global", "rebalance", "rescale", "shuffle")
          for number in range(6)])  # fmt: skip
def exchanges(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection(list(range(6)))
    parity = numbers.partition_custom(lambda key, count: key % count, lambda number: number)
    ways = {
        "custom": parity,
        "global": numbers.global_(),
        "rebalance": numbers.rebalance(),
        "rescale": numbers.rescale(),
        "shuffle": numbers.shuffle(),
    }
    streams = [ways[way].map(lambda number, way=way: (way, number)) for way in sorted(ways)]
    return streams[0].union(*streams[1:])


@program([("a", 6.5, "+I"), ("b", 1.0, "+I")])
def rows_with_names(env: StreamExecutionEnvironment) -> DataStream:
    row_type = Types.ROW_NAMED(["name", "amount"], [Types.STRING(), Types.DOUBLE()])
    rows = env.from_collection([("a", 2.5), Row("b", 1.0), {"name": "a", "amount": 4.0}], row_type)
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    summed = rows.key_by(lambda row: row.name).sum("amount")
    return summed.map(lambda row: (row.name, row["amount"], str(row.get_row_kind())))


@program([(10, 2), (11, 4), (12, 6)])
def type_hints_instead_of_types(env: StreamExecutionEnvironment) -> DataStream:
    numbers = env.from_collection([1, 2, 3], type_info=int)
    return numbers.map(lambda n: [n + 9, n * 2], output_type=tuple[int, int])


@program([(number, number * number) for number in range(1, 51)])
def parallel_number_source(env: StreamExecutionEnvironment) -> DataStream:
    source = NumberSequenceSource(1, 50)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    return numbers.map(lambda number: (number, number * number))


class _Lateness(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (*value, ctx.timestamp(), ctx.timer_service().current_watermark())


@program([("a", 5, 5, -(2**63)), ("b", 3, 3, 4), ("c", 9, 9, 4), ("d", 10, 10, 8)])
def watermarks_assigned_after_an_exchange(env: StreamExecutionEnvironment) -> DataStream:
    records = env.from_collection([("a", 5), ("b", 3), ("c", 9), ("d", 10)])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda record, _: record[1]
    )
    moved = records.global_().map(lambda record: record).set_parallelism(1)
    stamped = moved.assign_timestamps_and_watermarks(strategy).set_parallelism(1)
    return stamped.key_by(lambda _: 0).process(_Lateness())


LATE = OutputTag("late")
AGED = OutputTag("aged")


class _Route(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[0] == "aged":
            yield AGED, value[1:4]
        else:
            yield value[1:4]
        if value[3] >= 3:
            yield LATE, ("many", value[1], value[2])


class _Fan(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        yield ("main", *value)

    def process_element2(self, value: Any, ctx: Any) -> Any:
        yield ("side", *value)


def three_stages(env: StreamExecutionEnvironment) -> tuple[DataStream, DataStream, DataStream]:
    """3 keyed stages, 2 inputs, 2 side outputs; made for 3 sinks."""
    half = len(VIEWS) // 2
    first = with_event_time(env.from_collection(VIEWS[:half]))
    second = with_event_time(env.from_collection(VIEWS[half:]))
    views = first.union(second)
    counted = views.key_by(lambda view: view[0]).process(_CappedViews()).uid("cap")
    routed = counted.key_by(lambda event: event[2]).process(_Route()).uid("route")
    aged = routed.get_side_output(AGED)
    fanned = (
        routed.connect(aged)
        .key_by(lambda event: event[0], lambda event: event[0])
        .process(_Fan())
        .uid("fan")
    )
    return fanned, aged, routed.get_side_output(LATE)


class CapOnColumns(KeyedColumnFunction):
    """How often a user has seen an ad within 5 s, on columns."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_column_state(ColumnStateDescriptor("counts", Types.INT()))

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        seen = ~events.fired
        counts = self.counts.running_sum(events.rows, numpy.where(seen, 1, -1))
        ctx.register_event_time_timers(seen, events.times[seen] + 5000)
        results = zip(events.keys(seen), counts[seen].tolist(), strict=True)
        ctx.collect(seen, [(*key, count) for key, count in results])


def _seen_within_5_s() -> list[tuple[str, str, int]]:
    """A view counts until the clock, 3 s and 1 ms behind the latest view, has reached its end."""
    results, clock = [], -1
    for number, (user, ad, time_ms) in enumerate(VIEWS):
        before = [v for v in VIEWS[: number + 1] if v[:2] == (user, ad) and v[2] + 5000 > clock]
        results.append((user, ad, len(before)))
        clock = max(clock, time_ms - 3001)
    return results


@program(_seen_within_5_s())
def function_on_columns(environment: StreamExecutionEnvironment) -> DataStream:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_seconds(3)
    ).with_timestamp_assigner(TimestampField(2))
    views = environment.from_collection(VIEWS).assign_timestamps_and_watermarks(strategy)
    return views.key_by(fields(0, 1)).process_columns(CapOnColumns())


class _CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + 1, accumulator[1] + value[2])

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class _WithWindow(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any
    ) -> Any:
        window = context.window()
        for count, total in elements:
            yield (key, window.start, window.end, count, total)


@program(
    [
        ("u1", 0, 5000, 3, 6500),
        ("u1", 5000, 10000, 1, 5500),
        ("u1", 10000, 15000, 1, 12000),
        ("u2", 0, 5000, 1, 2500),
        ("u2", 5000, 10000, 2, 15000),
        ("u3", 0, 5000, 1, 3000),
        ("u3", 5000, 10000, 1, 8000),
        ("u3", 10000, 15000, 1, 10000),
    ]
)
def tumbling_windows(env: StreamExecutionEnvironment) -> DataStream:
    windows = (
        with_event_time(env.from_collection(VIEWS))
        .key_by(lambda view: view[0])
        .window(TumblingEventTimeWindows.of(Time.seconds(5)))
    )
    return windows.aggregate(_CountAndSum(), _WithWindow())


@program(
    [
        (key, start, start + 6000, count, total)
        for key in ("u1", "u2", "u3")
        for start in range(-6000, 15000, 1000)
        for times in [[v[2] for v in VIEWS if v[0] == key and start <= v[2] < start + 6000]]
        for count, total in [(len(times), sum(times))]
        if times
    ]
)
def sliding_windows(env: StreamExecutionEnvironment) -> DataStream:
    windows = (
        with_event_time(env.from_collection(VIEWS))
        .key_by(lambda view: view[0])
        .window(SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(1)))
    )
    return windows.aggregate(_CountAndSum(), _WithWindow())


@program(
    [
        ("u1", 1000, 8500, 4, 12000),
        ("u1", 12000, 15000, 1, 12000),
        ("u2", 2500, 5500, 1, 2500),
        ("u2", 6000, 12000, 2, 15000),
        ("u3", 3000, 6000, 1, 3000),
        ("u3", 8000, 13000, 2, 18000),
    ]
)
def session_windows(env: StreamExecutionEnvironment) -> DataStream:
    windows = (
        with_event_time(env.from_collection(VIEWS))
        .key_by(lambda view: view[0])
        .window(EventTimeSessionWindows.with_gap(Time.seconds(3)))
    )
    return windows.aggregate(_CountAndSum(), _WithWindow())


@program([("late", "b"), ("window", ["a"]), ("window", ["c", "d"])])
def late_data_goes_to_a_side_output(env: StreamExecutionEnvironment) -> DataStream:
    late = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
    elements = [("a", 1000), ("d", 9000), ("b", 2000), ("c", 8500)]
    # One split: "b" comes after the watermark has passed its window.
    stream = env.from_source(
        MarkedSource(elements),
        WatermarkStrategy.for_bounded_out_of_orderness(
            Duration.of_seconds(3)
        ).with_timestamp_assigner(lambda element, _: element[1]),
        "elements",
    )
    windows = (
        stream.key_by(lambda _: "all")
        .window(TumblingEventTimeWindows.of(Time.seconds(4)))
        .side_output_late_data(late)
    )
    results = windows.process(_Names())
    return results.union(results.get_side_output(late).map(lambda element: ("late", element[0])))


class _Names(ProcessWindowFunction[Any, Any, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Any
    ) -> Any:
        yield ("window", sorted(name for name, _ in elements))


@program([("a", 2), ("b", 2), ("c", 2)])
def count_windows(env: StreamExecutionEnvironment) -> DataStream:
    words = env.from_collection([(word, 1) for word in "abcabca"])
    return words.key_by(lambda pair: pair[0]).count_window(2).sum(1)


@program([11, 21])
def delta_trigger(env: StreamExecutionEnvironment) -> DataStream:
    """E24: fires when an element is more than 5 above the one that fired last."""
    steps = env.from_source(
        MarkedSource([1, 3, 7, 8, 13, 14]), WatermarkStrategy.no_watermarks(), "steps"
    )
    trigger = PurgingTrigger.of(DeltaTrigger.of(5, lambda last, now: now - last))
    windows = steps.key_by(lambda _: "all").window(GlobalWindows.create()).trigger(trigger)
    return windows.reduce(lambda a, b: a + b)


@program([2, 3, 4, 4, 4, 1, 1, 1, 1])
def continuous_trigger(env: StreamExecutionEnvironment) -> DataStream:
    """E24: every 2 s of event time, and when the window ends, the count so far."""
    times = env.from_source(
        MarkedSource([1000, 2500, 5200, 9000, 12000]),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda time, _: time),
        "times",
    )
    windows = (
        times.map(lambda _: 1)
        .key_by(lambda _: "all")
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .trigger(ContinuousEventTimeTrigger.of(Time.seconds(2)))
    )
    return windows.reduce(lambda a, b: a + b)


_LIMITS = MapStateDescriptor("limits", Types.STRING(), Types.INT())
_SEEN = ValueStateDescriptor("seen", Types.INT())


class _UpToLimit(KeyedBroadcastProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._seen = runtime_context.get_state(_SEEN)

    def process_element(self, value: Any, ctx: Any) -> Any:
        seen = (self._seen.value() or 0) + 1
        self._seen.update(seen)
        if seen <= (ctx.get_broadcast_state(_LIMITS)["views"] or 0):
            yield (ctx.get_current_key(), seen)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(_LIMITS).put(*value)


@program([("u1", 1), ("u1", 2), ("u2", 1), ("u2", 2), ("u3", 1), ("u3", 2)])
def broadcast_state_keyed(env: StreamExecutionEnvironment) -> DataStream:
    """E32."""
    limits = env.from_collection([("views", 2)]).broadcast(_LIMITS)
    return (
        env.from_collection(VIEWS)
        .key_by(lambda view: view[0])
        .connect(limits)
        .process(_UpToLimit())
    )


class _Translate(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (value, ctx.get_broadcast_state(_LIMITS).get(value))

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(_LIMITS).put(*value)


@program([("a", 1), ("a", 1), ("b", 2), ("c", None)])
def broadcast_state_without_a_key(env: StreamExecutionEnvironment) -> DataStream:
    """E32."""
    numbers = env.from_collection([("a", 1), ("b", 2)]).broadcast(_LIMITS)
    return env.from_collection(["a", "b", "c", "a"]).connect(numbers).process(_Translate())
