"""The log of a key group: versions, undo, replay, reload, compaction; against an obvious model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.common import Types
from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.key_groups import key_group_of
from millpond.core.storage import MemoryStorage
from millpond.datastream.state import MapStateDescriptor, StateKind
from millpond.errors import CorruptDataError, IncompatibleCheckpointError, ProgramError
from millpond.state import change_log as changelog
from millpond.state import partition_log
from millpond.state.change_log import MemoryLogStore
from millpond.state.grouping import Grouping
from millpond.state.handles import CurrentKey, HashMapStateHandle
from millpond.state.partition_log import EMPTY
from millpond.state.shard_state import ShardState
from tests.unit.state.workers import Worker, run_batches

KEYS = st.sampled_from(["a", "b", "c"])
SMALL = st.integers(0, 5)
OPERATION = st.one_of(
    st.tuples(st.just("value set"), KEYS, SMALL),
    st.tuples(st.just("value remove"), KEYS),
    st.tuples(st.just("list add"), KEYS, SMALL),
    st.tuples(st.just("list replace"), KEYS, st.lists(SMALL, max_size=3)),
    st.tuples(st.just("map put"), KEYS, SMALL, SMALL),
    st.tuples(st.just("map remove"), KEYS, SMALL),
    st.tuples(st.just("map clear"), KEYS),
    st.tuples(st.just("timer add"), SMALL, KEYS),
    st.tuples(st.just("timer delete"), SMALL, KEYS),
    st.tuples(st.just("timers fire"), SMALL),
)
# What happens to a batch: see `run_batches`.
FATE = st.sampled_from(["counts", "lost, same worker", "lost, other worker", "fails", "old worker"])
ALL_KEY_GROUPS = Grouping(range(128), 128)


class Model:
    """Plain dictionaries and lists."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.lists: dict[str, list[int]] = {}
        self.maps: dict[str, dict[int, int]] = {}
        self.timers: list[tuple[int, str]] = []  # in the order of registration

    def apply(self, operation: tuple[Any, ...]) -> None:
        name, *rest = operation
        if name == "value set":
            self.values[rest[0]] = rest[1]
        elif name == "value remove":
            self.values.pop(rest[0], None)
        elif name == "list add":
            self.lists.setdefault(rest[0], []).append(rest[1])
        elif name == "list replace":
            self.lists[rest[0]] = list(rest[1])
        elif name == "map put":
            self.maps.setdefault(rest[0], {})[rest[1]] = rest[2]
        elif name == "map remove":
            self.maps.get(rest[0], {}).pop(rest[1], None)
        elif name == "map clear":
            self.maps.pop(rest[0], None)
        elif name == "timer add" and (rest[0], rest[1]) not in self.timers:
            self.timers.append((rest[0], rest[1]))
        elif name == "timer delete":
            self.timers = [t for t in self.timers if t != (rest[0], rest[1])]
        elif name == "timers fire":
            self.timers = [t for t in self.timers if t[0] > rest[0]]

    def content(self) -> Any:
        return (
            self.values,
            {key: items for key, items in self.lists.items() if items},
            {key: list(entries.items()) for key, entries in self.maps.items() if entries},
            sorted(self.timers, key=lambda timer: timer[0]),
        )


def apply(state: ShardState, operation: tuple[Any, ...]) -> None:
    name, *rest = operation
    values = state.table("v", StateKind.VALUE)
    lists = state.table("l", StateKind.LIST)
    maps = state.table("m", StateKind.MAP)
    timers = state.event_timers
    if name == "value set":
        values.set(*rest)
    elif name == "value remove":
        values.remove(*rest)
    elif name == "list add":
        lists.extend(rest[0], [rest[1]])
    elif name == "list replace":
        lists.replace(rest[0], list(rest[1]))
    elif name == "map put":
        maps.put(*rest)
    elif name == "map remove":
        maps.remove(*rest)
    elif name == "map clear":
        maps.clear(*rest)
    elif name == "timer add":
        timers.register(*rest)
    elif name == "timer delete":
        timers.delete(*rest)
    else:
        while timers.pop_due(rest[0]) is not None:
            pass


def content(state: ShardState) -> Any:
    drained = copy.deepcopy(state.event_timers)
    timers = []
    while (timer := drained.pop_due(1 << 62)) is not None:
        timers.append(timer[:2])
    return (
        state.table("v", StateKind.VALUE).data,
        state.table("l", StateKind.LIST).data,
        {k: list(e.items()) for k, e in state.table("m", StateKind.MAP).data.items()},
        timers,
    )


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.lists(OPERATION, max_size=8), FATE), max_size=12),
    st.sampled_from([40, 200, 1 << 20]),
    st.sampled_from([0, 1000, 1 << 20]),
    st.sampled_from([None, ALL_KEY_GROUPS]),
    st.sampled_from([0, 100, 1 << 20]),
)
def test_state_equals_the_model_whatever_happens_to_batches(
    batches: list[tuple[list[Any], str]],
    compact_bytes: int,
    joined_bytes: int,
    grouping: Grouping | None,
    pending_bytes: int,
) -> None:
    """E41, E42: whatever happens, the state that a worker works on is exactly the one that counts, including
    the order of maps and of timers; with one log, and with one per key group; with one record per batch, and
    with several."""
    limits = changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES, changelog.JOINED_BYTES
    changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES = compact_bytes, 64
    changelog.JOINED_BYTES = joined_bytes
    most_pending, partition_log.MOST_PENDING = partition_log.MOST_PENDING, pending_bytes
    model = Model()

    def check(state: ShardState) -> None:
        assert content(state) == model.content()

    try:
        run_batches(batches, model, apply, check, lambda: ShardState(0, None, grouping))
    finally:
        changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES, changelog.JOINED_BYTES = limits
        partition_log.MOST_PENDING = most_pending


class OneLog:
    """A state with one log, batch after batch."""

    def __init__(self) -> None:
        self.store = MemoryLogStore()
        self.state = ShardState(0)

    def append(self) -> changelog.Written:
        written = changelog.append(lambda _: self.store, self.state)
        self.state.commit()
        return written or changelog.Written(0, 0)

    def set(self, key: str, value: object) -> None:
        self.state.table("v", StateKind.VALUE).set(key, value)

    def loaded(self) -> ShardState:
        state = ShardState(0)
        state.where = "operator 'x'"
        changelog.load(lambda _: self.store, state)
        return state


def grown_log(batches: int) -> OneLog:
    log = OneLog()
    for batch in range(batches):
        log.set(f"key {batch % 50}", batch)
        log.append()
    return log


def test_a_batch_writes_what_changed_not_the_state() -> None:
    """E41: one changed key costs the same however large the state is."""
    log = OneLog()
    for number in range(10_000):
        log.set(f"key {number}", number)
    log.append()
    written = []
    for number in range(20):
        log.set("key 7", number)
        written.append(log.append().bytes_written)
    assert max(written[1:]) < 400, "only the first small batch may write the one snapshot"


@pytest.mark.parametrize("through_handle", [False, True])
def test_entry_that_comes_and_goes_within_a_batch_costs_nothing(through_handle: bool) -> None:
    state, current = ShardState(0), CurrentKey()
    table = state.table("m", StateKind.MAP)
    handle = HashMapStateHandle(MapStateDescriptor("m", Types.STRING(), Types.LONG()), current)
    current.key = "key"
    handle.bind(state)

    def put(entry: str, value: int) -> None:
        handle.put(entry, value) if through_handle else table.put("key", entry, value)

    def remove(entry: str) -> None:
        handle.remove(entry) if through_handle else table.remove("key", entry)

    put("stays", 1)
    state.commit()
    for number in range(100):
        put("comes and goes", number)
        remove("comes and goes")
        put(f"comes and goes {number}", number)
        remove(f"comes and goes {number}")
    assert not state.has_changes()
    put("comes", 1)
    remove("stays")
    assert table.change_columns() == (["key"], [1], ["comes"], [1], [("key", "stays")], [])
    assert not state.rollback(), "it would come back at another place"
    state.commit()
    put("comes and goes", 2)
    remove("comes and goes")
    assert state.rollback()
    assert dict(table.entries("key")) == {"comes": 1}


@pytest.mark.parametrize("keys_per_batch", [1, 30, 2000])
def test_what_batches_write_is_at_most_three_times_what_changed_however_large_the_state(
    keys_per_batch: int,
) -> None:
    """E41: over thousands of batches, snapshots and runs included."""
    log = OneLog()
    for number in range(20_000):
        log.set(f"key {number}", number)
    first, _ = log.append()
    written = changed = number = 0
    while changed < 4 * first and number < 3000:
        for key in range(keys_per_batch):
            log.set(f"key {(number * 31 + key) % 20_000}", number)
        changed += len(codec.encode(BlobKind.CHANGE, log.state.changes()))
        written += log.append().bytes_written
        number += 1
    assert written <= 3 * changed
    assert len(log.store._rows) < number, "runs take the place of rows"


def test_a_state_that_only_grows_is_seldom_written_anew() -> None:
    log, written = OneLog(), 0
    for batch in range(300):
        for number in range(1000):
            log.set(f"key {batch}-{number}", number)
        size, full = log.append()
        written += size
    assert written < 1.5 * full


def test_a_state_that_no_longer_grows_is_written_anew_again() -> None:
    log = OneLog()
    for batch in range(400):
        for number in range(1000):
            log.set(f"key {min(batch, 40)}-{number}", batch)
        _, full = log.append()
    assert full < 10 * len(codec.encode(BlobKind.SNAPSHOT, log.loaded().snapshot()))


def test_log_is_compacted_and_does_not_grow_without_bound() -> None:
    log = grown_log(2000)
    assert len(log.store._rows) < 250
    assert sum(map(len, log.store._rows.values())) < 5 * changelog.COMPACT_MIN_BYTES
    assert len(log.loaded().table("v", StateKind.VALUE).data) == 50


def test_state_that_did_not_change_writes_nothing() -> None:
    log = grown_log(3)
    before = copy.deepcopy(log.store.__dict__)
    log.append()
    assert log.store.__dict__ == before


def test_what_another_worker_has_written_is_not_taken_for_ones_own() -> None:
    """Two workers ran the same batch; the other one's result became the truth."""
    storage = MemoryStorage()
    mine, theirs = (Worker(storage, name, lambda: ShardState(0)) for name in "ab")
    first = mine.run(EMPTY, [("value set", "x", 1)], apply)
    mine.run(first, [("value set", "x", 2)], apply)
    truth = theirs.run(first, [("value set", "x", 3)], apply)
    found: list[Any] = []
    mine.run(truth, [], apply, lambda state: found.append(content(state)[0]["x"]))
    assert found == [3]


def test_values_far_larger_than_a_chunk_survive() -> None:
    log, big = OneLog(), "x" * (3 * changelog.CHUNK_BYTES + 17)
    log.set("k", big)
    log.append()
    assert len(log.store._rows) == 4
    assert log.loaded().table("v", StateKind.VALUE).data["k"] == big


def test_damaged_row_is_reported_with_its_place() -> None:
    log = grown_log(3)
    number = max(log.store._rows)
    row = bytearray(log.store._rows[number])
    row[-1] ^= 0xFF
    log.store._rows[number] = bytes(row)
    with pytest.raises(CorruptDataError, match=f"operator 'x', log 0, row {number}: checksum"):
        log.loaded()


def test_state_of_another_kind_under_the_same_name_is_refused() -> None:
    state = grown_log(1).loaded()
    with pytest.raises(IncompatibleCheckpointError, match="stored as value state but declared as"):
        state.table("v", StateKind.MAP)


def test_a_change_goes_to_the_logs_of_the_key_groups_that_changed() -> None:
    """So a log can be read and cleaned up key group by key group."""
    storage = MemoryStorage()
    worker = Worker(storage, "a", lambda: ShardState(0, None, ALL_KEY_GROUPS))
    position = worker.run(EMPTY, [("value set", key, 1) for key in "abc"], apply)
    assert worker.log.labels() == {key_group_of(key, 128) for key in "abc"}
    worker.log.go_to(position)
    heads = {label: worker.log.read_head(label) for label in worker.log.labels()}
    worker.log.go_to(worker.run(position, [("value set", "b", 2)], apply))
    changed = {label for label in heads if worker.log.read_head(label) != heads[label]}
    assert changed == {key_group_of("b", 128)}


def test_key_that_belongs_to_no_key_group_of_the_shard_is_refused() -> None:
    """It would be written to a log that nobody reads."""
    state = ShardState(0, None, Grouping(range(2), 128))
    state.table("v", StateKind.VALUE).set("a", 1)
    with pytest.raises(ProgramError, match="The key 'a' does not belong to this subtask any more"):
        changelog.append(lambda _: MemoryLogStore(), state)
