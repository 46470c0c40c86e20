"""A job as it is sent to workers.

When a query starts, Spark also unpickles it in a process that only asks for the names of states. What does
the work is therefore imported only when there is work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.executors.slot.settings import SlotSettings

if TYPE_CHECKING:
    from millpond.executors.spark.worker import Runner


class JobRef:
    """Everything that a worker needs to know about a job: the id of the run, by which hosts are cached, the
    pickled plan, and the settings of slots. `slots` is None if there are no slots."""

    def __init__(
        self,
        run_id: str,
        blob: bytes,
        attempt: int,
        folder: str,
        lanes: int,
        slots: SlotSettings | None,
        worker_folder: str,
    ) -> None:
        self.run_id = run_id
        self.blob = blob
        self.attempt = attempt
        self.folder = folder
        self.lanes = lanes
        self.slots = slots
        self.worker_folder = worker_folder

    def runner(self) -> Runner:
        """Return what does the work of the Spark task that is running now."""
        from millpond.executors.spark.worker import runner_of

        return runner_of(self)
