"""The change logs of a shard: the truth that the state in memory is a cache of.

There is one log per key group; one more, if the shard has several key groups, for what has no key; and one
if the task has no keys at all. Each has

    rows   a snapshot (one or more rows; a large one is a snapshot and changes that belong to it), then the
           changes: one blob per batch (one or more rows each), or many small ones joined
    head   says which rows are valid

A batch reads the head, appends a change and writes the head: its cost grows with what has changed (E41). Once
there are enough small changes, they are written again, joined, so that a log never has so many rows
that reading it takes long. When the changes have overwritten far more than the snapshot holds, the batch
writes a new snapshot instead and drops the old rows. Key groups do so at different times, so that no batch
stalls; that is why logs are not larger than a key group. If the shard has several of them, its tables hold
their keys mixed, so the new snapshot is made from the log: from the old snapshot and the changes. Rows are
cut into chunks, so that the log of a partition can be cleaned up in small steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, Protocol

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.key_groups import murmur_mix
from millpond.core.labels import ALL_OF_PARTITION
from millpond.errors import CorruptDataError, StateLostError
from millpond.state.grouping import Grouping
from millpond.state.log_tail import LogHead, LogTail
from millpond.state.shard_state import Content, ShardState, split_content

CHUNK_BYTES = 256 * 1024
JOINED_BYTES = 32 * 1024  # small changes are joined once they are this large together
COMPACT_MIN_BYTES = 64 * 1024
COMPACT_MAX_CHANGES = 25_600
# What was overwritten may be this many times as large as the snapshot, plus up to 1, by key group.
COMPACT_RATIO = 2.0
# The least share of changes that is taken to overwrite something: a state that only grew may change one day.
LEAST_OVERWRITTEN = 1 / 3
_LAST = bytes(4)  # no chunks to come
_NOTHING = ShardState(0).snapshot()


class LogStore(Protocol):
    """Where a log is kept: the log of its partition, or memory."""

    def read_head(self) -> bytes | None:
        """Return the head, or None if the log is new."""

    def write_head(self, head: bytes) -> None:
        """Replace the head."""

    def read_row(self, number: int) -> bytes:
        """Return a row that was written and not deleted."""

    def write_row(self, number: int, row: bytes) -> None:
        """Write or replace a row."""

    def delete_row(self, number: int) -> None:
        """Delete a row that is there."""


class Written(NamedTuple):
    """What a batch has written to the logs of a shard, and how large they are now."""

    bytes_written: int
    bytes_full: int


class MemoryLogStore:
    """A log in memory, for the harness and for tests."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._rows: dict[int, bytes] = {}

    def read_head(self) -> bytes | None:
        """Return the head, or None if the log is new."""
        return self._head

    def write_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head = head

    def read_row(self, number: int) -> bytes:
        """Return a row. Raises KeyError if there is none."""
        return self._rows[number]

    def write_row(self, number: int, row: bytes) -> None:
        """Write or replace a row."""
        self._rows[number] = row

    def delete_row(self, number: int) -> None:
        """Delete a row. Raises KeyError if there is none."""
        del self._rows[number]


Stores = Callable[[int], LogStore]
"""Returns the store of a log, given its number."""
Check = Callable[[Content, int], None]
"""Takes a content, and the number of its log; raises if it cannot be used."""


def log_numbers(state: ShardState) -> list[int]:
    """Return the numbers of a shard's logs."""
    if state.grouping is None:
        return [state.number]
    return [_number_without_key(state), *state.grouping.key_groups]


def _number_without_key(state: ShardState) -> int:
    """Return the number of the log for what has no key, which is that of no key group."""
    return ALL_OF_PARTITION + state.number


def is_new(stores: Stores, state: ShardState) -> bool:
    """Return True if nothing has been written to the logs of a shard."""
    return all(stores(number).read_head() is None for number in log_numbers(state))


def load(stores: Stores, state: ShardState, check: Check = lambda content, number: None) -> None:
    """Fill an empty state with what its logs say, after `check` has seen it.

    Raises StateLostError if the state was kept in memory only, CorruptDataError if a row is damaged.
    """
    state.log_tails = _read_tails(stores, state)
    for number, tail in state.log_tails.items():
        head, where = tail.head, _where(state, number)
        if head.changes and head.next_row == head.first_row:
            raise StateLostError(
                f"{state.where}: it was kept in memory only (state.backend.type=memory), and is gone with "
                "its slot, or with a batch that failed. Start the job anew, or from a savepoint; the "
                "backends hashmap and rocksdb keep a log."
            )
        for content in _read_changes(stores(number), head.first_row, head.next_row, where):
            check(content, number)
            state.apply(content, None if state.grouping is None else number)
    state.commit()


def _read_tails(stores: Stores, state: ShardState) -> dict[int, LogTail]:
    return {
        number: LogTail(_read_head(stores(number), _where(state, number)))
        for number in log_numbers(state)
    }


def _where(state: ShardState, number: int) -> str:
    return f"{state.where}, log {number}"


def append(stores: Stores, state: ShardState, keeps_log: bool = True) -> Written | None:
    """Write the changes of this batch (or new snapshots); if not `keeps_log`, only that there are some.
    Without changes nothing is written, and None is returned.

    The state keeps its undo list until the next batch shows whether the write became the truth.
    """
    if not state.has_changes():
        return None
    if not keeps_log:
        _write_head(stores(log_numbers(state)[0]), LogHead(changes=1))
        return Written(0, 0)
    if not state.log_tails:
        state.log_tails = _read_tails(stores, state)
    if state.grouping is None:
        written = _append(stores(state.number), state, state.number, state.changes, _cleaned(state))
    elif state.is_restored or state.is_in_new_form:
        written = _append_all(stores, state, state.grouping)
    else:
        parts, own = state.changes_by_key_group()
        if own is not None:
            parts[_number_without_key(state)] = own
        written = sum(
            _append_part(stores(number), state, number, content)
            for number, content in parts.items()
        )
    return Written(written, sum(tail.head.bytes for tail in state.log_tails.values()))


def _cleaned(state: ShardState) -> Callable[[], Iterable[Content]]:
    def snapshot_parts() -> Iterable[Content]:
        state.clean_all()
        return state.snapshot_parts()

    return snapshot_parts


def _append_all(stores: Stores, state: ShardState, grouping: Grouping) -> int:
    """Write snapshots of everything, because the logs lack what came from a savepoint, or have states in
    another form than they have now. Return how many bytes were written. Nothing is gathered in memory: the
    state may not fit."""
    snapshots = {
        number: _Snapshot(stores(number), tail)
        for number, tail in state.log_tails.items()
        if stores(number).read_head() is not None
    }
    for part in state.snapshot_parts():
        parts, own = split_content(part, grouping)
        for number, content in (*parts.items(), (_number_without_key(state), own)):
            if number not in snapshots:
                snapshots[number] = _Snapshot(stores(number), state.log_tails[number])
            snapshots[number].add(content)
    return sum(snapshot.complete() for snapshot in snapshots.values())


def _append_part(store: LogStore, state: ShardState, number: int, content: Content) -> int:
    """Append to a log of a shard that has several. Return how many bytes were written."""

    def snapshot_parts() -> Iterator[Content]:
        whole, head = ShardState(number), state.log_tails[number].head
        for before in _read_changes(store, head.first_row, head.next_row, _where(state, number)):
            whole.apply(before)
        whole.apply(content)
        return whole.snapshot_parts()

    return _append(store, state, number, lambda: content, snapshot_parts)


def _append(
    store: LogStore,
    state: ShardState,
    number: int,
    changes: Callable[[], Content],
    snapshot_parts: Callable[[], Iterable[Content]],
) -> int:
    tail = state.log_tails[number]
    if _is_due_for_compaction(tail.head, number):
        snapshot = _Snapshot(store, tail)
        for part in snapshot_parts():
            snapshot.add(part)
        return snapshot.complete()
    change = codec.encode(BlobKind.CHANGE, changes())
    return _write_change(store, tail, change, _where(state, number))


def _read_head(store: LogStore, where: str) -> LogHead:
    """Return the head of a log; an empty one if the log is new. `where` names the log in errors."""
    blob = store.read_head()
    return LogHead() if blob is None else LogHead(*codec.decode(BlobKind.LOG_HEAD, blob, where))


def _write_head(store: LogStore, head: LogHead) -> None:
    store.write_head(codec.encode(BlobKind.LOG_HEAD, tuple(head)))


class _Snapshot:
    """A snapshot that takes the place of all rows of a log."""

    def __init__(self, store: LogStore, tail: LogTail) -> None:
        self._store = store
        self._tail = tail
        self._next_row = tail.head.next_row
        self._bytes = 0

    def add(self, content: Content) -> None:
        """Write a part of it."""
        kind = BlobKind.CHANGE if self._bytes else BlobKind.SNAPSHOT
        blob = codec.encode(kind, content)
        self._next_row = _write_chunks(self._store, self._next_row, blob)
        self._bytes += len(blob)

    def complete(self) -> int:
        """Drop the rows before it. Return its size."""
        if not self._bytes:
            self.add(_NOTHING)
        head = self._tail.head
        for row in range(head.first_row, head.next_row):
            self._store.delete_row(row)
        grown = (self._bytes - head.snapshot_bytes) / max(head.change_bytes, 1)
        overwritten = min(max(1 - grown, 0.0), 1.0) if head.changes else 1.0
        self._tail.set_fresh([])
        self._tail.head = LogHead(
            head.next_row, self._next_row, self._next_row, self._bytes, overwritten=overwritten
        )
        _write_head(self._store, self._tail.head)
        return self._bytes


def _write_change(store: LogStore, tail: LogTail, change: bytes, where: str) -> int:
    """Write a change, alone or joined with small ones before it. Return the size of what was written."""
    head, is_small = tail.head, len(change) <= JOINED_BYTES // 4
    if is_small and tail.fresh is None:
        tail.set_fresh([b for b, _ in _read_blobs(store, head.fresh_row, head.next_row, where)])
    if is_small and tail.fresh_bytes + len(change) < JOINED_BYTES:
        tail.add_fresh(change)
        written, fresh_row = len(change), head.fresh_row
        next_row = _write_chunks(store, head.next_row, change)
    elif is_small:
        joined = codec.encode(BlobKind.JOINED, (*(tail.fresh or ()), change))
        written = len(joined)
        fresh_row = next_row = _write_chunks(store, head.fresh_row, joined)
        for row in range(next_row, head.next_row):
            store.delete_row(row)
        tail.set_fresh([])
    else:  # large enough to be read quickly as it is
        written = len(change)
        fresh_row = next_row = _write_chunks(store, head.next_row, change)
        tail.set_fresh([])
    tail.head = LogHead(
        head.first_row,
        fresh_row,
        next_row,
        head.snapshot_bytes,
        head.change_bytes + len(change),
        head.changes + 1,
        head.overwritten,
    )
    _write_head(store, tail.head)
    return written


def _is_due_for_compaction(head: LogHead, number: int) -> bool:
    """Return True if the log is empty, or too much in it was overwritten, or there are too many changes.

    Nobody knows how much was overwritten since the snapshot; the share is assumed to be that of the time
    before. Key groups grow alike, so each has limits of its own: not all should compact in the same batch.
    """
    spread = _spread(number)
    limit_bytes = max(head.snapshot_bytes, COMPACT_MIN_BYTES) * (COMPACT_RATIO + spread)
    limit_changes = COMPACT_MAX_CHANGES * (1 + spread)
    overwritten_bytes = head.change_bytes * max(head.overwritten, LEAST_OVERWRITTEN)
    is_empty = head.next_row == head.first_row
    return is_empty or overwritten_bytes > limit_bytes or head.changes >= limit_changes


@cache
def _spread(number: int) -> float:
    """Return a number from 0 to 1 that is always the same for a log."""
    return murmur_mix(number) % 64 / 64


def _write_chunks(store: LogStore, row: int, blob: bytes) -> int:
    """Write a blob as rows of (number of chunks still to come: 4 bytes, chunk). Return the row after the
    last."""
    if len(blob) <= CHUNK_BYTES:
        store.write_row(row, _LAST + blob)
        return row + 1
    chunks = [blob[i : i + CHUNK_BYTES] for i in range(0, len(blob), CHUNK_BYTES)]
    for number, chunk in enumerate(chunks):
        to_come = len(chunks) - 1 - number
        store.write_row(row + number, to_come.to_bytes(4, "little") + chunk)
    return row + len(chunks)


def _read_changes(store: LogStore, row: int, end_row: int, where: str) -> Iterator[dict[str, Any]]:
    for blob, where_blob in _read_blobs(store, row, end_row, where):
        kind = blob[3] if len(blob) > 3 else None
        if kind == BlobKind.JOINED:
            for change in codec.decode(BlobKind.JOINED, blob, where_blob):
                yield codec.decode(BlobKind.CHANGE, change, where_blob)
        else:
            expected = BlobKind.SNAPSHOT if kind == BlobKind.SNAPSHOT else BlobKind.CHANGE
            yield codec.decode(expected, blob, where_blob)


def _read_blobs(store: LogStore, row: int, end_row: int, where: str) -> Iterator[tuple[bytes, str]]:
    """Return the blobs in rows `row` to `end_row` - 1, each with where it is, for errors."""
    while row < end_row:
        parts: list[bytes] = []
        while True:
            if row >= end_row:
                raise CorruptDataError(f"{where}: the log ends within a blob, at row {row}.")
            data = store.read_row(row)
            parts.append(data[4:])
            row += 1
            if int.from_bytes(data[:4], "little") == 0:
                break
        yield b"".join(parts), f"{where}, row {row - 1}"
