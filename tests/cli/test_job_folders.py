"""Savepoints of jobs that no dispatcher runs: JOB is a folder, or a name with --checkpoint-dir (E45, O8)."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millpond.driver.savepoint_requests import SavepointRequest, SavepointRequests
from millpond.errors import SavepointError
from tests.cli.conftest import Command


class RunningJob:
    """Holds the lock of a job's folder, and answers orders as a driver does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.taken: list[SavepointRequest] = []
        self.problem: Exception | None = None
        self._orders = SavepointRequests(folder, "ab" * 16, None)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._answer)

    def __enter__(self) -> RunningJob:
        self.folder.mkdir(parents=True)
        (self.folder / "job.blob").touch()
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._lock.close()

    def _answer(self) -> None:
        while not self._end.wait(0.005):
            order = self._orders.take()
            if order is not None:
                self.taken.append(order)
                self._orders.done(order, self.problem)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RunningJob]:
    with RunningJob(tmp_path / "jobs" / "views") as running:
        yield running


@pytest.mark.parametrize("by_name", [True, False], ids=["name", "folder"])
def test_savepoint_is_taken_by_the_jobs_own_process(
    by_name: bool, job: RunningJob, millpond: Command, tmp_path: Path
) -> None:
    jobs = str(job.folder.parent)
    which, where = ("views", ["--checkpoint-dir", jobs]) if by_name else (str(job.folder), [])
    code, out, err = millpond("savepoint", which, str(tmp_path / "saved"), *where)
    assert code == 0, err
    (order,) = job.taken
    assert out == f"{order.target}\n" and order.target.parent == tmp_path / "saved"
    assert (order.stop, order.drain) == (False, False)
    code, out, _ = millpond(
        *("stop", which, *where, "--savepoint", str(tmp_path / "saved"), "--drain", "--json")
    )
    assert code == 0 and json.loads(out) == {"savepoint": str(job.taken[1].target)}
    assert (job.taken[1].stop, job.taken[1].drain) == (True, True)


def test_failed_savepoint_is_told_in_the_words_of_the_job(
    job: RunningJob, millpond: Command, tmp_path: Path
) -> None:
    job.problem = SavepointError("The disk is full.")
    code, out, err = millpond("savepoint", str(job.folder), str(tmp_path / "saved"))
    assert (code, out) == (1, "") and "The disk is full." in err


def test_folder_without_a_running_job_is_told(millpond: Command, tmp_path: Path) -> None:
    with RunningJob(tmp_path / "jobs" / "views"):
        pass
    code, _, err = millpond("savepoint", "views", "--checkpoint-dir", str(tmp_path / "jobs"))
    assert code == 1 and "is not running" in err
    for command in ("savepoint", "stop", "checkpoint"):
        code, _, err = millpond(command, str(tmp_path / "nowhere"))
        assert code == 1 and "is not the folder of a job" in err
    code, _, err = millpond("savepoint", "list")
    assert code == 2 and "DIR is missing" in err
