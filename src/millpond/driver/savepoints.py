"""Savepoints of a running job: they are asked for, taken with a batch, and put together once the batch is
committed."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import astuple, dataclass, replace
from pathlib import Path

from millpond.core import fault_points
from millpond.driver.epochs.epoch_record import UnfinishedSavepoint
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
    """A savepoint whose batch is complete. `state` is what the driver knew at that time, by uid."""

    request: SavepointRequest
    state: SavedJobState
    epoch: int
    parts: list[Part]


class Savepoints:
    """The savepoints of one attempt. A savepoint that does not end the job is put together in a thread while
    the job goes on. `is_there` is called for every savepoint that is complete: with its path, the time when
    it was complete, and how long it took, both in ms."""

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
        self._done: list[_Done] = []  # whose batches count, but whose writing has not begun
        self._unfinished: list[_Done] = []
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def ask(self, directory: str | None, stop: bool = False, drain: bool = False) -> Future[str]:
        """Ask for a savepoint and wake the job up for it. The future gets its path, or the error. Any thread
        may call this. Raises SavepointError if neither `directory` nor a default folder is set."""
        future = self.requests.ask(directory, stop, drain)
        self._wake()
        return future

    def go_on(self, unfinished: list[UnfinishedSavepoint]) -> bool:
        """Go on with savepoints whose batches count, but which had not been put together, or whose askers had
        not been told, when the driver died. Return whether the job ends with one of them: whoever has asked
        for that relies on nothing being read after it. (A job that is started again later goes on.)"""
        ends_job = False
        for fields, state, epoch, parts in unfinished:
            request = SavepointRequest(*fields)  # type: ignore[arg-type]
            if request.target.exists():
                request.clean_up()
                ends_job |= self.requests.answer_late(request) and request.stop
            elif request.staging.exists():
                self.requests.go_on(request)
                content = SavedJobState.decode(state, "the state of the job")
                self._add(_Done(request, content, epoch, parts))
                ends_job |= request.stop
        return ends_job

    def unfinished(self) -> list[UnfinishedSavepoint]:
        """Return the savepoints that batches have taken, and that are not put together yet."""
        with self._lock:
            return [
                (astuple(done.request), done.state.encode(), done.epoch, done.parts)
                for done in self._unfinished
            ]

    def _add(self, done: _Done) -> None:
        self._done.append(done)
        with self._lock:
            self._unfinished.append(done)

    def batch_done(
        self, request: SavepointRequest, state: JobState, epoch: int, parts: list[Part]
    ) -> bool:
        """Keep the parts of a savepoint that a batch has left, until the batch is committed. Return whether
        the job ends with it: the process that asked for that may have withdrawn the request."""
        ends_job = request.stop and (request.drain or not self.requests.is_withdrawn(request))
        # A copy, because the next batch changes the objects in the state.
        content = SavedJobState.decode(state.by_uid(self._plan).encode(), "the state of the job")
        self._add(_Done(replace(request, stop=ends_job), content, epoch, parts))
        return ends_job

    def write_what_is_done(self) -> None:
        """Put together the savepoints of batches that are committed and whose output is visible. Raises if a
        savepoint that ends the job cannot be written: then the job has failed."""
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
        try:
            return self._put_together(done)
        finally:
            with self._lock:
                self._unfinished.remove(done)

    def _put_together(self, done: _Done) -> MillpondError | None:
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
                done.parts,
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
        """Return whether nobody wants the savepoint any more. One that ends the job is kept in any case."""
        return not request.stop and self.requests.is_withdrawn(request)

    def close(self, unfinished: SavepointRequest | None) -> None:
        """Wait for the threads and refuse all other requests, because the attempt is over. `unfinished` is
        the request of a batch that was planned and did not complete."""
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
