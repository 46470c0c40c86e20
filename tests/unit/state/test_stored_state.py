"""State in ordered stores: as in `test_change_log.py` for state in memory, and what is read and written."""

from __future__ import annotations

import itertools
from collections import namedtuple
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from millpond.common import Time, Types
from millpond.core.codec import freeze
from millpond.datastream.state import (
    MapStateDescriptor,
    StateKind,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millpond.datastream.state_backend import BackendContext, OrderedStore, StateBackend
from millpond.engine.context import TaskClock
from millpond.state import change_log as changelog
from millpond.state.backends import make_backend
from millpond.state.change_log import MemoryLogStore
from millpond.state.grouping import Grouping
from millpond.state.handles import CurrentKey
from millpond.state.ordered import tables as stored_tables
from millpond.state.ordered import timers as stored_timers
from millpond.state.ordered.key_bytes import KeyBytes, encode_key
from millpond.state.ordered.map_handle import StoredMapStateHandle
from millpond.state.ordered.rocksdb import RocksDBStateBackend
from millpond.state.ordered.shard import StoredShard
from millpond.state.ordered.timers import StoredTimers
from millpond.state.shard_state import ShardState
from millpond.state.tables import MISSING
from millpond.state.timers import TimerQueue, Timers
from millpond.state.ttl.expiry import Expiry
from millpond.state.ttl.handles import TtlMapState
from millpond.state.types.declared import declared_schemas
from tests.sqlite_backend import SqliteBackend
from tests.unit.state.test_change_log import ALL_KEY_GROUPS, FATE, Model, apply
from tests.unit.state.workers import run_batches

Pair = namedtuple("Pair", "left right")
# Equal keys of different types are one key, as in a dictionary.
KEYS = st.sampled_from(["a", "b\x00", 1, True, 1.5, None, (1, "x"), Pair(1, "x"), b"\x00"])
SMALL = st.integers(0, 5)
VALUES = st.sampled_from([1, "two", (3, freeze([4])), freeze({"five": 6}), None, 7.5])
OPERATION = st.one_of(
    st.tuples(st.just("value set"), KEYS, VALUES),
    st.tuples(st.just("value remove"), KEYS),
    st.tuples(st.just("list add"), KEYS, VALUES),
    st.tuples(st.just("list replace"), KEYS, st.lists(VALUES, max_size=3)),
    st.tuples(st.just("map put"), KEYS, KEYS, VALUES),
    st.tuples(st.just("map remove"), KEYS, KEYS),
    st.tuples(st.just("map clear"), KEYS),
    st.tuples(st.just("timer add"), SMALL, KEYS),
    st.tuples(st.just("timer delete"), SMALL, KEYS),
    st.tuples(st.just("timers fire"), SMALL),
)
_operators = itertools.count()


@pytest.fixture(params=[RocksDBStateBackend, SqliteBackend], ids=["rocksdb", "own"], scope="module")
def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StateBackend]:
    opened = make_backend(request.param)
    opened.open(BackendContext(tmp_path_factory.mktemp("state")))
    yield opened
    opened.close()


def by_bytes(pairs: Iterable[Any]) -> list[Any]:
    return sorted(pairs, key=lambda pair: encode_key(pair[0]))


def expected(model: Model) -> Any:
    values, lists, maps, timers = model.content()
    return (
        by_bytes(values.items()),
        by_bytes(lists.items()),
        by_bytes((key, by_bytes(entries)) for key, entries in maps.items()),
        sorted(timers, key=lambda timer: encode_key(timer)),
    )


def content(state: ShardState) -> Any:
    timers = []
    while (timer := state.event_timers.pop_due(1 << 62)) is not None:
        timers.append(timer[:2])
    assert state.event_timers.rollback()
    return (
        list(state.table("v", StateKind.VALUE).data.items()),
        list(state.table("l", StateKind.LIST).data.items()),
        [(k, list(e.items())) for k, e in state.table("m", StateKind.MAP).data.items()],
        timers,
    )


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.tuples(st.lists(OPERATION, max_size=8), FATE), max_size=10),
    compact_bytes=st.sampled_from([40, 200, 1 << 20]),
    committed_early=st.booleans(),
    piece=st.sampled_from([1, 2, 4096]),
    grouping=st.sampled_from([None, ALL_KEY_GROUPS]),
)
def test_state_equals_the_model_whatever_happens_to_batches(
    backend: StateBackend,
    batches: list[Any],
    compact_bytes: int,
    committed_early: bool,
    piece: int,
    grouping: Grouping | None,
) -> None:
    model = Model()

    def new_state() -> ShardState:
        return ShardState(0, backend.shard(next(_operators), 0), grouping)

    def check(state: ShardState) -> None:
        assert content(state) == expected(model)

    limits = changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES
    changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES = compact_bytes, 64
    pieces = pytest.MonkeyPatch()
    for module in (stored_tables, stored_timers):
        pieces.setattr(module, "ENTRIES_AT_ONCE", piece)
    try:
        run_batches(batches, model, apply, check, new_state, committed_early)
    finally:
        changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES = limits
        pieces.undo()


@settings(max_examples=150, deadline=None)
@given(operations=st.lists(OPERATION, max_size=20), stored=st.lists(OPERATION, max_size=20))
def test_what_waits_to_be_written_is_seen_where_it_will_be(
    backend: StateBackend, operations: list[Any], stored: list[Any]
) -> None:
    """The order of iteration must not depend on where batches are cut."""
    state, model = ShardState(0, backend.shard(next(_operators), 0)), Model()
    for operation in stored:
        apply(state, operation)
        model.apply(operation)
    state.commit()
    for operation in operations:
        apply(state, operation)
        model.apply(operation)
    values, lists, maps, _ = expected(model)
    for name, kind, own in [("v", StateKind.VALUE, values), ("l", StateKind.LIST, lists)]:
        assert list(state.table(name, kind).data.items()) == own
        assert {key: state.table(name, kind).data[key] for key, _ in own} == dict(own)
    table = state.table("m", StateKind.MAP)
    assert [(key, list(entries.items())) for key, entries in table.data.items()] == maps
    for key, entries in maps:
        assert [(entry, table.entry(key, entry)) for entry, _ in entries] == entries
    state.commit()
    assert content(state) == expected(model)


class WatchedStore(OrderedStore):
    """Counts what is read."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}
        self.reads: list[str] = []
        self.taken = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads.append("get")
        return self.content.get(key)

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        self.reads.append("scan")
        return self._scan(sorted(key for key in self.content if start <= key < end))

    def _scan(self, keys: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for key in keys:
            self.taken += 1
            yield key, self.content[key]

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        for key in deletes:
            self.content.pop(key, None)
        self.content.update(puts)


@pytest.fixture
def watched() -> tuple[WatchedStore, ShardState]:
    store = WatchedStore()
    state = ShardState(0, StoredShard(store, 1, 0))
    for number in range(1000):
        state.table("m", StateKind.MAP).put("key", number, f"value {number}")
        state.table("l", StateKind.LIST).extend("key", [number])
        state.event_timers.register(1000 + number, "key")
    state.commit()
    store.reads.clear()
    return store, state


def test_appending_to_a_list_reads_nothing(watched: tuple[WatchedStore, ShardState]) -> None:
    store, state = watched
    state.table("l", StateKind.LIST).extend("key", [1])
    state.changes()
    state.commit()
    assert store.reads == []


def test_an_entry_of_a_map_is_read_and_written_alone(
    watched: tuple[WatchedStore, ShardState],
) -> None:
    store, state = watched
    table = state.table("m", StateKind.MAP)
    assert table.entry("key", 7) == "value 7"
    assert table.entry("key", 7) == "value 7"
    before = set(store.content.items())
    table.put("key", 7, "other")
    table.put("key", 8, "also other")
    state.commit()
    assert store.reads == ["get"]
    assert len(set(store.content.items()) - before) == 2


def test_iteration_over_a_map_takes_only_what_is_asked_for(
    watched: tuple[WatchedStore, ShardState],
) -> None:
    store, state = watched
    store.taken = 0
    entries = state.table("m", StateKind.MAP).data.get("key").items()
    assert [next(entries) for _ in range(3)] == [(n, f"value {n}") for n in range(3)]
    assert store.taken <= 4


def timed_map(state: ShardState, clock: TaskClock) -> TtlMapState:
    clock.current.key = "key"
    expiry = Expiry(StateTtlConfig.new_builder(Time.seconds(1)).build(), clock)
    descriptor = MapStateDescriptor("timed", Types.INT(), Types.INT())
    handle = TtlMapState(descriptor, clock.current, expiry)
    handle.bind(state)
    return handle


@pytest.mark.parametrize("what", ["items", "keys", "values"])
def test_iteration_over_a_map_with_a_time_to_live_takes_only_what_is_asked_for(what: str) -> None:
    store, clock = WatchedStore(), TaskClock()
    state = ShardState(0, StoredShard(store, 1, 0))
    handle = timed_map(state, clock)
    handle.put_all({number: number for number in range(1000)})
    state.commit()
    store.taken = 0
    found = iter(getattr(handle, what)())
    first = [next(found) for _ in range(3)]
    assert first == [(n, n) if what == "items" else n for n in range(3)]
    assert store.taken <= 4
    assert len(handle._table.entries("key").known) == 0


@pytest.mark.parametrize("storage", ["memory", "store"])
def test_map_may_change_while_it_is_iterated_over(storage: str) -> None:
    clock = TaskClock()
    stored = None if storage == "memory" else StoredShard(WatchedStore(), 1, 0)
    state = ShardState(0, stored)
    handle = timed_map(state, clock)
    handle.put_all({number: number for number in range(10)})
    state.commit()
    clock.processing_time_ms = 5000  # all have expired
    for number in range(5):
        handle.put(number, 100 + number)
    found = []
    for entry, value in handle.items():
        found.append((entry, value))
        handle.put(9, 109)  # after it was seen to have expired, or before
        handle.remove(entry)
    assert sorted(found) == [(number, 100 + number) for number in range(5)]
    assert list(handle.items()) == [(9, 109)]


@pytest.mark.parametrize("has_read", [True, False])
def test_deleting_what_is_known_not_to_be_there_changes_nothing(has_read: bool) -> None:
    """E41. Without having read, nobody knows."""
    state = ShardState(0, StoredShard(WatchedStore(), 1, 0))
    values, maps = state.table("v", StateKind.VALUE), state.table("m", StateKind.MAP)
    lists = state.table("l", StateKind.LIST)
    current = CurrentKey()
    current.key = "key"
    handle = StoredMapStateHandle(MapStateDescriptor("h", Types.INT(), Types.INT()), current)
    handle.bind(state)
    if has_read:
        assert values.data.get("key") is None
        assert maps.entries("key").get("entry") is None
        assert not lists.data.get("key")
        assert handle.get(1) is None
    values.remove("key")
    maps.remove("key", "entry")
    lists.replace("key", [])
    handle.remove(1)
    assert state.has_changes() is not has_read


def test_what_was_put_in_this_batch_can_be_deleted_again() -> None:
    state = ShardState(0, StoredShard(WatchedStore(), 1, 0))
    values, maps = state.table("v", StateKind.VALUE), state.table("m", StateKind.MAP)
    lists = state.table("l", StateKind.LIST)
    assert values.data.get("key") is None and maps.entry("key", 1) is MISSING
    assert not lists.data.get("key")
    values.set("key", 1)
    maps.put("key", 1, 1)
    lists.extend("key", [1])
    values.remove("key")
    maps.remove("key", 1)
    lists.replace("key", [])
    state.commit()
    assert state.is_empty()


def test_timers_are_set_and_deleted_without_reading(
    watched: tuple[WatchedStore, ShardState],
) -> None:
    store, state = watched
    state.event_timers.register(5000, "key")
    state.event_timers.delete(1500, "key")
    state.changes()
    state.commit()
    assert store.reads == []


def test_timers_that_have_fired_are_not_met_again(
    watched: tuple[WatchedStore, ShardState],
) -> None:
    """What was deleted in the store would have to be skipped each time."""
    store, state = watched
    starts = []
    scan = store.scan
    store.scan = lambda start, end: starts.append(start) or scan(start, end)  # type: ignore
    for clock_ms in range(1000, 2000, 50):
        while state.event_timers.pop_due(clock_ms) is not None:
            pass
        state.rest()
        state.commit()
    assert state.event_timers.pop_due(3000) == (1951, "key", None)
    assert starts == sorted(starts)


def test_few_timers_are_in_memory_at_a_time(watched: tuple[WatchedStore, ShardState]) -> None:
    store, state = watched
    store.taken = 0
    assert state.event_timers.pop_due(1000) == (1000, "key", None)
    assert store.taken <= 513


def test_reading_a_batch_again_after_it_rests_reads_the_store(
    watched: tuple[WatchedStore, ShardState],
) -> None:
    """Memory holds what a batch touches, no longer than the batch."""
    store, state = watched
    table = state.table("m", StateKind.MAP)
    table.entry("key", 7)
    table.put("key", 8, "other")
    state.rest()
    assert table.entry("key", 8) == "other"
    assert store.reads == ["get"]
    table.entry("key", 7)
    assert store.reads == ["get", "get"]


TIMES = st.integers(0, 60)
STEP = st.one_of(
    st.tuples(st.just("register"), TIMES, st.sampled_from("abc")),
    st.tuples(st.just("delete"), TIMES, st.sampled_from("abc")),
    st.tuples(st.just("advance"), st.integers(0, 20)),
    st.tuples(st.just("commit")),
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(STEP, max_size=25), at_once=st.sampled_from([1, 2, 512]))
@example(
    steps=[
        ("register", 30, "a"),
        ("commit",),
        *(("register", 5, "a"), ("register", 50, "b"), ("advance", 10), ("advance", 25)),
    ],
    at_once=512,
)
def test_timers_fire_when_those_in_memory_do(steps: list[Any], at_once: int) -> None:
    """Driven as a task drives them: by `next_ms`, which must never be too late."""
    patch = pytest.MonkeyPatch()
    patch.setattr(stored_timers, "_AT_ONCE", at_once)
    try:
        stored = StoredTimers(WatchedStore(), b"prefix", KeyBytes())
        queues, clock_ms = (TimerQueue(), stored), 0
        for name, *rest in steps:
            if name == "advance":
                clock_ms += rest[0]
                fired = [drained(queue, clock_ms) for queue in queues]
                assert fired[1] == sorted(fired[0])
                continue
            for queue in queues:
                getattr(queue, name)(*rest)
        assert len(stored) == len(queues[0])
        assert sorted(drained(queues[0], 1000)) == drained(stored, 1000)
    finally:
        patch.undo()


def drained(queue: Timers, clock_ms: int) -> list[Any]:
    fired = []
    while queue.next_ms <= clock_ms and (timer := queue.pop_due(clock_ms)) is not None:
        fired.append(timer[:2])
    return fired


@pytest.mark.parametrize("in_memory", [True, False])
def test_types_stay_in_the_log_while_a_state_is_empty(
    in_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a state that was empty at a snapshot could change its type unseen."""
    store, descriptor = MemoryLogStore(), ValueStateDescriptor("v", Types.INT())

    def new_state() -> ShardState:
        return ShardState(0, None if in_memory else StoredShard(WatchedStore(), 1, 0))

    state = new_state()
    for value in (None, 5, None, 6):
        monkeypatch.setattr(changelog, "COMPACT_MAX_CHANGES", 0 if value is None else 100)
        table = state.state(descriptor)
        if value is None:
            table.remove("key")
        else:
            table.set("key", value)
        state.event_timers.register(1, str(value))
        changelog.append(lambda _: store, state)
        state.commit()
    state = new_state()
    changelog.load(lambda _: store, state)
    assert state.types == {"v": declared_schemas(descriptor)}


def test_cleaning_up_before_a_snapshot_keeps_nothing_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = WatchedStore()
    state = ShardState(0, StoredShard(store, 1, 0))
    clock = TaskClock()
    expiry = Expiry(StateTtlConfig.new_builder(Time.seconds(1)).build(), clock)
    monkeypatch.setattr("millpond.state.ttl.expiry._THEN_REST", 10)
    table = state.state(MapStateDescriptor("m", Types.INT(), Types.INT()), expiry=expiry)
    for number in range(100):
        table.put("key", number, (0 if number % 2 else 5000, number))
    state.commit()
    clock.processing_time_ms = 2000
    state.clean_all()
    assert (
        len(table.entries("key").known) <= 50 + 10
    )  # what has changed, and what was looked at last
    state.rest()
    assert table.changed_count() == 50
    assert [entry for entry, _ in table.entries("key").items()] == list(range(0, 100, 2))


@pytest.mark.parametrize("storage", ["memory", "store"])
def test_one_large_map_is_cleaned_up_a_few_entries_at_a_time(storage: str) -> None:
    """E33, of one key: whatever else happens to it meanwhile."""
    clock, count = TaskClock(), 6_000
    stored = None if storage == "memory" else StoredShard(WatchedStore(), 1, 0)
    state = ShardState(0, stored)
    handle = timed_map(state, clock)
    handle.put_all({number: number for number in range(count)})
    state.commit()
    clock.processing_time_ms = 5000  # all have expired
    left = [count]
    while left[-1] and len(left) < count:
        handle.put(count + len(left), 1)  # lives, and must not be met by this round
        state.clean_some()
        state.commit()
        left.append(sum(1 for entry in handle._table.entries("key") if entry < count))
        assert 0 <= left[-2] - left[-1] <= count // 2
    assert left[-1] == 0
    assert len(list(handle.keys())) == len(left) - 1
