"""C33-C36, E33: state with a time to live, step by step; also with a snapshot and restore between steps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millpond.common import Time, Types
from millpond.datastream import AggregateFunction, KeyedProcessFunction, RuntimeContext
from millpond.datastream.columns import ColumnStateDescriptor
from millpond.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.datastream.window import EventTimeSessionWindows, Trigger, TriggerResult
from millpond.engine.context import TaskClock
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.state.ttl.expiry import Expiry
from millpond.testing import KeyedHarness

TTL_MS = 100


class _Total(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> int:
        return sum(accumulator)

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return acc_a + acc_b


def _pickled() -> Any:
    return Types.PICKLED_BYTE_ARRAY()


# kind -> (descriptor, write, read; None if there is nothing)
KINDS: dict[str, tuple[Callable[[], StateDescriptor], Any, Any]] = {
    "value": (
        lambda: ValueStateDescriptor("state", Types.INT()),
        lambda state: state.update(7),
        lambda state: state.value(),
    ),
    "list": (
        lambda: ListStateDescriptor("state", _pickled()),
        lambda state: state.update([7]),
        lambda state: next(iter(state.get()), None),
    ),
    "map": (
        lambda: MapStateDescriptor("state", Types.STRING(), _pickled()),
        lambda state: state.put("entry", 7),
        lambda state: state.get("entry"),
    ),
    "map, iterated": (
        lambda: MapStateDescriptor("state", Types.STRING(), _pickled()),
        lambda state: state.put_all({"entry": 7}),
        lambda state: next((value for _, value in state.items()), None),
    ),
    "reducing": (
        lambda: ReducingStateDescriptor("state", lambda a, b: a + b, Types.INT()),
        lambda state: state.add(7 - (state.get() or 0)),
        lambda state: state.get(),
    ),
    "aggregating": (
        lambda: AggregatingStateDescriptor("state", _Total(), _pickled()),
        lambda state: state.add(7 - (state.get() or 0)),
        lambda state: state.get(),
    ),
}


class _Stepper(KeyedProcessFunction):
    """Does to its state what each element tells."""

    def __init__(self, descriptor: StateDescriptor) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: RuntimeContext) -> None:
        getters: dict[type, Any] = {
            ValueStateDescriptor: runtime_context.get_state,
            ListStateDescriptor: runtime_context.get_list_state,
            MapStateDescriptor: runtime_context.get_map_state,
            ReducingStateDescriptor: runtime_context.get_reducing_state,
            AggregatingStateDescriptor: runtime_context.get_aggregating_state,
        }
        self._state = getters[type(self._descriptor)](self._descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value[1](self._state)


class Steps:
    """A state in a harness, that may be stopped and restored between any two steps."""

    def __init__(
        self, descriptor: StateDescriptor, restores: bool = False, max_parallelism: int = 128
    ) -> None:
        self._restores = restores
        self._settings: dict[str, Any] = {"max_parallelism": max_parallelism}
        self.harness = self._make(descriptor, None, 0)
        self._descriptor = descriptor

    def _make(self, descriptor: StateDescriptor, snapshot: Any, time_ms: int) -> KeyedHarness:
        return KeyedHarness.of(
            _Stepper(descriptor),
            lambda element: element[0],
            restore=snapshot,
            processing_time_ms=time_ms,
            **self._settings,
        )

    def do(self, time_ms: int, step: Any, key: str = "key", timestamp: int | None = None) -> Any:
        if self._restores:
            self.restart(self._descriptor)
        self.harness.set_processing_time(time_ms)
        before = len(self.harness.values())
        self.harness.process_element((key, step), timestamp)
        return self.harness.values()[before]

    def restart(self, descriptor: StateDescriptor, time_ms: int | None = None) -> None:
        """Go on as another job with another descriptor would."""
        before = self.harness
        now_ms = before.processing_time_ms if time_ms is None else time_ms
        self.harness = self._make(descriptor, before.snapshot(), now_ms)
        self.harness.watermark = before.watermark


def ttl(*changes: Callable[[Any], Any], ttl_ms: int = TTL_MS) -> StateTtlConfig:
    builder = StateTtlConfig.new_builder(Time.milliseconds(ttl_ms))
    for change in changes:
        change(builder)
    return builder.build()


def on_read(builder: Any) -> None:
    builder.update_ttl_on_read_and_write()


def relaxed(builder: Any) -> None:
    # Nothing may clean up before it is read.
    builder.return_expired_if_not_cleaned_up().disable_cleanup_in_background()


# (time, what is done, what is read)
C33 = [
    (0, "write", None), (20, "read", 7), (50, "write", None), (120, "read", 7),
    (170, "write", None), (220, "read", 7), (300, "read", None), (301, "read", None),
]  # fmt: skip
C34 = [(0, "write", None), (120, "read", 7), (121, "read", None)]
C35 = [(0, "write", None), (50, "read", 7), (120, "read", 7), (250, "read", None)]
C35_RELAXED = [(0, "write", None), (50, "read", 7), (170, "read", 7), (171, "read", None)]
CASES = {
    "C33": (C33, ttl()),
    "C34": (C34, ttl(relaxed)),
    "C35": (C35, ttl(on_read)),
    "C35 relaxed": (C35_RELAXED, ttl(on_read, relaxed)),
    "at its last instant": ([(0, "write", None), (99, "read", 7), (100, "read", None)], ttl()),
}


@pytest.mark.parametrize("restores", [False, True], ids=["", "restored between steps"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_state_expires(case: str, kind: str, restores: bool) -> None:
    steps, config = CASES[case]
    make, write, read = KINDS[kind]
    descriptor = make()
    descriptor.enable_time_to_live(config)
    state = Steps(descriptor, restores)
    for time_ms, what, expected in steps:
        found = state.do(time_ms, write if what == "write" else read)
        if what == "read":
            assert found == expected, f"{what} at {time_ms}"
    assert state.harness.is_state_empty()


@pytest.mark.parametrize("restores", [False, True])
def test_each_map_entry_lives_on_its_own(restores: bool) -> None:
    """C36."""
    descriptor = MapStateDescriptor("state", Types.STRING(), Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = Steps(descriptor, restores)
    state.do(0, lambda s: s.put("a", 1))
    state.do(60, lambda s: s.put("b", 2))
    assert state.do(99, lambda s: dict(s.items())) == {"a": 1, "b": 2}
    assert state.do(100, lambda s: dict(s.items())) == {"b": 2}
    assert state.do(110, lambda s: (s.contains("a"), s.contains("b"), s.is_empty())) == (
        False,
        True,
        False,
    )
    assert state.do(160, lambda s: (list(s.keys()), list(s.values()), s.is_empty())) == (
        [],
        [],
        True,
    )


@pytest.mark.parametrize("restores", [False, True])
def test_each_list_element_lives_on_its_own(restores: bool) -> None:
    """C36."""
    descriptor = ListStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = Steps(descriptor, restores)
    state.do(0, lambda s: s.add(1))
    state.do(50, lambda s: s.add_all([2, 3]))
    assert state.do(99, lambda s: list(s.get())) == [1, 2, 3]
    assert state.do(120, lambda s: list(s.get())) == [2, 3]
    state.do(130, lambda s: s.add(4))
    assert state.do(160, lambda s: list(s.get())) == [4]


def test_expired_value_is_not_added_to() -> None:
    descriptor = ReducingStateDescriptor("state", lambda a, b: a + b, Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = Steps(descriptor)
    state.do(0, lambda s: s.add(1))
    state.do(50, lambda s: s.add(2))
    assert state.do(140, lambda s: s.get()) == 3
    state.do(150, lambda s: s.add(5))
    assert state.do(160, lambda s: s.get()) == 5


def test_expired_entries_go_in_the_background_without_being_read() -> None:
    descriptor = MapStateDescriptor("state", Types.STRING(), Types.INT())
    descriptor.enable_time_to_live(ttl())
    state = Steps(descriptor, max_parallelism=1)
    for number in range(50):
        state.do(0, lambda s, number=number: s.put(f"entry-{number}", number), key=f"key-{number}")
    for step in range(10):
        state.do(100 + step, lambda s: s.put("entry", 1), key="busy")
    state.harness.set_processing_time(210)
    assert state.harness.is_state_empty()


def test_without_background_clean_up_entries_stay_until_a_snapshot() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(lambda builder: builder.disable_cleanup_in_background()))
    state = Steps(descriptor)
    state.do(0, lambda s: s.update(1))
    state.harness.set_processing_time(500)
    assert not state.harness.is_state_empty()
    state.restart(descriptor)
    assert state.harness.is_state_empty()


def test_clean_up_looks_at_few_entries_per_batch() -> None:
    """A batch costs what it changes, however large the state is."""
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(lambda builder: builder.cleanup_incrementally(1)))
    state = Steps(descriptor, max_parallelism=1)
    for number in range(1000):
        state.do(0, lambda s: s.update(1), key=f"key-{number}")
    state.harness.snapshot()
    left = []
    for step in range(12):
        state.harness.set_processing_time(100 + step)
        (own,) = state.harness._states.values()
        left.append(len(own.tables["state"].data))  # type: ignore[attr-defined]
    assert left[0] >= 800
    assert all(before - after <= 200 for before, after in itertools.pairwise(left))
    assert left[-1] == 0


def test_event_time_state_expires_with_the_watermark() -> None:
    """Beyond Flink."""
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(lambda builder: builder.use_event_time()))
    state = Steps(descriptor, restores=True)
    state.do(0, lambda s: s.update(1), timestamp=1000)
    state.harness.process_watermark(1099)
    assert state.do(10**9, lambda s: s.value(), timestamp=1500) == 1
    state.harness.process_watermark(1100)
    assert state.do(10**9, lambda s: s.value(), timestamp=1500) is None


def test_jitter_spreads_the_ends_and_is_the_same_again() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(
        ttl(lambda builder: builder.set_jitter(Time.milliseconds(1000)), on_read)
    )

    def ends() -> list[int]:
        found = []
        for number in range(20):
            state = Steps(descriptor)
            key = f"key-{number}"
            state.do(0, lambda s: s.update(1), key)
            low, high = 100, 1101
            while low < high:
                middle = (low + high) // 2
                fresh = Steps(descriptor)
                fresh.do(0, lambda s: s.update(1), key)
                alive = fresh.do(middle, lambda s: s.value(), key) is not None
                low, high = (middle + 1, high) if alive else (low, middle)
            found.append(low)
        return found

    first = ends()
    assert first == ends()
    assert len(set(first)) > 10
    assert all(TTL_MS <= end <= TTL_MS + 1000 for end in first)


@pytest.mark.parametrize("kind", ["value", "list", "map", "reducing", "aggregating"])
def test_state_may_get_and_lose_its_time_to_live(kind: str) -> None:
    make, write, read = KINDS[kind]
    plain, timed = make(), make()
    timed.enable_time_to_live(ttl())
    state = Steps(plain)
    state.do(0, write)
    state.restart(timed, 1000)  # it begins to live now
    assert state.do(1050, read) == 7
    state.restart(timed)
    assert state.do(1099, read) == 7
    state.restart(plain)
    assert state.do(5000, read) == 7
    state.restart(timed, 6000)
    assert state.do(6099, read) == 7
    assert state.do(6100, read) is None


def test_config_tells_what_was_set() -> None:
    config = (
        StateTtlConfig.new_builder(Time.days(5))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .cleanup_full_snapshot()
        .cleanup_incrementally(7, True)
        .cleanup_in_rocksdb_compact_filter(500)
        .set_jitter(Time.hours(1))
        .build()
    )
    strategies = config.get_cleanup_strategies()
    incremental = strategies.get_incremental_cleanup_strategy()
    rocksdb = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert incremental is not None and rocksdb is not None
    assert (
        config.get_ttl().to_milliseconds(),
        config.get_update_type().name,
        config.get_state_visibility().name,
        config.get_ttl_time_characteristic().name,
        config.is_enabled(),
        strategies.in_full_snapshot(),
        strategies.is_cleanup_in_background(),
        incremental.get_cleanup_size(),
        incremental.run_cleanup_for_every_record(),
        rocksdb.get_query_time_after_num_entries(),
    ) == (
        432_000_000,
        "OnReadAndWrite",
        "ReturnExpiredIfNotCleanedUp",
        "ProcessingTime",
        True,
        True,
        True,
        7,
        True,
        500,
    )


def test_disabled_time_to_live_is_none() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(
        ttl(lambda builder: builder.set_update_type(StateTtlConfig.UpdateType.Disabled))
    )
    state = Steps(descriptor)
    state.do(0, lambda s: s.update(1))
    assert state.do(10**9, lambda s: s.value()) == 1


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ProgramError, match="time to live must be above 0 ms"):
        StateTtlConfig.new_builder(Time.milliseconds(0))
    with pytest.raises(ProgramError, match="size above 0"):
        StateTtlConfig.new_builder(Time.seconds(1)).cleanup_incrementally(0)
    with pytest.raises(TypeError, match="state 'state' takes a StateTtlConfig"):
        ValueStateDescriptor("state", Types.INT()).enable_time_to_live(5)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedFeatureError, match="Column state 'sum'"):
        ColumnStateDescriptor("sum", Types.LONG()).enable_time_to_live(ttl())


# --- what a review found -----------------------------------------------------------------------------


def event_time(builder: Any) -> None:
    builder.use_event_time()


def test_reading_never_makes_an_entry_older() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(event_time, on_read))
    state = Steps(descriptor)
    state.do(0, lambda s: s.update(1), timestamp=1000)
    state.harness.process_watermark(1040)
    assert state.do(0, lambda s: s.value(), timestamp=930) == 1
    assert state.do(0, lambda s: s.value(), timestamp=1050) == 1


def test_entry_that_has_expired_and_comes_again_is_new(backend: str) -> None:
    descriptor = MapStateDescriptor("state", Types.STRING(), Types.INT())
    descriptor.enable_time_to_live(ttl(lambda builder: builder.disable_cleanup_in_background()))
    state = Steps(descriptor)
    state.do(0, lambda s: s.put("a", 1))
    state.do(50, lambda s: s.put("b", 2))
    state.do(110, lambda s: s.put("a", 3))
    # In memory entries come in the order in which they were put, elsewhere in their own.
    expected = [("b", 2), ("a", 3)] if backend in ("hashmap", "memory") else [("a", 3), ("b", 2)]
    assert state.do(120, lambda s: list(s.items())) == expected


def test_asking_whether_a_map_is_empty_is_not_reading() -> None:
    descriptor = MapStateDescriptor("state", Types.STRING(), Types.INT())
    descriptor.enable_time_to_live(ttl(on_read, relaxed))
    state = Steps(descriptor)
    state.do(0, lambda s: s.put("a", 1))
    assert state.do(50, lambda s: s.is_empty()) is False
    assert state.do(120, lambda s: (s.is_empty(), list(s.items()))) == (False, [("a", 1)])
    assert state.do(121, lambda s: s.is_empty()) is True


def test_reading_at_the_same_time_changes_nothing() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(on_read))
    state = Steps(descriptor)
    state.do(10, lambda s: s.update(1))
    state.harness.snapshot()
    state.do(10, lambda s: s.value())
    assert not any(own.has_changes() for own in state.harness._states.values())


def test_clean_up_comes_round_although_one_entry_is_from_the_future() -> None:
    descriptor = ValueStateDescriptor("state", Types.INT())
    descriptor.enable_time_to_live(ttl(event_time))
    state = Steps(descriptor, max_parallelism=1)
    state.do(0, lambda s: s.update(1), "future", timestamp=10**15)
    for number in range(20):
        state.do(0, lambda s: s.update(1), f"key-{number}", timestamp=1000)
    for watermark in range(1000, 3000, 50):
        state.harness.process_watermark(watermark)
    (own,) = state.harness._states.values()
    assert list(own.tables["state"].data) == ["future"]  # type: ignore[attr-defined]


def test_jitter_spreads_numbers() -> None:
    config = ttl(lambda builder: builder.set_jitter(Time.milliseconds(1000)))
    expiry = Expiry(config, TaskClock())
    assert len({expiry.ends_at(number, 0) for number in range(200)}) > 150


def test_event_time_begins_where_the_watermark_is() -> None:
    """Not at the timestamp of whatever record came last."""
    plain, timed = (
        ValueStateDescriptor("state", Types.INT()),
        ValueStateDescriptor("state", Types.INT()),
    )
    timed.enable_time_to_live(ttl(event_time))
    state = Steps(plain)
    state.do(0, lambda s: s.update(1), "a", timestamp=1)
    state.do(0, lambda s: s.update(1), "b", timestamp=1)
    state.harness.process_watermark(5000)
    state.restart(timed)
    state.do(0, lambda s: s.value(), "a", timestamp=900_000)
    state.harness.process_watermark(5100)
    assert state.do(0, lambda s: s.value(), "b", timestamp=5100) is None


class _InTimer(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("state", Types.INT())
        descriptor.enable_time_to_live(ttl(event_time))
        self.state = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(1_700_000_000_000)
        yield self.state.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.state.update(1)
        yield "written"


def test_time_of_a_processing_timer_is_not_event_time() -> None:
    harness = KeyedHarness.of(_InTimer(), lambda value: value)
    harness.process_element("a", 1000)
    harness.process_watermark(1000)
    harness.set_processing_time(1_700_000_000_000)
    harness.process_watermark(1100)
    harness.process_element("a", 1200)
    assert harness.values() == [None, "written", None]


def test_wrong_times_are_refused() -> None:
    with pytest.raises(TypeError, match="a Time or a Duration, not int"):
        StateTtlConfig.new_builder(5)  # type: ignore[arg-type]


class _CountingTrigger(Trigger[Any, Any]):
    """Its count has a time to live, and is merged when sessions are."""

    def __init__(self) -> None:
        self._count = ReducingStateDescriptor("count", lambda a, b: a + b, Types.INT())
        self._count.enable_time_to_live(ttl(ttl_ms=10**9))

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        count = ctx.get_partitioned_state(self._count)
        count.add(1)
        return TriggerResult.FIRE if count.get() == 3 else TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Any, ctx: Any) -> None:
        ctx.merge_partitioned_state(self._count)

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self._count).clear()


def test_state_of_triggers_with_a_time_to_live_is_merged() -> None:
    harness = KeyedHarness(
        lambda stream: (
            stream.key_by(lambda r: r[0])
            .window(EventTimeSessionWindows.with_gap(Time.milliseconds(10)))
            .trigger(_CountingTrigger())
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
    )
    for time_ms in (0, 15, 8):  # the last one joins two sessions
        harness.process_element(("a", 1), time_ms)
    assert harness.values() == [("a", 3)]
