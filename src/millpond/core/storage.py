"""Where durable data is kept: the contract that a file system or an object store fulfils.

There are objects, which are written whole, and logs, to which one writer appends. The contract needs neither
renaming nor locks, nor a file that can grow: an object store may keep a log as a sequence of objects. Names
are relative paths with `/` between their parts, none of which begins with a dot.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from millpond.common.folder_sync import sync_folder
from millpond.core import fault_points
from millpond.errors import CorruptDataError, StorageError

_log = logging.getLogger(__name__)
_ASIDE = "."  # how the names of files begin that are not complete yet


class LogWriter(ABC):
    """Appends to one log. Nobody else writes to it."""

    name: str
    length: int
    """How many bytes have been appended."""

    @abstractmethod
    def append(self, pieces: Iterable[bytes]) -> None:
        """Append bytes. When this returns, they survive a power failure. Raises StorageError if that fails:
        nobody knows then how much was written, and the writer must not be used again."""

    @abstractmethod
    def close(self) -> None:
        """Release the writer. The log stays."""


class Storage(ABC):
    """Holds the objects and logs of one job."""

    @abstractmethod
    def location(self, name: str) -> str:
        """Return where a log or object is: for messages, and for `read_object`."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write an object, or replace it. Readers see the old content or the new one, never a part. When this
        returns, it survives a power failure. Raises StorageError if it cannot be written; it then is as it
        was."""

    @abstractmethod
    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        """Begin a log. Raises FileExistsError if there is one of this name, StorageError if it cannot be
        written. The storage may prepare for
        `expected_bytes`: bytes after the last one that was appended are then zero."""

    @abstractmethod
    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a part of a log or object. Raises CorruptDataError if it is shorter or missing."""

    @abstractmethod
    def find(self, name: str) -> bytes | None:
        """Return a whole log or object; None if there is none of this name."""

    def read_all(self, name: str) -> bytes:
        """Return a whole log or object. Raises CorruptDataError if it is missing."""
        content = self.find(name)
        if content is None:
            raise _missing(self.location(name))
        return content

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of all logs and objects directly in a folder, sorted."""

    @abstractmethod
    def has_any(self, folder: str) -> bool:
        """Return whether there is a log or object anywhere below a folder."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a log or object, if it is there."""

    def discard(self, name: str) -> None:
        """Delete a log or object that nobody needs any more. If that fails, it is only logged."""
        try:
            self.delete(name)
        except OSError as problem:
            _log.warning("%s is not needed any more, but stays: %s", self.location(name), problem)


class FileStorage(Storage):
    """Logs and objects as files below a folder that is private to the user."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    def location(self, name: str) -> str:
        return os.path.join(self._root, name)

    def write(self, name: str, data: bytes) -> None:
        path = self.location(name)
        folder, own_name = os.path.split(path)
        # Its own for each process: a driver that was replaced may still be writing.
        aside = os.path.join(folder, f"{_ASIDE}{own_name}.{os.getpid()}")
        with _explained(path):
            _make_folder(folder)
            with _removed_on_failure(aside):
                descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                try:
                    _write(descriptor, data, 0)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
                fault_points.reach("object before replace")
                os.replace(aside, path)
            sync_folder(folder)

    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        return _FileLog(name, self.location(name), expected_bytes)

    def read(self, name: str, offset: int, length: int) -> bytes:
        try:
            with open(self.location(name), "rb") as file:
                file.seek(offset)
                data = file.read(length)
        except FileNotFoundError:
            raise _missing(self.location(name)) from None
        if len(data) < length:
            raise CorruptDataError(
                f"{self.location(name)}: it ends after {offset + len(data)} bytes, but {offset + length} "
                "were written. Restore the job folder from a copy, or start the job anew from a savepoint."
            )
        return data

    def find(self, name: str) -> bytes | None:
        try:
            with open(self.location(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        return sorted(
            f"{folder}/{entry.name}" for entry in self._entries(folder) if entry.is_file()
        )

    def has_any(self, folder: str) -> bool:
        return any(
            entry.is_file() or self.has_any(f"{folder}/{entry.name}")
            for entry in self._entries(folder)
        )

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.location(folder)) as entries:
                return [entry for entry in entries if not entry.name.startswith(_ASIDE)]
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.location(name))


class _FileLog(LogWriter):
    def __init__(self, name: str, path: str, expected_bytes: int) -> None:
        self.name = name
        self.length = 0
        self._path = path
        self._file = -1
        folder = os.path.dirname(path)
        with _explained(path):
            _make_folder(folder)
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with _removed_on_failure(path):
                # Overwriting what is there is cheaper to sync than growing: the size does not change.
                if expected_bytes:
                    _write(self._file, bytes(expected_bytes), 0)
                    os.fsync(self._file)
                sync_folder(folder)

    def append(self, pieces: Iterable[bytes]) -> None:
        length = self.length
        with _explained(self._path):
            for piece in pieces:
                _write(self._file, piece, length)
                length += len(piece)
            fault_points.reach(f"{self.name.partition('/')[0]} before sync")
            os.fdatasync(self._file)
        self.length = length

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()


class MemoryStorage(Storage):
    """Logs and objects in memory, for the direct executor and for tests."""

    def __init__(self) -> None:
        self._contents: dict[str, bytearray] = {}

    def location(self, name: str) -> str:
        return name

    def write(self, name: str, data: bytes) -> None:
        self._contents[name] = bytearray(data)

    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        if name in self._contents:
            raise FileExistsError(name)
        content = self._contents[name] = bytearray()
        return _MemoryLog(name, content)

    def read(self, name: str, offset: int, length: int) -> bytes:
        if name not in self._contents:
            raise _missing(name)
        data = bytes(memoryview(self._contents[name])[offset : offset + length])
        if len(data) < length:
            raise CorruptDataError(f"{name}: it is shorter than what was written.")
        return data

    def find(self, name: str) -> bytes | None:
        content = self._contents.get(name)
        return None if content is None else bytes(content)

    def names(self, folder: str) -> list[str]:
        names = sorted(self._contents)
        start = bisect.bisect_left(names, f"{folder}/")
        return [name for name in names[start:] if name.rpartition("/")[0] == folder]

    def has_any(self, folder: str) -> bool:
        return any(name.startswith(f"{folder}/") for name in self._contents)

    def delete(self, name: str) -> None:
        self._contents.pop(name, None)


class _MemoryLog(LogWriter):
    def __init__(self, name: str, content: bytearray) -> None:
        self.name = name
        self.length = 0
        self._content = content

    def append(self, pieces: Iterable[bytes]) -> None:
        for piece in pieces:
            self._content += piece
        self.length = len(self._content)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def storage_at(location: str) -> Storage:
    """Return the storage at a location, which is the path of a folder."""
    return FileStorage(location)


def read_object(location: str) -> bytes:
    """Return a whole object, given its location. Raises CorruptDataError if it is missing."""
    folder, _, name = location.rpartition("/")
    return storage_at(folder).read_all(name)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn what the system says about a file that is written into a StorageError."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise StorageError(
            f"{path} could not be written: {problem.strerror or problem}. Fix that and start the job again, "
            "unless its restart strategy does so; it goes on where it was."
        ) from problem


@contextlib.contextmanager
def _removed_on_failure(path: str) -> Iterator[None]:
    """Remove a file if the block raises, for it may be what fills the disk."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def _make_folder(folder: str) -> None:
    """Create a folder, and those above it, so that they survive a power failure."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        _make_folder(above)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        sync_folder(above)


def _write(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _missing(path: str) -> CorruptDataError:
    return CorruptDataError(
        f"{path} is missing, although the job needs it. Somebody has removed it: restore the whole job "
        "folder from a copy, or start the job in another folder, from a savepoint if there is one."
    )
