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
from typing import Any, NamedTuple, Protocol

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.key_groups import murmur_mix
from millpond.core.labels import ALL_OF_PARTITION
from millpond.errors import CorruptDataError, StateLostError
from millpond.state.grouping import Grouping
from millpond.state.shard_state import Content, ShardState, split_content

CHUNK_BYTES = 256 * 1024
JOINED_BYTES = 32 * 1024  # small changes are joined once they are this large together
COMPACT_MIN_BYTES = 64 * 1024
COMPACT_MAX_CHANGES = 25_600
# What was overwritten may be this many times as large as the snapshot, plus up to 1, by key group.
COMPACT_RATIO = 2.0
# The least share of changes that is taken to overwrite something: a state that only grew may change one day.
LEAST_OVERWRITTEN = 1 / 3


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


class LogHead(NamedTuple):
    """Says that rows `first_row` to `next_row` - 1 of a log are valid.

    From `fresh_row` on there are small changes that are not joined yet. `changes` counts those since the
    snapshot. `overwritten` is the share of the changes before the snapshot that had overwritten something
    when it was written.
    """

    first_row: int = 0
    fresh_row: int = 0
    next_row: int = 0
    snapshot_bytes: int = 0
    change_bytes: int = 0
    changes: int = 0
    overwritten: float = 1.0

    @property
    def bytes(self) -> int:
        """The size of the whole log."""
        return self.snapshot_bytes + self.change_bytes


class Written(NamedTuple):
    """What a batch has written to a log, and how large the log is now."""

    log: int
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
    for number in log_numbers(state):
        where = f"{state.where}, log {number}"
        head = _read_head(stores(number), where)
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


def append(stores: Stores, state: ShardState, keeps_log: bool = True) -> list[Written]:
    """Write the changes of this batch (or new snapshots); if not `keeps_log`, only that there are some.
    Without changes nothing is written.

    The state keeps its undo list until the next batch shows whether the write became the truth.
    """
    if not state.has_changes():
        return []
    if not keeps_log:
        first = log_numbers(state)[0]
        _write_head(stores(first), LogHead(changes=1))
        return [Written(first, 0, 0)]
    if state.grouping is None:
        return [_append(stores(state.number), state, state.number, state.changes, _cleaned(state))]
    if state.is_restored or state.is_in_new_form:
        return _append_all(stores, state, state.grouping)
    parts, own = state.changes_by_key_group()
    if own is not None:
        parts[_number_without_key(state)] = own
    return [
        _append_part(stores(number), state, number, content) for number, content in parts.items()
    ]


def _cleaned(state: ShardState) -> Callable[[], Iterable[Content]]:
    def snapshot_parts() -> Iterable[Content]:
        state.clean_all()
        return state.snapshot_parts()

    return snapshot_parts


def _append_all(stores: Stores, state: ShardState, grouping: Grouping) -> list[Written]:
    """Write snapshots of everything, because the logs lack what came from a savepoint, or have states in
    another form than they have now."""
    contents: dict[int, list[Content]] = {
        number: [] for number in log_numbers(state) if stores(number).read_head() is not None
    }
    for part in state.snapshot_parts():
        parts, own = split_content(part, grouping)
        for number, content in (*parts.items(), (_number_without_key(state), own)):
            contents.setdefault(number, []).append(content)
    written: list[Written] = []
    for number, own_parts in contents.items():
        store = stores(number)
        parts_or_nothing = own_parts or [ShardState(number).snapshot()]
        size, head = _write_snapshot(store, _read_head(store, state.where), parts_or_nothing)
        _write_head(store, head)
        written.append(Written(number, size, head.bytes))
    state.fresh_changes.clear()
    return written


def _append_part(store: LogStore, state: ShardState, number: int, content: Content) -> Written:
    """Append to a log of a shard that has several."""

    def snapshot_parts() -> Iterator[Content]:
        whole = ShardState(number)
        where = f"{state.where}, log {number}"
        head = _read_head(store, where)
        for before in _read_changes(store, head.first_row, head.next_row, where):
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
) -> Written:
    head = _read_head(store, state.where)
    if _is_due_for_compaction(head, number):
        written, new_head = _write_snapshot(store, head, snapshot_parts())
        state.fresh_changes[number] = ()
    else:
        change = codec.encode(BlobKind.CHANGE, changes())
        written, new_head = _write_change(store, state, number, head, change)
    _write_head(store, new_head)
    return Written(number, written, new_head.bytes)


def _read_head(store: LogStore, where: str) -> LogHead:
    """Return the head of a log; an empty one if the log is new. `where` names the log in errors."""
    blob = store.read_head()
    return LogHead() if blob is None else LogHead(*codec.decode(BlobKind.LOG_HEAD, blob, where))


def _write_head(store: LogStore, head: LogHead) -> None:
    store.write_head(codec.encode(BlobKind.LOG_HEAD, tuple(head)))


def _write_snapshot(
    store: LogStore, head: LogHead, parts: Iterable[Content]
) -> tuple[int, LogHead]:
    """Write a snapshot in place of all rows. Return its size, and the new head."""
    kind, next_row, snapshot_bytes = BlobKind.SNAPSHOT, head.next_row, 0
    for content in parts:
        blob = codec.encode(kind, content)
        kind, next_row = BlobKind.CHANGE, _write_chunks(store, next_row, blob)
        snapshot_bytes += len(blob)
    for row in range(head.first_row, head.next_row):
        store.delete_row(row)
    grown = (snapshot_bytes - head.snapshot_bytes) / max(head.change_bytes, 1)
    overwritten = min(max(1 - grown, 0.0), 1.0) if head.changes else 1.0
    return snapshot_bytes, LogHead(
        head.next_row, next_row, next_row, snapshot_bytes, overwritten=overwritten
    )


def _write_change(
    store: LogStore, state: ShardState, number: int, head: LogHead, change: bytes
) -> tuple[int, LogHead]:
    """Write a change, alone or joined with small ones before it. Return the size of what was written, and the
    new head."""
    head = head._replace(changes=head.changes + 1, change_bytes=head.change_bytes + len(change))
    if len(change) > JOINED_BYTES // 4:  # large enough to be read quickly as it is
        state.fresh_changes[number] = ()
        next_row = _write_chunks(store, head.next_row, change)
        return len(change), head._replace(fresh_row=next_row, next_row=next_row)
    fresh = state.fresh_changes.get(number)
    if fresh is None:
        read = _read_blobs(store, head.fresh_row, head.next_row, state.where)
        fresh = tuple(blob for blob, _ in read)
    blobs = (*fresh, change)
    if sum(map(len, blobs)) < JOINED_BYTES:
        state.fresh_changes[number] = blobs
        return len(change), head._replace(next_row=_write_chunks(store, head.next_row, change))
    joined = codec.encode(BlobKind.JOINED, blobs)
    next_row = _write_chunks(store, head.fresh_row, joined)
    for row in range(next_row, head.next_row):
        store.delete_row(row)
    state.fresh_changes[number] = ()
    return len(joined), head._replace(fresh_row=next_row, next_row=next_row)


def _is_due_for_compaction(head: LogHead, number: int) -> bool:
    """Return True if the log is empty, or too much in it was overwritten, or there are too many changes.

    Nobody knows how much was overwritten since the snapshot; the share is assumed to be that of the time
    before. Key groups grow alike, so each has limits of its own: not all should compact in the same batch.
    """
    spread = murmur_mix(number) % 64 / 64
    limit_bytes = max(head.snapshot_bytes, COMPACT_MIN_BYTES) * (COMPACT_RATIO + spread)
    limit_changes = COMPACT_MAX_CHANGES * (1 + spread)
    overwritten_bytes = head.change_bytes * max(head.overwritten, LEAST_OVERWRITTEN)
    is_empty = head.next_row == head.first_row
    return is_empty or overwritten_bytes > limit_bytes or head.changes >= limit_changes


def _write_chunks(store: LogStore, row: int, blob: bytes) -> int:
    """Write a blob as rows of (number of chunks still to come: 4 bytes, chunk). Return the row after the
    last."""
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
