"""kill -9 of drivers and workers, between and inside batches: output as if nothing had happened
(E42, E43)."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.faults.job_run import COUNTS, JobRun, delivered
from tests.slot.processes import executor_of, slots_of, wait_until
from tests.small_disk import small_disk
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.faults]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("undisturbed")
    run = JobRun(folder)
    assert run.finish() == 0, run.output
    result = delivered(folder)
    assert len(result["events"]) == COUNTS
    return result


@pytest.mark.soak
def test_killed_worker_while_reading(tmp_path: Path, undisturbed: dict[str, list[str]]) -> None:
    run = JobRun(tmp_path, kill_worker=True)
    assert run.finish() == 0, run.output
    assert (tmp_path / "marks").iterdir()
    assert any(path.name.startswith("mark-") for path in (tmp_path / "marks").iterdir())
    assert delivered(tmp_path) == undisturbed


@pytest.mark.parametrize("keep_s", [0, 600])
def test_driver_killed_at_any_moment(
    keep_s: int, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """The kill falls between the epoch's write and the moment when output is visible, or in the next batch.
    Slots end with the driver, or wait for the next one."""
    settings = {"millpond.slot.keep-s": keep_s}
    run = JobRun(tmp_path, configuration=settings)
    run.kill_after_epoch(3)
    slots = slots_of(tmp_path)
    if not keep_s:
        run.wait_until_nothing_runs()
    again = JobRun(tmp_path, configuration=settings)
    if keep_s:
        again.await_epoch(5)
        assert slots_of(tmp_path) == slots
    assert again.finish() == 0, again.output
    again.wait_until_nothing_runs()
    assert delivered(tmp_path) == undisturbed
    assert not (tmp_path / "checkpoints" / "capping").exists()


@pytest.mark.soak
def test_hung_slot_is_replaced(tmp_path: Path, undisturbed: dict[str, list[str]]) -> None:
    """A process that is stopped answers no more; the job goes on with another one."""
    run = JobRun(
        tmp_path,
        kill_at=400 * 100,
        kill_signal=signal.SIGSTOP,
        configuration={"millpond.slot.hang-timeout-s": 15},
    )
    assert run.finish() == 0, run.output
    assert (tmp_path / "marks" / "killed-in-task").exists()
    run.wait_until_nothing_runs()
    assert delivered(tmp_path) == undisturbed


@pytest.mark.parametrize("backend", [pytest.param("hashmap", marks=pytest.mark.soak), "rocksdb"])
def test_slots_killed_between_batches(
    backend: str, tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """What was in them comes back from the log."""
    local = tmp_path / "local"
    local.mkdir()
    settings = {"state.backend.type": backend, "state.backend.local-dir": str(local)}
    run = JobRun(tmp_path, configuration=settings)
    for epoch in (1, 3):
        run.await_epoch(epoch)
        for pid in slots_of(tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert run.finish() == 0, run.output
    run.wait_until_nothing_runs()
    assert delivered(tmp_path) == undisturbed
    assert list(local.iterdir()) == []


def test_second_driver_is_refused_and_the_first_is_not_disturbed(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    slowly = {"millpond.batch.interval-ms": 2000}
    first = JobRun(tmp_path, configuration=slowly)
    first.await_epoch(0)
    second = JobRun(tmp_path)
    assert second.finish() != 0
    assert "is in use by another running job" in second.output
    assert first.finish() == 0, first.output
    assert delivered(tmp_path) == undisturbed


@pytest.mark.soak
def test_full_disk_is_a_clear_error_and_nothing_is_lost(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """The disk the output goes to is full; with more space the same job finishes."""
    with small_disk(tmp_path / "output", "1m") as disk:
        disk.fill()
        run = JobRun(tmp_path)
        assert run.finish() == 1
        assert "No space left on device" in run.output
        assert "sink" in run.output.lower()
        run.wait_until_nothing_runs()
        disk.empty()
        again = JobRun(tmp_path)
        assert again.finish() == 0, again.output
        assert delivered(tmp_path) == undisturbed


@pytest.mark.soak
def test_full_disk_of_the_job_folder_is_a_clear_error_and_nothing_is_lost(
    tmp_path: Path, undisturbed: dict[str, list[str]]
) -> None:
    """It gets full while the job runs, so that a slot cannot write; then the next driver cannot start."""
    clear = (
        r"checkpoints/capping/(log|run|journal)\S* could not be written: No space left on device"
    )
    with small_disk(tmp_path / "checkpoints", "24m") as disk:
        run = JobRun(tmp_path, configuration={"millpond.batch.interval-ms": 1000})
        run.await_epoch(1)
        disk.fill()
        assert run.finish() == 1
        assert re.search(clear, run.output), run.output
        run.wait_until_nothing_runs()
        again = JobRun(tmp_path)
        assert again.finish() == 1
        assert re.search(clear, again.output), again.output
        again.wait_until_nothing_runs()
        disk.empty()
        last = JobRun(tmp_path)
        assert last.finish() == 0, last.output
        last.wait_until_nothing_runs()
        assert delivered(tmp_path) == undisturbed


@pytest.mark.soak
def test_executor_killed_on_a_cluster(tmp_path: Path, undisturbed: dict[str, list[str]]) -> None:
    """The JVM that a slot serves dies: so does the slot; another executor takes the partition."""
    modules = tmp_path / "modules"
    shutil.copytree(Path(__file__).parent.parent, modules / "tests")
    with standalone_cluster(tmp_path / "cluster") as master:
        run = JobRun(
            tmp_path,
            master=master,
            modules=str(modules),
            configuration={
                "spark.executor.memory": "512m",
                "spark.task.maxFailures": 8,
                "millpond.slot.keep-s": 0,
            },
        )
        run.await_epoch(2)
        slot = slots_of(tmp_path)[0]
        executor = executor_of(slot)
        os.kill(executor, signal.SIGKILL)
        wait_until(lambda: slot not in slots_of(tmp_path), "a slot outlives its executor")
        assert run.finish() == 0, run.output
        run.wait_until_nothing_runs()
    assert delivered(tmp_path) == undisturbed
