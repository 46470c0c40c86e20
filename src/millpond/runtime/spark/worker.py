"""What runs inside Spark's Python workers: the passes of a job.

With slots a worker is a relay: it hands the work to the partition's slot. Without, it works itself: it
keeps one host per job run, so functions stay open and states of key groups stay in memory between
batches; the log says whether they are still the truth.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

from pyspark import TaskContext

from millpond.errors import MillpondError, ProgramError, UserFunctionError
from millpond.runtime import fault_points
from millpond.runtime.slot.process import missing_module
from millpond.runtime.slot.protocol import BEFORE_ALL_TASKS
from millpond.runtime.slot.relay import Relay
from millpond.runtime.slot.settings import SlotSettings
from millpond.runtime.task.batch import LanePlan
from millpond.runtime.task.changelog import LogStore
from millpond.runtime.task.frames import Row
from millpond.runtime.task.host import JobHost
from millpond.runtime.task.sink_pass import SinkHost

Host = TypeVar("Host")
_HOSTS_KEPT = 4
_hosts: dict[str, JobHost] = {}
_sink_hosts: dict[str, SinkHost] = {}
ERROR_START, ERROR_END = "<<millpond:", ":millpond>>"


class JobRef:
    """A job as it is sent to workers: an id for the cache, the pickled plan, and where slots are.
    `slots` is None if there are none."""

    def __init__(
        self,
        run_id: str,
        blob: bytes,
        attempt: int,
        folder: str,
        lanes: int,
        slots: SlotSettings | None,
    ) -> None:
        self.run_id = run_id
        self.blob = blob
        self.attempt = attempt
        self.folder = folder
        self.lanes = lanes
        self.slots = slots

    def runner(self) -> Runner:
        """Whoever does the work of the task that is running now."""
        if self.slots is None:
            return _InWorker(self)
        context = TaskContext.get()
        assert context is not None
        return Relay(
            self.slots, context.partitionId(), context.taskAttemptId(), self.blob, self.attempt
        )

    def wake(self, partition: int) -> None:
        """Let whoever will do a partition's work start, and load the job, before there is any."""
        if self.slots is None:
            _InWorker(self)
        else:
            # Older than any task: whoever comes with work takes over.
            Relay(self.slots, partition, BEFORE_ALL_TASKS, self.blob, self.attempt).close()


class Runner(Protocol):
    """Runs the passes of one task attempt."""

    def run_lane(self, path: str) -> Iterator[Row]: ...

    def run_label(
        self, level: int, label: int, blobs: Iterable[bytes], store: LogStore
    ) -> list[Row]: ...

    def run_sinks(
        self,
        rows: list[Row],
        subtask: int | None,
        epoch: int,
        processing_time_ms: int,
        last_batch: bool,
    ) -> list[Row]: ...

    def close_level(self, level: int) -> None:
        """Close the functions of a level if this was the job's last batch."""

    def close(self) -> None: ...


class _InWorker:
    """Works in this process."""

    def __init__(self, job: JobRef) -> None:
        self._job = job
        self._host = _cached(_hosts, job.run_id, lambda: JobHost(job.blob, job.attempt))

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
        host = _cached(_sink_hosts, self._job.run_id, lambda: SinkHost(self._job.blob))
        done = host.run(rows, subtask, epoch, processing_time_ms)
        if last_batch:
            host.close()
        return done

    def close_level(self, level: int) -> None:
        if self._host.in_last_batch:
            self._host.close_level(level)

    def close(self) -> None:
        """The host stays for the next batch."""


def _cached(hosts: dict[str, Host], run_id: str, make: Callable[[], Host]) -> Host:
    host = hosts.get(run_id)
    if host is None:
        while len(hosts) >= _HOSTS_KEPT:  # jobs of the past: the oldest first
            del hosts[next(iter(hosts))]
        try:
            host = hosts[run_id] = make()
        except ModuleNotFoundError as problem:
            raise ProgramError(missing_module(problem)) from None
    return host


def run_lane(job: JobRef, tick: int) -> Iterator[Row]:
    """The head pass of one lane. Ticks count through the lanes of batch 0, then of batch 1, ..."""
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
    """The pass of the sinks. `in_place`: records are where they came to be, and this partition's
    number is the subtask's; else they were brought to the subtask their labels name."""
    with reported_errors():
        context = TaskContext.get()
        assert context is not None
        subtask = context.partitionId() if in_place else None
        runner = job.runner()
        done = runner.run_sinks(rows, subtask, epoch, processing_time_ms, last_batch)
        runner.close()
        return done


class reported_errors:  # noqa: N801 (reads as a statement)
    """Turns Millpond's errors into a text that survives the way through the JVM: one short line in
    which the driver finds the error again (`find_error`)."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, MillpondError):
            fields = (
                list(problem.args) if isinstance(problem, UserFunctionError) else [str(problem)]
            )
            text = json.dumps([type(problem).__name__, fields])
            packed = base64.b64encode(text.encode()).decode()
            raise RuntimeError(f"{ERROR_START}{packed}{ERROR_END}") from None


def find_error(text: str) -> MillpondError | None:
    """The error that `reported_errors` put into a text, if any."""
    import millpond.errors

    start = text.find(ERROR_START)
    end = text.find(ERROR_END, start)
    if start < 0 or end < 0:
        return None
    packed = text[start + len(ERROR_START) : end]
    name, fields = json.loads(base64.b64decode(packed))
    error: MillpondError = getattr(millpond.errors, name)(*fields)
    return error
