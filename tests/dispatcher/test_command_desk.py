"""What a job manager does with commands (O2, O5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common.job import CompletableFuture, JobStatus
from millpond.dispatcher.command_desk import CommandDesk
from millpond.dispatcher.storage import JobFiles


class Job:
    """As much of a RunningJob as commands need."""

    def __init__(self, folder: Path | None, **settings: str) -> None:
        self.status = JobStatus.RUNNING
        self.cancelled = 0
        self._folder = folder
        self._settings = settings

    def report(self) -> dict[str, Any]:
        folder = None if self._folder is None else str(self._folder)
        return {"folder": folder, "settings": self._settings}

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(self.status)

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def files(tmp_path: Path) -> JobFiles:
    return JobFiles(tmp_path)


def test_a_command_is_done_once(files: JobFiles) -> None:
    job, desk = Job(None), CommandDesk(files, 1)
    command = files.command("cancel", 1)
    for _ in range(3):
        desk.look(job)
    assert job.cancelled == 1 and files.answer(command) is not None


def test_commands_of_a_leader_that_was_replaced_are_refused(files: JobFiles) -> None:
    """O5"""
    job, desk = Job(None), CommandDesk(files, 1)
    files.command("cancel", 5)
    desk.look(job)
    late = files.command("cancel", 4)
    desk.look(job)
    answer = files.answer(late)
    assert (
        job.cancelled == 1 and answer is not None and "Leader 5 has taken over" in answer["error"]
    )


def test_a_savepoint_goes_on_after_the_job_manager_has_died(
    files: JobFiles, tmp_path: Path
) -> None:
    """E45: the same request is asked for again under the same id, not a second one."""
    folder = tmp_path / "jobs" / "words"
    folder.mkdir(parents=True)
    job = Job(folder)
    command = files.command("savepoint", 1, directory=str(tmp_path), drain=False)
    for _ in range(2):
        CommandDesk(files, 1).look(job)  # a new process each time
    assert [path.stem for path in (folder / "requests").glob("*.json")] == [command]


def test_a_savepoint_of_a_job_without_a_folder_is_refused(files: JobFiles) -> None:
    command = files.command("savepoint", 1, directory=None, drain=False)
    CommandDesk(files, 1).look(Job(None, **{"millpond.executor": "direct"}))
    answer = files.answer(command)
    assert answer is not None and "direct" in answer["error"]


def test_who_waits_when_a_job_ends_is_told(files: JobFiles) -> None:
    command = files.command("stop", 1, directory=None, drain=False)
    CommandDesk(files, 1).close(None)
    answer = files.answer(command)
    assert answer is not None and "nothing to save" in answer["error"]
