"""The batches of a job as the driver remembers them: a plan before each batch, a record after it.

With a job folder they are records of its journal, and an attempt goes on where the one before it was. Without
one (the direct executor) nothing is written, and a batch is never planned twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from millpond.core.journal import JOURNAL, Journal, Record, RecordKind, read_journal
from millpond.core.storage import Storage
from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.job_folder import JobFolder
from millpond.engine.exchange.batch import LogPositions
from millpond.engine.exchange.controls import Start
from millpond.state.partition_log import log_folder


class EpochLog:
    """The plans and records of one attempt's batches. Without a folder, writing does nothing."""

    def __init__(self, folder: JobFolder | None) -> None:
        self._folder = folder
        self._storage: Storage | None = None
        self._journal: Journal | None = None
        self._newest_epoch: Record | None = None
        self._logs: LogPositions = {}
        if folder is not None:
            self._storage = folder.storage
            self._journal = Journal(self._storage, folder.generation)
        self.newest = -1
        """The newest batch that is complete; -1 if none is."""

    def open(self, levels: int, partitions: int) -> tuple[EpochRecord | None, BatchPlan | None]:
        """Find the newest epoch. Return its record, and the plan of the batch after it, each None if it does
        not exist. Segments of logs that nothing refers to any more are removed."""
        if self._folder is None or self._journal is None:
            return None, None
        plan: BatchPlan | None = None
        record: EpochRecord | None = None
        for found in self._journal.read():
            if found.kind == RecordKind.EPOCH:
                self._newest_epoch, self.newest, plan = found, found.number, None
            elif found.number == self.newest + 1:
                plan = BatchPlan.decode(found.payload, self._where(found))
        if self._newest_epoch is not None:
            record = EpochRecord.decode(self._newest_epoch.payload, self._where(self._newest_epoch))
            self._find_unions(record.starts)
            self._logs = record.logs
        if plan is not None:
            for lane in plan.lanes:
                self._find_unions(lane.starts)
        self._drop_leftovers(levels, partitions)
        return record, plan

    def _where(self, record: Record) -> str:
        return f"{self._folder and self._folder.path}/{JOURNAL}, batch {record.number}"

    def _find_unions(self, starts: dict[int, Start]) -> None:
        assert self._folder is not None
        for task, start in starts.items():
            if isinstance(start.unions, str):
                here = self._folder.unions_location(start.unions)
                starts[task] = start._replace(unions=here)

    def _drop_leftovers(self, levels: int, partitions: int) -> None:
        assert self._storage is not None
        needed = _segments(self._logs)
        for level in range(1, levels + 1):
            for partition in range(partitions):
                for name in self._storage.names(log_folder(level, partition)):
                    if name not in needed:
                        self._storage.discard(name)

    def write_plan(self, epoch: int, plan: BatchPlan) -> None:
        """Make a batch durable before it runs."""
        if self._journal is not None:
            basis = [] if self._newest_epoch is None else [self._newest_epoch]
            self._journal.append(Record(RecordKind.PLAN, epoch, plan.encode()), basis)

    def write(self, epoch: int, record: EpochRecord) -> None:
        """Make durable what a batch leaves behind: when this returns, the batch counts. Drop what no batch
        needs any more."""
        if self._journal is not None:
            written = Record(RecordKind.EPOCH, epoch, record.encode())
            self._journal.append(written, [])
            self._newest_epoch = written
        self.newest = epoch
        if self._folder is not None and self._storage is not None:
            for segment in _segments(self._logs) - _segments(record.logs):
                self._storage.discard(segment)
            self._folder.drop_unions(epoch)
        self._logs = record.logs

    def add_unions(
        self, epoch: int, task: int, start: Start, changed: dict[int, bytes]
    ) -> dict[int, bytes] | str:
        """Return the union lists of a task after a batch in which some subtasks changed theirs. If there is a
        folder, write them to an object and return its location instead, because only a subtask that starts
        anew reads them."""
        known = start.unions
        if isinstance(known, str):
            assert self._folder is not None
            known = self._folder.read_unions(known)
        unions = known | changed
        return unions if self._folder is None else self._folder.write_unions(epoch, task, unions)

    def close(self) -> None:
        """Release the journal."""
        if self._journal is not None:
            self._journal.close()


def epoch_records(storage: Storage) -> Iterable[EpochRecord]:
    """Yield what the batches of a job have left behind, as far as the journal has it, the oldest first."""
    newest = -1
    for found in read_journal(storage):
        if found.kind == RecordKind.EPOCH and found.number > newest:
            newest = found.number
            yield EpochRecord.decode(found.payload, f"{JOURNAL}, batch {newest}")


def _segments(logs: LogPositions) -> set[str]:
    return {segment for position in logs.values() for segment, _ in position}
