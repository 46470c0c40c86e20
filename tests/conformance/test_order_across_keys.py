"""C58, C59: a subtask works through its records in the order in which they came, whatever their keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import Duration, Types, WatermarkStrategy
from millpond.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    RuntimeContext,
)
from millpond.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.unit.savepoint.test_savepoint import go_on, run_and_save, run_to_the_end

RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
ACROSS_KEYS = "millpond.order-across-keys"


class Number(KeyedProcessFunction):
    """Numbers what it sees, in an attribute, so across all keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = 0

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.seen += 1
        yield value, self.seen


@pytest.mark.parametrize("cuts", [0, 1, 3])
def test_records_come_to_a_keyed_function_in_the_order_in_which_they_came(cuts: int) -> None:
    environment = direct_environment({})
    records: list[Any] = list(range(6))
    for position in range(cuts):
        records.insert(2 * position + 1, CUT)
    stream = environment._source(MarkedSource(records), "records", None)
    numbered = stream.key_by(lambda value: value % 2).process(Number())
    assert list(numbered.execute_and_collect()) == [(value, value + 1) for value in range(6)]


def test_order_is_that_of_each_key_only_if_the_program_wants_it_so() -> None:
    environment = direct_environment({ACROSS_KEYS: False})
    numbered = environment.from_collection(range(6)).key_by(lambda v: v % 2).process(Number())
    found = list(numbered.execute_and_collect())
    assert [value for value, _ in found if value % 2] == [1, 3, 5]
    assert [value for value, _ in sorted(found, key=lambda pair: pair[1])] != list(range(6))


class NumberBoth(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen: list[Any] = []

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.seen.append(value[0])
        yield tuple(self.seen)

    process_element2 = process_element1


def by_second_field() -> WatermarkStrategy:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
    return strategy.with_timestamp_assigner(lambda record, _: record[1])


def timed(environment: Any, records: list[Any]) -> DataStream:
    stream: DataStream = environment.from_source(
        MarkedSource(records), by_second_field(), "records"
    )
    return stream


def test_records_of_two_inputs_come_in_the_order_of_event_time() -> None:
    environment = direct_environment({})
    left = timed(environment, [("a", 10), ("b", 20), ("c", 30), ("d", 40)])
    right = timed(environment, [("A", 15), ("B", 25), ("C", 35)])
    connected = left.connect(right).key_by(lambda r: r[0], lambda r: r[0])
    (*_, last) = connected.process(NumberBoth()).execute_and_collect()
    assert sorted(last, key=str.lower) == ["a", "A", "b", "B", "c", "C", "d"]
    assert [name for name in last if name.islower()] == ["a", "b", "c", "d"]
    assert [name for name in last if name.isupper()] == ["A", "B", "C"]


class Alarm(KeyedProcessFunction):
    """Its timers fire between the records of other keys."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value[1] + 15)
        yield value[0]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield f"{ctx.get_current_key()} rings"


def test_timers_of_one_key_fire_between_the_records_of_others() -> None:
    stream = timed(direct_environment({}), [("a", 10), ("b", 20), ("c", 30), ("d", 40)])
    rung = list(stream.key_by(lambda record: record[0]).process(Alarm()).execute_and_collect())
    assert rung == ["a", "b", "c", "a rings", "d", "b rings", "c rings", "d rings"]


class Limit(KeyedBroadcastProcessFunction):
    """Counts records per key up to a limit, and tells which keys it has when a limit comes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = ValueStateDescriptor("count", Types.LONG())
        self.counts = runtime_context.get_state(self.count)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.counts.update((self.counts.value() or 0) + 1)
        yield value[0], self.counts.value(), ctx.get_broadcast_state(RULES).get("limit")

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put("limit", value[1])
        keys: list[str] = []
        ctx.apply_to_keyed_state(self.count, lambda key, state: keys.append(key))
        yield "limit", value[1], len(keys)


def limited(stream: DataStream) -> DataStream:
    """Records whose name begins with a capital are limits for all others."""
    limits = stream.filter(lambda record: record[0].isupper()).broadcast(RULES)
    others = stream.filter(lambda record: record[0].islower()).key_by(lambda record: record[0])
    connected: DataStream = others.connect(limits).process(Limit()).uid("limit")
    return connected


RECORDS = [
    *(("L", 1, 0), ("a", 0, 10), ("b", 0, 20), ("c", 0, 30)),
    CUT,
    *(("L", 2, 40), ("a", 0, 50), ("d", 0, 60)),
    CUT,
    *(("b", 0, 70), ("e", 0, 80), ("L", 3, 90)),
    CUT,
    *(("a", 0, 100), ("c", 0, 110)),
]


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_broadcast_record_comes_once_per_subtask_which_sees_all_its_keys(parallelism: int) -> None:
    found = run_to_the_end(limited, RECORDS, **{"parallelism.default": parallelism})
    told = [record for record in found if record[0] == "limit"]
    assert len(told) == 3 * parallelism
    keys_at_limit = [sum(count for _, limit, count in told if limit == n) for n in (1, 2, 3)]
    assert keys_at_limit == [0, 3, 5]


@pytest.mark.parametrize("before", [(1, True), (2, True), (2, False), (3, True)])
@pytest.mark.parametrize("after", [(1, True), (2, False), (3, True)])
def test_savepoint_goes_from_any_order_and_parallelism_to_any_other(
    before: tuple[int, bool], after: tuple[int, bool], tmp_path: Path
) -> None:
    """Keyed and broadcast state are there wherever a key goes (E45, C38)."""

    def settings(parallelism: int, across_keys: bool) -> dict[str, Any]:
        return {"parallelism.default": parallelism, ACROSS_KEYS: across_keys}

    def counts(found: list[Any]) -> list[Any]:
        return sorted(record for record in found if record[0] != "limit")

    whole = counts(run_to_the_end(limited, RECORDS))
    first, path = run_and_save(limited, RECORDS, tmp_path, batches=2, **settings(*before))
    rest = go_on(limited, RECORDS, path, **settings(*after))
    assert counts(rest)
    assert counts(first + rest) == whole
