"""Commands to a job manager: cancel, savepoint, stop. Each is done once, however often a process dies.

A command carries the epoch of the leader that gave it. One of an older leader than any that has been heard
of is refused. Savepoints go on through the job's folder under the command's id, so that a job manager which
comes back finds what became of them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from millpond.common import options
from millpond.common.job import JobClient
from millpond.dispatcher.storage import JobFiles
from millpond.driver.savepoint_requests import is_requested, read_answer, request_by_file
from millpond.errors import MillpondError


class CommandDesk:
    def __init__(self, files: JobFiles, epoch: int) -> None:
        self._files = files
        self._newest_epoch = epoch
        self._folder: str | None = None  # of the job

    def look(self, job: Any) -> None:
        """`job`: the RunningJob, or None while the program has not begun one."""
        commands = self._files.commands()
        for command in commands:
            if command["epoch"] < self._newest_epoch:
                reason = (
                    f"Leader {self._newest_epoch} has taken over from leader {command['epoch']}."
                )
                self._files.write_answer(command["id"], {"error": reason})
                continue
            self._newest_epoch = command["epoch"]
            try:
                self._do(command, job)
            except MillpondError as problem:
                self._files.write_answer(command["id"], {"error": str(problem)})

    def _do(self, command: dict[str, Any], job: Any) -> None:
        if command["kind"] == "cancel":
            self._cancel(command, job)
        elif command["kind"] in ("savepoint", "stop"):
            if job is not None:
                self._take_savepoint(command, job)
        else:
            text = f"A job manager cannot do '{command['kind']}'."
            self._files.write_answer(command["id"], {"error": text})

    def _cancel(self, command: dict[str, Any], job: JobClient | None) -> None:
        if job is None:  # the program is still at work on its graph, or hangs there
            report = self._files.report() or {}
            self._files.write_report(
                report | {"state": "CANCELED", "end-time": report["heartbeat"]}
            )
            self._files.write_answer(command["id"], {})
            os._exit(0)
        job.cancel()
        self._files.write_answer(command["id"], {})

    def _take_savepoint(self, command: dict[str, Any], job: Any) -> None:
        report = job.report()
        self._folder = report["folder"] or self._folder  # it may be gone with the job
        if self._folder is None:
            status = job.get_job_status().result()
            if status.is_terminal_state():
                self._answer_ended(command, status.name)
            elif report["settings"].get(options.EXECUTOR.key) == "direct":
                text = (
                    f"A job with {options.EXECUTOR.key}=direct has no folder, and so no savepoints."
                )
                self._files.write_answer(command["id"], {"error": text})
            return  # else it will have one in a moment
        path, is_stop = Path(self._folder), command["kind"] == "stop"
        answer = read_answer(path, command["id"])
        if answer is not None:
            self._files.write_answer(command["id"], answer)
            if (
                is_stop
                and "path" in answer
                and not job.get_job_status().result().is_terminal_state()
            ):
                job.cancel()  # the process that took it has died before it could end
        elif not is_requested(path, command["id"]):
            if job.get_job_status().result().is_terminal_state():
                self._answer_ended(command, job.get_job_status().result().name)
            else:
                request_by_file(
                    path,
                    command.get("directory"),
                    is_stop,
                    bool(command.get("drain")),
                    command["id"],
                )

    def close(self, job: Any) -> None:
        """The job has ended: whoever still waits is told."""
        if job is not None:
            self.look(job)
        for command in self._files.commands():
            self._answer_ended(command, "no longer running")

    def _answer_ended(self, command: dict[str, Any], state: str) -> None:
        if command["kind"] == "cancel":
            self._files.write_answer(command["id"], {})
        else:
            self._files.write_answer(
                command["id"], {"error": f"The job is {state}; there is nothing to save."}
            )
