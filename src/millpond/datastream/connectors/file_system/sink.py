"""Files as an exactly-once sink: workers write hidden pieces, and the driver turns them into part files.

A part is named `<prefix>-<job and sink>-<epoch>-<subtask><suffix>`, by its first epoch. A file with its final
name is complete and never changes. Every run of a program adds files of its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from millpond.common.serialization import BulkWriter, BulkWriterFactory, Encoder
from millpond.core.record_columns import cut
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.connectors.file_system.formats import local_path
from millpond.datastream.connectors.file_system.parts import UNFINISHED, PartFiles, Piece
from millpond.datastream.connectors.file_system.rolling import (
    DefaultRollingPolicy,
    OnCheckpointRollingPolicy,
    OutputFileConfig,
    RollingPolicy,
)
from millpond.datastream.functions import SinkContext
from millpond.errors import ProgramError, UnsupportedFeatureError
from millpond.missing import MissingMethods

_AT_ONCE = 16384  # the size of a piece is checked after this many records
_COPY_BYTES = 1024 * 1024


class _LinesFactory(BulkWriterFactory):
    """A row format in the form of a bulk format."""

    can_join = True

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def create(self, file: BinaryIO) -> BulkWriter:
        return _LinesWriter(file, self._encoder)

    def join(self, pieces: list[Path], file: BinaryIO) -> None:
        for piece in pieces:
            with piece.open("rb") as source:
                shutil.copyfileobj(source, file, _COPY_BYTES)


class _LinesWriter(BulkWriter):
    def __init__(self, file: BinaryIO, encoder: Encoder) -> None:
        self._file = file
        self._encoder = encoder

    def add_elements(self, values: Any) -> None:
        self._file.write(self._encoder.encode_all(values))

    def finish(self) -> None:
        pass


class _PieceWriter(SinkWriter):
    """Writes what a subtask has in an epoch: one piece, or several of about the size of a part."""

    def __init__(
        self,
        folder: Path,
        subtask: int,
        epoch: Epoch,
        factory: BulkWriterFactory,
        part_size: int | None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.takes_columns = factory.takes_columns
        self._folder, self._subtask, self._epoch = folder, subtask, epoch
        self._factory = factory
        self._part_size = part_size
        self._done: list[tuple[str, int]] = []
        self._begin()

    def write(self, value: Any, context: SinkContext) -> None:
        self._add([value])

    def write_many(self, values: Any) -> bool:
        try:
            for start in range(0, len(values), _AT_ONCE):
                self._add(cut(values, start, min(start + _AT_ONCE, len(values))))
        except OSError:
            raise
        except Exception:
            self.abort()
            self._begin()
            return False  # writing one by one finds the record that fails
        return True

    def prepare(self) -> tuple[int, list[tuple[str, int]]]:
        self._end()
        return self._subtask, self._done

    def abort(self) -> None:
        self._file.close()
        for name in [done for done, _ in self._done] + [self._path.name]:
            (self._folder / name).unlink(missing_ok=True)
        self._done.clear()

    def _begin(self) -> None:
        number, attempt = len(self._done), uuid.uuid4().hex
        name = f".{_stem(self._epoch)}-{self._subtask}-{number}-{attempt}{UNFINISHED}"
        self._path = self._folder / name
        self._file = open(self._path, "wb")  # noqa: SIM115 (closed by _end or abort)
        self._writer = self._factory.create(self._file)
        self._is_empty = True

    def _add(self, values: object) -> None:
        if self._part_size is not None and not self._is_empty:
            size = self._file.tell() + self._writer.unwritten_bytes()
            if size >= self._part_size:
                self._end()
                self._begin()
        self._writer.add_elements(values)
        self._is_empty = False

    def _end(self) -> None:
        self._writer.finish()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._done.append((self._path.name, self._file.tell()))
        self._file.close()


def _owner(epoch: Epoch) -> str:
    """Return a name that differs from that of any other job or sink that writes to the same folder."""
    return epoch.job_id[:8] + hashlib.sha256(epoch.sink_uid.encode()).hexdigest()[:6]


def _stem(epoch: Epoch) -> str:
    return f"{_owner(epoch)}-{epoch.number}"


class FileSink(TwoPhaseSink):
    """Writes part files. They become visible when the rolling policy has closed them and their epochs are
    complete."""

    def __init__(
        self,
        base_path: str,
        factory: BulkWriterFactory,
        policy: RollingPolicy,
        config: OutputFileConfig,
    ) -> None:
        self._folder = local_path(base_path)
        self._factory = factory
        self._policy = policy
        self._config = config
        self._parts: dict[str, PartFiles] = {}  # on the driver

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder) -> FileSink.RowFormatBuilder:
        """Return a builder for a sink that writes each record with an encoder, such as a line of text."""
        return FileSink.RowFormatBuilder(base_path, _LinesFactory(encoder))

    @staticmethod
    def for_bulk_format(
        base_path: str, writer_factory: BulkWriterFactory
    ) -> FileSink.BulkFormatBuilder:
        """Return a builder for a sink that writes many records at a time, such as Parquet."""
        return FileSink.BulkFormatBuilder(base_path, writer_factory)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": {}}

    def validate(self) -> None:
        if self._folder.exists() and not self._folder.is_dir():
            raise ProgramError(f"The output path {self._folder} is a file, but must be a folder.")

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        size = self._policy.part_size if isinstance(self._policy, DefaultRollingPolicy) else None
        return _PieceWriter(self._folder, subtask, epoch, self._factory, size)

    def commit(self, epoch: Epoch, messages: list[tuple[int, list[tuple[str, int]]]]) -> None:
        pieces = [
            Piece(name, epoch.number, subtask, number, size)
            for subtask, written in messages
            for number, (name, size) in enumerate(written)
        ]
        with self._own_parts(epoch) as parts:
            parts.add(epoch.number, pieces)

    def recover(self, epoch: Epoch) -> None:
        self._parts.clear()
        if self._folder.exists():
            with self._own_parts(epoch) as parts:
                parts.clean_up(_owner(epoch))

    def tick(self, epoch: Epoch, now_ms: int) -> int | None:
        if _owner(epoch) not in self._parts:
            return None
        with self._own_parts(epoch) as parts:
            return parts.roll(now_ms)

    def finish(self, epoch: Epoch) -> None:
        if self._folder.exists():
            with self._own_parts(epoch) as parts:
                parts.finish()

    def close(self) -> None:
        """Make everything that is committed visible, because a cancelled job may never be resumed."""
        known, self._parts = self._parts, {}
        for parts in known.values():
            parts.finish()

    @contextmanager
    def _own_parts(self, epoch: Epoch) -> Iterator[PartFiles]:
        """Give access to the part files of this job and sink. After an error they are read again from
        disk."""
        owner = _owner(epoch)
        if owner not in self._parts:
            self._parts[owner] = PartFiles(
                self._folder, owner, self._policy, self._join, self._name_for(owner)
            )
        try:
            yield self._parts[owner]
        except BaseException:
            del self._parts[owner]
            raise

    def _name_for(self, owner: str) -> Callable[[Piece], str]:
        prefix, suffix = self._config.get_part_prefix(), self._config.get_part_suffix()

        def name(first: Piece) -> str:
            number = f"-{first.number}" if first.number else ""
            return f"{prefix}-{owner}-{first.epoch}-{first.subtask}{number}{suffix}"

        return name

    def _join(self, pieces: list[Path], target: Path) -> None:
        with target.open("wb") as file:
            self._factory.join(pieces, file)
            file.flush()
            os.fsync(file.fileno())

    class _Builder(MissingMethods):
        """What both builders have in common."""

        def __init__(self, base_path: str, factory: BulkWriterFactory) -> None:
            self._base_path = base_path
            self._factory = factory
            self._config = OutputFileConfig("part", "")
            self._policy: RollingPolicy = (
                RollingPolicy.default_rolling_policy()
                if factory.can_join
                else RollingPolicy.on_checkpoint_rolling_policy()
            )

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Set how part files are named."""
            self._config = output_file_config
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Set when part files are closed; raise ValueError if the format cannot join files and the
            policy needs that."""
            can_join = self._factory.can_join
            if not isinstance(rolling_policy, OnCheckpointRollingPolicy) and not can_join:
                raise ValueError(
                    f"rolling_policy must be an OnCheckpointRollingPolicy, because "
                    f"{type(self._factory).__name__} cannot join files."
                )
            self._policy = rolling_policy
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Keep the interval for PyFlink programs. It has no effect: parts are closed when they are
            due."""
            return self

        def with_bucket_assigner(self, bucket_assigner: object) -> Self:
            """Raise UnsupportedFeatureError: all files go to the base path."""
            raise UnsupportedFeatureError(
                "Millpond does not have buckets in a FileSink: leave with_bucket_assigner out; all files go "
                "to the base path."
            )

        def build(self) -> FileSink:
            """Return the sink."""
            return FileSink(self._base_path, self._factory, self._policy, self._config)

    class RowFormatBuilder(_Builder):
        """Builds a sink for a row format. By default, parts are closed by size and time."""

    class BulkFormatBuilder(_Builder):
        """Builds a sink for a bulk format. By default, parts are closed by size and time if files can be
        joined, else with every epoch."""
