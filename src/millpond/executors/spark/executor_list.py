"""The executors of a Spark application, as Spark tells (O1: task managers)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

_FRESH_S = 5.0


class ExecutorList:
    """Asked at most every few seconds. If Spark does not answer, what it said last counts."""

    def __init__(self, session: Any, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._session = session
        self._clock_s = clock_s
        self._known: list[dict[str, Any]] = []
        self._asked_s: float | None = None
        self._asking = threading.Lock()

    def use(self, session: Any) -> None:
        """The application is another one now."""
        self._session, self._asked_s = session, None

    def current(self) -> list[dict[str, Any]]:
        is_fresh = self._asked_s is not None and self._clock_s() - self._asked_s < _FRESH_S
        if not is_fresh and self._asking.acquire(blocking=False):  # one at a time; nobody waits
            try:
                self._known = _ask(self._session)
            except Exception:  # Spark is on its way down, or up
                pass
            finally:
                self._asked_s = self._clock_s()
                self._asking.release()
        return list(self._known)


def _ask(session: Any) -> list[dict[str, Any]]:
    context = session.sparkContext
    per_task = int(context.getConf().get("spark.task.cpus", "1"))
    summaries = context._jsc.sc().statusStore().executorList(True)
    found = []
    for number in range(summaries.size()):
        summary = summaries.apply(number)
        cores = summary.totalCores()
        if cores > 0:  # else the driver of a cluster, which runs no tasks
            host, _, port = summary.hostPort().rpartition(":")
            found.append(
                {
                    "id": summary.id(),
                    "host": host,
                    "port": int(port),
                    "cores": cores,
                    "memory-bytes": summary.maxMemory(),
                    "slots": cores // per_task,
                }
            )
    return found
