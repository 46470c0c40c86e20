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
from typing import Any

from millpond.core import codec, fault_points
from millpond.driver.job_folder import JobFolder
from millpond.driver.job_state import JobState
from millpond.driver.savepoint_orders import SavepointOrder, SavepointOrders
from millpond.engine.exchange.frames import Start
from millpond.errors import MillpondError, SavepointError
from millpond.plan.physical import JobPlan
from millpond.savepoint.parts import Part, check_parts
from millpond.savepoint.writer import write_savepoint

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Done:
    """A savepoint whose batch is through. `state`: what the driver knew then, by uid."""

    order: SavepointOrder
    state: dict[str, Any]
    epoch: int
    parts: list[Part]


class SavepointDesk:
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
        directory = plan.settings.get("savepoint_dir")
        self.orders = SavepointOrders(job_folder, plan.settings["job_id"], directory)
        self._done: list[_Done] = []
        self._threads: list[threading.Thread] = []

    def ask(self, directory: str | None, stop: bool = False, drain: bool = False) -> Future[str]:
        future = self.orders.ask(directory, stop, drain)
        self._wake()
        return future

    def go_on(self, folder: JobFolder) -> None:
        """The driver may have died after a batch with a savepoint, before that was put together."""
        for epoch in folder.planned_epochs():
            plan, left = folder.read_plan(epoch), folder.read_epoch(epoch)
            if plan is None or left is None or plan.get("savepoint") is None:
                continue
            order = SavepointOrder(**plan["savepoint"])
            if order.target.exists():
                order.clean_up()
            elif order.staging.exists():
                self.orders.go_on(order)
                state = JobState(
                    plan["positions"],
                    plan["ended"],
                    left["saved"],
                    left["channels"],
                    {task: Start(*start) for task, start in left["starts"].items()},
                    plan["time_ms"],
                )
                self.batch_done(order, state, epoch, left["parts"])

    def batch_done(
        self, order: SavepointOrder, state: JobState, epoch: int, parts: list[Part]
    ) -> bool:
        """A batch has left the parts of a savepoint; it is not committed yet. True if the job ends with it:
        whoever wanted that may have thought better of it."""
        ends_job = order.stop and (order.drain or not self.orders.is_withdrawn(order))
        # A copy: the next batch goes on with what is in there.
        content = codec.loads(codec.dumps(state.by_uid(self._plan)))
        self._done.append(_Done(replace(order, stop=ends_job), content, epoch, parts))
        return ends_job

    def forget(self, epoch: int) -> None:
        """This batch was not committed after all, and runs again."""
        self._done = [done for done in self._done if done.epoch != epoch]

    def write_what_is_done(self) -> None:
        """The batch is committed, and its output visible. If a savepoint that ends the job cannot be written,
        the job has failed."""
        done, self._done = self._done, []
        for own in done:
            if own.order.stop:
                problem = self._write(own)
                if problem is not None:
                    raise problem
            else:
                thread = threading.Thread(target=self._write, args=(own,))
                thread.start()
                self._threads.append(thread)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _write(self, done: _Done) -> MillpondError | None:
        order, problem = done.order, None
        if self._is_withdrawn(order):
            order.clean_up()
            return None
        try:
            fault_points.reach("driver before savepoint")
            created_ms = time.time_ns() // 1_000_000
            check_parts(order.staging, done.parts)
            write_savepoint(
                self._plan,
                order.staging,
                order.target,
                done.state,
                done.epoch,
                created_ms,
                order.drain,
            )
            fault_points.reach("driver after savepoint")
            if self._is_withdrawn(order):
                shutil.rmtree(order.target, ignore_errors=True)
            else:
                ended_ms = time.time_ns() // 1_000_000
                began_ms = done.state["time_ms"]  # when its batch was planned
                self._is_there(str(order.target), ended_ms, max(0, ended_ms - began_ms))
        except Exception as failure:
            shutil.rmtree(order.staging, ignore_errors=True)
            _log.warning("Savepoint %s failed: %s", order.target, failure)
            problem = (
                failure
                if isinstance(failure, MillpondError)
                else SavepointError(f"The savepoint {order.target} could not be written: {failure}")
            )
        self.orders.done(order, problem)
        return problem

    def _is_withdrawn(self, order: SavepointOrder) -> bool:
        """A job that has ended with a savepoint leaves it, whoever waits."""
        return not order.stop and self.orders.is_withdrawn(order)

    def close(self, unfinished: SavepointOrder | None) -> None:
        """The job has ended. `unfinished`: of a batch that was planned and did not complete."""
        for thread in self._threads:
            thread.join()
        if unfinished is not None:
            shutil.rmtree(unfinished.staging, ignore_errors=True)
            self.orders.done(
                unfinished, SavepointError("The job ended before the savepoint was complete.")
            )
        for done in self._done:
            shutil.rmtree(done.order.staging, ignore_errors=True)
            self.orders.done(
                done.order, SavepointError("The job ended before the savepoint was complete.")
            )
        self.orders.give_up("The job ended before the savepoint was taken.")
