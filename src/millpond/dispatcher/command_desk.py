"""Commands to a job manager: cancel, savepoint, stop. Each is done once, however often a process dies.

A command carries the leader epoch of the dispatcher that gave it. It is refused if a command with a higher
epoch has already been seen. Savepoints are requested through the job folder under the command's id, so that a
restarted job manager finds out what became of them.
"""

from __future__ import annotations

import os
from pathlib import Path

from millpond.common import options
from millpond.common.job import JobClient, JobStatus
from millpond.dispatcher.messages import Command
from millpond.dispatcher.storage import JobFiles
from millpond.driver.savepoint_requests import is_requested, read_answer, request_by_file
from millpond.errors import MillpondError


class CommandDesk:
    """Carries out the commands that dispatchers leave for one job, and writes the answers.

    `epoch` is that of the leader that started the job manager. Only one thread may use a desk at a time."""

    def __init__(self, files: JobFiles, epoch: int) -> None:
        self._files = files
        self._newest_epoch = epoch
        self._folder: str | None = None  # the job folder

    def look(self, job: JobClient | None) -> None:
        """Carry out the commands that have no answer yet. `job` is None as long as the program has not
        started one; savepoints wait for it."""
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

    def _do(self, command: Command, job: JobClient | None) -> None:
        if command["kind"] == "cancel":
            self._cancel(command, job)
        elif command["kind"] in ("savepoint", "stop"):
            if job is not None:
                self._take_savepoint(command, job)
        else:
            text = f"A job manager does not know the command '{command['kind']}'."
            self._files.write_answer(command["id"], {"error": text})

    def _cancel(self, command: Command, job: JobClient | None) -> None:
        if job is None:  # the program is still building its graph, or hangs there
            report = self._files.report() or {}
            self._files.write_report(
                report | {"state": JobStatus.CANCELED.name, "end-time": report["heartbeat"]}
            )
            self._files.write_answer(command["id"], {})
            os._exit(0)
        job.cancel()
        self._files.write_answer(command["id"], {})

    def _take_savepoint(self, command: Command, job: JobClient) -> None:
        report = job.report()
        self._folder = report["folder"] or self._folder  # the report of an ended job may lack it
        if self._folder is None:
            status = job.get_job_status().result()
            if status.is_terminal_state():
                self._answer_ended(command, status.name)
            elif report["settings"].get(options.EXECUTOR.key) == "direct":
                text = (
                    f"A job with {options.EXECUTOR.key}=direct has no job folder, so it cannot take "
                    "savepoints."
                )
                self._files.write_answer(command["id"], {"error": text})
            return  # otherwise the job is about to get its folder
        path, is_stop = Path(self._folder), command["kind"] == "stop"
        answer = read_answer(path, command["id"])
        if answer is not None:
            self._files.write_answer(command["id"], answer)
            if (
                is_stop
                and "path" in answer
                and not job.get_job_status().result().is_terminal_state()
            ):
                job.cancel()  # the process that took the savepoint died before it could end the job
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

    def close(self, job: JobClient | None) -> None:
        """Answer all commands that are left, because the job has ended. `job` is None if the program never
        started one."""
        if job is not None:
            self.look(job)
        for command in self._files.commands():
            self._answer_ended(command, "no longer running")

    def _answer_ended(self, command: Command, state: str) -> None:
        if command["kind"] == "cancel":
            self._files.write_answer(command["id"], {})
        else:
            self._files.write_answer(
                command["id"], {"error": f"The job is {state}; there is nothing to save."}
            )
