"""Keeps the job managers of all jobs that should run alive (O2, O5). Only the leader's supervisor is at work.

The leadership's pointers say which jobs should run. A job manager is alive if the lock in its job's folder
is held, whoever started it; so a new leader takes over the jobs of another dispatcher just by looking at the
locks. A job manager that has died without reporting the end of its job is started again, and the job resumes
from its newest checkpoint. The delay before that grows if a job manager dies again and again.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from millpond.common.job import JobStatus
from millpond.dispatcher.job_manager import IS_TAKEN
from millpond.dispatcher.leadership import Leadership
from millpond.dispatcher.messages import Report, has_ended
from millpond.dispatcher.storage import JobFiles, Storage
from millpond.errors import LeadershipLost, MillpondError

_LOOK_EVERY_S = 0.25
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 60.0
_CALM_AFTER_S = 120.0  # after a life of this length, delays begin with the first one again
_LOG_BYTES = 64 << 20
_log = logging.getLogger(__name__)


@dataclass
class _Care:
    """What the supervisor knows about one job."""

    files: JobFiles
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    deaths: int = 0
    start_at_s: float = 0.0
    was_alive: bool = False


class Supervisor:
    """Starts the job managers of all jobs that should run, as long as this dispatcher leads.

    `command` returns the command line of a job manager, given its job's files and the leader's epoch. The
    work is done in a thread of its own; `look_after` may be called from any thread."""

    def __init__(
        self,
        storage: Storage,
        leadership: Leadership,
        command: Callable[[JobFiles, int], list[str]] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._storage = storage
        self._leadership = leadership
        self._command = command or _job_manager
        self._clock_s = clock_s
        self._cares: dict[str, _Care] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    # --- leading ---------------------------------------------------------------------------------

    def begin(self, epoch: int) -> None:
        """Start to look after all jobs that the leadership's pointers name, because this dispatcher leads
        now, with this epoch."""
        self.end()
        with self._lock:
            known = self._leadership.pointers()
            self._cares = {jid: care for jid, care in self._cares.items() if jid in known}
            for jid in known:
                self._add(jid)
        self._stop.clear()
        self._thread = threading.Thread(
            target=self._run, args=(epoch,), name="supervisor", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """Stop looking after jobs, because this dispatcher no longer leads. Job managers live on. May be
        called more than once."""
        self._stop.set()
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def look_after(self, jid: str) -> None:
        """Look after one more job, which was submitted or must be started again."""
        with self._lock:
            self._add(jid)
        self._wake.set()

    def is_wanted(self, jid: str) -> bool:
        """Return True if the job should run, as far as this dispatcher knows."""
        return jid in self._cares

    def suspend_all(self, grace_s: float = 20.0) -> None:
        """End all job managers that are alive, and kill those that take longer than `grace_s`. Their jobs
        resume when a dispatcher leads again."""
        with self._lock:
            cares = list(self._cares.values())
        waiting = [care for care in cares if care.files.is_locked() and _signal(care.files)]
        deadline_s = self._clock_s() + grace_s
        while waiting and self._clock_s() < deadline_s:
            for care in waiting:
                if care.process is not None:
                    care.process.poll()
            waiting = [care for care in waiting if care.files.is_locked()]
            time.sleep(0.05)
        for care in waiting:
            _signal(care.files, signal.SIGKILL)

    def _add(self, jid: str) -> None:
        if jid in self._cares:
            return
        files = self._storage.job(jid)
        if files is None:
            _log.warning("Job %s should run, but is not in %s.", jid, self._storage.root)
        else:
            self._cares[jid] = _Care(files)

    # --- looking after jobs ----------------------------------------------------------------------

    def _run(self, epoch: int) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            with self._lock:
                cares = list(self._cares.items())
            for jid, care in cares:
                if self._stop.is_set():
                    return
                try:
                    self._look(jid, care, epoch)
                except LeadershipLost:
                    _log.warning("Another dispatcher leads now; this one stands by.")
                    return
                except (OSError, MillpondError) as problem:
                    _log.warning("Job %s: %s", jid, problem)
            self._wake.wait(_LOOK_EVERY_S)

    def _look(self, jid: str, care: _Care, epoch: int) -> None:
        exit_code = None if care.process is None else care.process.poll()
        if care.files.is_locked():
            care.was_alive = True
            _shorten(care.files)
            return
        report = care.files.report()
        if report is not None and has_ended(report):
            self._leadership.remove_pointer(jid, epoch)
            with self._lock:
                self._cares.pop(jid, None)
            return
        if care.process is not None and exit_code is None:
            return  # it is about to take its lock
        if care.process is not None or care.was_alive:
            self._note_death(care, exit_code, report)
        if self._clock_s() >= care.start_at_s:
            self._start(jid, care, epoch)

    def _note_death(self, care: _Care, exit_code: int | None, report: Report | None) -> None:
        lived_s = self._clock_s() - care.started_s
        care.deaths = 1 if lived_s > _CALM_AFTER_S else care.deaths + 1
        delay_s = min(_FIRST_DELAY_S * 2 ** (care.deaths - 1), _LONGEST_DELAY_S)
        care.start_at_s = self._clock_s() + delay_s
        care.process, care.was_alive = None, False
        was_suspended = report is not None and JobStatus.of(report) is JobStatus.SUSPENDED
        if exit_code == IS_TAKEN or was_suspended:
            return
        how = "is gone" if exit_code is None else _how_it_ended(exit_code)
        text = (
            f"The job manager {how}. It will be restarted in {delay_s:.1f} s and resume from the newest "
            f"checkpoint. What it printed last:\n{_last_lines(care.files)}"
        )
        _log.warning("Job %s: %s", care.files.jid, text.splitlines()[0])
        care.files.add_exception(
            {
                "timestamp": time.time_ns() // 1_000_000,
                "exceptionName": "millpond.dispatcher.JobManagerLost",
                "stacktrace": text,
                "taskName": None,
            }
        )

    def _start(self, jid: str, care: _Care, epoch: int) -> None:
        # The pointer is written first, so that a dispatcher that no longer leads cannot start anything.
        self._leadership.put_pointer(jid, {"jid": jid, "epoch": epoch}, epoch)
        log = os.open(care.files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            care.process = subprocess.Popen(
                self._command(care.files, epoch),
                cwd=care.files.path,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        finally:
            os.close(log)
        care.started_s = self._clock_s()


def _job_manager(files: JobFiles, epoch: int) -> list[str]:
    return [sys.executable, "-m", "millpond.dispatcher.job_manager", str(files.path), str(epoch)]


def _how_it_ended(exit_code: int) -> str:
    if exit_code < 0:
        return f"was ended by {signal.Signals(-exit_code).name}"
    return f"ended with code {exit_code}"


def _last_lines(files: JobFiles, count: int = 20) -> str:
    return "\n".join(tail(files, count))


def tail(files: JobFiles, lines: int) -> list[str]:
    """Return up to `lines` last lines of a job's log; none if there is no log yet."""
    try:
        with open(files.log, "rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 400 * lines - 4096))
            return log.read().decode(errors="replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


def _shorten(files: JobFiles) -> None:
    """Copy a log that has grown too long to `log.1` and empty it; its writer need not know, because it
    appends."""
    try:
        if files.log.stat().st_size > _LOG_BYTES:
            shutil.copyfile(files.log, files.log.with_name("log.1"))
            os.truncate(files.log, 0)
    except FileNotFoundError:
        return


def _signal(files: JobFiles, number: signal.Signals = signal.SIGTERM) -> bool:
    """Send a signal to the job manager, if it is alive and on this host. As it holds the job's lock, the
    process id in the report is its own."""
    report = files.report()
    if report is None or report["host"] != os.uname().nodename or not files.is_locked():
        return False
    try:
        os.kill(report["pid"], number)
    except ProcessLookupError:
        return False
    return True
