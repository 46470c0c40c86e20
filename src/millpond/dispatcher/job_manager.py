"""The process of one job: runs its program, which becomes the Spark driver; reports; takes commands (O2).

    python -m millpond.dispatcher.job_manager JOB_FOLDER EPOCH

It holds the lock in the job's folder as long as it lives. A thread writes what the job says of itself twice a
second and looks for commands. The process needs no dispatcher: one may die, and another one may come.
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
from typing import Any

from millpond.common import options
from millpond.common.job import JobStatus
from millpond.datastream.stream_execution_environment import DEFAULTS_VARIABLE, SETTINGS_VARIABLE
from millpond.dispatcher.command_desk import CommandDesk
from millpond.dispatcher.storage import JobFiles, Submission
from millpond.driver import running_job
from millpond.driver.running_job import RunningJob
from millpond.errors import JobCancelledError, MillpondError, ProgramError

IS_TAKEN = 75  # exit code: another process runs this job
_LOOK_EVERY_S = 0.2
_REPORT_EVERY_S = 0.5
# What is shown while the job has ended but its program has not.
_NOT_YET = {"FINISHED": "RUNNING", "CANCELED": "CANCELLING", "FAILED": "FAILING"}
_ARCHIVES = (".zip", ".whl")


class JobManager:
    def __init__(self, files: JobFiles, epoch: int) -> None:
        self._files = files
        self._submission = files.submission()
        self._job: RunningJob | None = None
        self._started_ms = _now_ms()
        self._problem: dict[str, Any] | None = None  # of the program, outside of its job
        self._desk = CommandDesk(files, epoch)
        self._ended = threading.Event()
        self._lock = threading.Lock()  # one report is written at a time

    def run(self) -> int:
        """The exit code: 0 if the job finished or was cancelled."""
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
        state = self._write_report()
        return 0 if state in ("FINISHED", "CANCELED") else 1

    def suspend(self, signal_number: int, _: FrameType | None) -> None:
        """Asked to end: at once. The job is as durable as ever, and goes on when it is started again."""
        with self._lock:
            report = self._report()
            if report["state"] not in ("FINISHED", "CANCELED", "FAILED"):
                self._files.write_report(report | {"state": "SUSPENDED"})
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
                raise ProgramError(f"The program ended itself with {ended.code}.") from None
        if self._job is None:
            raise ProgramError(
                "The program has ended without a job: it never called execute() or execute_async()."
            )
        self._job.get_job_execution_result().result()  # of execute_async

    def _job_begins(self, job: RunningJob) -> None:
        before = self._job
        if before is not None and not before.get_job_status().result().is_terminal_state():
            raise ProgramError(
                "A program that a dispatcher runs can have one job at a time; this one begins another while "
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
            return  # its own report tells
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
        reported_s, state = 0.0, ""
        while not self._ended.wait(_LOOK_EVERY_S):
            try:
                self._desk.look(self._job)
                now_s, now_state = time.monotonic(), self._state()
                if now_s - reported_s >= _REPORT_EVERY_S or now_state != state:
                    self._write_report()
                    reported_s, state = now_s, now_state
            except Exception:  # a full disk, a shared folder that is away: the job goes on
                traceback.print_exc()

    def _state(self) -> str:
        if self._job is None:
            return "INITIALIZING"
        return self._job.get_job_status().result().name

    def _write_report(self) -> str:
        with self._lock:
            report = self._report()
            self._files.write_report(report)
            return str(report["state"])

    def _report(self) -> dict[str, Any]:
        report = empty_report(self._submission, self._started_ms)
        if self._job is not None:
            try:
                report |= self._job.report()
            except Exception:  # a job that cannot describe itself must still be seen to end
                traceback.print_exc()
                report["state"] = self._state()
        if self._ended.is_set():
            if self._problem is not None:
                report["state"] = "FAILED"
                report["exceptions"] = [*report["exceptions"], self._problem]
            if report["end-time"] < 0:
                report["end-time"] = _now_ms()
        else:
            report["state"] = _NOT_YET.get(report["state"], report["state"])
        now_ms = _now_ms()
        report |= {
            "jid": self._submission.jid,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "heartbeat": now_ms,
            "last-modification": now_ms,
        }
        return report


def empty_report(submission: Submission, started_ms: int) -> dict[str, Any]:
    """Of a program that has no job yet."""
    return {
        "name": submission.name,
        "state": "INITIALIZING",
        "job-type": "STREAMING",
        "start-time": submission.submitted or started_ms,
        "end-time": -1,
        "timestamps": {status.name: 0 for status in JobStatus}
        | {"INITIALIZING": submission.submitted or started_ms},
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
    """The submission's settings win over the program's, those over what a dispatcher gives by default."""
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
    files, epoch = JobFiles(Path(arguments[0])), int(arguments[1])
    lock = files.take_lock()  # never given back: the kernel does that when the process ends
    if lock is None:
        return IS_TAKEN
    manager = JobManager(files, epoch)
    signal.signal(signal.SIGTERM, manager.suspend)
    return manager.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
