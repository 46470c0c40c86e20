"""The executors of a Spark application, as Spark lists them (O1: task managers)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_FRESH_S = 5.0


@dataclass(frozen=True)
class ExecutorInfo:
    """An executor. `slots` is the number of tasks that it can run at once."""

    id: str
    host: str
    port: int
    cores: int
    memory_bytes: int
    slots: int

    def report(self) -> dict[str, object]:
        """Return the executor in the form of the job report."""
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


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
                found = executors_of(self._session.sparkContext)
                self._known = [executor.report() for executor in found]
            except Exception:  # Spark is stopping or starting
                pass
            finally:
                self._asked_s = self._clock_s()
                self._asking.release()
        return list(self._known)


def executors_of(context: SparkContext) -> list[ExecutorInfo]:
    """Return the executors that run tasks."""
    per_task = int(context.getConf().get("spark.task.cpus", "1"))
    summaries = context._jsc.sc().statusStore().executorList(True)
    found = []
    for number in range(summaries.size()):
        summary = summaries.apply(number)
        cores = summary.totalCores()
        if cores > 0:  # otherwise it is the driver of a cluster, which runs no tasks
            host, port = host_and_port(summary.hostPort())
            found.append(
                ExecutorInfo(
                    summary.id(), host, port, cores, summary.maxMemory(), cores // per_task
                )
            )
    return found


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an executor's address as Spark reports it. Until the executor has said on which
    port it listens, the address is the host alone, and the port is 0."""
    host, _, port = address.rpartition(":")
    return (host, int(port)) if host and port.isdigit() else (address, 0)


def executor_ids(context: SparkContext) -> frozenset[str]:
    """Return the ids of the executors that a cluster has at this moment."""
    ids: str = context._jsc.sc().getExecutorIds().mkString(" ")
    return frozenset(ids.split())


def machines_of_cached(context: SparkContext, rdd_id: int, partitions: int) -> list[str | None]:
    """Return the machine on which each partition of an RDD is cached, or None."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    machines: list[str | None] = [None] * partitions
    hosts = {executor.id: executor.host for executor in executors_of(context)}
    try:
        cached = context._jsc.sc().statusStore().rdd(rdd_id).partitions().get()
    except Py4JError:  # nothing of it is cached
        return machines
    for number in range(cached.size()):
        partition = cached.apply(number)
        executors = partition.executors()
        if executors.size():
            # The name of a block is rdd_ID_PARTITION.
            machines[int(partition.blockName().rpartition("_")[2])] = hosts.get(executors.apply(0))
    return machines
