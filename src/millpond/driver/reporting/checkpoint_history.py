"""What checkpoints a job has made: when, how long they took, how large they are (E40)."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from millpond.engine.exchange.reports import LogSize

_REMEMBERED = 100
LogBytes = dict[tuple[int, int], int]
"""(task, key group) -> size of its change log"""


@dataclass(frozen=True)
class CheckpointRecord:
    """One batch. `bytes_written`: of state, by this checkpoint alone; `bytes_full`: of all logs after it;
    `records`: how many the batch has read."""

    id: int
    started_ms: int
    duration_ms: int
    bytes_written: int
    bytes_full: int
    is_savepoint: bool
    records: int = 0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class CheckpointHistory:
    """`completed`: since the job began; `restored` and `failed`: since its process did."""

    def __init__(self) -> None:
        self.records: deque[CheckpointRecord] = deque(maxlen=_REMEMBERED)
        self.log_bytes: LogBytes = {}
        self.completed = 0
        self.restored = 0
        self.failed = 0
        self._written = 0

    def begin(self) -> CheckpointHistory:
        self._written = 0
        return self

    def back_to(self, epoch: int, log_bytes: LogBytes) -> None:
        """Batches after `epoch` do not count; they run again."""
        while self.records and self.records[-1].id > epoch:
            self.records.pop()
        self.completed = epoch + 1
        self.log_bytes = dict(log_bytes)

    def add(self, log: LogSize) -> None:
        """Take in what a key group that has changed reports."""
        self._written += log.bytes_written
        self.log_bytes[log.task, log.key_group] = log.bytes_full

    def state_bytes(self) -> dict[int, int]:
        """Of each task that has state."""
        result: dict[int, int] = {}
        for (task, _), size in self.log_bytes.items():
            result[task] = result.get(task, 0) + size
        return result

    def complete(
        self, epoch: int, started_ms: int, ended_ms: int, is_savepoint: bool, records: int = 0
    ) -> CheckpointRecord:
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
