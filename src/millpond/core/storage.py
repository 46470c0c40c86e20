"""Where durable data is kept: the contract that a file system or an object store fulfils.

There are objects, which are written whole, and logs, to which one writer appends. The contract needs neither
renaming nor locks, nor a file that can grow: an object store may keep a log as a sequence of objects. Names
are relative paths with `/` between their parts.
"""

from __future__ import annotations

import bisect
import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from millpond.common.folder_sync import sync_folder
from millpond.errors import CorruptDataError


class LogWriter(ABC):
    """Appends to one log. Nobody else writes to it."""

    name: str
    length: int
    """How many bytes have been appended."""

    @abstractmethod
    def append(self, pieces: Iterable[bytes]) -> None:
        """Append bytes. When this returns, they survive a power failure. If it raises, nobody knows how much
        was written, and the writer must not be used again."""

    @abstractmethod
    def close(self) -> None:
        """Release the writer. The log stays."""


class Storage(ABC):
    """Holds the objects and logs of one job."""

    @abstractmethod
    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        """Begin a log. Raises FileExistsError if there is one of this name. The storage may prepare for
        `expected_bytes`: bytes after the last one that was appended are then zero."""

    @abstractmethod
    def read(self, name: str, offset: int, length: int) -> bytes:
        """Return a part of a log or object. Raises CorruptDataError if it is shorter or missing."""

    @abstractmethod
    def read_all(self, name: str) -> bytes:
        """Return a whole log or object. Raises CorruptDataError if it is missing."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of all logs and objects directly in a folder, sorted."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a log or object, if it is there."""


class FileStorage(Storage):
    """Logs and objects as files below a folder that is private to the user."""

    def __init__(self, root: str | Path) -> None:
        self._root = str(root)

    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        return _FileLog(name, self._path(name), expected_bytes)

    def read(self, name: str, offset: int, length: int) -> bytes:
        try:
            with open(self._path(name), "rb") as file:
                file.seek(offset)
                data = file.read(length)
        except FileNotFoundError:
            raise _missing(self._path(name)) from None
        if len(data) < length:
            raise CorruptDataError(
                f"{self._path(name)}: it ends after {offset + len(data)} bytes, but {offset + length} were "
                "written. Restore the job folder from a copy, or start the job anew from a savepoint."
            )
        return data

    def read_all(self, name: str) -> bytes:
        try:
            return Path(self._path(name)).read_bytes()
        except FileNotFoundError:
            raise _missing(self._path(name)) from None

    def names(self, folder: str) -> list[str]:
        try:
            found = os.listdir(self._path(folder))
        except FileNotFoundError:
            return []
        return sorted(f"{folder}/{name}" for name in found)

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path(name))

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)


class _FileLog(LogWriter):
    def __init__(self, name: str, path: str, expected_bytes: int) -> None:
        self.name = name
        self.length = 0
        folder = os.path.dirname(path)
        _make_folder(folder)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        # Overwriting what is there is cheaper to sync than growing: the size of the file does not change.
        if expected_bytes:
            _write(self._file, bytes(expected_bytes), 0)
            os.fsync(self._file)
        sync_folder(folder)

    def append(self, pieces: Iterable[bytes]) -> None:
        length = self.length
        for piece in pieces:
            _write(self._file, piece, length)
            length += len(piece)
        os.fdatasync(self._file)
        self.length = length

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # if it could not be opened
            self.close()


class MemoryStorage(Storage):
    """Logs in memory, for the direct executor and for tests."""

    def __init__(self) -> None:
        self._logs: dict[str, bytearray] = {}

    def new_log(self, name: str, expected_bytes: int = 0) -> LogWriter:
        if name in self._logs:
            raise FileExistsError(name)
        content = self._logs[name] = bytearray()
        return _MemoryLog(name, content)

    def read(self, name: str, offset: int, length: int) -> bytes:
        data = self.read_all(name)[offset : offset + length]
        if len(data) < length:
            raise CorruptDataError(f"{name}: it is shorter than what was written.")
        return data

    def read_all(self, name: str) -> bytes:
        if name not in self._logs:
            raise _missing(name)
        return bytes(self._logs[name])

    def names(self, folder: str) -> list[str]:
        names = sorted(self._logs)
        start = bisect.bisect_left(names, f"{folder}/")
        return [name for name in names[start:] if name.rpartition("/")[0] == folder]

    def delete(self, name: str) -> None:
        self._logs.pop(name, None)


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
