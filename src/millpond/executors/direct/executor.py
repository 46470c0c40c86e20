"""Runs a bounded job in the calling process, without Spark, in milliseconds: for users' unit tests.

Everything but Spark is the same: plan, passes, key groups, change logs, epochs. A test that passes here
passes on Spark, because records and state take the same way through the same code.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import cloudpickle

from millpond.common.job import JobStatus
from millpond.core.storage import MemoryStorage
from millpond.driver.coordinator import Coordinator
from millpond.driver.executor import Executor, ExecutorFactory
from millpond.driver.output import OutputDelivery
from millpond.driver.reporting.checkpoint_history import CheckpointHistory
from millpond.driver.reporting.job_record import JobRecord
from millpond.driver.savepoints import Savepoints
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.engine.work_meter import Surroundings
from millpond.errors import ProgramError
from millpond.plan.physical import JobPlan


def check_ends(plan: JobPlan) -> None:
    """Raise ProgramError if a source of the job never ends."""
    for task in plan.source_tasks:
        operator = plan.operators[task.root]
        if operator.function.endless:
            raise ProgramError(
                f"Source '{operator.name}' never ends, but the direct executor runs bounded jobs "
                "only. Use millpond.executor=spark."
            )


class DirectExecutors(ExecutorFactory):
    """Makes the attempts at one job. State, positions and output live on from one attempt to the next."""

    def __init__(
        self,
        plan: JobPlan,
        collect: Callable[[list[Any]], None] | None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        check_ends(plan)
        self._plan = plan
        self._blob: bytes = cloudpickle.dumps(plan)
        self.storage = MemoryStorage()
        output = OutputDelivery(plan, collect)
        self.record = JobRecord(plan)
        self.coordinator = (
            Coordinator(plan, None, output, record=self.record)
            if clock_ms is None
            else Coordinator(plan, None, output, clock_ms, self.record)
        )
        self.lanes: list[LanePlan] | None = None  # of the batch that is not complete yet
        self._started = False

    def start(self) -> None:
        """Start the coordinator before the first attempt runs; later calls do nothing."""
        if not self._started:
            self._started = True
            self.coordinator.start()

    @property
    def plan(self) -> JobPlan:
        return self._plan

    def prepare(self) -> None:
        """Do nothing: an attempt is ready at once."""

    def attempt(self, number: int) -> DirectExecutor:
        return DirectExecutor(self, self._plan, self._blob, number)

    def close(self, status: JobStatus) -> None:
        self.coordinator.close()

    def job_folder(self) -> None:
        """Return None: everything is in memory."""

    def workers(self) -> list[dict[str, Any]]:
        machine: dict[str, object] = {"id": "driver", "host": socket.gethostname(), "port": 0}
        return [{**machine, "cores": 1, "memory-bytes": 0, "slots": 1}]


class DirectExecutor(Executor):
    """One attempt. It goes on with the batch at which the attempt before it failed."""

    def __init__(self, job: DirectExecutors, plan: JobPlan, blob: bytes, attempt: int) -> None:
        self._job = job
        self._plan = plan
        surroundings = Surroundings(time.perf_counter_ns, machine=socket.gethostname())
        host = JobHost(blob, job.storage, str(attempt), attempt, surroundings=surroundings)
        self._passes = Passes(host, SinkHost(blob, surroundings))

    def run(self) -> None:
        coordinator = self._job.coordinator
        self._job.start()
        while coordinator.end is None:
            self._run_batch()
        coordinator.commit_output()
        self._passes.close()

    def cancel(self) -> None:
        self._job.coordinator.cancel()

    def metrics(self) -> dict[str, Any]:
        return self._job.coordinator.metrics

    def savepoints(self) -> Savepoints:
        return self._job.coordinator.savepoints

    def checkpoints(self) -> CheckpointHistory:
        return self._job.coordinator.checkpoints

    def _run_batch(self) -> None:
        job = self._job
        if job.lanes is None:
            job.lanes = job.coordinator.plan()
        else:
            job.record.statistics.batch_begins()
        job.coordinator.complete(run_batch(self._passes, self._plan, job.lanes))
        job.lanes = None
