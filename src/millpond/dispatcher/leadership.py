"""Who of several dispatchers leads, and the few facts that only a leader may write.

A *term* is one stretch of leading. It has a number, the epoch, which is higher than that of every term
before, whoever led it. What a leader writes goes through a fence: it is written only if the term is not over.
So a leader that slept, and was replaced meanwhile, cannot change anything.

The life of a participant, in a thread of its own:

    standing by ──> leading (granted) ──> standing by (revoked) ──> ... ──> closed
                        └── ends when: close(), the lock or session is gone, another one leads

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
from typing import Any

from millpond.errors import CorruptDataError, LeadershipError, LeadershipLost

_log = logging.getLogger(__name__)

MAX_POINTER_BYTES = 1024
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_PAUSE_AFTER_FAILURE_S = 1.0
_CLOSE_TIMEOUT_S = 5.0
_COMPLAIN_EVERY_S = 30.0


class Leadership(ABC):
    """Who of several dispatchers leads. An epoch only ever grows.

    Safe for use by many threads. No call waits without bound."""

    @abstractmethod
    def start(
        self, address: str, granted: Callable[[int], None], revoked: Callable[[], None]
    ) -> None:
        """Begin to take part, once. Does not wait for anything.

        `granted(epoch)` and `revoked()` are called in turn, in a thread of the leadership's own; each
        `granted` is followed by one `revoked`, also after `close()`. `granted` may take its time: if the
        term ends meanwhile, `epoch` is None and fenced calls raise at once, but `revoked` comes after it has
        returned. A leader whose `granted` raises gives the term up, so that another one may try."""

    @property
    @abstractmethod
    def epoch(self) -> int | None:
        """The number of the term while this one leads, as far as it knows: it asks nobody; `confirm` does."""

    @abstractmethod
    def confirm(self) -> int:
        """The epoch, after making sure that this one leads at this moment; else `LeadershipLost`."""

    @abstractmethod
    def leader_address(self) -> str | None:
        """The address of whoever leads, for standbys, too. None: nobody does, or it cannot be known now.

        Cheap. A leader that has died may be named until another one leads."""

    @abstractmethod
    def pointers(self) -> dict[str, dict[str, Any]]:
        """Which jobs there are: name to content. Anybody may ask. A leader sees all that was accepted."""

    @abstractmethod
    def put_pointer(self, name: str, content: dict[str, Any], epoch: int | None = None) -> None:
        """Write a pointer, durably, in place of the one of the same name; at most 1 KB of JSON.

        With `epoch`: only in that term. What was decided in one term must not be written in a later one of
        the same dispatcher, between which another one may have led.

        `LeadershipLost`: this one does not lead. If it did when the call began, the pointer may or may not be
        written; whoever leads next sees which."""

    @abstractmethod
    def remove_pointer(self, name: str, epoch: int | None = None) -> None:
        """Remove a pointer; if there is none, that is fine, but not leading never is."""

    @abstractmethod
    def close(self) -> None:
        """Give leadership up at once and take no part any more. May be called again."""


@dataclass(frozen=True)
class Term:
    epoch: int


class Participant(Leadership):
    """The thread and the life cycle, which all kinds of leadership share.

    `_term` is what fenced calls go by. It is set by the participant's own thread only, and taken away by
    whoever finds out first that the term is over."""

    def __init__(self, standby_check_s: float, leader_check_s: float) -> None:
        self._standby_check_s = standby_check_s
        self._leader_check_s = leader_check_s
        self._address = ""
        self._complaint, self._complained_s = "", 0.0
        self._term: Term | None = None
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self, address: str, granted: Callable[[int], None], revoked: Callable[[], None]
    ) -> None:
        if self._thread is not None or self._closing.is_set():
            raise LeadershipError("A leadership can be started once only. Make another one.")
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
                _log.warning("The leadership has not ended yet; going on without waiting for it.")

    @abstractmethod
    def _try_to_lead(self) -> Term | None:
        """Begin a term, which is in `_term` then; None if another one leads or nobody can tell."""

    @abstractmethod
    def _check(self, term: Term) -> None:
        """End the term if it is over."""

    @abstractmethod
    def _end(self, term: Term) -> None:
        """Take `_term` away if it is still this one, and let others lead. Never raises."""

    @abstractmethod
    def _leave(self) -> None:
        """The thread's last act."""

    def _leading(self, epoch: int | None = None) -> Any:
        """The term, for a fenced call; it must be the one with this epoch, if one is given."""
        term = self._term
        if term is None:
            raise LeadershipLost("This dispatcher does not lead; ask the one that does.")
        if epoch is not None and epoch != term.epoch:
            raise LeadershipLost(
                f"The term with epoch {epoch} is over; this dispatcher leads with epoch {term.epoch} now."
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
                # Cleared before the facts are looked at, so that no change of them is missed.
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

    def _lead(
        self, term: Term, granted: Callable[[int], None], revoked: Callable[[], None]
    ) -> None:
        _log.info("This dispatcher leads, epoch %d.", term.epoch)
        failed = False
        try:
            granted(term.epoch)
        except LeadershipLost:
            failed = self._term is term
            self._end(term)
        except Exception:
            _log.exception("This dispatcher cannot lead and gives leadership up.")
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
        _log.info("This dispatcher does not lead any more; its epoch was %d.", term.epoch)
        try:
            revoked()
        except Exception:
            _log.exception("Giving up the work of a leader failed.")
        if failed:
            self._closing.wait(_PAUSE_AFTER_FAILURE_S)  # another one should get the chance


def encode_pointer(name: str, content: dict[str, Any], epoch: int) -> bytes:
    """{"format": 1, "epoch": of the leader that wrote it, "content": {...}}, in UTF-8."""
    check_name(name)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    if len(text.encode()) > MAX_POINTER_BYTES:
        raise LeadershipError(
            f"The pointer '{name}' has {len(text.encode())} bytes; {MAX_POINTER_BYTES} are allowed. Put "
            "what is large into the storage folder."
        )
    return f'{{"format":{FORMAT},"epoch":{epoch},"content":{text}}}'.encode()


def decode_pointer(data: bytes, place: str) -> dict[str, Any]:
    content = decode_epoch(data, place).get("content")
    if not isinstance(content, dict):
        raise CorruptDataError(f"{place} has no content.")
    return content


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise LeadershipError(
            f"'{name}' cannot be a pointer's name: letters, digits, '.', '_' and '-' only, 200 at most, not "
            "beginning with '.' or '-'."
        )


def decode_epoch(data: bytes, place: str) -> dict[str, Any]:
    """An object in which there is an epoch for certain: one that is lost must not start again from 0."""
    try:
        found = json.loads(data)
        version, epoch = found["format"], found["epoch"]
    except (ValueError, KeyError, TypeError):
        version, epoch = FORMAT, None
    if version != FORMAT:
        raise CorruptDataError(
            f"{place} has format {version}; this Millpond knows format {FORMAT}."
        )
    if not isinstance(epoch, int):
        raise CorruptDataError(f"{place} is damaged: {data[:80]!r}")
    return found  # type: ignore[no-any-return]


class FileLeadership(Participant):
    """Leadership among dispatchers that share a folder, without ZooKeeper.

        leader.lock         held by the leader; the kernel gives it back when its holder dies, however it dies
        leader.json         {"format": 1, "epoch": 3, "address": "http://...", or null if nobody leads}
        pointers/NAME.json  {"format": 1, "epoch": 3, "content": {...}}

    Files are written aside, synced and renamed. A leader that hangs leads on: nobody can tell that it is not
    just slow. On several machines the folder's file system must support `flock` between them; if in doubt,
    use ZooKeeper."""

    def __init__(self, folder: Path) -> None:
        super().__init__(standby_check_s=0.1, leader_check_s=1.0)
        self._folder = Path(folder)
        self._lock_path = self._folder / "leader.lock"
        self._leader_path = self._folder / "leader.json"
        self._pointers_path = self._folder / "pointers"
        # A fenced write and the end of a term never overlap: the lock is held until the write is done.
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

    def pointers(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in sorted(self._pointers_path.glob("*.json")):
            try:
                found[path.stem] = decode_pointer(path.read_bytes(), str(path))
            except FileNotFoundError:  # removed meanwhile
                continue
            except OSError as problem:
                raise LeadershipError(f"Cannot read the pointer {path}: {problem}") from None
        return found

    def put_pointer(self, name: str, content: dict[str, Any], epoch: int | None = None) -> None:
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
                _sync_folder(self._pointers_path)
            except OSError as problem:
                raise LeadershipError(f"Cannot remove the pointer '{name}': {problem}") from None

    def _fence(self, epoch: int | None = None) -> Term:
        """The term, if this one leads. Needs the mutex."""
        term: Term = self._leading(epoch)
        if not self._holds(term):
            self._drop()
            raise LeadershipLost(
                f"This dispatcher led with epoch {term.epoch}, but {self._leader_path} or its lock is now "
                "another's."
            )
        return term

    def _holds(self, term: Term) -> bool:
        """False only if somebody has meddled with the folder, or its file system lost the lock."""
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
            for aside in self._pointers_path.glob(".*"):  # of leaders that died while they wrote
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

    def _read_leader(self) -> dict[str, Any]:
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
        """Write aside, sync, call `before`, rename."""
        aside = path.with_name(f".{path.name}.{term.epoch}")  # nobody else has this epoch
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        before()
        os.replace(aside, path)
        _sync_folder(path.parent)


def _is_file(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
