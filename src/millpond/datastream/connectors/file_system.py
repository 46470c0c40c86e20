"""Text files in, text files out.

The sink is exactly-once: a worker writes a hidden `.inprogress` file, the driver renames the files of a
committed epoch to `<prefix>-<job and sink>-<epoch>-<subtask><suffix>`. A file that has its final name is
complete and never changes. Every run of a program adds files of its own.
"""

from __future__ import annotations

import codecs
import contextlib
import hashlib
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow

from millpond.common.serialization import Encoder
from millpond.common.time import Duration
from millpond.datastream.connectors.base import (
    Epoch,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)
from millpond.datastream.formats.csv import CsvReaderFormat
from millpond.datastream.functions import RuntimeContext, SinkContext
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import MissingMethods, module_getattr
from millpond.runtime.task.record_columns import as_list

_UNFINISHED = ".inprogress"
_QUIET_MS = (
    1000  # a monitored file that has not changed for this long, or two intervals, is complete
)
_BLOCK_BYTES = 256 * 1024
_COLUMN_BLOCK_BYTES = 4 * 1024 * 1024
_LINE_BYTES = 64  # a guess, to turn a limit of records into one of bytes, until a file is seen


def _local_path(path: str) -> Path:
    url = urlparse(path)
    if url.scheme not in ("", "file"):
        raise UnsupportedFeatureError(
            f"'{path}': only local and shared (NFS) file systems can be read and written yet."
        )
    return Path(unquote(url.path) if url.scheme else path).absolute()


class StreamFormat:
    """How a file becomes records: one per line."""

    def __init__(self, charset_name: str | None) -> None:
        self.charset_name = charset_name  # None: lines are bytes

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        if "\n".encode(charset_name) != b"\n":
            raise ProgramError(f"Text in {charset_name} cannot be read line by line; use UTF-8.")
        return StreamFormat(charset_name)

    @staticmethod
    def binary_line_format() -> StreamFormat:
        """Beyond PyFlink: lines as bytes, whatever is in them."""
        return StreamFormat(None)


class _FileEnumerator(SplitEnumerator):
    """Every file is a split; a split is read in pieces that end at line ends.

    With monitoring, files may still grow: an unfinished last line waits. A file that has not changed
    for a while is complete: its split ends, so that it no longer holds event time back."""

    def __init__(
        self, paths: list[Path], interval_ms: int | None, excluded: list[Path] | None = None
    ) -> None:
        super().__init__()
        self._paths = paths
        self._excluded = excluded or []
        self._interval_ms = interval_ms
        self._files: list[list[Any]] = []  # [path, bytes handed out, complete]
        self._sizes: dict[str, int] = {}  # as the last poll has found them
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
        return any(path.is_relative_to(own) for own in self._excluded)

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
        """Files that were quiet for a while, and have grown since."""
        for entry in self._files:
            if entry[2]:
                with contextlib.suppress(OSError):
                    entry[2] = os.stat(entry[0]).st_size <= entry[1]

    def _line_bytes(self) -> float:
        """The mean length of the first lines of the first file."""
        if self._mean_line_bytes is None and self._files:
            with contextlib.suppress(OSError), open(self._files[0][0], "rb") as file:
                block = file.read(_BLOCK_BYTES)
                if b"\n" in block:
                    self._mean_line_bytes = len(block) / block.count(b"\n")
        return self._mean_line_bytes or _LINE_BYTES

    def _readable_end(self, entry: list[Any], wanted: int) -> int:
        """The first line end at or after `wanted`, or what there is of the file. Marks the file
        complete when all of it has been given out."""
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
        """The bytes that are left, in lines as long as the first ones are."""
        if self._mean_line_bytes is None:
            return None
        left = [
            self._sizes.get(path, at) - at for path, at, complete in self._files if not complete
        ]
        return int(sum(max(0, size) for size in left) / self._mean_line_bytes)

    def next_poll_in_ms(self) -> int | None:
        return self._interval_ms


def _after_line(path: str, offset: int) -> int:
    """A last line that was read without its end may have got it since."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, offset - 1))
        around = file.read(2)
        if offset > 0 and around[:1] != b"\n" and around[1:] == b"\n":
            return offset + 1
    return offset


class FileSource(Source):
    """Lines of text files, or records of CSV files. Bounded unless built with
    `monitor_continuously`."""

    def __init__(
        self,
        stream_format: StreamFormat | CsvReaderFormat,
        paths: tuple[str, ...],
        interval_ms: int | None,
        excluded: tuple[str, ...] = (),
    ) -> None:
        self._format = stream_format
        self._paths = [_local_path(path) for path in paths]
        self._excluded = [_local_path(path) for path in excluded]
        self._interval_ms = interval_ms
        self.bounded = interval_ms is None
        self.endless = interval_ms is not None

    @staticmethod
    def for_record_stream_format(
        stream_format: StreamFormat | CsvReaderFormat, *paths: str
    ) -> FileSourceBuilder:
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: Any, *paths: str) -> FileSourceBuilder:
        raise UnsupportedFeatureError(
            "FileSource.for_bulk_file_format is not there yet: use for_record_stream_format."
        )

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _FileEnumerator(self._paths, self._interval_ms, self._excluded)

    def read(self, arguments: tuple[str, int, int]) -> Iterator[tuple[Any, int | None]]:
        for values, _ in self.read_many(arguments):
            for value in as_list(values):
                yield value, None

    def read_many(
        self, arguments: tuple[str, int, int]
    ) -> Iterator[tuple[list[Any] | pyarrow.RecordBatch, list[int | None] | None]]:
        path, start, end = arguments
        stream_format = self._format
        if isinstance(stream_format, CsvReaderFormat):
            if start == 0 and stream_format.has_header:
                with open(path, "rb") as file:
                    start = len(file.readline())
            for block in _whole_lines(path, start, end, _COLUMN_BLOCK_BYTES):
                columns = stream_format.read(block)
                if columns is not None:
                    yield columns, None
            return
        charset = stream_format.charset_name
        if charset is None:
            for block in _whole_lines(path, start, end, _BLOCK_BYTES):
                raw = block.split(b"\n")
                if not raw[-1]:
                    raw.pop()
                yield [line.rstrip(b"\r") for line in raw] if b"\r" in block else raw, None
            return
        if codecs.lookup(charset).name in ("utf-8", "ascii", "iso8859-1"):
            for block in _whole_lines(path, start, end, _BLOCK_BYTES):
                lines = block.decode(charset).split("\n")
                if not lines[-1]:
                    lines.pop()  # what follows the last line end
                yield [line.rstrip("\r") for line in lines] if b"\r" in block else lines, None
            return
        for line in _whole_lines(path, start, end, 0):
            yield [line.rstrip(b"\r\n").decode(charset)], None


def _whole_lines(path: str, start: int, end: int, size: int) -> Iterator[bytes]:
    """Blocks of about `size` bytes that end at line ends; line by line if `size` is 0."""
    with open(path, "rb") as file:
        file.seek(start)
        while start < end:
            block = file.read(min(size, end - start))
            if len(block) < end - start and not (size and block.endswith(b"\n")):
                block += file.readline()
            if not block:
                raise OSError(f"{path} ends at byte {start}; it had {end} when it was planned")
            start += len(block)
            yield block


class FileSourceBuilder(MissingMethods):
    def __init__(
        self, stream_format: StreamFormat | CsvReaderFormat, paths: tuple[str, ...]
    ) -> None:
        self._format = stream_format
        self._paths = paths
        self._interval_ms: int | None = None
        self._excluded: tuple[str, ...] = ()

    def exclude(self, *paths: str) -> FileSourceBuilder:
        """Beyond PyFlink: leave out what lies within a folder that is read, but is no input."""
        self._excluded = paths
        return self

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        self._interval_ms = discovery_interval.to_millis()
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        self._interval_ms = None
        return self

    def build(self) -> FileSource:
        return FileSource(self._format, self._paths, self._interval_ms, self._excluded)


class OutputFileConfig:
    """Names of part files: prefix and suffix."""

    def __init__(self, part_prefix: str, part_suffix: str) -> None:
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        return self._part_prefix

    def get_part_suffix(self) -> str:
        return self._part_suffix

    class OutputFileConfigBuilder:
        def __init__(self) -> None:
            self._prefix, self._suffix = "part", ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            return OutputFileConfig(self._prefix, self._suffix)


class RollingPolicy:
    """When a part file is closed: in Millpond with every epoch, whatever the policy."""

    @staticmethod
    def default_rolling_policy(
        part_size: int = 1024 * 1024 * 128,
        rollover_interval: int = 60 * 1000,
        inactivity_interval: int = 60 * 1000,
    ) -> RollingPolicy:
        return RollingPolicy()

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        return RollingPolicy()


class _FileWriter(SinkWriter):
    def __init__(self, folder: Path, subtask: int, epoch: Epoch, encoder: Encoder) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f".{_stem(epoch)}-{subtask}-{uuid.uuid4().hex}{_UNFINISHED}"
        self._subtask = subtask
        self._encoder = encoder
        self._file = open(self._path, "wb")  # noqa: SIM115 (closed by prepare or abort)

    def write(self, value: Any, context: SinkContext) -> None:
        self._file.write(self._encoder.encode(value))

    def write_many(self, values: list[Any]) -> bool:
        try:
            data = self._encoder.encode_all(values)
        except Exception:
            return False  # record by record it will turn out which one it is
        self._file.write(data)
        return True

    def prepare(self) -> tuple[int, str]:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._subtask, self._path.name

    def abort(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


def _owner(epoch: Epoch) -> str:
    """Unlike that of any other job or sink that writes to the same folder."""
    return epoch.job_id[:8] + hashlib.sha256(epoch.sink_uid.encode()).hexdigest()[:6]


def _stem(epoch: Epoch) -> str:
    return f"{_owner(epoch)}-{epoch.number}"


class FileSink(TwoPhaseSink):
    """Lines of text, one file per subtask and epoch, visible once the epoch is complete."""

    def __init__(self, base_path: str, encoder: Encoder, config: OutputFileConfig) -> None:
        self._folder = _local_path(base_path)
        self._encoder = encoder
        self._config = config

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        return FileSink.RowFormatBuilder(base_path, encoder)

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: Any) -> Any:
        raise UnsupportedFeatureError(
            "FileSink.for_bulk_format is not there yet: use for_row_format."
        )

    def validate(self) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise ProgramError(f"The output path {self._folder} is a file; give a folder.")

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _FileWriter(self._folder, subtask, epoch, self._encoder)

    def commit(self, epoch: Epoch, messages: list[tuple[int, str]]) -> None:
        prefix, suffix = self._config.get_part_prefix(), self._config.get_part_suffix()
        for subtask, name in messages:
            final = self._folder / f"{prefix}-{_stem(epoch)}-{subtask}{suffix}"
            if (self._folder / name).exists():  # else: committed before a crash
                os.replace(self._folder / name, final)
            elif not final.exists():
                raise FileNotFoundError(
                    f"{self._folder / name}, which epoch {epoch.number} wrote, is gone"
                )
        for leftover in self._folder.glob(f".{_stem(epoch)}-*{_UNFINISHED}"):
            leftover.unlink(missing_ok=True)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)  # the new names, too, must survive a power failure
        finally:
            os.close(folder)

    def recover(self, epoch: Epoch) -> None:
        for leftover in self._folder.glob(f".{_owner(epoch)}-*{_UNFINISHED}"):
            leftover.unlink(missing_ok=True)

    class RowFormatBuilder:
        def __init__(self, base_path: str, encoder: Encoder) -> None:
            self._base_path = base_path
            self._encoder = encoder
            self._config = OutputFileConfig("part", "")

        def with_output_file_config(
            self, output_file_config: OutputFileConfig
        ) -> FileSink.RowFormatBuilder:
            self._config = output_file_config
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> FileSink.RowFormatBuilder:
            return self

        def with_bucket_assigner(self, bucket_assigner: Any) -> FileSink.RowFormatBuilder:
            raise UnsupportedFeatureError(
                "FileSink buckets are not there yet: all files go to the base path."
            )

        def build(self) -> FileSink:
            return FileSink(self._base_path, self._encoder, self._config)


__getattr__ = module_getattr(__name__)
