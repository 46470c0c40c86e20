"""The change logs of everything that one level has in one partition, in segments that a slot writes itself.

A batch adds one record, with one sync, whatever it has changed; only what would take too much memory becomes
several. Nobody but the driver decides whether that counts: it writes the *position* of the log, which is the
list of its segments and how much of each counts, into its journal. Whatever else is in a segment was never
committed, and nobody reads it.

    segment   <folder>/<level>/<partition>/<writer>-<number>; only its writer, which is one slot process,
              appends to it, so a zombie cannot harm anything
    record    version 1 (little endian):

    offset  size  content
    0       2     magic "ML"
    2       1     version (1)
    3       1     0
    4       4     CRC-32 of everything up to the rows
    8       4     number of entries
    12      8     length of all rows
    20      24 n  entries: label (8 bytes), number of the row (8; -1: the log head), length (8; -1: deleted)
    ...     ...   rows, one after the other; blobs in them have checksums of their own (core/codec.py)

Rows that were replaced or deleted stay in their segments. Once the oldest segment has no valid row left, it
is dropped from the position. (A later one must wait: its entries say what is no longer valid in earlier
ones.) If too much space is wasted, or there are too many segments, valid rows of the oldest ones are written
again, a few with each batch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from millpond.core import fault_points
from millpond.core.storage import LogWriter, Storage
from millpond.errors import CorruptDataError
from millpond.state.change_log import LogStore

MAGIC = b"ML"
VERSION = 1
SEGMENT_BYTES = 64 << 20
# Segments may be this many times as large as their valid rows, plus a little.
MAX_WASTE = 3.0
MIN_BYTES = 4 << 20
# A partition that moves from slot to slot, or many batches that did not count, would make ever more of them.
MOST_SEGMENTS = 16  # that are not full
MOST_PENDING = 64 << 20  # bytes that wait in memory for the end of the batch
_MOVED_BYTES = 256 << 10
_READ_AT_ONCE = 256 << 10
_HEADER = struct.Struct("<2sBBIIQ")
_COUNTED_FROM = 8  # what the checksum covers
_ENTRY = struct.Struct("<qqq")
_HEAD = -1
_DELETED = -1

LogPosition = tuple[tuple[str, int], ...]
"""(name of a segment, how many of its bytes count), from the oldest segment to the newest"""
EMPTY: LogPosition = ()
_Row = tuple[int, int]
"""(label, number of the row)"""


def log_folder(level: int, partition: int) -> str:
    """Return the folder of the job's storage in which the log of a level in a partition is."""
    return f"log/{level}/{partition}"


class _Place(NamedTuple):
    """Where a row is."""

    segment: str
    offset: int
    length: int


class PartitionLog:
    """The log of one level in one partition. `writer` names the process in the names of its segments; no two
    processes that write to the same storage may have the same name."""

    def __init__(self, storage: Storage, folder: str, writer: str) -> None:
        self._storage = storage
        self._folder = folder
        self._writer = writer
        self._segments = 0  # that this process has begun
        self._log: LogWriter | None = None
        self._forget()

    def _forget(self) -> None:
        self._position: LogPosition = EMPTY
        self._before: LogPosition | None = None  # the position before the newest batch
        self._undo: dict[_Row, _Place | None] = {}
        self._places: dict[_Row, _Place] = {}
        self._heads: dict[int, bytes] = {}
        self._valid: dict[str, int] = {}  # segment -> bytes of its valid rows, with their entries
        self._pending: dict[_Row, bytes | None] = {}
        self._pending_bytes = 0

    # --- reading ---------------------------------------------------------------------------------

    def go_to(self, position: LogPosition) -> None:
        """Turn to what the log is at a position, which is that of the newest batch that counts. What was
        written after it is forgotten."""
        self._pending.clear()
        self._pending_bytes = 0
        if position == self._position:
            self._before = None
            self._undo.clear()
            if len(self._valid) > len(position):
                self._valid = {segment: self._valid.get(segment, 0) for segment, _ in position}
        elif position == self._before:
            for row, place in self._undo.items():
                self._set(row, place)
            self._heads = {}
            self._position, self._before = position, None
            self._undo.clear()
            self._leave_segment()
        else:
            self._leave_segment()
            self._forget()
            self._load(position)

    def _load(self, position: LogPosition) -> None:
        for segment, length in position:
            reader = _SegmentReader(self._storage, segment, length)
            offset = 0
            while offset < length:
                offset = self._load_record(segment, reader, offset)
        self._position = position

    def _load_record(self, segment: str, reader: _SegmentReader, offset: int) -> int:
        """Take over the entries of a record; its rows are not read. Return where the next record begins."""
        header = reader.read(offset, _HEADER.size)
        if header is None or header[: len(MAGIC)] != MAGIC:
            raise self._damaged(segment, offset, "there is no record")
        _, version, _, checksum, count, rows_length = _HEADER.unpack(header)
        if version > VERSION:
            raise self._damaged(segment, offset, f"written in format {version} by a newer release")
        start = offset + _HEADER.size + count * _ENTRY.size
        end: int = start + rows_length
        entries = reader.read(offset + _HEADER.size, count * _ENTRY.size)
        if entries is None or end > reader.length:
            raise self._damaged(segment, offset, "there is no record")
        if zlib.crc32(entries, zlib.crc32(header[_COUNTED_FROM:])) != checksum:
            raise self._damaged(segment, offset, "the checksum does not match")
        for label, number, length in _ENTRY.iter_unpack(entries):
            if length == _DELETED:
                self._set((label, number), None)
            else:
                self._set((label, number), _Place(segment, start, length))
                start += length
        return end

    @staticmethod
    def _damaged(segment: str, offset: int, problem: str) -> CorruptDataError:
        return CorruptDataError(
            f"{segment}, byte {offset}: {problem}. Restore the job folder from a copy, or start the job anew "
            "from a savepoint."
        )

    def labels(self) -> set[int]:
        """Return the labels that have a log."""
        return {label for label, number in self._places if number == _HEAD}

    def of(self, label: int) -> LogStore:
        """Return the change log of a label."""
        return _LabelLog(self, label)

    def read_head(self, label: int) -> bytes | None:
        """Return the log head of a label; None if its log is new."""
        if (label, _HEAD) in self._pending:
            return self._pending[label, _HEAD]
        head = self._heads.get(label)
        if head is None:
            place = self._places.get((label, _HEAD))
            if place is None:
                return None
            head = self._heads[label] = self._read(place)
        return head

    def read_row(self, label: int, number: int) -> bytes:
        """Return a row that was written and not deleted."""
        pending = self._pending.get((label, number))
        if pending is not None:
            return pending
        place = self._places.get((label, number))
        if place is None:
            raise CorruptDataError(
                f"{self._folder}: row {number} of label {label} is missing. Restore the job folder from a "
                "copy, or start the job anew from a savepoint."
            )
        return self._read(place)

    def _read(self, place: _Place) -> bytes:
        return self._storage.read(*place)

    # --- writing ---------------------------------------------------------------------------------

    def put(self, label: int, number: int, row: bytes | None) -> None:
        """Write, replace or delete (None) a row with the record that comes next."""
        self._pending[label, number] = row
        if row is not None:
            self._pending_bytes += len(row)
            if self._pending_bytes > MOST_PENDING:
                self._append_pending()

    def put_head(self, label: int, head: bytes) -> None:
        """Replace the log head of a label with the record that comes next."""
        self._pending[label, _HEAD] = head

    def write(self) -> LogPosition:
        """Write all that is pending, durably. Return the position after it."""
        for row in self._rows_to_move(self._pending_bytes) if self._pending else ():
            if row not in self._pending:
                fault_points.reach("slot before moved row")
                self._pending[row] = self._read(self._places[row])
        if self._pending:
            self._append_pending()
        return self._position

    def _append_pending(self) -> None:
        """Append what is pending as one record."""
        pending, self._pending, self._pending_bytes = self._pending, {}, 0
        fault_points.reach("slot before append")
        log = self._segment()
        offset = log.length
        entries = [
            _ENTRY.pack(*row, _DELETED if data is None else len(data))
            for row, data in pending.items()
        ]
        rows = [data for data in pending.values() if data is not None]
        try:
            log.append(_record(entries, rows))
            fault_points.reach("slot after append")
            self._appended(log, pending, offset, len(entries))
        except BaseException:
            # Nobody knows what of it took place, so everything is to be read again.
            self._leave_segment()
            self._forget()
            raise

    def _appended(
        self, log: LogWriter, pending: dict[_Row, bytes | None], offset: int, entries: int
    ) -> None:
        """Take over what was appended to a segment at an offset."""
        start = offset + _HEADER.size + entries * _ENTRY.size
        for row, data in pending.items():
            self._undo.setdefault(row, self._places.get(row))
            if data is None:
                self._set(row, None)
            else:
                self._set(row, _Place(log.name, start, len(data)))
                start += len(data)
                if row[1] == _HEAD:
                    self._heads[row[0]] = data
        if self._before is None:
            self._before = self._position
        kept = [segment for segment in self._position if segment[0] != log.name]
        while kept and not self._valid.get(kept[0][0]):
            del kept[0]
        self._position = (*kept, (log.name, log.length))

    def _segment(self) -> LogWriter:
        """Return the segment to append to. What is appended must directly follow what counts."""
        if self._log is None or self._log.length >= SEGMENT_BYTES:
            self._leave_segment()
            name = f"{self._folder}/{self._writer}-{self._segments}"
            self._segments += 1
            self._log = self._storage.new_log(name)
            fault_points.reach("slot after new segment")
        return self._log

    def _leave_segment(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None

    def _rows_to_move(self, written: int) -> Iterable[_Row]:
        """Return rows of the oldest segments that are to be written again, so that these can be dropped:
        twice as many bytes as the batch writes, if there is too much waste or there are too many segments."""
        total = sum(length for _, length in self._position)
        valid = sum(self._valid.values())
        segments = [segment for segment, _ in self._position]
        most = MOST_SEGMENTS + total // SEGMENT_BYTES
        if len(segments) > most:
            oldest = set(segments[: len(segments) - most])
        elif len(segments) > 1 and total >= MIN_BYTES + MAX_WASTE * valid:
            oldest = {segments[0]}
        else:
            return []
        moved, rows = 0, []
        for row, place in self._places.items():
            if place.segment in oldest:
                rows.append(row)
                moved += place.length
                if moved > 2 * written + _MOVED_BYTES:
                    break
        return rows

    def _set(self, row: _Row, place: _Place | None) -> None:
        old = self._places.pop(row, None)
        if old is not None:
            self._valid[old.segment] -= _ENTRY.size + old.length
        if place is not None:
            self._places[row] = place
            before = self._valid.get(place.segment, 0)
            self._valid[place.segment] = before + _ENTRY.size + place.length
        if row[1] == _HEAD:
            self._heads.pop(row[0], None)

    def close(self) -> None:
        """Release the segment that is being written."""
        self._leave_segment()


def _record(entries: list[bytes], rows: list[bytes]) -> list[bytes]:
    table = b"".join(entries)
    content = b"".join(rows)
    counted = struct.pack("<IQ", len(entries), len(content)) + table
    return [struct.pack("<2sBBI", MAGIC, VERSION, 0, zlib.crc32(counted)) + counted + content]


class _SegmentReader:
    """Reads parts of a segment, from its beginning to its end. Small parts that are close together are read
    at once; large ones in between, which nobody asks for, are not read at all."""

    def __init__(self, storage: Storage, segment: str, length: int) -> None:
        self._storage = storage
        self._segment = segment
        self.length = length
        self._window = memoryview(b"")
        self._window_at = 0

    def read(self, offset: int, length: int) -> memoryview | None:
        """Return a part of the segment; None if it is not within what counts."""
        if offset + length > self.length:
            return None
        if offset + length > self._window_at + len(self._window):
            at_once = min(max(length, _READ_AT_ONCE), self.length - offset)
            self._window = memoryview(self._storage.read(self._segment, offset, at_once))
            self._window_at = offset
        start = offset - self._window_at
        return self._window[start : start + length]


class _LabelLog(LogStore):
    """The change log of one label within the log of its partition."""

    def __init__(self, log: PartitionLog, label: int) -> None:
        self._log = log
        self._label = label

    def read_head(self) -> bytes | None:
        return self._log.read_head(self._label)

    def write_head(self, head: bytes) -> None:
        self._log.put_head(self._label, head)

    def read_row(self, number: int) -> bytes:
        return self._log.read_row(self._label, number)

    def write_row(self, number: int, row: bytes) -> None:
        self._log.put(self._label, number, row)

    def delete_row(self, number: int) -> None:
        self._log.put(self._label, number, None)
