"""Decides which of several dispatchers leads, and keeps the few facts that only a leader may write.

A *term* is a period in which one dispatcher leads. Its number, the leader epoch, is higher than that of every
earlier term, whoever led then. Whatever a leader writes goes through a fence: it is written only if the term
is not over. So a leader that slept and was replaced in the meantime cannot change anything.

The life of a participant, in a thread of its own:

    standing by ──> leading (granted) ──> standing by (revoked) ──> ... ──> closed
                        └── ends with close(), when the lock or session is lost, or when another one leads

`FileLeadership`, below, is for dispatchers that share a folder; `ZooKeeperLeadership` has a file of its own.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from millpond.common.folder_sync import sync_folder
from millpond.dispatcher.messages import Json
from millpond.errors import CorruptDataError, LeadershipError, LeadershipLost

_log = logging.getLogger(__name__)

MAX_POINTER_BYTES = 1024
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_PAUSE_AFTER_FAILURE_S = 1.0
_CLOSE_TIMEOUT_S = 5.0
_COMPLAIN_EVERY_S = 30.0


class Leadership(ABC):
    """One dispatcher's part in choosing which of several dispatchers leads. Leader epochs only ever grow.

    Safe for use by many threads. Every call returns within bounded time."""

    @abstractmethod
    def start(
        self, address: str, granted: Callable[[int], None], revoked: Callable[[], None]
    ) -> None:
        """Begin to take part, and return at once. This can be called once only.

        `granted(epoch)` and `revoked()` are called in turn, in the leadership's own thread; each `granted`
        is followed by one `revoked`, even after `close()`. `granted` may take its time: if the term ends
        meanwhile, `epoch` is None and fenced calls raise at once, but `revoked` is called only when `granted`
        has returned. A leader whose `granted` raises gives up the term, so that another one can try."""

    @property
    @abstractmethod
    def epoch(self) -> int | None:
        """The leader epoch while this dispatcher leads, else None. It is what this dispatcher believes,
        without asking anybody; `confirm` makes sure."""

    @abstractmethod
    def confirm(self) -> int:
        """Make sure that this dispatcher leads at this moment, and return its epoch. Raise LeadershipLost if
        it does not lead."""

    @abstractmethod
    def leader_address(self) -> str | None:
        """Return the address of the leader; None if nobody leads, or if that is unknown at the moment.

        A standby may ask, too. The call is cheap. A leader that has died may be named until another one
        leads."""

    @abstractmethod
    def pointers(self) -> dict[str, Json]:
        """Return the content of all pointers by name; each names a job that should run. Anybody may ask. A
        leader sees every pointer that was accepted."""

    @abstractmethod
    def put_pointer(self, name: str, content: Json, epoch: int | None = None) -> None:
        """Write a pointer durably, replacing any of the same name. It may have at most 1 KB of JSON.

        With `epoch`, it is written only in that term: what was decided in one term must not be written in a
        later term of the same dispatcher, because another dispatcher may have led in between.

        Raise LeadershipLost if this dispatcher does not lead. If it led when the call began, the pointer may
        or may not be written; the next leader sees which."""

    @abstractmethod
    def remove_pointer(self, name: str, epoch: int | None = None) -> None:
        """Remove a pointer if it exists. `epoch` and LeadershipLost are as in `put_pointer`."""

    @abstractmethod
    def close(self) -> None:
        """Give up leadership at once and no longer take part. May be called more than once."""


@dataclass(frozen=True)
class Term:
    """A period in which this dispatcher leads, with its leader epoch."""

    epoch: int


T = TypeVar("T", bound=Term)


class Participant(Leadership, Generic[T]):
    """The thread and the life cycle that all kinds of leadership share.

    Fenced calls rely on `_term`. Only the participant's own thread sets it; whoever first finds out that the
    term is over clears it."""

    def __init__(self, standby_check_s: float, leader_check_s: float) -> None:
        self._standby_check_s = standby_check_s
        self._leader_check_s = leader_check_s
        self._address = ""
        self._complaint, self._complained_s = "", 0.0
        self._term: T | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self, address: str, granted: Callable[[int], None], revoked: Callable[[], None]
    ) -> None:
        if self._thread is not None or self._closing.is_set():
            raise LeadershipError("A leadership can be started only once. Create another one.")
        self._address = address
        self._thread = threading.Thread(
            target=self._run, args=(granted, revoked), name="leadership", daemon=True
        )
        self._thread.start()

    @property
    def epoch(self) -> int | None:
        term = self._term
        return None if term is None else term.epoch

    def close(self) -> None:
        self._closing.set()
        term = self._term
        if term is not None:
            self._end(term)
        self._wake.set()
        thread = self._thread
        if thread is None:
            self._leave()
        elif thread is not threading.current_thread():
            thread.join(_CLOSE_TIMEOUT_S)
            if thread.is_alive():
                _log.warning(
                    "The leadership's thread has not ended; not waiting for it any longer."
                )

    @abstractmethod
    def _try_to_lead(self) -> T | None:
        """Try to begin a term; set `_term` to it and return it. Return None if another dispatcher leads, or
        if that is unknown."""

    @abstractmethod
    def _check(self, term: T) -> None:
        """Clear `_term` if the term is over."""

    @abstractmethod
    def _end(self, term: T) -> None:
        """Clear `_term` if it is still this term, and let others lead. Must not raise."""

    @abstractmethod
    def _leave(self) -> None:
        """Clean up; called last, when the participant no longer takes part."""

    def _leading(self, epoch: int | None = None) -> T:
        """Return the term for a fenced call. Raise LeadershipLost if there is none, or if `epoch` is given
        and the term has another one."""
        term = self._term
        if term is None:
            raise LeadershipLost("This dispatcher does not lead; ask the one that does.")
        if epoch is not None and epoch != term.epoch:
            raise LeadershipLost(
                f"The term with epoch {epoch} is over; this dispatcher now leads with epoch {term.epoch}."
            )
        return term

    def _complain(self, text: str) -> None:
        """Log what is wrong, but not the same thing every second."""
        now_s = time.monotonic()
        if text != self._complaint or now_s - self._complained_s >= _COMPLAIN_EVERY_S:
            self._complaint, self._complained_s = text, now_s
            _log.warning(text)

    def _run(self, granted: Callable[[int], None], revoked: Callable[[], None]) -> None:
        try:
            while not self._closing.is_set():
                # Cleared before the facts are looked at, so that no change in them is missed.
                self._wake.clear()
                try:
                    term = self._try_to_lead()
                except Exception as problem:
                    self._complain(f"This dispatcher cannot take part in leadership: {problem}")
                    self._closing.wait(_PAUSE_AFTER_FAILURE_S)
                    continue
                if term is not None:
                    self._lead(term, granted, revoked)
                else:
                    self._wake.wait(self._standby_check_s)
        finally:
            self._leave()

    def _lead(self, term: T, granted: Callable[[int], None], revoked: Callable[[], None]) -> None:
        _log.info("This dispatcher leads, epoch %d.", term.epoch)
        failed = False
        try:
            granted(term.epoch)
        except LeadershipLost:
            failed = self._term is term
            self._end(term)
        except Exception:
            _log.exception("This dispatcher cannot lead and gives up leadership.")
            failed = True
            self._end(term)
        while True:
            self._wake.clear()
            if self._term is term:
                try:
                    self._check(term)
                except Exception as problem:
                    self._complain(f"This dispatcher cannot find out whether it leads: {problem}")
                    self._end(term)
            if self._term is not term or self._closing.is_set():
                break
            self._wake.wait(self._leader_check_s)
        _log.info("This dispatcher no longer leads; its epoch was %d.", term.epoch)
        try:
            revoked()
        except Exception:
            _log.exception("This dispatcher could not stop the work of a leader.")
        if failed:
            self._closing.wait(_PAUSE_AFTER_FAILURE_S)  # so that another dispatcher gets a chance


def encode_pointer(name: str, content: Json, epoch: int) -> bytes:
    """Return a pointer as JSON in UTF-8: {"format": 1, "epoch": that of the leader, "content": {...}}. Raise
    LeadershipError if the name is not allowed or the content is too large."""
    check_name(name)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    if len(text.encode()) > MAX_POINTER_BYTES:
        raise LeadershipError(
            f"The pointer '{name}' has {len(text.encode())} bytes; {MAX_POINTER_BYTES} are allowed. Put "
            "large content into the storage folder."
        )
    return f'{{"format":{FORMAT},"epoch":{epoch},"content":{text}}}'.encode()


def decode_pointer(data: bytes, location: str) -> Json:
    """Return the content of a pointer. Raise CorruptDataError, which names `location`, if it is damaged."""
    content = decode_epoch(data, location).get("content")
    if not isinstance(content, dict):
        raise CorruptDataError(f"{location} has no content.")
    return content


def check_name(name: str) -> None:
    """Raise LeadershipError if `name` cannot be the name of a pointer, which becomes a file or a node."""
    if _NAME.fullmatch(name) is None:
        raise LeadershipError(
            f"'{name}' cannot be the name of a pointer: it may have up to 200 letters, digits, '.', '_' and "
            "'-', and must not begin with '.' or '-'."
        )


def decode_epoch(data: bytes, location: str) -> Json:
    """Return a JSON object that is certain to have an epoch. Raise CorruptDataError, which names `location`,
    if it has none: epochs must not start again from 0 because one was lost."""
    try:
        found = json.loads(data)
        version, epoch = found["format"], found["epoch"]
    except (ValueError, KeyError, TypeError):
        version, epoch = FORMAT, None
    if version != FORMAT:
        raise CorruptDataError(
            f"{location} has format {version}; this release of Millpond knows format {FORMAT}."
        )
    if not isinstance(epoch, int):
        raise CorruptDataError(f"{location} is damaged: {data[:80]!r}")
    return found  # type: ignore[no-any-return]


class FileLeadership(Participant[Term]):
    """Leadership among dispatchers that share a folder, without ZooKeeper.

        leader.lock         held by the leader; the kernel frees it when the leader dies, however it dies
        leader.json         {"format": 1, "epoch": 3, "address": "http://...", or null if nobody leads}
        pointers/NAME.json  {"format": 1, "epoch": 3, "content": {...}}

    Files are written to a temporary file, synced and renamed. A leader that hangs keeps leading, because
    nobody can tell whether it is just slow. On several machines the folder's file system must support `flock`
    between them; if in doubt, use ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        super().__init__(standby_check_s=0.1, leader_check_s=1.0)
        self._folder = Path(folder)
        self._lock_path = self._folder / "leader.lock"
        self._leader_path = self._folder / "leader.json"
        self._pointers_path = self._folder / "pointers"
        # A fenced write and the end of a term must not overlap: the lock is held until the write is done.
        self._mutex = threading.Lock()
        self._lock: int | None = None

    def confirm(self) -> int:
        with self._mutex:
            return self._fence().epoch

    def leader_address(self) -> str | None:
        try:
            address = self._read_leader().get("address")
        except (CorruptDataError, OSError):
            return None
        return address if isinstance(address, str) else None

    def pointers(self) -> dict[str, Json]:
        found = {}
        for path in sorted(self._pointers_path.glob("*.json")):
            try:
                found[path.stem] = decode_pointer(path.read_bytes(), str(path))
            except FileNotFoundError:  # it has just been removed
                continue
            except OSError as problem:
                raise LeadershipError(f"Cannot read the pointer {path}: {problem}") from None
        return found

    def put_pointer(self, name: str, content: Json, epoch: int | None = None) -> None:
        with self._mutex:
            term = self._fence(epoch)
            data = encode_pointer(name, content, term.epoch)
            try:
                self._write(self._pointers_path / f"{name}.json", data, term, before=self._fence)
            except OSError as problem:
                raise LeadershipError(f"Cannot write the pointer '{name}': {problem}") from None

    def remove_pointer(self, name: str, epoch: int | None = None) -> None:
        check_name(name)
        with self._mutex:
            self._fence(epoch)
            try:
                (self._pointers_path / f"{name}.json").unlink(missing_ok=True)
                sync_folder(self._pointers_path)
            except OSError as problem:
                raise LeadershipError(f"Cannot remove the pointer '{name}': {problem}") from None

    def _fence(self, epoch: int | None = None) -> Term:
        """Return the term; raise LeadershipLost if this dispatcher does not lead. The caller holds the
        mutex."""
        term = self._leading(epoch)
        if not self._holds(term):
            self._drop()
            raise LeadershipLost(
                f"This dispatcher led with epoch {term.epoch}, but {self._leader_path} or its lock no longer "
                "belongs to it."
            )
        return term

    def _holds(self, term: Term) -> bool:
        """Return False if somebody has tampered with the folder or its file system has lost the lock; nothing
        else takes them from a leader."""
        if self._lock is None or not _is_file(self._lock, self._lock_path):
            return False
        try:
            return bool(self._read_leader()["epoch"] == term.epoch)
        except (CorruptDataError, OSError):
            return False

    def _try_to_lead(self) -> Term | None:
        for folder in (self._folder, self._pointers_path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        try:
            if not _is_file(lock, self._lock_path):  # removed between open and lock
                os.close(lock)
                return None
            os.truncate(lock, 0)
            os.write(lock, f"process {os.getpid()} on {os.uname().nodename}".encode())
            term = Term(self._read_leader()["epoch"] + 1)
            self._write_leader(term, self._address)
            for aside in self._pointers_path.glob(".*"):  # left by leaders that died while writing
                aside.unlink(missing_ok=True)
        except BaseException:
            os.close(lock)
            raise
        with self._mutex:
            self._lock, self._term = lock, term
        if self._closing.is_set():  # close() may have looked before there was a term
            self._end(term)
            return None
        return term

    def _check(self, term: Term) -> None:
        with self._mutex:
            if self._term is term and not self._holds(term):
                self._drop()

    def _end(self, term: Term) -> None:
        with self._mutex:
            if self._term is not term:
                return
            try:
                if self._holds(term):
                    self._write_leader(term, None)
            except OSError as problem:
                _log.warning("Cannot write %s: %s", self._leader_path, problem)
            self._drop()

    def _drop(self) -> None:
        self._term = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._wake.set()

    def _leave(self) -> None:
        pass

    def _read_leader(self) -> Json:
        try:
            data = self._leader_path.read_bytes()
        except FileNotFoundError:
            return {"epoch": 0}
        return decode_epoch(data, str(self._leader_path))

    def _write_leader(self, term: Term, address: str | None) -> None:
        content = {"format": FORMAT, "epoch": term.epoch, "address": address}
        self._write(self._leader_path, json.dumps(content).encode(), term)

    @staticmethod
    def _write(
        path: Path, data: bytes, term: Term, before: Callable[[], object] = lambda: None
    ) -> None:
        """Write to a temporary file, sync it, call `before`, and rename the file."""
        aside = path.with_name(f".{path.name}.{term.epoch}")  # nobody else has this epoch
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        before()
        os.replace(aside, path)
        sync_folder(path.parent)


def _is_file(descriptor: int, path: Path) -> bool:
    """Return True if an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
