"""The batches of a job as the driver remembers them: a plan before each batch, a record after it.

With a job folder they are durable, and an attempt goes on where the one before it was. Without one (the
direct executor) nothing is written, and a batch is never planned twice.
"""

from __future__ import annotations

from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.job_folder import JobFolder
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.exchange.controls import Start


class EpochLog:
    """The plans and records of one attempt's batches. Without a folder, writing does nothing."""

    def __init__(self, folder: JobFolder | None) -> None:
        self._folder = folder
        self.newest = -1
        """The newest batch that is complete; -1 if none is."""

    def open(self) -> tuple[EpochRecord | None, BatchPlan | None, BatchPlan | None]:
        """Find the newest epoch. Return its record, its plan, and the plan of the batch after it, each None
        if it does not exist. Raises IncompatibleCheckpointError if the folder lacks a file that no crash can
        have removed."""
        if self._folder is None:
            return None, None, None
        self.newest = self._folder.last_epoch()
        record = self.read(self.newest)
        plan, next_plan = (self._folder.read_plan(self.newest + i) for i in (0, 1))
        if self.newest >= 0 and plan is None:
            raise self._folder.incomplete(
                f"plans/{self.newest}.plan",
                f"which says where the sources are after batch {self.newest}",
            )
        return record, plan, next_plan

    def read(self, epoch: int) -> EpochRecord | None:
        """Return what a batch has left behind; None for -1, which means before the first batch."""
        if epoch < 0 or self._folder is None:
            return None
        record = self._folder.read_epoch(epoch)
        if record is None:
            raise self._folder.incomplete(
                f"epochs/{epoch}.epoch", "which the next batch builds upon"
            )
        for task, start in record.starts.items():
            if isinstance(start.unions, str):
                here = self._folder.unions_path(start.unions)
                record.starts[task] = start._replace(unions=here)
        return record

    def planned(self, epoch: int, lanes: int) -> BatchPlan | None:
        """Return the plan of a batch that was planned before a crash; None if it was not. Raises
        IncompatibleCheckpointError if one of its lanes is missing."""
        plan = None if self._folder is None else self._folder.read_plan(epoch)
        if self._folder is not None and plan is not None:
            self._folder.check_lanes(epoch, lanes)
        return plan

    def is_first_batch_over(self) -> bool:
        """Return whether batch 0 can never run again."""
        return self._folder is not None and self._folder.is_first_batch_over()

    def write_plan(self, epoch: int, lanes: list[LanePlan], plan: BatchPlan) -> None:
        """Make a batch durable before it runs."""
        if self._folder is not None:
            self._folder.write_plan(epoch, lanes, plan)

    def write(self, epoch: int, record: EpochRecord) -> None:
        """Make durable what a batch leaves behind, and drop batches that can never run again."""
        if self._folder is not None:
            self._folder.write_epoch(epoch, record)
            self._folder.drop_batches_before(epoch)
            self._folder.drop_unions()

    def add_unions(
        self, epoch: int, task: int, start: Start, changed: dict[int, bytes]
    ) -> dict[int, bytes] | str:
        """Return the union lists of a task after a batch in which some subtasks changed theirs. If there is a
        folder, write them to a file and return its path instead, because only a subtask that starts anew
        reads them."""
        known = start.unions
        if isinstance(known, str):
            assert self._folder is not None
            known = self._folder.read_unions(known)
        unions = known | changed
        return unions if self._folder is None else self._folder.write_unions(epoch, task, unions)
