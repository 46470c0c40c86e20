"""What a dispatcher can be asked for: to submit, show, cancel and save jobs (O1). REST builds on this."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from millpond.common import options
from millpond.common.job import JobStatus
from millpond.dispatcher.leadership import Leadership
from millpond.dispatcher.messages import Answer, ApplicationMeta, Report, has_ended
from millpond.dispatcher.storage import JobFiles, Storage, Submission
from millpond.dispatcher.supervisor import Supervisor
from millpond.errors import DispatcherError, MillpondError
from millpond.savepoint.disposal import dispose

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+ ()-]{0,127}")
_SUFFIXES = (".py", ".zip", ".whl")
_REMEMBERED = 1000


class NoSuchThing(DispatcherError):
    """There is no such job, application or request."""


class Refused(DispatcherError):
    """What was asked for cannot be done in the job's present state."""


class Dispatcher:
    """One of the dispatchers that share a storage. All of them show jobs; only the leader changes anything.

    `settings` are those that all jobs get unless their submission says otherwise. REST calls it
    from many threads."""

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
        self._reports: dict[str, tuple[tuple[int, int], Report]] = {}
        self._disposals: OrderedDict[str, Future[None]] = OrderedDict()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="dispatcher")
        self._lock = threading.Lock()

    # --- life ------------------------------------------------------------------------------------

    def start(self, address: str) -> None:
        """Take part in leadership. `address` is where clients reach this dispatcher."""
        self.leadership.start(address, self._supervisor.begin, self._supervisor.end)

    def close(self, suspend_jobs: bool) -> None:
        """Give up leadership. With `suspend_jobs`, a leader ends all job managers first; otherwise they
        live on."""
        self._supervisor.end()
        if suspend_jobs and self.leadership.epoch is not None:
            self._supervisor.suspend_all()
        self.leadership.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    def epoch(self) -> int:
        """Return the leader epoch of this dispatcher. Raise LeadershipLost if it does not lead, in which case
        it must not change anything."""
        return self.leadership.confirm()

    # --- applications ----------------------------------------------------------------------------

    def add_application(self, name: str, file: Path) -> ApplicationMeta:
        """Store an uploaded program under `name`, and return what is known about it. `file` is moved. Raise
        DispatcherError if the name is not that of a program."""
        self.epoch()
        return self.storage.add_application(checked_name(name), file, _now_ms())

    def remove_application(self, application_id: str) -> None:
        """Delete an uploaded program; its jobs have copies. Raise NoSuchThing if there is none with this
        id."""
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
        """Submit an uploaded program, as `submit` does. Raise NoSuchThing if there is none with this id."""
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
        """Start a job and return its id. The program runs in a process of its own; if it fails, the job's
        exceptions say why. `entry` is the module to run if the program is an archive. Raise DispatcherError
        if the name of the program or the settings are wrong."""
        epoch = self.epoch()
        name = checked_name(program.name)
        job_settings = {**self.settings, **settings}
        check_settings(job_settings)
        submission = Submission(
            uuid.uuid4().hex, name, f"program/{name}", arguments, job_settings, _now_ms(), entry
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

    def jobs(self) -> list[Report]:
        """Return the reports of all jobs, newest first."""
        reports = [self._report(files) for files in self.storage.jobs()]
        return sorted(reports, key=lambda report: -int(report["start-time"]))

    def job(self, jid: str) -> Report:
        """Return the report of a job. Raise NoSuchThing if there is no such job."""
        return self._report(self._files(jid))

    def files(self, jid: str) -> JobFiles:
        """Return the files of a job. Raise NoSuchThing if there is no such job."""
        return self._files(jid)

    def _files(self, jid: str) -> JobFiles:
        files = self.storage.job(jid)
        if files is None:
            raise NoSuchThing(f"There is no job {jid}.")
        return files

    def _report(self, files: JobFiles) -> Report:
        """Return the job's own report, corrected by what a dead job manager cannot report."""
        report = dict(self._read_report(files) or _report_before_the_first(files.submission()))
        status = JobStatus.of(report)
        if status.is_globally_terminal_state():
            return report
        report["exceptions"] = sorted(
            [*files.exceptions(), *report["exceptions"]],
            key=lambda exception: exception["timestamp"],
        )
        if not files.is_locked() and status is not JobStatus.SUSPENDED and "pid" in report:
            report["state"] = JobStatus.RESTARTING.name
        return report

    def _read_report(self, files: JobFiles) -> Report | None:
        """Read the report again only if it has changed, because there may be many jobs and many clients."""
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
        """Tell a job to end without a savepoint; do not wait for it. Raise Refused if it has ended."""
        files = self._files(jid)
        report = self._report(files)
        if has_ended(report):
            raise Refused(f"Job {jid} is {report['state']}; it cannot be cancelled.")
        epoch = self.epoch()
        files.command("cancel", epoch)
        if not files.is_locked():
            self._supervisor.look_after(jid)  # the job must be started before it can be cancelled

    def savepoint(self, jid: str, directory: str | None) -> str:
        """Tell a job to take a savepoint, and return the id for `answer`. It is written below `directory`, or
        below the job's default folder if that is None. Raise Refused if the job has ended."""
        return self._ask(jid, "savepoint", directory, drain=False)

    def stop(self, jid: str, directory: str | None, drain: bool) -> str:
        """Tell a job to end with a savepoint, as `savepoint` does. With `drain`, event time ends first, so
        that all its timers fire."""
        return self._ask(jid, "stop", directory, drain=drain)

    def _ask(self, jid: str, kind: str, directory: str | None, drain: bool) -> str:
        files = self._files(jid)
        report = self._report(files)
        if has_ended(report):
            raise Refused(f"Job {jid} is {report['state']}; there is nothing to save.")
        return files.command(kind, self.epoch(), directory=directory, drain=drain)

    def answer(self, jid: str, request_id: str) -> Answer | None:
        """Return what became of a request to a job; None as long as it is being worked on. Raise NoSuchThing
        if there was no such request."""
        files = self._files(jid)
        if not files.has_command(request_id):
            raise NoSuchThing(f"Job {jid} has no request {request_id}.")
        answer = files.answer(request_id)
        if answer is None and has_ended(self._report(files)) and not files.is_locked():
            answer = files.answer(request_id) or {
                "error": "The job ended before the request was carried out."
            }
        return answer

    def dispose(self, path: str) -> str:
        """Delete a savepoint in the background, and return the id for `disposal`."""
        self.epoch()
        request_id = uuid.uuid4().hex
        with self._lock:
            self._disposals[request_id] = self._workers.submit(dispose, Path(path))
            while len(self._disposals) > _REMEMBERED:
                self._disposals.popitem(last=False)
        return request_id

    def disposal(self, request_id: str) -> Answer | None:
        """Return what became of a `dispose`: an error or nothing; None as long as it is being worked on.
        Raise NoSuchThing for an unknown id; the newest 1000 are remembered."""
        future = self._disposals.get(request_id)
        if future is None:
            raise NoSuchThing(f"There is no disposal request {request_id}.")
        if not future.done():
            return None
        problem = future.exception()
        return {} if problem is None else {"error": str(problem)}


def checked_name(name: str) -> str:
    """Return the name of a program's file if it is harmless, so that it cannot lead to another folder; raise
    DispatcherError otherwise."""
    if _NAME.fullmatch(name) is None or not name.lower().endswith(_SUFFIXES):
        raise DispatcherError(
            f"'{name[:100]}' cannot be the name of an application: it must end in one of "
            f"{', '.join(_SUFFIXES)} and contain only letters, digits, spaces and . _ + - ( )."
        )
    return name


def check_settings(settings: dict[str, str]) -> None:
    """Raise DispatcherError if settings are wrong in a way that can be seen before anything is started."""
    parallelism = settings.get(options.PARALLELISM.key, "0")
    if not parallelism.isdigit() or int(parallelism) > 32768:
        raise DispatcherError(
            f"The parallelism must be a number up to 32768, not '{parallelism[:100]}'."
        )
    savepoint = settings.get(options.SAVEPOINT_PATH.key)
    if savepoint and not (Path(savepoint) / "manifest.json").is_file():
        raise DispatcherError(f"There is no savepoint in {savepoint[:500]}.")


def _report_before_the_first(submission: Submission) -> Report:
    from millpond.dispatcher.job_manager import empty_report

    report = empty_report(submission, submission.submitted)
    return report | {"jid": submission.jid, "heartbeat": submission.submitted}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
