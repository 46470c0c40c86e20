"""Files as a source: lines, or records of formats that are encoded many at a time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow

from millpond.common.time import Duration
from millpond.core.record_columns import as_list
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.connectors.file_system.formats import BulkFormat, StreamFormat, local_path
from millpond.datastream.functions import RuntimeContext
from millpond.errors import JobExecutionError, ProgramError
from millpond.missing import MissingMethods

# A monitored file that has not changed for this long, and for two intervals, is complete.
_QUIET_MS = 1000
_SAMPLE_BYTES = 256 * 1024
_LINE_BYTES = 64  # a guess until the first file is read, to turn a limit of records into bytes


class _FileEnumerator(SplitEnumerator):
    """Makes every file a split, which is read in pieces that end at line breaks.

    With monitoring, files may still grow: an unfinished last line waits. A file that has not changed for a
    while is complete: its split ends, so that it no longer holds event time back.
    """

    def __init__(
        self, paths: list[Path], interval_ms: int | None, excluded: list[Path] | None = None
    ) -> None:
        super().__init__()
        self._paths = paths
        self._excluded = excluded or []
        self._interval_ms = interval_ms
        self._files: list[list[Any]] = []  # [path, bytes handed out, complete]
        self._sizes: dict[str, int] = {}  # at the last poll
        self._mean_line_bytes: float | None = None

    def start(self) -> None:
        if self.stops_at_end:
            for entry in self._files:  # they may have grown since the job ended
                entry[1:] = [_after_line(*entry[:2]), False]
        self._discover()

    def _discover(self) -> None:
        known = {path for path, _, _ in self._files}
        found: list[str] = []
        for path in self._paths:
            if path.is_dir():
                inside = (p for p in path.rglob("*") if p.is_file() and not self._is_excluded(p))
                found.extend(str(p) for p in inside if not p.name.startswith((".", "_")))
            elif path.exists():
                found.append(str(path))
            elif self._interval_ms is None:
                raise ProgramError(f"The input path {path} does not exist.")
        self._files.extend([path, 0, False] for path in sorted(found) if path not in known)

    def _is_excluded(self, path: Path) -> bool:
        return any(path.is_relative_to(excluded) for excluded in self._excluded)

    def split_count(self) -> int:
        return max(1, len(self._files))  # an empty folder is one empty split

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._interval_ms is not None:
            self._discover()
            self._reopen()
        works: list[SplitWork] = []
        unread = sum(not complete for _, _, complete in self._files)
        budget = int(max(1, max_records // max(1, unread)) * self._line_bytes())
        for split, entry in enumerate(self._files):
            path, start, complete = entry
            if complete or split in self.paused:
                continue
            end = self._readable_end(entry, start + budget)
            if end > start:
                works.append(SplitWork(split, (path, start, end)))
                entry[1] = end
        return works

    def _reopen(self) -> None:
        """Continue with files that were quiet for a while and have grown since."""
        for entry in self._files:
            if entry[2]:
                with contextlib.suppress(OSError):
                    entry[2] = os.stat(entry[0]).st_size <= entry[1]

    def _line_bytes(self) -> float:
        """Return the mean length of the first lines of the first file."""
        if self._mean_line_bytes is None and self._files:
            with contextlib.suppress(OSError), open(self._files[0][0], "rb") as file:
                block = file.read(_SAMPLE_BYTES)
                if b"\n" in block:
                    self._mean_line_bytes = len(block) / block.count(b"\n")
        return self._mean_line_bytes or _LINE_BYTES

    def _readable_end(self, entry: list[Any], wanted: int) -> int:
        """Return the first line break at or after `wanted`, or the end of what there is of the file.

        Mark the file complete when all of it has been handed out.
        """
        path, start, _ = entry
        try:
            status = os.stat(path)
        except FileNotFoundError:
            if start == 0 and self._interval_ms is None:
                raise
            entry[2] = True  # read to where it was, then removed or renamed
            return int(start)
        self._sizes[path] = status.st_size
        complete = self._interval_ms is None or self.stops_at_end or self._is_quiet(status)
        if wanted < status.st_size:
            with open(path, "rb") as file:
                file.seek(wanted)
                if file.readline().endswith(b"\n") or complete:
                    return file.tell()
        if complete:
            entry[2] = True
            return status.st_size
        return self._last_line_end(path, status.st_size)

    def _is_quiet(self, status: os.stat_result) -> bool:
        assert self._interval_ms is not None
        unchanged_ms = (time.time() - status.st_mtime) * 1000
        return unchanged_ms > max(_QUIET_MS, 2 * self._interval_ms)

    @staticmethod
    def _last_line_end(path: str, size: int) -> int:
        with open(path, "rb") as file:
            position = size
            while position > 0:
                start = max(0, position - 65536)
                file.seek(start)
                newline = file.read(position - start).rfind(b"\n")
                if newline >= 0:
                    return start + newline + 1
                position = start
        return 0

    def position(self) -> list[list[Any]]:
        return [list(entry) for entry in self._files]

    def restore(self, position: list[list[Any]]) -> None:
        self._files = [list(entry) for entry in position]

    def ended(self) -> list[bool]:
        if not self._files:
            return [self._interval_ms is None]
        return [complete for _, _, complete in self._files]

    def caught_up(self) -> bool:
        return self.stops_at_end or all(self.ended())

    def backlog(self) -> int | None:
        """Return the number of lines left, estimated by the length of the first ones."""
        if self._mean_line_bytes is None:
            return None
        return int(self._left(self._sizes) / self._mean_line_bytes)

    def _left(self, sizes: dict[str, int]) -> int:
        """Return how much is not handed out yet of files that are not complete."""
        left = (sizes.get(path, at) - at for path, at, complete in self._files if not complete)
        return sum(max(0, size) for size in left)

    def next_poll_in_ms(self) -> int | None:
        return self._interval_ms


def _after_line(path: str, offset: int) -> int:
    """Return the offset after the line break, if a last line that was read without one has got one since."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, offset - 1))
        around = file.read(2)
        if offset > 0 and around[:1] != b"\n" and around[1:] == b"\n":
            return offset + 1
    return offset


class _BulkEnumerator(_FileEnumerator):
    """Does the same with positions in records. A file does not grow: it is complete when it can be read."""

    def __init__(self, bulk_format: BulkFormat, *settings: Any) -> None:
        super().__init__(*settings)
        self._format = bulk_format
        self._counts: dict[str, int] = {}

    def start(self) -> None:
        self._discover()

    def _reopen(self) -> None:
        pass

    def _line_bytes(self) -> float:
        return 1

    def backlog(self) -> int | None:
        return self._left(self._counts)

    def _readable_end(self, entry: list[Any], wanted: int) -> int:
        path, start, _ = entry
        try:
            count = self._count(path)
        except FileNotFoundError:
            if start == 0 and self._interval_ms is None:
                raise
            entry[2] = True
            return int(start)
        if count is None:
            return int(start)
        entry[2] = wanted >= count
        return min(wanted, count)

    def _count(self, path: str) -> int | None:
        """Return the number of records, or None if the file is still being written."""
        if path not in self._counts:
            try:
                self._counts[path] = self._format.count(path)
            except FileNotFoundError:
                raise
            except (OSError, ValueError) as problem:
                if self._interval_ms is not None and not self._is_quiet(os.stat(path)):
                    return None
                raise JobExecutionError(f"The file {path} cannot be read: {problem}") from None
        return self._counts[path]


class FileSource(Source):
    """Reads the records of files. It is bounded unless built with `monitor_continuously`."""

    def __init__(
        self,
        file_format: StreamFormat | BulkFormat,
        paths: tuple[str, ...],
        interval_ms: int | None,
        excluded: tuple[str, ...] = (),
    ) -> None:
        self._format = file_format
        self._paths = [local_path(path) for path in paths]
        self._excluded = [local_path(path) for path in excluded]
        self._interval_ms = interval_ms
        self.bounded = interval_ms is None
        self.endless = interval_ms is not None

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat | BulkFormat, *paths: str
    ) -> FileSourceBuilder:
        """Return a builder for a source that reads lines of files, or of all files below folders."""
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat, *paths: str) -> FileSourceBuilder:
        """Return a builder for a source that reads files, or all files below folders, many records at a
        time."""
        return FileSourceBuilder(bulk_format, paths)

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        settings = (self._paths, self._interval_ms, self._excluded)
        if isinstance(self._format, BulkFormat):
            return _BulkEnumerator(self._format, *settings)
        return _FileEnumerator(*settings)

    def read(self, arguments: tuple[str, int, int]) -> Iterator[tuple[Any, int | None]]:
        for values, _ in self.read_many(arguments):
            for value in as_list(values):
                yield value, None

    def read_many(
        self, arguments: tuple[str, int, int]
    ) -> Iterator[tuple[list[Any] | pyarrow.RecordBatch, list[int | None] | None]]:
        path, start, end = arguments
        if isinstance(self._format, BulkFormat):
            for values in self._format.read(path, start, end):
                yield values, None
            return
        if start == 0 and self._format.has_header:
            with open(path, "rb") as file:
                start = len(file.readline())
        for block in _whole_lines(path, start, end, self._format.block_bytes):
            values = self._format.read(block)
            if values is not None:
                yield values, None


def _whole_lines(path: str, start: int, end: int, size: int) -> Iterator[bytes]:
    """Yield blocks of about `size` bytes that end at line breaks; line by line if `size` is 0."""
    with open(path, "rb") as file:
        file.seek(start)
        while start < end:
            block = file.read(min(size, end - start))
            if len(block) < end - start and not (size and block.endswith(b"\n")):
                block += file.readline()
            if not block:
                raise OSError(f"{path} shrank from {end} to {start} bytes while it was being read")
            start += len(block)
            yield block


class FileSourceBuilder(MissingMethods):
    """Builds a FileSource. Setters return the builder itself."""

    def __init__(self, file_format: StreamFormat | BulkFormat, paths: tuple[str, ...]) -> None:
        self._format = file_format
        self._paths = paths
        self._interval_ms: int | None = None
        self._excluded: tuple[str, ...] = ()

    def exclude(self, *paths: str) -> FileSourceBuilder:
        """Leave out files below a folder that is read but holds something other than input. Beyond
        PyFlink."""
        self._excluded = paths
        return self

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Look for new files, and for files that have grown, at this interval. The source then never ends."""
        self._interval_ms = discovery_interval.to_millis()
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the files that exist when the job starts, and then end; the default."""
        self._interval_ms = None
        return self

    def build(self) -> FileSource:
        """Return the source."""
        return FileSource(self._format, self._paths, self._interval_ms, self._excluded)
