"""E22: results depend on the records, never on where batches are cut; nor on how work is spread, if there is
no order across keys.

Random out-of-order input goes through two keyed stages with timers; every way of running it must
give the same sequence at the second stage, which keeps all it saw in order.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Duration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext
from millpond.datastream.connectors.base import Source
from millpond.datastream.state import ValueStateDescriptor
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.cuts import cut_by_time

RECORD = st.tuples(st.sampled_from("abcde"), st.integers(0, 60), st.integers(1, 30))


class Delay(KeyedProcessFunction):
    """Sums what came since the last timer; emits it when a timer fires, also one in the past."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: tuple[str, int, int], ctx: Any) -> Any:
        key, time_ms, delay_ms = value
        self.total.update((self.total.value() or 0) + delay_ms)
        ctx.timer_service().register_event_time_timer(time_ms + delay_ms - 10)
        yield (key, "in", time_ms, ctx.timer_service().current_watermark())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        total = self.total.value()
        if total is not None:
            self.total.clear()
            ctx.timer_service().register_event_time_timer(timestamp + 7)
            yield (ctx.get_current_key(), "timer", timestamp, total)


class Journal(KeyedProcessFunction):
    """Numbers what it gets and sets timers of its own."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer((value[2] // 20 + 1) * 20)
        yield (self.number.value(), value, ctx.timer_service().current_watermark())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.number.update((self.number.value() or 0) + 1)
        yield (self.number.value(), "tick", timestamp)


def run(
    source: Source, parallelism: int, batch_records: int, bound_ms: int, across_keys: bool
) -> list[Any]:
    environment = direct_environment(
        {
            "parallelism.default": parallelism,
            "millpond.batch.max-records": batch_records,
            "millpond.order-across-keys": across_keys,
        }
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(bound_ms)
    ).with_timestamp_assigner(lambda record, _: record[1])
    stream = (
        environment.from_source(source, strategy, "records")
        .key_by(lambda record: record[0])
        .process(Delay())
        .key_by(lambda event: event[1] == "in")
        .process(Journal())
    )
    return list(stream.execute_and_collect())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(RECORD, max_size=25),
    st.integers(0, 15),
    st.lists(st.integers(0, 25), max_size=6),
    st.integers(1, 5),
    st.booleans(),
)
def test_same_result_for_any_cuts_and_parallelism(
    records: list[Any], bound_ms: int, cuts: list[int], parallelism: int, across_keys: bool
) -> None:
    whole = run(MarkedSource(records), 1, 10_000, bound_ms, across_keys)
    assert run(MarkedSource(records), 1, 1, bound_ms, across_keys) == whole
    marked = list(records)
    for position in sorted(cuts, reverse=True):
        marked.insert(min(position, len(records)), CUT)
    assert run(MarkedSource(marked), 1, 10_000, bound_ms, across_keys) == whole
    if across_keys:
        # The order of timers of different keys for the same instant depends on the parallelism, as in Flink.
        whole = run(MarkedSource(records), parallelism, 10_000, bound_ms, across_keys)
    spread = run(MarkedSource(marked), parallelism, 7, bound_ms, across_keys)
    assert sorted(map(repr, spread)) == sorted(map(repr, whole))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(RECORD, max_size=40),
    st.integers(0, 15),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
    st.sampled_from([10, 150, 1000]),
    st.booleans(),
)
def test_same_result_wherever_time_cuts(
    records: list[Any],
    bound_ms: int,
    parallelism: int,
    chance: Random,
    longest_ms: int,
    across_keys: bool,
) -> None:
    whole = run(MarkedSource(records), 1, 10_000, bound_ms, across_keys)
    with cut_by_time(chance, longest_ms):
        assert run(MarkedSource(records), 1, 10_000, bound_ms, across_keys) == whole
        spread = run(MarkedSource(records), parallelism, 10_000, bound_ms, across_keys)
    if across_keys:
        whole = run(MarkedSource(records), parallelism, 10_000, bound_ms, across_keys)
    assert sorted(map(repr, spread)) == sorted(map(repr, whole))
