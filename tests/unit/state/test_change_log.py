"""The log of a key group: versions, undo, replay, reload, compaction; against an obvious model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream.state import StateKind
from millpond.errors import CorruptDataError, IncompatibleCheckpointError
from millpond.state import change_log as changelog
from millpond.state.change_log import CachedState, MemoryLogStore
from millpond.state.key_group_state import KeyGroupState

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
# What happens to a batch: it commits; its attempt is lost and it runs again, in the same worker or
# in another one; or it commits and the next batch runs in a worker that slept for a while.
FATE = st.sampled_from(["commit", "lost, same worker", "lost, other worker", "old worker"])


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


def new_state() -> KeyGroupState:
    return KeyGroupState(0)


def apply(state: KeyGroupState, operation: tuple[Any, ...]) -> None:
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


def content(state: KeyGroupState) -> Any:
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


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.lists(OPERATION, max_size=8), FATE), max_size=12),
    st.sampled_from([40, 200, 1 << 20]),
    st.sampled_from([0, 1000, 1 << 20]),
)
def test_state_equals_the_model_whatever_happens_to_batches(
    batches: list[tuple[list[Any], str]], compact_bytes: int, joined_bytes: int
) -> None:
    """E41, E42: after every fate the state a worker loads is exactly the committed one, including
    the order of maps and of timers."""
    limits = changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES, changelog.JOINED_BYTES
    changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES = compact_bytes, 64
    changelog.JOINED_BYTES = joined_bytes
    try:
        store, model = MemoryLogStore(), Model()
        workers: list[CachedState | None] = [None, None, None]
        for operations, fate in batches:
            worker = 0
            if fate.startswith("lost"):
                before = copy.deepcopy(store)
                state, head = changelog.load(store, workers[0], "test", new_state)
                for operation in operations:
                    apply(state, operation)
                workers[0] = changelog.append(store, state, head)
                store = before
                worker = 0 if fate == "lost, same worker" else 1
            elif fate == "old worker":
                worker = 2
            state, head = changelog.load(store, workers[worker], "test", new_state)
            assert content(state) == model.content()
            for operation in operations:
                apply(state, operation)
                model.apply(operation)
            workers[worker] = changelog.append(store, state, head)
        for cached in [None, *workers]:
            state, _ = changelog.load(store, cached, "test", new_state)
            assert content(state) == model.content()
    finally:
        changelog.COMPACT_MIN_BYTES, changelog.CHUNK_BYTES, changelog.JOINED_BYTES = limits


def grown_log(batches: int) -> tuple[MemoryLogStore, list[int]]:
    store, sizes = MemoryLogStore(), []
    cached = None
    for batch in range(batches):
        state, head = changelog.load(store, cached, "test", new_state)
        state.table("v", StateKind.VALUE).set(f"key {batch % 50}", batch)
        before = set(store._rows)
        cached = changelog.append(store, state, head)
        sizes.append(sum(len(store._rows[row]) for row in store._rows if row not in before))
    return store, sizes


def test_a_batch_writes_what_changed_not_the_state() -> None:
    """E41: one changed key costs the same however large the state is."""
    store = MemoryLogStore()
    state, head = changelog.load(store, None, "test", new_state)
    for number in range(10_000):
        state.table("v", StateKind.VALUE).set(f"key {number}", number)
    cached = changelog.append(store, state, head)
    written = []
    for number in range(20):
        state, head = changelog.load(store, cached, "test", new_state)
        state.table("v", StateKind.VALUE).set("key 7", number)
        rows = set(store._rows)
        cached = changelog.append(store, state, head)
        written.append(sum(len(store._rows[row]) for row in store._rows if row not in rows))
    assert max(written[1:]) < 400, "only the first small batch may write the one snapshot"


@pytest.mark.parametrize("keys_per_batch", [1, 30, 2000])
def test_what_batches_write_is_at_most_three_times_what_changed_however_large_the_state(
    keys_per_batch: int,
) -> None:
    """E41: over thousands of batches, snapshots and runs included."""
    store = MemoryLogStore()
    state, head = changelog.load(store, None, "test", new_state)
    for number in range(20_000):
        state.table("v", StateKind.VALUE).set(f"key {number}", number)
    cached = changelog.append(store, state, head)
    first = cached.head.written_bytes
    written = changed = number = 0
    while changed < 4 * first and number < 3000:
        state, head = changelog.load(store, cached, "test", new_state)
        for key in range(keys_per_batch):
            state.table("v", StateKind.VALUE).set(f"key {(number * 31 + key) % 20_000}", number)
        changed += len(codec.encode(BlobKind.CHANGE, state.changes()))
        cached = changelog.append(store, state, head)
        written += cached.head.written_bytes
        number += 1
    assert written <= 3 * changed
    assert len(store._rows) < number, "runs take the place of rows"


def test_a_state_that_only_grows_is_seldom_written_anew() -> None:
    store, cached, written = MemoryLogStore(), None, 0
    for batch in range(300):
        state, head = changelog.load(store, cached, "test", new_state)
        for number in range(1000):
            state.table("v", StateKind.VALUE).set(f"key {batch}-{number}", number)
        cached = changelog.append(store, state, head)
        written += cached.head.written_bytes
    assert written < 1.5 * cached.head.bytes


def test_a_state_that_no_longer_grows_is_written_anew_again() -> None:
    store, cached = MemoryLogStore(), None
    for batch in range(400):
        state, head = changelog.load(store, cached, "test", new_state)
        for number in range(1000):
            state.table("v", StateKind.VALUE).set(f"key {min(batch, 40)}-{number}", batch)
        cached = changelog.append(store, state, head)
    state, _ = changelog.load(store, None, "test", new_state)
    live = len(codec.encode(BlobKind.SNAPSHOT, state.snapshot()))
    assert cached.head.bytes < 10 * live


def test_log_is_compacted_and_does_not_grow_without_bound() -> None:
    store, _ = grown_log(2000)
    assert len(store._rows) < 250
    assert sum(map(len, store._rows.values())) < 5 * changelog.COMPACT_MIN_BYTES
    state, _ = changelog.load(store, None, "test", new_state)
    assert len(state.table("v", StateKind.VALUE).data) == 50


def test_state_that_did_not_change_writes_nothing() -> None:
    store, _ = grown_log(3)
    before = copy.deepcopy(store.__dict__)
    state, head = changelog.load(store, None, "test", new_state)
    changelog.append(store, state, head)
    assert store.__dict__ == before


def test_an_attempt_with_the_same_version_but_other_content_is_not_reused() -> None:
    """Two workers ran the same batch; the other one's result became the truth."""
    store, _ = grown_log(3)
    other = copy.deepcopy(store)
    mine, head = changelog.load(store, None, "test", new_state)
    mine.table("v", StateKind.VALUE).set("x", "mine")
    cached = changelog.append(store, mine, head)
    theirs, head = changelog.load(other, None, "test", new_state)
    theirs.table("v", StateKind.VALUE).set("x", "theirs")
    changelog.append(other, theirs, head)
    state, _ = changelog.load(other, cached, "test", new_state)
    assert state.table("v", StateKind.VALUE).data["x"] == "theirs"


def test_values_far_larger_than_a_chunk_survive() -> None:
    store = MemoryLogStore()
    state, head = changelog.load(store, None, "test", new_state)
    big = "x" * (3 * changelog.CHUNK_BYTES + 17)
    state.table("v", StateKind.VALUE).set("k", big)
    changelog.append(store, state, head)
    assert len(store._rows) == 4
    state, _ = changelog.load(store, None, "test", new_state)
    assert state.table("v", StateKind.VALUE).data["k"] == big


def test_damaged_row_is_reported_with_its_place() -> None:
    store, _ = grown_log(3)
    number = max(store._rows)
    row = bytearray(store._rows[number])
    row[-1] ^= 0xFF
    store._rows[number] = bytes(row)
    with pytest.raises(CorruptDataError, match=f"operator 'x', row {number}: checksum"):
        changelog.load(store, None, "operator 'x'", new_state)


def test_state_of_another_kind_under_the_same_name_is_refused() -> None:
    store, _ = grown_log(1)
    state, _ = changelog.load(store, None, "test", new_state)
    with pytest.raises(IncompatibleCheckpointError, match="stored as value state but declared as"):
        state.table("v", StateKind.MAP)
