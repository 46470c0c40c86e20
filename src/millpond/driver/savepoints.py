"""Savepoints of a running job: asked for, taken with a batch, put together once that is committed."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from millpond.core import fault_points
from millpond.driver.job_folder import JobFolder
from millpond.driver.job_state import JobState
from millpond.driver.savepoint_requests import SavepointRequest, SavepointRequests
from millpond.errors import MillpondError, SavepointError
from millpond.plan.physical import JobPlan
from millpond.savepoint.job_state import SavedJobState
from millpond.savepoint.parts import Part, check_parts
from millpond.savepoint.writer import write_savepoint

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Done:
    """A savepoint whose batch is through. `state`: what the driver knew then, by uid."""

    request: SavepointRequest
    state: SavedJobState
    epoch: int
    parts: list[Part]


class Savepoints:
    """A savepoint that does not end the job is put together in a thread, while the job goes on. `is_there` is
    called with the path of one that is complete, when that was, and how long it took, in ms."""

    def __init__(
        self,
        plan: JobPlan,
        job_folder: Path | None,
        wake: Callable[[], None],
        is_there: Callable[[str, int, int], None] = lambda path, created_ms, duration_ms: None,
    ) -> None:
        self._plan = plan
        self._wake = wake
        self._is_there = is_there
        self.requests = SavepointRequests(
            job_folder, plan.start.job_id, plan.settings.savepoint_dir
        )
        self._done: list[_Done] = []
        self._threads: list[threading.Thread] = []

    def ask(self, directory: str | None, stop: bool = False, drain: bool = False) -> Future[str]:
        future = self.requests.ask(directory, stop, drain)
        self._wake()
        return future

    def go_on(self, folder: JobFolder) -> None:
        """The driver may have died after a batch with a savepoint, before that was put together."""
        for epoch in folder.planned_epochs():
            plan, record = folder.read_plan(epoch), folder.read_epoch(epoch)
            if plan is None or record is None or plan.savepoint is None:
                continue
            request = plan.savepoint
            if request.target.exists():
                request.clean_up()
            elif request.staging.exists():
                self.requests.go_on(request)
                state = JobState(
                    plan.positions,
                    plan.ended,
                    record.generators,
                    record.channels,
                    record.starts,
                    plan.time_ms,
                )
                self.batch_done(request, state, epoch, record.parts)

    def batch_done(
        self, request: SavepointRequest, state: JobState, epoch: int, parts: list[Part]
    ) -> bool:
        """A batch has left the parts of a savepoint; it is not committed yet. True if the job ends with it:
        whoever wanted that may have thought better of it."""
        ends_job = request.stop and (request.drain or not self.requests.is_withdrawn(request))
        # A copy: the next batch goes on with what is in there.
        content = SavedJobState.decode(state.by_uid(self._plan).encode(), "the state of the job")
        self._done.append(_Done(replace(request, stop=ends_job), content, epoch, parts))
        return ends_job

    def forget(self, epoch: int) -> None:
        """This batch was not committed after all, and runs again."""
        self._done = [done for done in self._done if done.epoch != epoch]

    def write_what_is_done(self) -> None:
        """The batch is committed, and its output visible. If a savepoint that ends the job cannot be written,
        the job has failed."""
        done, self._done = self._done, []
        for savepoint in done:
            if savepoint.request.stop:
                problem = self._write(savepoint)
                if problem is not None:
                    raise problem
            else:
                thread = threading.Thread(target=self._write, args=(savepoint,))
                thread.start()
                self._threads.append(thread)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _write(self, done: _Done) -> MillpondError | None:
        request, problem = done.request, None
        if self._is_withdrawn(request):
            request.clean_up()
            return None
        try:
            fault_points.reach("driver before savepoint")
            created_ms = time.time_ns() // 1_000_000
            check_parts(request.staging, done.parts)
            write_savepoint(
                self._plan,
                request.staging,
                request.target,
                done.state,
                done.epoch,
                created_ms,
                request.drain,
            )
            fault_points.reach("driver after savepoint")
            if self._is_withdrawn(request):
                shutil.rmtree(request.target, ignore_errors=True)
            else:
                ended_ms = time.time_ns() // 1_000_000
                began_ms = done.state.time_ms  # when its batch was planned
                self._is_there(str(request.target), ended_ms, max(0, ended_ms - began_ms))
        except Exception as failure:
            shutil.rmtree(request.staging, ignore_errors=True)
            _log.warning("Savepoint %s failed: %s", request.target, failure)
            problem = (
                failure
                if isinstance(failure, MillpondError)
                else SavepointError(
                    f"The savepoint {request.target} could not be written: {failure}"
                )
            )
        self.requests.done(request, problem)
        return problem

    def _is_withdrawn(self, request: SavepointRequest) -> bool:
        """A job that has ended with a savepoint leaves it, whoever waits."""
        return not request.stop and self.requests.is_withdrawn(request)

    def close(self, unfinished: SavepointRequest | None) -> None:
        """The job has ended. `unfinished`: of a batch that was planned and did not complete."""
        for thread in self._threads:
            thread.join()
        if unfinished is not None:
            shutil.rmtree(unfinished.staging, ignore_errors=True)
            self.requests.done(
                unfinished, SavepointError("The job ended before the savepoint was complete.")
            )
        for done in self._done:
            shutil.rmtree(done.request.staging, ignore_errors=True)
            self.requests.done(
                done.request, SavepointError("The job ended before the savepoint was complete.")
            )
        self.requests.give_up("The job ended before the savepoint was taken.")
