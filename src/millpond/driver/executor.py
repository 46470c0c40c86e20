"""The contract between a running job and what runs its attempts, which is in the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from millpond.common.job import JobStatus
    from millpond.driver.reporting.checkpoint_history import CheckpointHistory
    from millpond.driver.reporting.job_record import JobRecord
    from millpond.driver.savepoints import Savepoints
    from millpond.plan.physical import JobPlan


class Executor(Protocol):
    """Runs one attempt at a job. One thread calls `run`; any thread may call the other methods."""

    def run(self) -> None:
        """Run batches until the job has finished or stopped. Raises JobCancelledError if the job was
        cancelled, and any other error if the attempt failed."""

    def cancel(self) -> None:
        """Make `run` raise JobCancelledError: at once if it waits for work, otherwise when the batch that
        runs is complete, or is cut short because it takes too long. May be called before `run`."""

    def metrics(self) -> dict[str, Any]:
        """Return the job's metrics as of now, by full name."""

    def savepoints(self) -> Savepoints:
        """Return where savepoints of this attempt are asked for."""

    def checkpoints(self) -> CheckpointHistory:
        """Return the history of the job's checkpoints."""


class ExecutorFactory(Protocol):
    """Makes the attempts at one job and keeps what outlives them."""

    @property
    def plan(self) -> JobPlan:
        """The plan of the newest attempt. A job that goes on in its job folder keeps the id it has there."""

    record: JobRecord
    """What the job remembers over all attempts."""

    def job_folder(self) -> str | None:
        """Return the path of the job folder; None if the job has none, or none yet."""

    def workers(self) -> list[dict[str, Any]]:
        """Return the `executors` of the job report. Any thread may ask, and often."""

    def prepare(self) -> None:
        """Get ready for another attempt, while the restart strategy makes it wait. Whatever goes wrong here,
        the attempt raises."""

    def attempt(self, number: int) -> Executor:
        """Return the executor of the next attempt. `number` counts attempts from 0."""

    def close(self, status: JobStatus) -> None:
        """Free what outlives attempts. The job has ended with `status`; there is no further attempt."""
