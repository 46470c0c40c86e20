"""Partitions stay on the machine where their state is, and use all machines alike (E42)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import newest_epoch
from tests.faults.job_run import JobRun
from tests.slot.processes import executor_of, is_running, wait_until
from tests.spark.placed_job import NAME
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.faults]


class PlacedRun(JobRun):
    module = "tests.spark.placed_job"

    def await_batches(self, count: int) -> None:
        folder = self.folder / "checkpoints" / NAME
        self._await((folder / "journal").exists, "no journal")
        wanted = newest_epoch(folder) + count
        self._await(lambda: newest_epoch(folder) >= wanted, f"no batch {wanted}")

    def executors(self) -> dict[int, set[int]]:
        """The executors that have worked for each subtask and still run."""
        found: dict[int, set[int]] = {}
        for mark in (self.folder / "marks").iterdir():
            subtask, slot = map(int, mark.name.split("-"))
            with contextlib.suppress(OSError, IndexError):  # it has just ended
                if is_running(slot):
                    found.setdefault(subtask, set()).add(executor_of(slot))
        return found

    def forget(self) -> None:
        """From now on, only executors count that work for a subtask from now on."""
        for mark in (self.folder / "marks").iterdir():
            mark.unlink()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[PlacedRun]:
    """The job on two machines that share nothing but its folder, with a core each."""
    modules = tmp_path / "modules"
    shutil.copytree(Path(__file__).parent.parent, modules / "tests")
    with standalone_cluster(tmp_path / "cluster", apart=True) as master:
        run = PlacedRun(tmp_path, master=master, modules=str(modules))
        try:
            yield run
        finally:
            run.process.kill()
            run.process.communicate(timeout=60)
        run.wait_until_nothing_runs()


def test_partitions_stay_on_their_machine_until_it_is_lost(run: PlacedRun) -> None:
    run.await_batches(30)
    before = run.executors()
    assert [len(before[subtask]) for subtask in (0, 1)] == [1, 1], "each stays on one machine"
    (kept,), (lost,) = before[0], before[1]
    assert kept != lost, "each has a machine of its own"

    os.kill(lost, signal.SIGKILL)
    wait_until(lambda: not is_running(lost), "it was killed")

    def are_apart() -> bool:
        # Until Spark has started another executor, there is only one.
        run.forget()
        run.await_batches(2)
        return len(set.union(*run.executors().values())) == 2

    wait_until(are_apart, "a partition moves to the executor that Spark has started instead")
    run.forget()
    run.await_batches(30)
    after = run.executors()
    assert [len(after[subtask]) for subtask in (0, 1)] == [1, 1], "each stays on one machine"
    assert after[0] != after[1], "each has a machine of its own again"
    assert kept in after[0] | after[1], "the machine that was not lost keeps working"
