"""The change log of one key group: the truth that the state in memory is a cache of.

    rows   a snapshot (one or more rows; a large one is a snapshot and changes that belong to it), then the
           changes: one blob per batch (one or more rows each), or many small ones joined
    head   names the newest version, and which rows are valid

A batch reads the head, appends a change and writes the head: its cost grows with what has changed (E41). Once
there are enough small changes, they are written again, joined, so that a log never has so many rows
that reading it takes long. When the changes have overwritten far more than the snapshot holds, the batch
writes a new snapshot instead and drops the old rows. Key groups do so at different times, so that no batch
stalls. Rows are cut into chunks, so that the log of a partition can be cleaned up in small steps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.key_groups import murmur_mix
from millpond.errors import CorruptDataError, StateLostError
from millpond.state.key_group_state import KeyGroupState

CHUNK_BYTES = 256 * 1024
JOINED_BYTES = 32 * 1024  # small changes are joined once they are this large together
COMPACT_MIN_BYTES = 64 * 1024
COMPACT_MAX_CHANGES = 25_600
# What was overwritten may be this many times as large as the snapshot, plus up to 1, by key group.
COMPACT_RATIO = 2.0
# The least share of changes that is taken to overwrite something: a state that only grew may change one day.
LEAST_OVERWRITTEN = 1 / 3
HISTORY_LENGTH = 16


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
    """Names version `version` of a log.

    Rows `first_row` to `next_row` - 1 are valid. Since version `append_version` rows have only been added.
    From `fresh_row` on there are small changes that are not joined yet. `overwritten` is the share of the
    changes before the snapshot that had overwritten something when it was written. `token` is new with every
    write; `history` has (version, token) of the newest versions, so that a state in memory can be recognised
    as one of them.
    """

    version: int = 0
    token: bytes = b""
    first_row: int = 0
    fresh_row: int = 0
    next_row: int = 0
    append_version: int = 0
    snapshot_bytes: int = 0
    change_bytes: int = 0
    changes: int = 0
    overwritten: float = 1.0
    written_bytes: int = 0  # by this version
    history: tuple[tuple[int, bytes], ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the whole log."""
        return self.snapshot_bytes + self.change_bytes

    def includes(self, older: LogHead) -> bool:
        """Return True if this log went through exactly the version `older`."""
        return (older.version, older.token) in self.history


class CachedState(NamedTuple):
    """A state in memory with the head that it corresponds to, and the head before that, for the undo."""

    state: KeyGroupState
    head: LogHead
    previous: LogHead | None


class FreshChanges(NamedTuple):
    """The blobs from the head's `fresh_row` on, kept with the state so that joining them reads
    nothing."""

    token: bytes
    blobs: tuple[bytes, ...]


class MemoryLogStore:
    """A log in memory, for the harness and the direct executor. What a batch writes can be rolled back until
    it is committed; reads see it at once."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._rows: dict[int, bytes] = {}
        self._before: tuple[bytes | None, dict[int, bytes | None]] | None = None

    def read_head(self) -> bytes | None:
        """Return the head, or None if the log is new."""
        return self._head

    def write_head(self, head: bytes) -> None:
        """Replace the head."""
        self._remember()
        self._head = head

    def read_row(self, number: int) -> bytes:
        """Return a row. Raises KeyError if there is none."""
        return self._rows[number]

    def write_row(self, number: int, row: bytes) -> None:
        """Write or replace a row."""
        self._remember()[1].setdefault(number, self._rows.get(number))
        self._rows[number] = row

    def delete_row(self, number: int) -> None:
        """Delete a row. Raises KeyError if there is none."""
        self._remember()[1].setdefault(number, self._rows[number])
        del self._rows[number]

    def commit(self) -> None:
        """Keep what was written."""
        self._before = None

    def rollback(self) -> None:
        """Take back what was written since the last commit."""
        if self._before is not None:
            self._head, rows = self._before
            for number, row in rows.items():
                if row is None:
                    self._rows.pop(number, None)
                else:
                    self._rows[number] = row
            self._before = None

    def _remember(self) -> tuple[bytes | None, dict[int, bytes | None]]:
        if self._before is None:
            self._before = (self._head, {})
        return self._before


def read_head(store: LogStore, where: str) -> LogHead:
    """Return the head of a log; that of version 0 if the log is new. `where` names the log in errors."""
    blob = store.read_head()
    return LogHead() if blob is None else LogHead(*codec.decode(BlobKind.LOG_HEAD, blob, where))


def load(
    store: LogStore, cached: CachedState | None, where: str, new_state: Callable[[], KeyGroupState]
) -> tuple[KeyGroupState, LogHead]:
    """Return the state at the log's head, and the head: from the cache if it is that version, by undoing the
    batch it is ahead, by replaying the changes it lacks, or from the snapshot on.

    Raises StateLostError if the state was kept in memory only and is not there, CorruptDataError if a row is
    damaged.
    """
    head = read_head(store, where)
    if cached is not None:
        state = cached.state
        known: LogHead | None = cached.head
        previous = cached.previous
        if head.includes(cached.head) or cached.head.version == head.version == 0:
            state.commit()
        elif previous is not None and head.includes(previous) and state.rollback():
            known = previous
        else:
            known = None
        if head.next_row == head.first_row and known is not None and known.version != head.version:
            known = None  # there is no log to catch up with
        if known is not None and known.version >= head.append_version:
            for content in _read_changes(store, known.next_row, head.next_row, where):
                state.apply(content)
            state.commit()
            return state, head
    if head.version > 0 and head.next_row == head.first_row:
        raise StateLostError(
            f"{where}: it was kept in memory only (state.backend.type=memory), and is gone with its slot, or "
            "with a batch that failed. Start the job anew, or from a savepoint; the backends hashmap and "
            "rocksdb keep a log."
        )
    state = new_state()
    for content in _read_changes(store, head.first_row, head.next_row, where):
        state.apply(content)
    state.commit()
    return state, head


def append(
    store: LogStore, state: KeyGroupState, head: LogHead, keeps_log: bool = True
) -> CachedState:
    """Write the changes of this batch (or a new snapshot) as the next version; if not `keeps_log`, only the
    head. Without changes nothing is written.

    The state keeps its undo list until the next batch shows whether the write became the truth.
    """
    if not state.has_changes():
        return CachedState(state, head, None)
    token = os.urandom(8)
    history = (*head.history[1 - HISTORY_LENGTH :], (head.version + 1, token))
    if not keeps_log:
        for row in range(head.first_row, head.next_row):
            store.delete_row(row)
        new_head = LogHead(head.version + 1, token, history=history)
    else:
        next_version = head._replace(version=head.version + 1, token=token, history=history)
        if _is_due_for_compaction(head, state.key_group):
            new_head = _write_snapshot(store, state, next_version)
        else:
            new_head = _write_change(store, state, next_version, head.token)
    store.write_head(codec.encode(BlobKind.LOG_HEAD, tuple(new_head)))
    return CachedState(state, new_head, head)


def _write_snapshot(store: LogStore, state: KeyGroupState, head: LogHead) -> LogHead:
    state.clean_all()
    kind, next_row, snapshot_bytes = BlobKind.SNAPSHOT, head.next_row, 0
    for content in state.snapshot_parts():
        blob = codec.encode(kind, content)
        kind, next_row = BlobKind.CHANGE, _write_chunks(store, next_row, blob)
        snapshot_bytes += len(blob)
    for row in range(head.first_row, head.next_row):
        store.delete_row(row)
    state.fresh_changes = FreshChanges(head.token, ())
    grown = (snapshot_bytes - head.snapshot_bytes) / max(head.change_bytes, 1)
    return head._replace(
        first_row=head.next_row,
        fresh_row=next_row,
        next_row=next_row,
        append_version=head.version,
        snapshot_bytes=snapshot_bytes,
        change_bytes=0,
        changes=0,
        overwritten=min(max(1 - grown, 0.0), 1.0) if head.changes else 1.0,
        written_bytes=snapshot_bytes,
    )


def _write_change(
    store: LogStore, state: KeyGroupState, head: LogHead, token_before: bytes
) -> LogHead:
    change = codec.encode(BlobKind.CHANGE, state.changes())
    head = head._replace(changes=head.changes + 1, change_bytes=head.change_bytes + len(change))
    if len(change) > JOINED_BYTES // 4:  # large enough to be read quickly as it is
        state.fresh_changes = FreshChanges(head.token, ())
        next_row = _write_chunks(store, head.next_row, change)
        return head._replace(fresh_row=next_row, next_row=next_row, written_bytes=len(change))
    fresh = state.fresh_changes
    if fresh is None or fresh.token != token_before:
        read = _read_blobs(store, head.fresh_row, head.next_row, state.where)
        fresh = FreshChanges(token_before, tuple(blob for blob, _ in read))
    blobs = (*fresh.blobs, change)
    if sum(map(len, blobs)) < JOINED_BYTES:
        state.fresh_changes = FreshChanges(head.token, blobs)
        next_row = _write_chunks(store, head.next_row, change)
        return head._replace(next_row=next_row, written_bytes=len(change))
    joined = codec.encode(BlobKind.JOINED, blobs)
    next_row = _write_chunks(store, head.fresh_row, joined)
    for row in range(next_row, head.next_row):
        store.delete_row(row)
    state.fresh_changes = FreshChanges(head.token, ())
    return head._replace(
        fresh_row=next_row,
        next_row=next_row,
        append_version=head.version,
        written_bytes=len(joined),
    )


def _is_due_for_compaction(head: LogHead, key_group: int) -> bool:
    """Return True if the log is empty, or too much in it was overwritten, or there are too many changes.

    Nobody knows how much was overwritten since the snapshot; the share is assumed to be that of the time
    before. Key groups grow alike, so each has limits of its own: not all should compact in the same batch.
    """
    spread = murmur_mix(key_group) % 64 / 64
    limit_bytes = max(head.snapshot_bytes, COMPACT_MIN_BYTES) * (COMPACT_RATIO + spread)
    limit_changes = COMPACT_MAX_CHANGES * (1 + spread)
    overwritten_bytes = head.change_bytes * max(head.overwritten, LEAST_OVERWRITTEN)
    return head.version == 0 or overwritten_bytes > limit_bytes or head.changes >= limit_changes


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
