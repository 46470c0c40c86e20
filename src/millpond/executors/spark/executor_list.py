"""The executors of a Spark application, as Spark lists them (O1: task managers)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FRESH_S = 5.0


class ExecutorList:
    """Asks Spark for its executors, at most every few seconds. If Spark does not answer, its last answer
    counts. Any thread may use it."""

    def __init__(
        self, session: SparkSession, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._clock_s = clock_s
        self._known: list[dict[str, object]] = []
        self._asked_s: float | None = None
        self._asking = threading.Lock()

    def use(self, session: SparkSession) -> None:
        """Ask about another application from now on."""
        self._session, self._asked_s = session, None

    def current(self) -> list[dict[str, object]]:
        """Return the executors in the form of the job report, as they are now or were a few seconds ago."""
        is_fresh = self._asked_s is not None and self._clock_s() - self._asked_s < _FRESH_S
        if not is_fresh and self._asking.acquire(blocking=False):  # one thread asks, none waits
            try:
                self._known = _ask(self._session)
            except Exception:  # Spark is stopping or starting
                pass
            finally:
                self._asked_s = self._clock_s()
                self._asking.release()
        return list(self._known)


def _ask(session: SparkSession) -> list[dict[str, object]]:
    context = session.sparkContext
    per_task = int(context.getConf().get("spark.task.cpus", "1"))
    summaries = context._jsc.sc().statusStore().executorList(True)
    found: list[dict[str, object]] = []
    for number in range(summaries.size()):
        summary = summaries.apply(number)
        cores = summary.totalCores()
        if cores > 0:  # otherwise it is the driver of a cluster, which runs no tasks
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
