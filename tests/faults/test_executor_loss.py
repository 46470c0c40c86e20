"""kill -9 of an executor whose shuffle files others still need, or have read already (E42, E43)."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import delivered_lines
from tests.faults.job_run import JobRun
from tests.faults.two_stages_job import BATCHES, GO_ON, RECORDS
from tests.slot.processes import executor_of, slots_of, wait_until
from tests.spark.standalone import standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.faults, pytest.mark.soak]


class StagesRun(JobRun):
    module = "tests.faults.two_stages_job"


@pytest.mark.parametrize("is_killed", [True, False], ids=["with-executor", "without-executor"])
def test_batch_whose_shuffle_files_are_lost_runs_again(tmp_path: Path, is_killed: bool) -> None:
    """Both tasks of the second stage have read what the first stage sent. One dies, and shuffle files of the
    first stage are gone, which runs again and sends something else: the batch must not be made of both
    runs. If the executor dies, the whole batch is stopped; if not, tokens tell."""
    modules = tmp_path / "modules"
    shutil.copytree(Path(__file__).parent.parent, modules / "tests")
    with standalone_cluster(tmp_path / "cluster", apart=True) as master:
        run = StagesRun(
            tmp_path,
            master=master,
            modules=str(modules),
            configuration={"spark.executor.memory": "512m", "spark.task.maxFailures": 8},
        )
        waiting = [tmp_path / "marks" / f"waiting-{subtask}" for subtask in range(2)]
        for mark in waiting:
            run.await_file(mark)
        slot, other = (int(mark.read_text()) for mark in waiting)
        assert executor_of(slot) != executor_of(other), "each has an executor of its own"
        lose_shuffle_files(executor_of(slot))
        os.kill(executor_of(slot) if is_killed else slot, signal.SIGKILL)
        wait_until(lambda: slot not in slots_of(tmp_path), "a slot outlives its executor")
        (tmp_path / "marks" / GO_ON).touch()
        assert run.finish() == 0, run.output
        run.wait_until_nothing_runs()
    if is_killed:
        assert "An executor was lost: batch" in run.output
    else:
        assert "Spark lost results after some tasks had read them" in run.output
        assert "It runs again." in run.output
    rows = [tuple(map(int, line.split())) for line in delivered_lines(tmp_path / "output")]
    count = BATCHES * RECORDS
    assert sorted(row[:2] for row in rows) == [(n, n // 7 + 1) for n in range(count)]
    by_key: dict[int, list[int]] = {}
    for _, _, key, number in rows:
        by_key.setdefault(key, []).append(number)
    assert all(sorted(own) == list(range(1, len(own) + 1)) for own in by_key.values())


def lose_shuffle_files(executor: int) -> None:
    """Remove what an executor has sent."""
    worker = Path(os.readlink(f"/proc/{executor}/cwd")).parents[1]
    shuffle_files = list(worker.rglob("shuffle_*.data"))
    assert shuffle_files, "the first stage has written something"
    for file in shuffle_files:
        file.unlink()
