"""A savepoint is needed for the first batch only: a job outlives the one it started from (E45)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from millpond.common import JobStatus
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.coordinator import Coordinator
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.errors import SavepointError
from millpond.executors.direct.executor import DirectExecutors
from millpond.plan.physical import JobPlan
from tests.unit.savepoint.test_savepoint import (
    CUT_RECORDS,
    job,
    remember,
    run_and_save,
    run_to_the_end,
)


def plan_from(path: str) -> JobPlan:
    environment, results = job(remember, CUT_RECORDS, {"execution.state-recovery.path": path})
    results._sink("results", SinkKind.COLLECT, None)
    configuration, config = environment._configuration, environment.get_config()
    return plan_job(environment._pending_graph(), configuration, config, None)


def test_worker_that_starts_anew_does_not_need_the_savepoint(tmp_path: Path) -> None:
    whole = run_to_the_end(remember, CUT_RECORDS)
    before, path = run_and_save(remember, CUT_RECORDS, tmp_path, batches=0)
    after: list[Any] = []
    executors = DirectExecutors(plan_from(path), after.extend)
    executors.start()
    executors.attempt(0)._run_batch()
    shutil.rmtree(path)
    executors.attempt(1).run()
    executors.close(JobStatus.FINISHED)
    assert sorted(before + after, key=repr) == sorted(whole, key=repr)


@pytest.mark.parametrize("planned", [0, 1, 2])
def test_driver_needs_the_savepoint_while_the_first_batch_may_run_again(
    planned: int, tmp_path: Path
) -> None:
    _, path = run_and_save(remember, CUT_RECORDS, tmp_path / "taken", batches=0)
    plan = plan_from(path)
    folder = JobFolder.open(str(tmp_path / "jobs"), "job")
    first = Coordinator(plan, folder, OutputDelivery(plan, None))
    first.start()
    for epoch in range(planned):
        first.commit_output()
        first.plan()
        if epoch + 1 < planned:
            first.complete([])
    first.close()
    shutil.rmtree(path)
    second = Coordinator(plan, folder, OutputDelivery(plan, None))
    if planned < 2:
        with pytest.raises(SavepointError, match="no savepoint folder"):
            second.start()
    else:
        second.start()
        assert second.epoch == 1
        second.close()
    folder.close(delete=True)
