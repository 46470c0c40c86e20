"""What a dispatcher can be asked for: submit, look, cancel, savepoints (O1). REST is in front of this."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from millpond.common import options
from millpond.dispatcher.leadership import Leadership
from millpond.dispatcher.storage import JobFiles, Storage, Submission
from millpond.dispatcher.supervisor import ENDED, Supervisor
from millpond.errors import DispatcherError, MillpondError
from millpond.savepoint.disposal import dispose

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+ ()-]{0,127}")
_SUFFIXES = (".py", ".zip", ".whl")
_REMEMBERED = 1000


class NoSuchThing(DispatcherError):
    """A job, application or request that is not there."""


class Refused(DispatcherError):
    """What was asked for cannot be done in the state that a job is in."""


class Dispatcher:
    """`settings`: what all jobs get unless their submission says otherwise."""

    def __init__(
        self,
        storage: Storage,
        leadership: Leadership,
        supervisor: Supervisor,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.storage = storage
        self.leadership = leadership
        self.settings = settings or {}
        self._supervisor = supervisor
        self._reports: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {}
        self._disposals: OrderedDict[str, Future[None]] = OrderedDict()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="dispatcher")
        self._lock = threading.Lock()

    # --- life ------------------------------------------------------------------------------------

    def start(self, address: str) -> None:
        """`address`: where clients reach this dispatcher."""
        self.leadership.start(address, self._supervisor.begin, self._supervisor.end)

    def close(self, suspend_jobs: bool) -> None:
        self._supervisor.end()
        if suspend_jobs and self.leadership.epoch is not None:
            self._supervisor.suspend_all()
        self.leadership.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def epoch(self) -> int:
        """Of this leader. Whoever does not lead may look, but not change anything."""
        return self.leadership.confirm()

    # --- applications ----------------------------------------------------------------------------

    def add_application(self, name: str, file: Path) -> dict[str, Any]:
        """`file` is moved."""
        self.epoch()
        return self.storage.add_application(checked_name(name), file, _now_ms())

    def remove_application(self, application_id: str) -> None:
        self.epoch()
        if not self.storage.remove_application(application_id):
            raise NoSuchThing(f"There is no application {application_id}.")

    def run_application(
        self,
        application_id: str,
        arguments: list[str],
        settings: dict[str, str],
        entry: str | None = None,
    ) -> str:
        program = self.storage.application(application_id)
        if program is None:
            raise NoSuchThing(f"There is no application {application_id}.")
        return self.submit(program, arguments, settings, entry)

    # --- jobs ------------------------------------------------------------------------------------

    def submit(
        self,
        program: Path,
        arguments: list[str],
        settings: dict[str, str],
        entry: str | None = None,
    ) -> str:
        """The id of a new job. Its program runs in a process of its own; what is wrong with it is told by the
        job's exceptions."""
        epoch = self.epoch()
        name = checked_name(program.name)
        own = {**self.settings, **settings}
        check_settings(own)
        submission = Submission(
            uuid.uuid4().hex, name, f"program/{name}", arguments, own, _now_ms(), entry
        )
        self.storage.add_job(submission, program)
        try:
            self.leadership.put_pointer(
                submission.jid, {"jid": submission.jid, "epoch": epoch}, epoch
            )
        except MillpondError:
            self.storage.remove_job(submission.jid)
            raise
        self._supervisor.look_after(submission.jid)
        return submission.jid

    def jobs(self) -> list[dict[str, Any]]:
        """Reports of all jobs, the newest first."""
        reports = [self._report(files) for files in self.storage.jobs()]
        return sorted(reports, key=lambda report: -int(report["start-time"]))

    def job(self, jid: str) -> dict[str, Any]:
        return self._report(self._files(jid))

    def files(self, jid: str) -> JobFiles:
        return self._files(jid)

    def _files(self, jid: str) -> JobFiles:
        files = self.storage.job(jid)
        if files is None:
            raise NoSuchThing(f"There is no job {jid}.")
        return files

    def _report(self, files: JobFiles) -> dict[str, Any]:
        """What the job says of itself, with what only its absence tells."""
        report = dict(self._read_report(files) or _report_before_the_first(files.submission()))
        if report["state"] in ENDED:
            return report
        report["exceptions"] = sorted(
            [*files.exceptions(), *report["exceptions"]], key=lambda own: own["timestamp"]
        )
        if not files.is_locked() and report["state"] != "SUSPENDED" and "pid" in report:
            report["state"] = "RESTARTING"
        return report

    def _read_report(self, files: JobFiles) -> dict[str, Any] | None:
        """Read again only if it has changed: there may be many jobs, and many who ask."""
        try:
            status = files.report_path.stat()
        except FileNotFoundError:
            return None
        mark = (status.st_mtime_ns, status.st_ino)
        known = self._reports.get(files.jid)
        if known is not None and known[0] == mark:
            return known[1]
        report = files.report()
        if report is not None:
            self._reports[files.jid] = (mark, report)
        return report

    # --- commands --------------------------------------------------------------------------------

    def cancel(self, jid: str) -> None:
        files = self._files(jid)
        state = self._report(files)["state"]
        if state in ENDED:
            raise Refused(f"Job {jid} is {state}; it cannot be cancelled.")
        epoch = self.epoch()
        files.command("cancel", epoch)
        if not files.is_locked():
            self._supervisor.look_after(jid)  # it is started again, and then cancelled

    def savepoint(self, jid: str, directory: str | None) -> str:
        return self._ask(jid, "savepoint", directory, drain=False)

    def stop(self, jid: str, directory: str | None, drain: bool) -> str:
        return self._ask(jid, "stop", directory, drain=drain)

    def _ask(self, jid: str, kind: str, directory: str | None, drain: bool) -> str:
        files = self._files(jid)
        state = self._report(files)["state"]
        if state in ENDED:
            raise Refused(f"Job {jid} is {state}; there is nothing to save.")
        return files.command(kind, self.epoch(), directory=directory, drain=drain)

    def answer(self, jid: str, request_id: str) -> dict[str, Any] | None:
        """None while there is none. {"path"} or {"error"}."""
        files = self._files(jid)
        if not files.has_command(request_id):
            raise NoSuchThing(f"Nobody has asked job {jid} for {request_id}.")
        answer = files.answer(request_id)
        if answer is None and self._report(files)["state"] in ENDED and not files.is_locked():
            answer = files.answer(request_id) or {"error": "The job ended before it was done."}
        return answer

    def dispose(self, path: str) -> str:
        """Delete a savepoint, in the background; the id under which the answer can be had."""
        self.epoch()
        request_id = uuid.uuid4().hex
        with self._lock:
            self._disposals[request_id] = self._workers.submit(dispose, Path(path))
            while len(self._disposals) > _REMEMBERED:
                self._disposals.popitem(last=False)
        return request_id

    def disposal(self, request_id: str) -> dict[str, Any] | None:
        future = self._disposals.get(request_id)
        if future is None:
            raise NoSuchThing(f"Nobody has asked for the disposal {request_id}.")
        if not future.done():
            return None
        problem = future.exception()
        return {} if problem is None else {"error": str(problem)}


def checked_name(name: str) -> str:
    """The name of an uploaded file: nothing that could lead elsewhere."""
    if _NAME.fullmatch(name) is None or not name.lower().endswith(_SUFFIXES):
        raise DispatcherError(
            f"'{name[:100]}' cannot be an application: its name must end in {', '.join(_SUFFIXES)}, and "
            "have only letters, digits, spaces and . _ + - ( )."
        )
    return name


def check_settings(settings: dict[str, str]) -> None:
    """What can be seen to be wrong before anything is started."""
    parallelism = settings.get(options.PARALLELISM.key, "0")
    if not parallelism.isdigit() or int(parallelism) > 32768:
        raise DispatcherError(
            f"The parallelism must be a number up to 32768, not '{parallelism[:100]}'."
        )
    savepoint = settings.get(options.SAVEPOINT_PATH.key)
    if savepoint and not (Path(savepoint) / "manifest.json").is_file():
        raise DispatcherError(f"There is no savepoint in {savepoint[:500]}.")


def _report_before_the_first(submission: Submission) -> dict[str, Any]:
    from millpond.dispatcher.job_manager import empty_report

    report = empty_report(submission, submission.submitted)
    return report | {"jid": submission.jid, "heartbeat": submission.submitted}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
