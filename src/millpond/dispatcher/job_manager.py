"""The process of one job: runs the program, which becomes the Spark driver, reports, and takes commands (O2).

    python -m millpond.dispatcher.job_manager FOLDER EPOCH

FOLDER is the job's folder in the dispatcher's storage; the process holds the lock there as long as it lives.
A thread writes the job report twice a second and looks for commands. The process does not need a dispatcher:
one may die, and another may take its place.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from millpond.common import options
from millpond.common.job import JobStatus
from millpond.datastream.stream_execution_environment import DEFAULTS_VARIABLE, SETTINGS_VARIABLE
from millpond.dispatcher.command_desk import CommandDesk
from millpond.dispatcher.messages import ExceptionEntry, Report, has_ended
from millpond.dispatcher.storage import JobFiles, Submission
from millpond.driver import running_job
from millpond.driver.running_job import RunningJob
from millpond.errors import JobCancelledError, MillpondError, ProgramError

IS_TAKEN = 75  # the exit code if another process runs this job
_LOOK_EVERY_S = 0.2
_REPORT_EVERY_S = 0.5
# The state that is reported while the job has ended but its program has not.
_NOT_YET = {
    JobStatus.FINISHED: JobStatus.RUNNING,
    JobStatus.CANCELED: JobStatus.CANCELLING,
    JobStatus.FAILED: JobStatus.FAILING,
}
_ARCHIVES = (".zip", ".whl")


class JobManager:
    """Runs the program that was submitted as a job. Whoever makes one must hold the lock of `files`.

    `epoch` is that of the leader that started this process; commands of earlier leaders are refused."""

    def __init__(self, files: JobFiles, epoch: int) -> None:
        self._files = files
        self._submission = files.submission()
        self._job: RunningJob | None = None
        self._started_ms = _now_ms()
        self._problem: ExceptionEntry | None = None  # raised by the program outside of its job
        self._desk = CommandDesk(files, epoch)
        self._ended = threading.Event()
        self._lock = threading.Lock()  # so that one report is written at a time

    def run(self) -> int:
        """Run the program until it has ended, and return the exit code: 0 if the job has finished or was
        cancelled, else 1."""
        running_job.listeners.append(self._job_begins)
        self._write_report()
        attending = threading.Thread(target=self._attend, name="job-manager", daemon=True)
        attending.start()
        try:
            self._run_program()
        except BaseException as problem:  # whatever the program raises is reported
            self._note(problem)
        self._ended.set()
        attending.join()
        self._desk.close(self._job)
        status = self._write_report()
        return 0 if status in (JobStatus.FINISHED, JobStatus.CANCELED) else 1

    def suspend(self, signal_number: int, _: FrameType | None) -> None:
        """Handle a signal to end: report SUSPENDED and exit at once. The job continues from its newest
        checkpoint when it is started again."""
        with self._lock:
            report = self._report()
            if not has_ended(report):
                self._files.write_report(report | {"state": JobStatus.SUSPENDED.name})
            os._exit(128 + signal_number)

    # --- the program -----------------------------------------------------------------------------

    def _run_program(self) -> None:
        submission = self._submission
        program = self._files.path / submission.program
        _set_environment(self._files, submission, program)
        sys.argv = [str(program), *submission.arguments]
        is_archive = program.suffix in _ARCHIVES
        sys.path.insert(0, str(program if is_archive else program.parent))
        try:
            if submission.entry is not None:
                runpy.run_module(submission.entry, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(str(program), run_name="__main__")
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise ProgramError(f"The program exited with {ended.code}.") from None
        if self._job is None:
            raise ProgramError(
                "The program ended without starting a job: it never called execute() or execute_async()."
            )
        self._job.get_job_execution_result().result()  # execute_async does not wait for it

    def _job_begins(self, job: RunningJob) -> None:
        before = self._job
        if before is not None and not before.get_job_status().result().is_terminal_state():
            raise ProgramError(
                "Under a dispatcher, a program can run one job at a time. This program starts another while "
                f"'{before.report()['name']}' is running. Submit them as two programs."
            )
        self._job = job

    def _note(self, problem: BaseException) -> None:
        job = self._job
        if job is not None and job.get_job_status().result() in (
            JobStatus.FAILED,
            JobStatus.CANCELED,
        ):
            if not isinstance(problem, JobCancelledError):
                print(f"{type(problem).__name__}: {problem}", file=sys.stderr)
            return  # the job's own report has it
        is_own = isinstance(problem, MillpondError)
        text = str(problem) if is_own else traceback.format_exc()
        print(f"{type(problem).__name__}: {text}" if is_own else text, file=sys.stderr)
        self._problem = {
            "timestamp": _now_ms(),
            "exceptionName": f"{type(problem).__module__}.{type(problem).__qualname__}",
            "stacktrace": text[-20_000:],
            "taskName": None,
        }

    # --- reports and commands --------------------------------------------------------------------

    def _attend(self) -> None:
        reported_s = 0.0
        status: JobStatus | None = None
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self._desk.look(self._job)
                now_s, now_status = time.monotonic(), self._status()
                if now_s - reported_s >= _REPORT_EVERY_S or now_status is not status:
                    self._write_report()
                    reported_s, status = now_s, now_status
            except Exception:
                # The job goes on in spite of a full disk or an unreachable shared folder.
                traceback.print_exc()

    def _status(self) -> JobStatus:
        if self._job is None:
            return JobStatus.INITIALIZING
        return self._job.get_job_status().result()

    def _write_report(self) -> JobStatus:
        with self._lock:
            report = self._report()
            self._files.write_report(report)
            return JobStatus.of(report)

    def _report(self) -> Report:
        report = empty_report(self._submission, self._started_ms)
        if self._job is not None:
            try:
                report |= self._job.report()
            except Exception:  # even if a job cannot describe itself, its end must be visible
                traceback.print_exc()
                report["state"] = self._status().name
        if self._ended.is_set():
            if self._problem is not None:
                report["state"] = JobStatus.FAILED.name
                report["exceptions"] = [*report["exceptions"], self._problem]
            if report["end-time"] < 0:
                report["end-time"] = _now_ms()
        else:
            status = JobStatus.of(report)
            report["state"] = _NOT_YET.get(status, status).name
        now_ms = _now_ms()
        report |= {
            "jid": self._submission.jid,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "heartbeat": now_ms,
            "last-modification": now_ms,
        }
        return report


def empty_report(submission: Submission, started_ms: int) -> Report:
    """Return the report of a program that has not started a job yet. `started_ms` counts as its start if the
    submission does not say when it was submitted."""
    return {
        "name": submission.name,
        "state": JobStatus.INITIALIZING.name,
        "job-type": "STREAMING",
        "start-time": submission.submitted or started_ms,
        "end-time": -1,
        "timestamps": {status.name: 0 for status in JobStatus}
        | {JobStatus.INITIALIZING.name: submission.submitted or started_ms},
        "restarts": 0,
        "attempt": 0,
        "folder": None,
        "parallelism": 0,
        "max-parallelism": 0,
        "restart-strategy": "",
        "settings": submission.settings,
        "vertices": [],
        "checkpoints": {
            "counts": dict.fromkeys(("restored", "total", "in_progress", "completed", "failed"), 0),
            "history": [],
        },
        "savepoints": [],
        "exceptions": [],
        "metrics": {},
        "flow": {},
        "executors": [],
        "queryable": {},
    }


def _set_environment(files: JobFiles, submission: Submission, program: Path) -> None:
    """Pass settings to the program through its environment. The submission's settings override the
    program's, and those override the dispatcher's defaults."""
    settings = dict(submission.settings)
    settings[options.JOB_ID.key] = submission.jid
    if program.suffix in _ARCHIVES:
        files_before = settings.get(options.PYTHON_FILES.key)
        settings[options.PYTHON_FILES.key] = ",".join(filter(None, (files_before, str(program))))
    savepoints = files.path.parent.parent / "savepoints"
    defaults = {
        options.CHECKPOINT_DIR.key: str(files.checkpoints),
        options.SAVEPOINT_DIR.key: str(savepoints),
    }
    os.environ[DEFAULTS_VARIABLE] = json.dumps(defaults)
    os.environ[SETTINGS_VARIABLE] = json.dumps(settings)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def main(arguments: list[str]) -> int:
    """Run the job in the folder `arguments[0]` for the leader with epoch `arguments[1]`, and return the exit
    code: that of `JobManager.run`, or IS_TAKEN."""
    files, epoch = JobFiles(Path(arguments[0])), int(arguments[1])
    lock = files.take_lock()  # never released; the kernel does that when the process ends
    if lock is None:
        return IS_TAKEN
    manager = JobManager(files, epoch)
    signal.signal(signal.SIGTERM, manager.suspend)
    return manager.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
