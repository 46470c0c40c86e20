"""What a job remembers of its own life, over all attempts at it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from millpond.driver.reporting.checkpoint_history import CheckpointHistory
from millpond.driver.reporting.statistics import JobStatistics
from millpond.plan.physical import JobPlan
from millpond.plan.vertices import vertices_of
from millpond.queryable.desk import KnownStates

_SAVEPOINTS = 20


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


class JobRecord:
    """Written by the thread that runs batches, and by those that write savepoints; read by any."""

    def __init__(self, plan: JobPlan, clock_ms: Callable[[], float] = _monotonic_ms) -> None:
        self.vertices = vertices_of(plan)
        self.statistics = JobStatistics(self.vertices, clock_ms)
        self.checkpoints = CheckpointHistory()
        self.queryable = KnownStates()
        self._savepoints: deque[dict[str, Any]] = deque(maxlen=_SAVEPOINTS)

    def savepoint_is_there(self, path: str, created_ms: int, duration_ms: int) -> None:
        self._savepoints.append({"path": path, "time": created_ms, "duration-ms": duration_ms})

    def savepoints(self) -> list[dict[str, Any]]:
        """The newest ones, the oldest of them first."""
        return list(self._savepoints)

    def attempt_ends(self) -> None:
        if self.statistics.attempt_ends():
            self.checkpoints.failed += 1
