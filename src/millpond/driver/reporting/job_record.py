"""What a job remembers of its own life, over all attempts."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from millpond.driver.reporting.checkpoint_history import CheckpointHistory
from millpond.driver.reporting.statistics import JobStatistics
from millpond.plan.physical import JobPlan
from millpond.plan.vertices import vertices_of
from millpond.queryable.desk import KnownStates

_SAVEPOINTS = 20


def _monotonic_ms() -> float:
    return time.monotonic() * 1000


class JobRecord:
    """The memory of one job. The thread that runs batches writes to it, and so do those that write
    savepoints; any thread may read it."""

    def __init__(self, plan: JobPlan, clock_ms: Callable[[], float] = _monotonic_ms) -> None:
        self.vertices = vertices_of(plan)
        self.statistics = JobStatistics(self.vertices, clock_ms)
        self.checkpoints = CheckpointHistory()
        self.queryable = KnownStates()
        self._savepoints: deque[dict[str, object]] = deque(maxlen=_SAVEPOINTS)

    def savepoint_is_there(self, path: str, created_ms: int, duration_ms: int) -> None:
        """Add a savepoint that is complete since `created_ms`."""
        self._savepoints.append({"path": path, "time": created_ms, "duration-ms": duration_ms})

    def savepoints(self) -> list[dict[str, object]]:
        """Return the newest savepoints in the form of the job report, the oldest of them first."""
        return list(self._savepoints)

    def attempt_ends(self) -> None:
        """Note that an attempt is over. A batch that was running counts as a failed checkpoint."""
        if self.statistics.attempt_ends():
            self.checkpoints.failed += 1
