"""A job as it is sent to workers.

Spark also unpickles it in a process that only asks for the names of states, when a query starts. So what
does the work is imported when there is some.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millpond.executors.slot.settings import SlotSettings

if TYPE_CHECKING:
    from millpond.executors.spark.worker import Runner


class JobRef:
    """An id for the cache, the pickled plan, and where slots are. `slots` is None if there are none."""

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
        """Whoever does the work of the task that is running now."""
        from millpond.executors.spark.worker import runner_of

        return runner_of(self)
