"""Text files in, text files out.

The sink is exactly-once: a worker writes `.<epoch>-<subtask>-<random>.inprogress`, the driver renames the
files of an epoch to `<prefix>-<subtask>-<epoch><suffix>`. A file that has its final name is complete
and never changes; a replayed epoch finds it and drops its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from millpond.common.serialization import Encoder
from millpond.common.time import Duration
from millpond.datastream.connectors.base import (
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)
from millpond.datastream.functions import SinkContext
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import MissingMethods, module_getattr

_READ_BYTES_PER_RECORD = 64  # a guess, to turn a limit of records into one of bytes


def _local_path(path: str) -> Path:
    url = urlparse(path)
    if url.scheme not in ("", "file"):
        raise UnsupportedFeatureError(
            f"'{path}': only local and shared (NFS) file systems can be read and written yet."
        )
    return Path(unquote(url.path) if url.scheme else path).absolute()


class StreamFormat:
    """How a file becomes records: one per line."""

    def __init__(self, charset_name: str) -> None:
        self.charset_name = charset_name

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> StreamFormat:
        return StreamFormat(charset_name)


class _FileEnumerator(SplitEnumerator):
    """Every file is a split; a split is read in pieces that end at line ends."""

    def __init__(self, paths: list[Path], interval_ms: int | None) -> None:
        super().__init__()
        self._paths = paths
        self._interval_ms = interval_ms
        self._files: list[list[Any]] = []  # [path, bytes handed out]
        self._discovered = False

    def start(self) -> None:
        self._discover()

    def _discover(self) -> None:
        known = {path for path, _ in self._files}
        found: list[str] = []
        for path in self._paths:
            if path.is_dir():
                inside = (p for p in path.rglob("*") if p.is_file())
                found.extend(str(p) for p in inside if not p.name.startswith((".", "_")))
            elif path.exists():
                found.append(str(path))
            elif self._interval_ms is None:
                raise ProgramError(f"The input path {path} does not exist.")
        self._files.extend([path, 0] for path in sorted(found) if path not in known)
        self._discovered = True

    def split_count(self) -> int:
        return len(self._files)

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._interval_ms is not None or not self._discovered:
            self._discover()
        works: list[SplitWork] = []
        budget = max(1, max_records // max(1, len(self._files))) * _READ_BYTES_PER_RECORD
        for split, entry in enumerate(self._files):
            path, start = entry
            end = self._line_end(path, start + budget)
            if end > start:
                works.append(SplitWork(split, (path, start, end)))
                entry[1] = end
        return works

    def _line_end(self, path: str, wanted: int) -> int:
        """The first line end at or after `wanted`; the end of the file if it comes first."""
        size = os.path.getsize(path)
        if wanted >= size:
            # A monitored file may still be growing: its last, unfinished line waits.
            return size if self._interval_ms is None else self._last_line_end(path, size)
        with open(path, "rb") as file:
            file.seek(wanted)
            file.readline()
            return file.tell()

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
        if self._interval_ms is not None:
            return [False] * len(self._files)
        return [start >= os.path.getsize(path) for path, start in self._files]

    def next_poll_in_ms(self) -> int | None:
        return self._interval_ms


class FileSource(Source):
    """Lines of text files. Bounded unless built with `monitor_continuously`."""

    def __init__(
        self, stream_format: StreamFormat, paths: tuple[str, ...], interval_ms: int | None
    ) -> None:
        self._charset = stream_format.charset_name
        self._paths = [_local_path(path) for path in paths]
        self._interval_ms = interval_ms
        self.bounded = interval_ms is None
        self.endless = interval_ms is not None

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat, *paths: str) -> FileSourceBuilder:
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: Any, *paths: str) -> FileSourceBuilder:
        raise UnsupportedFeatureError(
            "FileSource.for_bulk_file_format is not there yet: use for_record_stream_format."
        )

    def create_enumerator(self, parallelism: int) -> SplitEnumerator:
        return _FileEnumerator(self._paths, self._interval_ms)

    def read(self, arguments: tuple[str, int, int]) -> Iterator[tuple[Any, int | None]]:
        path, start, end = arguments
        with open(path, "rb") as file:
            file.seek(start)
            while start < end:
                line = file.readline()
                start += len(line)
                yield line.rstrip(b"\r\n").decode(self._charset), None


class FileSourceBuilder(MissingMethods):
    def __init__(self, stream_format: StreamFormat, paths: tuple[str, ...]) -> None:
        self._format = stream_format
        self._paths = paths
        self._interval_ms: int | None = None

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        self._interval_ms = discovery_interval.to_millis()
        return self

    def process_static_file_set(self) -> FileSourceBuilder:
        self._interval_ms = None
        return self

    def build(self) -> FileSource:
        return FileSource(self._format, self._paths, self._interval_ms)


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
    def __init__(self, folder: Path, subtask: int, epoch: int, encoder: Encoder) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f".{epoch}-{subtask}-{uuid.uuid4().hex}.inprogress"
        self._path = folder / name
        self._subtask = subtask
        self._encoder = encoder
        self._file = open(self._path, "wb")  # noqa: SIM115 (closed by prepare or abort)

    def write(self, value: Any, context: SinkContext) -> None:
        self._file.write(self._encoder.encode(value))

    def prepare(self) -> tuple[int, str]:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._subtask, self._path.name

    def abort(self) -> None:
        self._file.close()
        self._path.unlink(missing_ok=True)


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

    def create_writer(self, subtask: int, epoch: int) -> SinkWriter:
        return _FileWriter(self._folder, subtask, epoch, self._encoder)

    def commit(self, epoch: int, messages: list[tuple[int, str]]) -> None:
        for subtask, name in messages:
            prefix, suffix = self._config.get_part_prefix(), self._config.get_part_suffix()
            final = self._folder / f"{prefix}-{subtask}-{epoch}{suffix}"
            # An epoch that is committed already stays as it is: readers may have seen it.
            if not final.exists():
                os.replace(self._folder / name, final)
        for leftover in self._folder.glob(f".{epoch}-*.inprogress"):
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
