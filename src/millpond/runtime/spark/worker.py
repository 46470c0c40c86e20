"""What runs inside Spark's Python workers: hosts that outlive a batch, and the passes.

A Python worker serves many tasks, one after the other. It keeps one host per job run, so functions
stay open and states of key groups stay in memory; the log says whether they are still the truth.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from millpond.errors import MillpondError, ProgramError, UserFunctionError
from millpond.runtime.task.batch import LanePlan
from millpond.runtime.task.frames import Row
from millpond.runtime.task.host import JobHost
from millpond.runtime.task.sink_pass import SinkHost

Host = TypeVar("Host")
_HOSTS_KEPT = 4
_hosts: dict[str, JobHost] = {}
_sink_hosts: dict[str, SinkHost] = {}
ERROR_START, ERROR_END = "<<millpond:", ":millpond>>"


class JobRef:
    """A job as it is sent to workers: an id for the cache, and the pickled plan."""

    def __init__(self, run_id: str, blob: bytes, attempt: int, folder: str, lanes: int) -> None:
        self.run_id = run_id
        self.blob = blob
        self.attempt = attempt
        self.folder = folder
        self.lanes = lanes

    def host(self) -> JobHost:
        return _cached(_hosts, self.run_id, lambda: JobHost(self.blob, self.attempt))

    def known_host(self) -> JobHost | None:
        return _hosts.get(self.run_id)

    def sink_host(self) -> SinkHost:
        return _cached(_sink_hosts, self.run_id, lambda: SinkHost(self.blob))


def _cached(hosts: dict[str, Host], run_id: str, make: Callable[[], Host]) -> Host:
    host = hosts.get(run_id)
    if host is None:
        while len(hosts) >= _HOSTS_KEPT:  # jobs of the past: the oldest first
            del hosts[next(iter(hosts))]
        try:
            host = hosts[run_id] = make()
        except ModuleNotFoundError as problem:
            raise ProgramError(
                f"Workers cannot import '{problem.name}', which the program uses. Call "
                "env.add_python_file() with the module, package folder or zip, or install it on "
                "the workers."
            ) from None
    return host


def run_lane(job: JobRef, tick: int) -> Iterator[Row]:
    """The head pass of one lane. Ticks count through the lanes of batch 0, then of batch 1, ..."""
    epoch, lane = divmod(tick, job.lanes)
    path = f"{job.folder}/plans/{epoch}-{lane}.lane"
    with reported_errors():
        host = job.host()  # first: the plan may hold objects of classes that come with the job
        with open(path, "rb") as file:
            plan = LanePlan.decode(file.read(), path)
        yield from host.run_lane(plan)


def run_sinks(
    job: JobRef, rows: Iterable[Row], epoch: int, processing_time_ms: int, last_batch: bool
) -> list[Row]:
    with reported_errors():
        host = job.sink_host()
        done = host.run(rows, epoch, processing_time_ms)
        if last_batch:
            host.close()
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
