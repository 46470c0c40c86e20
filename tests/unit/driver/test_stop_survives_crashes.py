"""A driver dies between the batch of a savepoint that ends the job, and the end of the job (E45).

Whoever has asked for that starts something else from the savepoint, so nothing may be read after it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.core.journal import newest_epoch
from millpond.core.storage import FileStorage
from millpond.driver.attempt_phase import JobEnd
from millpond.driver.coordinator import Coordinator
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.savepoint_requests import SavepointRequests, read_answer, request_by_file
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.plan.identity import identity_of
from millpond.savepoint.reader import SavepointReader
from tests.conftest import delivered_lines
from tests.unit.driver.test_recovery import Crash, StandInForSpark, job

BATCH_COUNTS = "when the batch counts"
SAVEPOINT_IS_THERE = "when the savepoint is there"
ASKER_KNOWS = "when whoever asked knows"


def die(*_: Any) -> None:
    raise Crash


def first_life(tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run some batches; then somebody stops the job with a savepoint, and the driver dies. Nothing that it
    would do on its way out is done. Return the id of the request."""
    plan = job("collection", tmp_path / "output")
    folder = JobFolder.open(str(tmp_path / "jobs"), plan.name)
    folder.check_identity(identity_of(plan))
    generation = folder.start_run()
    coordinator = Coordinator(plan, folder, OutputDelivery(plan), lambda: 0)
    coordinator.start()
    blob = cloudpickle.dumps(plan)
    passes = Passes(JobHost(blob, FileStorage(folder.path), str(generation)), SinkHost(blob))
    coordinator.complete(run_batch(passes, plan, coordinator.plan()))
    request = request_by_file(folder.path, str(tmp_path / "savepoints"), stop=True, drain=False)
    coordinator.complete(run_batch(passes, plan, coordinator.plan()))
    assert coordinator.end is JobEnd.STOPPED
    if when == SAVEPOINT_IS_THERE:
        with monkeypatch.context() as patch:
            patch.setattr(SavepointRequests, "done", die)
            with pytest.raises(Crash):
                coordinator.commit_output()
    elif when == ASKER_KNOWS:
        coordinator.commit_output()
    folder.close(delete=False)
    return request


@pytest.mark.parametrize("when", [BATCH_COUNTS, SAVEPOINT_IS_THERE, ASKER_KNOWS])
def test_job_that_was_stopped_does_not_go_on_by_itself(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = first_life(tmp_path, when, monkeypatch)
    folder = tmp_path / "jobs" / "job"
    counts = newest_epoch(FileStorage(folder))
    if when != ASKER_KNOWS:
        StandInForSpark().run(job("collection", tmp_path / "output"), tmp_path / "jobs", None, True)
        assert newest_epoch(FileStorage(folder)) == counts, "nothing was read after the savepoint"
    answer = read_answer(folder, request)
    assert answer is not None
    SavepointReader(answer["path"]).check()
    # Whoever starts the job again wants it to go on.
    StandInForSpark().run(job("collection", tmp_path / "output"), tmp_path / "jobs", None)
    StandInForSpark().run(job("collection", tmp_path / "expected"), tmp_path / "others", None)
    assert delivered_lines(tmp_path / "output") == delivered_lines(tmp_path / "expected")
