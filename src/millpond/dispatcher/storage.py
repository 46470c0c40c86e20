"""The dispatcher's storage: a folder that all dispatchers and job managers see.

    applications/ID/        meta.json, and the uploaded file
    jobs/JID/job.json       what was submitted; written once, so a job is there or is not
    jobs/JID/program/       a copy of the program
    jobs/JID/lock           held by the job manager as long as it lives
    jobs/JID/report.json    by the job manager (docs/job-report.md)
    jobs/JID/commands/      ID.json, by the dispatcher
    jobs/JID/answers/       ID.json, by the job manager
    jobs/JID/exceptions.json  ends of job managers that nobody could report from inside
    jobs/JID/checkpoints/   execution.checkpointing.dir, unless the submission names another one
    jobs/JID/log            what the job manager prints

Every JSON file has a "format", is written aside and renamed, and is private to the user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from millpond.common.file_lock import is_held, try_lock
from millpond.errors import DispatcherError

FORMAT = 1
_ID = re.compile(r"[0-9a-f]{32}")
_MOST_EXCEPTIONS = 20
_LOCK = "lock"


def is_job_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Aside, synced, renamed: whoever reads finds the old or the new content."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **content}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)


def read_json(path: Path) -> dict[str, Any] | None:
    """None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as problem:
        raise DispatcherError(f"{path} is damaged: {problem}.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DispatcherError(
            f"{path} has a format that this release does not know: it was written by another one."
        )
    return content


@dataclass(frozen=True)
class Submission:
    """What was asked for, once and for all. `program` is a path below the job's folder; `entry` the module to
    run if the program is an archive."""

    jid: str
    name: str
    program: str
    arguments: list[str] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    submitted: int = 0
    entry: str | None = None


class JobFiles:
    """The files of one job."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def jid(self) -> str:
        return self.path.name

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def submission(self) -> Submission:
        content = read_json(self.path / "job.json")
        if content is None:
            raise DispatcherError(f"There is no job in {self.path}.")
        content.pop("format")
        return Submission(**content)

    # --- reports ---------------------------------------------------------------------------------

    @property
    def report_path(self) -> Path:
        return self.path / "report.json"

    def write_report(self, report: dict[str, Any]) -> None:
        write_json(self.report_path, report)

    def report(self) -> dict[str, Any] | None:
        return read_json(self.report_path)

    def add_exception(self, entry: dict[str, Any]) -> None:
        """One that the job manager could not report, because it was gone."""
        entries = [*self.exceptions(), entry][-_MOST_EXCEPTIONS:]
        write_json(self.path / "exceptions.json", {"exceptions": entries})

    def exceptions(self) -> list[dict[str, Any]]:
        content = read_json(self.path / "exceptions.json")
        return [] if content is None else list(content["exceptions"])

    # --- commands --------------------------------------------------------------------------------

    def command(self, kind: str, epoch: int, **content: Any) -> str:
        """Ask the job manager for something; returns the id under which the answer comes."""
        command_id = uuid.uuid4().hex
        folder = self.path / "commands"
        folder.mkdir(mode=0o700, exist_ok=True)
        command = {"id": command_id, "kind": kind, "epoch": epoch, **content}
        write_json(folder / f"{command_id}.json", command)
        return command_id

    def commands(self) -> list[dict[str, Any]]:
        """Those without an answer, the oldest first."""
        found = []
        for path in (self.path / "commands").glob("*.json"):
            if not self._answer_path(path.stem).exists():
                content = read_json(path)
                if content is not None:
                    found.append((path.stat().st_mtime_ns, content))
        return [content for _, content in sorted(found, key=lambda own: own[0])]

    def has_command(self, command_id: str) -> bool:
        return _ID.fullmatch(command_id) is not None and (
            (self.path / "commands" / f"{command_id}.json").exists()
        )

    def write_answer(self, command_id: str, answer: dict[str, Any]) -> None:
        (self.path / "answers").mkdir(mode=0o700, exist_ok=True)
        write_json(self._answer_path(command_id), answer)

    def answer(self, command_id: str) -> dict[str, Any] | None:
        return read_json(self._answer_path(command_id))

    def _answer_path(self, command_id: str) -> Path:
        return self.path / "answers" / f"{command_id}.json"

    # --- the job manager's lock ------------------------------------------------------------------

    def take_lock(self) -> int | None:
        """For the job manager: the lock, held until the process ends however it ends; None if another
        process has it."""
        return try_lock(self.path / _LOCK)

    def is_locked(self) -> bool:
        """True while a job manager lives."""
        return is_held(self.path / _LOCK)


class Storage:
    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._jobs = self.root / "jobs"
        self._applications = self.root / "applications"
        for folder in (self.root, self._jobs, self._applications):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    # --- jobs ------------------------------------------------------------------------------------

    def add_job(self, submission: Submission, program: Path) -> JobFiles:
        """A job with a copy of its program; complete or not there."""
        aside = self._jobs / f".{submission.jid}"
        (aside / "program").mkdir(parents=True, mode=0o700)
        shutil.copy2(program, aside / submission.program)
        write_json(aside / "job.json", asdict(submission))
        os.rename(aside, self._jobs / submission.jid)
        return JobFiles(self._jobs / submission.jid)

    def remove_job(self, jid: str) -> None:
        """One that was never started."""
        shutil.rmtree(self._jobs / jid, ignore_errors=True)

    def job(self, jid: str) -> JobFiles | None:
        if not is_job_id(jid) or not (self._jobs / jid / "job.json").exists():
            return None
        return JobFiles(self._jobs / jid)

    def jobs(self) -> list[JobFiles]:
        """All there are and ever were."""
        return [JobFiles(path) for path in self._jobs.iterdir() if is_job_id(path.name)]

    # --- applications ----------------------------------------------------------------------------

    def add_application(self, name: str, file: Path, uploaded_ms: int) -> dict[str, Any]:
        """An uploaded program; `file` is moved. Its id is Flink's: a unique part and the name."""
        application_id = f"{uuid.uuid4()}_{name}"
        aside = self._applications / f".{application_id}"
        aside.mkdir(mode=0o700)
        os.replace(file, aside / name)
        meta = {"id": application_id, "name": name, "uploaded": uploaded_ms}
        write_json(aside / "meta.json", meta)
        os.rename(aside, self._applications / application_id)
        return meta

    def upload_path(self) -> Path:
        """Where an upload may be written to, before it is an application."""
        return self._applications / f".upload-{uuid.uuid4().hex}"

    def applications(self) -> list[dict[str, Any]]:
        found = []
        for path in self._applications.iterdir():
            meta = None if path.name.startswith(".") else read_json(path / "meta.json")
            if meta is not None:
                found.append(meta)
        return sorted(found, key=lambda meta: -int(meta["uploaded"]))

    def application(self, application_id: str) -> Path | None:
        """The file of an application. Only ids that are listed count: no path is made of what clients say."""
        for meta in self.applications():
            if meta["id"] == application_id:
                return self._applications / str(meta["id"]) / str(meta["name"])
        return None

    def remove_application(self, application_id: str) -> bool:
        path = self.application(application_id)
        if path is None:
            return False
        shutil.rmtree(path.parent)
        return True
