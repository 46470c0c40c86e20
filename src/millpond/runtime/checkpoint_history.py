"""What checkpoints a job has made: when, how long they took, how large they are (E40)."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

_REMEMBERED = 100


@dataclass(frozen=True)
class CheckpointRecord:
    """One batch. `bytes_written`: of state, by this checkpoint alone; `bytes_full`: of all logs after it."""

    id: int
    started_ms: int
    duration_ms: int
    bytes_written: int
    bytes_full: int
    is_savepoint: bool

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class CheckpointHistory:
    def __init__(self) -> None:
        self.records: deque[CheckpointRecord] = deque(maxlen=_REMEMBERED)
        self.log_bytes: dict[tuple[int, int], int] = {}  # (task, key group) -> size of its log
        self._written = 0

    def begin(self) -> CheckpointHistory:
        self._written = 0
        return self

    def add(self, task: int, key_group: int, bytes_written: int, bytes_full: int) -> None:
        """What a key group reports that has changed."""
        self._written += bytes_written
        self.log_bytes[task, key_group] = bytes_full

    def complete(
        self, epoch: int, started_ms: int, ended_ms: int, is_savepoint: bool
    ) -> CheckpointRecord:
        record = CheckpointRecord(
            epoch,
            started_ms,
            max(0, ended_ms - started_ms),
            self._written,
            sum(self.log_bytes.values()),
            is_savepoint,
        )
        self.records.append(record)
        return record
