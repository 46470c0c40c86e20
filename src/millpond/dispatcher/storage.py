"""The dispatcher's storage: a folder that all dispatchers and job managers can reach.

    applications/ID/        meta.json and the uploaded file
    jobs/JID/job.json       what was submitted; written once, so that a job exists completely or not at all
    jobs/JID/program/       a copy of the program
    jobs/JID/lock           held by the job manager as long as it lives
    jobs/JID/report.json    the job report, written by the job manager (docs/job-report.md)
    jobs/JID/commands/      ID.json, written by the dispatcher
    jobs/JID/answers/       ID.json, written by the job manager
    jobs/JID/exceptions.json  deaths of job managers, which they could not report themselves
    jobs/JID/checkpoints/   execution.checkpointing.dir, unless the submission names another folder
    jobs/JID/log            what the job manager prints

Every JSON file has a "format", is written to a temporary file and renamed, and is private to the user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

from millpond.common.file_lock import is_held, try_lock
from millpond.dispatcher.messages import (
    Answer,
    ApplicationMeta,
    Command,
    ExceptionEntry,
    Json,
    Report,
)
from millpond.errors import DispatcherError

FORMAT = 1
_ID = re.compile(r"[0-9a-f]{32}")
_MOST_EXCEPTIONS = 20
_LOCK = "lock"


def is_job_id(text: str) -> bool:
    """Return True if `text` has the form of a job id: 32 hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write `content`, with a format version, to a temporary file, sync it and rename it to `path`, so that
    readers see either the old or the new content."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def read_json(path: Path) -> Json | None:
    """Return the content of a file that `write_json` has written, format version included; None if there is
    no such file. Raise DispatcherError if it is damaged or has an unknown format."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as problem:
        raise DispatcherError(f"{path} is damaged: {problem}.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DispatcherError(
            f"{path} has a format that this release of Millpond does not know; another release wrote it."
        )
    return content


@dataclass(frozen=True)
class Submission:
    """What was submitted; it never changes. `program` is a path relative to the job's folder in the storage,
    `submitted` a time in milliseconds, and `entry` the module to run if the program is an archive."""

    jid: str
    name: str
    program: str
    arguments: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    submitted: int = 0
    entry: str | None = None


class JobFiles:
    """The files of one job in the storage; `path` is their folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def jid(self) -> str:
        """The id of the job."""
        return self.path.name

    @property
    def log(self) -> Path:
        """The file with what the job manager prints; it may not exist yet."""
        return self.path / "log"

    @property
    def checkpoints(self) -> Path:
        """The folder for checkpoints, used unless the submission names another one."""
        return self.path / "checkpoints"

    def submission(self) -> Submission:
        """Return what was submitted. Raise DispatcherError if there is no job in the folder."""
        content = read_json(self.path / "job.json")
        if content is None:
            raise DispatcherError(f"There is no job in {self.path}.")
        content.pop("format")
        return Submission(**content)

    # --- reports ---------------------------------------------------------------------------------

    @property
    def report_path(self) -> Path:
        """The file with the job report; it does not exist before the job manager has started."""
        return self.path / "report.json"

    def write_report(self, report: Report) -> None:
        """Replace the job report. Only for the process that holds the lock."""
        write_json(self.report_path, report)

    def report(self) -> Report | None:
        """Return the newest job report as the job manager wrote it; None if it has not written one yet."""
        return read_json(self.report_path)

    def add_exception(self, entry: ExceptionEntry) -> None:
        """Keep an exception that the job manager could not report because it was dead. The oldest ones are
        dropped beyond 20."""
        entries = [*self.exceptions(), entry][-_MOST_EXCEPTIONS:]
        write_json(self.path / "exceptions.json", {"exceptions": entries})

    def exceptions(self) -> list[ExceptionEntry]:
        """Return what `add_exception` has kept, oldest first. The job report has the job's own exceptions."""
        content = read_json(self.path / "exceptions.json")
        return [] if content is None else list(content["exceptions"])

    # --- commands --------------------------------------------------------------------------------

    def command(self, kind: str, epoch: int, **content: str | bool | None) -> str:
        """Leave a command for the job manager, and return the id under which it will be answered. `content`
        holds further fields of `Command`."""
        command_id = uuid.uuid4().hex
        folder = self.path / "commands"
        folder.mkdir(mode=0o700, exist_ok=True)
        command = {"id": command_id, "kind": kind, "epoch": epoch, **content}
        write_json(folder / f"{command_id}.json", command)
        return command_id

    def commands(self) -> list[Command]:
        """Return the commands that have not been answered, oldest first."""
        found: list[tuple[int, Command]] = []
        for path in (self.path / "commands").glob("*.json"):
            if not self._answer_path(path.stem).exists():
                content = read_json(path)
                if content is not None:
                    found.append((path.stat().st_mtime_ns, cast(Command, content)))
        return [content for _, content in sorted(found, key=lambda dated: dated[0])]

    def has_command(self, command_id: str) -> bool:
        """Return True if such a command was given, answered or not. Any text may be asked about."""
        return _ID.fullmatch(command_id) is not None and (
            (self.path / "commands" / f"{command_id}.json").exists()
        )

    def write_answer(self, command_id: str, answer: Mapping[str, object]) -> None:
        """Answer a command with the fields of an `Answer`; it is then no longer among `commands`."""
        (self.path / "answers").mkdir(mode=0o700, exist_ok=True)
        write_json(self._answer_path(command_id), answer)

    def answer(self, command_id: str) -> Answer | None:
        """Return the answer to a command; None if there is none yet."""
        return cast("Answer | None", read_json(self._answer_path(command_id)))

    def _answer_path(self, command_id: str) -> Path:
        return self.path / "answers" / f"{command_id}.json"

    # --- the job manager's lock ------------------------------------------------------------------

    def take_lock(self) -> int | None:
        """Take the lock that only a job manager may hold, and return its file descriptor; None if another
        process has the lock. The kernel frees the lock when the process ends, however it ends."""
        return try_lock(self.path / _LOCK)

    def is_locked(self) -> bool:
        """Return True while a job manager of this job is alive."""
        return is_held(self.path / _LOCK)


class Storage:
    """The storage folder; see the top of this file. It is created if it does not exist."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._jobs = self.root / "jobs"
        self._applications = self.root / "applications"
        for folder in (self.root, self._jobs, self._applications):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # --- jobs ------------------------------------------------------------------------------------

    def add_job(self, submission: Submission, program: Path) -> JobFiles:
        """Store a new job with a copy of its program. The job appears as a whole or not at all."""
        aside = self._jobs / f".{submission.jid}"
        (aside / "program").mkdir(parents=True, mode=0o700)
        shutil.copy2(program, aside / submission.program)
        write_json(aside / "job.json", asdict(submission))
        os.rename(aside, self._jobs / submission.jid)
        return JobFiles(self._jobs / submission.jid)

    def remove_job(self, jid: str) -> None:
        """Delete a job that was never started."""
        shutil.rmtree(self._jobs / jid, ignore_errors=True)

    def job(self, jid: str) -> JobFiles | None:
        """Return the files of a job; None if there is no such job. Any text may be asked about."""
        if not is_job_id(jid) or not (self._jobs / jid / "job.json").exists():
            return None
        return JobFiles(self._jobs / jid)

    def jobs(self) -> list[JobFiles]:
        """Return the files of all jobs, including those that have ended, in no particular order."""
        return [JobFiles(path) for path in self._jobs.iterdir() if is_job_id(path.name)]

    # --- applications ----------------------------------------------------------------------------

    def add_application(self, name: str, file: Path, uploaded_ms: int) -> ApplicationMeta:
        """Store an uploaded program and return what is known about it. `file` is moved. As in Flink, the id
        consists of a unique part and the name."""
        application_id = f"{uuid.uuid4()}_{name}"
        aside = self._applications / f".{application_id}"
        aside.mkdir(mode=0o700)
        os.replace(file, aside / name)
        meta: ApplicationMeta = {"id": application_id, "name": name, "uploaded": uploaded_ms}
        write_json(aside / "meta.json", meta)
        os.rename(aside, self._applications / application_id)
        return meta

    def upload_path(self) -> Path:
        """Return a new path to which an upload can be written before `add_application` moves it."""
        return self._applications / f".upload-{uuid.uuid4().hex}"

    def applications(self) -> list[ApplicationMeta]:
        """Return all uploaded programs, newest first."""
        found: list[ApplicationMeta] = []
        for path in self._applications.iterdir():
            meta = None if path.name.startswith(".") else read_json(path / "meta.json")
            if meta is not None:
                found.append(cast(ApplicationMeta, meta))
        return sorted(found, key=lambda meta: -int(meta["uploaded"]))

    def application(self, application_id: str) -> Path | None:
        """Return the file of an uploaded program; None if there is none with this id. The id is compared with
        those that are listed, so that no path is ever built from what a client sends."""
        for meta in self.applications():
            if meta["id"] == application_id:
                return self._applications / str(meta["id"]) / str(meta["name"])
        return None

    def remove_application(self, application_id: str) -> bool:
        """Delete an uploaded program; return False if there is none with this id. Jobs have copies."""
        path = self.application(application_id)
        if path is None:
            return False
        shutil.rmtree(path.parent)
        return True
