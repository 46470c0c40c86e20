"""A savepoint that nobody waits for any more leaves nothing behind, and ends no job (E45)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.driver.savepoint_requests import read_answer, request_by_file, withdraw
from tests.unit.savepoint.test_savepoint import CUT_RECORDS, job, remember


class Job:
    """Batches without workers: a savepoint has what the driver knows, and no state."""

    def __init__(self, folder: Path) -> None:
        environment, results = job(remember, CUT_RECORDS)
        results._sink("results", SinkKind.COLLECT, None)
        configuration, config = environment._configuration, environment.get_config()
        plan = plan_job(environment._pending_graph(), configuration, config, None)
        self.folder = JobFolder.open(str(folder / "jobs"), "job")
        self.savepoints = folder / "savepoints"
        self.coordinator = Coordinator(plan, self.folder, OutputDelivery(plan, None))
        self.coordinator.start()

    def ask(self, stop: bool = False, drain: bool = False) -> str:
        return request_by_file(self.folder.path, str(self.savepoints), stop, drain)

    def left(self) -> list[str]:
        answers = [path.name for path in self.folder.path.parent.glob(".*")]
        return answers + [path.name for path in self.savepoints.glob("*")]

    def close(self) -> None:
        self.coordinator.close()
        self.folder.close(delete=True)


@pytest.fixture
def running(tmp_path: Path) -> Any:
    running = Job(tmp_path)
    yield running
    running.close()


@pytest.mark.parametrize("when", ["planned", "complete"])
def test_withdrawn_savepoint_leaves_nothing(when: str, running: Job) -> None:
    order = running.ask()
    running.coordinator.plan()
    if when == "planned":
        withdraw(running.folder.path, order)
    running.coordinator.complete([])
    if when == "complete":
        withdraw(running.folder.path, order)
    running.coordinator.commit_output()
    running.coordinator.savepoints.close(None)
    assert running.left() == []


def test_savepoint_withdrawn_while_it_is_written_leaves_nothing(
    running: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = running.ask()
    monkeypatch.setattr(
        "millpond.driver.savepoints.check_parts",
        lambda *_: withdraw(running.folder.path, order),
    )
    running.coordinator.plan()
    running.coordinator.complete([])
    running.coordinator.commit_output()
    running.coordinator.savepoints.close(None)
    assert running.left() == []


def test_job_goes_on_if_its_end_is_withdrawn(running: Job) -> None:
    order = running.ask(stop=True)
    running.coordinator.plan()
    withdraw(running.folder.path, order)
    running.coordinator.complete([])
    assert running.coordinator.end is None
    running.coordinator.plan()
    running.coordinator.savepoints.close(None)
    assert running.left() == []


def test_job_that_has_ended_has_its_savepoint(running: Job) -> None:
    """Withdrawn too late: the savepoint is what the job left."""
    order = running.ask(stop=True)
    running.coordinator.plan()
    running.coordinator.complete([])
    withdraw(running.folder.path, order)
    running.coordinator.commit_output()
    (name,) = running.left()
    assert name.startswith("savepoint-")


def test_savepoint_that_somebody_waits_for_is_answered(running: Job) -> None:
    order = running.ask()
    running.coordinator.plan()
    running.coordinator.complete([])
    running.coordinator.commit_output()
    running.coordinator.savepoints.close(None)
    answer = read_answer(running.folder.path, order)
    assert answer is not None and Path(answer["path"]).is_dir()
