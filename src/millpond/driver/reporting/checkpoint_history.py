"""The checkpoints that a job has made: when, how long they took, how large they are (E40)."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass

from millpond.engine.exchange.reports import LogSize

_REMEMBERED = 100
LogBytes = dict[tuple[int, int], int]
"""(task, shard) -> size of its change logs in bytes"""


@dataclass(frozen=True)
class CheckpointRecord:
    """The checkpoint of one batch. `bytes_written`: how much state this checkpoint alone has written;
    `bytes_full`: how large all change logs are after it; `records`: how many records the batch has read."""

    id: int
    started_ms: int
    duration_ms: int
    bytes_written: int
    bytes_full: int
    is_savepoint: bool
    records: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the fields by name, for JSON."""
        return asdict(self)


class CheckpointHistory:
    """The newest checkpoints of a job, and counts. `completed` counts since the job began, `restored` and
    `failed` since its process began."""

    def __init__(self) -> None:
        self.records: deque[CheckpointRecord] = deque(maxlen=_REMEMBERED)
        self.log_bytes: LogBytes = {}
        self.completed = 0
        self.restored = 0
        self.failed = 0
        self._written = 0

    def begin(self) -> CheckpointHistory:
        """Begin a checkpoint, for which `add` and `complete` are called next. Return the history itself."""
        self._written = 0
        return self

    def back_to(self, epoch: int, log_bytes: LogBytes) -> None:
        """Forget the batches after `epoch`, which run again. `log_bytes` are the sizes as `epoch` left
        them."""
        while self.records and self.records[-1].id > epoch:
            self.records.pop()
        self.completed = epoch + 1
        self.log_bytes = dict(log_bytes)

    def add(self, log: LogSize) -> None:
        """Add what a shard whose state has changed reports about its change logs."""
        self._written += log.bytes_written
        self.log_bytes[log.task, log.shard] = log.bytes_full

    def state_bytes(self) -> dict[int, int]:
        """Return the size of the state of each task that has any, in bytes."""
        result: dict[int, int] = {}
        for (task, _), size in self.log_bytes.items():
            result[task] = result.get(task, 0) + size
        return result

    def complete(
        self, epoch: int, started_ms: int, ended_ms: int, is_savepoint: bool, records: int = 0
    ) -> CheckpointRecord:
        """Return the record of the checkpoint that has been begun, and add it to the history."""
        record = CheckpointRecord(
            epoch,
            started_ms,
            max(0, ended_ms - started_ms),
            self._written,
            sum(self.log_bytes.values()),
            is_savepoint,
            records,
        )
        self.records.append(record)
        self.completed = epoch + 1
        return record
