"""Runs a bounded job in the calling process, without Spark, in milliseconds: for users' unit tests.

Everything but Spark is the same: plan, frames, key groups, logs, epochs. What passes here passes on
Spark, because records and state take the same way through the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millpond.errors import ProgramError
from millpond.plan.physical import JobPlan
from millpond.runtime.coordinator import Coordinator
from millpond.runtime.output import OutputDelivery
from millpond.runtime.task import codec
from millpond.runtime.task.changelog import MemoryLogStore
from millpond.runtime.task.frames import SINK_LEVEL, Row
from millpond.runtime.task.host import JobHost
from millpond.runtime.task.sink_pass import SinkHost


def check_ends(plan: JobPlan) -> None:
    for head in plan.heads:
        operator = plan.operators[head.root]
        if operator.function.endless:
            raise ProgramError(
                f"Source '{operator.name}' never ends, but the direct executor runs bounded jobs "
                "only. Use millpond.executor=spark."
            )


class DirectExecutor:
    def __init__(
        self,
        plan: JobPlan,
        collect: Callable[[list[Any]], None] | None,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        check_ends(plan)
        self._plan = plan
        blob = codec.dumps(plan)
        self._host = JobHost(blob)
        self._sinks = SinkHost(blob)
        self._logs: dict[tuple[int, int], MemoryLogStore] = {}
        output = OutputDelivery(plan, collect)
        self.coordinator = (
            Coordinator(plan, None, output)
            if clock_ms is None
            else Coordinator(plan, None, output, clock_ms)
        )

    def run(self) -> None:
        coordinator = self.coordinator
        coordinator.start()
        try:
            epoch = 0
            while not coordinator.finished:
                self._run_batch(epoch)
                epoch += 1
            self._host.close()
            self._sinks.close()
        finally:
            coordinator.close()

    def cancel(self) -> None:
        self.coordinator.cancel()

    def metrics(self) -> dict[str, Any]:
        return self.coordinator.metrics

    def _run_batch(self, epoch: int) -> None:
        lanes = self.coordinator.plan(epoch)
        assert lanes is not None
        rows: list[Row] = []
        for lane in lanes:
            rows.extend(self._host.run_lane(lane))
        for level in range(1, self._plan.levels + 1):
            rows = self._run_level(level, rows)
        rows = [row for row in rows if row[0] == SINK_LEVEL]
        done = self._sinks.run(rows, epoch, lanes[0].processing_time_ms)
        self.coordinator.complete(epoch, done)

    def _run_level(self, level: int, rows: list[Row]) -> list[Row]:
        passed = [row for row in rows if row[0] != level]
        groups: dict[int, list[bytes]] = {}
        for row_level, label, blob in rows:
            if row_level == level:
                groups.setdefault(label, []).append(blob)
        for label, blobs in groups.items():
            store = self._logs.setdefault((level, label), MemoryLogStore())
            passed.extend(self._host.run_label(level, label, blobs, store))
        return passed
