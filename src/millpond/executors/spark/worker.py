"""What runs inside Spark's Python workers: the passes of a job.

With slots, a worker is a relay: it hands the work to the partition's slot. Without slots, it does the work
itself: it keeps one host per run, so that functions stay open and the states of key groups stay in memory
between batches. The log head says whether they are still the truth.
"""

from __future__ import annotations

import gc
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from pyspark import TaskContext

from millpond.core import fault_points
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.exchange.frames import Row
from millpond.engine.host import JobHost
from millpond.engine.sink_pass import SinkHost
from millpond.engine.state_views import NEEDS_SLOTS, StateViews
from millpond.engine.work_meter import Surroundings
from millpond.errors import ProgramError
from millpond.executors.slot.process import missing_module
from millpond.executors.slot.protocol import BEFORE_ALL_TASKS
from millpond.executors.slot.relay import Relay
from millpond.executors.spark.error_text import reported_errors
from millpond.executors.spark.job_ref import JobRef
from millpond.state.change_log import LogStore

Host = TypeVar("Host")
_HOSTS_KEPT = 4
_FIRST_TASKS = 5
_tasks_begun = 0
_hosts: dict[str, JobHost] = {}
_sink_hosts: dict[str, SinkHost] = {}


def runner_of(job: JobRef) -> Runner:
    """Return what does the work of the Spark task that is running now: a relay, or this process."""
    _set_modules_aside()
    if job.slots is None:
        return _InWorker(job)
    context = TaskContext.get()
    assert context is not None
    return Relay(job.slots, context.partitionId(), context.taskAttemptId(), job.blob, job.attempt)


def _set_modules_aside() -> None:
    """Exempt the modules from garbage collection. PySpark collects garbage after each task and walks through
    all modules for that: 60 to 80 ms, of a batch that may take 300. What exists when one of the first tasks
    begins has just been looked through, and stays."""
    global _tasks_begun
    if _tasks_begun < _FIRST_TASKS:
        _tasks_begun += 1
        gc.freeze()


def refuse_without_slots() -> None:
    """Raise ProgramError, because a function has declared a queryable state but there are no slots."""
    raise ProgramError(NEEDS_SLOTS)


def wake(job: JobRef, partition: int) -> None:
    """Start what will do a partition's work, and let it load the job, before there is any work."""
    if job.slots is None:
        _InWorker(job)
    else:
        # It claims to be older than any task, so that a task with work takes over.
        Relay(job.slots, partition, BEFORE_ALL_TASKS, job.blob, job.attempt).close()


class Runner(Protocol):
    """Runs the passes of one task attempt."""

    def run_lane(self, path: str) -> Iterator[Row]:
        """Run the source tasks for the lane whose plan is at `path`; return their rows."""

    def run_label(
        self, level: int, label: int, blobs: Iterable[bytes], store: LogStore
    ) -> list[Row]:
        """Run the task of a label on its blobs and return the rows that come out. Its change log is in
        `store`."""

    def run_sinks(
        self,
        rows: list[Row],
        subtask: int | None,
        epoch: int,
        processing_time_ms: int,
        last_batch: bool,
    ) -> list[Row]:
        """Write the rows that are for sinks; return the other rows, and the reports of the sinks. `subtask`
        is None if the labels of the rows name it. `last_batch` closes the sinks."""

    def close_level(self, level: int) -> None:
        """Close the functions of a level if this was the job's last batch."""

    def close(self) -> None:
        """End the task attempt. Functions stay open, and state stays in memory, for the next batch."""


class _InWorker:
    """Does the work in this process."""

    def __init__(self, job: JobRef) -> None:
        self._job = job
        folder = os.path.join(job.worker_folder, str(os.getpid()))
        self._host = _cached(
            _hosts,
            job.run_id,
            lambda: JobHost(
                job.blob,
                job.attempt,
                folder,
                surroundings=_surroundings(),
                views=StateViews(refuse_without_slots),
            ),
        )

    def run_lane(self, path: str) -> Iterator[Row]:
        with open(path, "rb") as file:
            plan = LanePlan.decode(file.read(), path)
        return self._host.run_lane(plan)

    def run_label(
        self, level: int, label: int, blobs: Iterable[bytes], store: LogStore
    ) -> list[Row]:
        fault_points.reach("slot before label")
        rows = self._host.run_label(level, label, blobs, store)
        fault_points.reach("relay after write")
        return rows

    def run_sinks(
        self,
        rows: list[Row],
        subtask: int | None,
        epoch: int,
        processing_time_ms: int,
        last_batch: bool,
    ) -> list[Row]:
        host = _cached(
            _sink_hosts, self._job.run_id, lambda: SinkHost(self._job.blob, _surroundings())
        )
        done = host.run(rows, subtask, epoch, processing_time_ms)
        if last_batch:
            host.close()
        return done

    def close_level(self, level: int) -> None:
        if self._host.in_last_batch:
            self._host.close_level(level)

    def close(self) -> None:
        """Do nothing: the host stays for the next batch."""


def _surroundings() -> Surroundings:
    return Surroundings(time.perf_counter_ns, machine=socket.gethostname())


def _cached(hosts: dict[str, Host], run_id: str, make: Callable[[], Host]) -> Host:
    host = hosts.get(run_id)
    if host is None:
        while len(hosts) >= _HOSTS_KEPT:  # drop the hosts of earlier runs, the oldest first
            del hosts[next(iter(hosts))]
        try:
            host = hosts[run_id] = make()
        except ModuleNotFoundError as problem:
            raise ProgramError(missing_module(problem)) from None
    return host


def run_lane(job: JobRef, tick: int) -> Iterator[Row]:
    """Run the source tasks of one lane and yield their rows. Ticks count through the lanes of batch 0, then
    of batch 1, and so on."""
    epoch, lane = divmod(tick, job.lanes)
    with reported_errors():
        runner = job.runner()
        yield from runner.run_lane(f"{job.folder}/plans/{epoch}-{lane}.lane")
        runner.close()


def run_sinks(
    job: JobRef,
    rows: list[Row],
    in_place: bool,
    epoch: int,
    processing_time_ms: int,
    last_batch: bool,
) -> list[Row]:
    """Run the sinks of this partition. If `in_place`, records are where they were produced, and the number of
    the partition is that of the subtask; otherwise they were brought to the subtask that their labels
    name."""
    with reported_errors():
        context = TaskContext.get()
        assert context is not None
        subtask = context.partitionId() if in_place else None
        runner = job.runner()
        done = runner.run_sinks(rows, subtask, epoch, processing_time_ms, last_batch)
        runner.close()
        return done
