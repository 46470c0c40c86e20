"""The driver's part of a job: plans batches, keeps the clocks, delivers output. No Spark here.

A batch is one epoch: `plan` decides what it reads and makes that durable; the executor runs it;
`complete` takes its messages, delivers its output under the epoch's number and writes down what the
next batch starts from.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from millpond.common.time import MIN_TIMESTAMP
from millpond.datastream.connectors.base import SplitEnumerator
from millpond.errors import JobCancelledError
from millpond.plan.physical import JobPlan, TaskPlan
from millpond.runtime.job_folder import JobFolder
from millpond.runtime.output import OutputDelivery
from millpond.runtime.task import codec
from millpond.runtime.task.batch import LanePlan, SplitPlan
from millpond.runtime.task.codec import BlobKind
from millpond.runtime.task.frames import Row, SplitEnd, Start
from millpond.runtime.task.host import origins_of
from millpond.runtime.task.metric_group import combine
from millpond.runtime.task.task_valve import TaskValve

_IDLE_POLL_S = 0.5


class Coordinator:
    """`clock_ms` gives processing time; it is read once per batch and written into its plan."""

    def __init__(
        self,
        plan: JobPlan,
        folder: JobFolder | None,
        output: OutputDelivery,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._output = output
        self._clock_ms = clock_ms
        self._max_records: int = plan.settings["max_batch_records"]
        self._interval_ms: int = plan.settings["trigger_interval_ms"]
        self.lanes: int = plan.settings["lanes"]
        self.metrics: dict[str, Any] = {}
        self.finished = False
        self._cancelled = threading.Event()
        self._wake = threading.Event()
        self._enumerators: dict[int, SplitEnumerator] = {}
        self._saved: dict[tuple[int, int], dict[int, Any]] = {}
        self._channels: dict[int, list[tuple[int, bool]]] = {}
        self._starts: dict[int, Start] = {}
        self._wakeup_ms: int | None = None
        self._ended: dict[int, list[bool]] = {}
        self._last_plan_ms = 0
        self.planned_time_ms = 0
        self.is_last_batch = False

    # --- start and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the sources where the newest completed batch left them."""
        for head in self._plan.heads:
            source = self._plan.operators[head.root].function
            enumerator = source.create_enumerator(head.parallelism)
            enumerator.available = self._wake
            self._enumerators[head.root] = enumerator
        self._starts = {
            task.id: Start([MIN_TIMESTAMP] * len(task.inputs), {}, MIN_TIMESTAMP)
            for task in self._plan.tasks.values()
            if task.level > 0
        }
        for origin, splits in origins_of(self._plan).items():
            self._channels[origin] = [(MIN_TIMESTAMP, True)] * (splits or 0)
        last = self._folder.last_epoch() if self._folder is not None else -1
        if self._folder is not None and last >= 0:
            self._restore(last)
        for enumerator in self._enumerators.values():
            enumerator.start()

    def _restore(self, epoch: int) -> None:
        assert self._folder is not None
        left = self._folder.read_epoch(epoch)
        plan = self._folder.read_plan(epoch)
        assert left is not None and plan is not None
        self._saved = left["saved"]
        self._channels = left["channels"]
        self._starts = {task: Start(*start) for task, start in left["starts"].items()}
        self._wakeup_ms = left["wakeup_ms"]
        self.metrics = left["metrics"]
        self.finished = left["finished"]
        self._take_positions(plan)

    def _take_positions(self, plan: dict[str, Any]) -> None:
        for source, position in plan["positions"].items():
            self._enumerators[source].restore(position)
        self._ended = plan["ended"]

    def cancel(self) -> None:
        self._cancelled.set()
        self._wake.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()

    # --- planning --------------------------------------------------------------------------------

    def plan(self, epoch: int) -> list[LanePlan] | None:
        """Wait for something to do and plan it. None if a plan for this epoch was there already."""
        if self._folder is not None:
            planned = self._folder.read_plan(epoch)
            if planned is not None:
                self._take_positions(planned)
                self.planned_time_ms = planned["time_ms"]
                self.is_last_batch = self._all_ended()
                return None
        reads = self._await_work()
        now_ms = self._clock_ms()
        self._last_plan_ms = now_ms
        self._ended = {source: e.ended() for source, e in self._enumerators.items()}
        self.planned_time_ms = now_ms
        self.is_last_batch = self._all_ended()
        self._announce_splits()
        lanes = [
            LanePlan(epoch, lane, now_ms, [], self._starts, self.is_last_batch)
            for lane in range(self.lanes)
        ]
        number = 0
        for source, enumerator in self._enumerators.items():
            for split in range(enumerator.split_count()):
                lanes[number % self.lanes].splits.append(
                    SplitPlan(
                        source,
                        split,
                        reads.get((source, split), []),
                        self._ended[source][split],
                        self._saved.get((source, split), {}),
                    )
                )
                number += 1
        if self._folder is not None:
            positions = {source: e.position() for source, e in self._enumerators.items()}
            self._folder.write_plan(
                epoch, lanes, {"positions": positions, "ended": self._ended, "time_ms": now_ms}
            )
        return lanes

    def _await_work(self) -> dict[tuple[int, int], list[Any]]:
        """Block until a source has something, a timer is due, everything has ended, or cancel."""
        while True:
            if self._cancelled.is_set():
                raise JobCancelledError("The job was cancelled.")
            self._wake.clear()
            now_ms = self._clock_ms()
            if now_ms - self._last_plan_ms >= self._interval_ms:
                reads: dict[tuple[int, int], list[Any]] = {}
                for source, enumerator in self._enumerators.items():
                    for work in enumerator.poll(self._max_records):
                        reads.setdefault((source, work.split), []).append(work.arguments)
                ended = {source: e.ended() for source, e in self._enumerators.items()}
                due = self._wakeup_ms is not None and now_ms >= self._wakeup_ms
                if reads or due or self._newly_ended(ended):
                    return reads
            self._wake.wait(self._pause_s(now_ms))

    def _all_ended(self) -> bool:
        return all(all(ended) for ended in self._ended.values())

    def _newly_ended(self, ended: dict[int, list[bool]]) -> bool:
        for source, flags in ended.items():
            known = self._ended.get(source, [])
            if any(flag and known[i : i + 1] != [True] for i, flag in enumerate(flags)):
                return True
        return False

    def _pause_s(self, now_ms: int) -> float:
        polls = [e.next_poll_in_ms() for e in self._enumerators.values()]
        waits = [poll for poll in polls if poll is not None]
        if self._wakeup_ms is not None:
            waits.append(max(0, self._wakeup_ms - now_ms))
        if self._interval_ms:
            waits.append(max(1, self._interval_ms - (now_ms - self._last_plan_ms)))
        return min(waits) / 1000 if waits else _IDLE_POLL_S

    def _announce_splits(self) -> None:
        """New splits hold every clock back until they have been read."""
        for head in self._plan.heads:
            count = self._enumerators[head.root].split_count()
            for origin in head.origins:
                channels = self._channels.setdefault(origin, [])
                channels.extend([(MIN_TIMESTAMP, True)] * (count - len(channels)))
        for task in self._plan.tasks.values():
            if task.level > 0:
                origins = self._origins_of_inputs(task)
                self._starts[task.id] = self._starts[task.id]._replace(origins=origins)

    # --- completing ------------------------------------------------------------------------------

    def complete(self, epoch: int, rows: list[Row]) -> None:
        """Take in the messages of a batch that ran, deliver its output, and make the epoch durable."""
        ends: list[SplitEnd] = []
        prepared: list[tuple[int, int, Any]] = []
        wakeups: list[int] = []
        for _, _, blob in rows:
            if codec.kind_of(blob) != BlobKind.META:
                continue
            meta = codec.decode(BlobKind.META, blob)
            ends.extend(SplitEnd(*end) for end in meta.get("ends", ()))
            prepared.extend(meta.get("prepared", ()))
            self._saved.update(meta.get("splits", {}))
            combine(self.metrics, meta.get("metrics", {}))
            if meta.get("wakeup_ms") is not None:
                wakeups.append(meta["wakeup_ms"])
        self._advance_clocks(sorted(ends))
        self._wakeup_ms = min(wakeups, default=None)
        self.finished = self._all_ended()
        self._output.deliver(epoch, rows, prepared)
        if self._folder is not None:
            self._folder.write_epoch(
                epoch,
                {
                    "saved": self._saved,
                    "channels": self._channels,
                    "starts": {task: tuple(start) for task, start in self._starts.items()},
                    "wakeup_ms": self._wakeup_ms,
                    "metrics": self.metrics,
                    "finished": self.finished,
                },
            )
            self._folder.drop_batches_before(epoch)

    def _advance_clocks(self, ends: list[SplitEnd]) -> None:
        valves = {
            task.id: TaskValve(task, self._starts[task.id])
            for task in self._plan.tasks.values()
            if task.level > 0
        }
        for end in ends:
            channels = self._channels[end.origin]
            channels[end.split] = (max(channels[end.split][0], end.watermark), end.active)
            for valve in valves.values():
                valve.on_end(end)
        for task, valve in valves.items():
            self._starts[task] = valve.to_start(self._origins_of_inputs(self._plan.tasks[task]))

    def _origins_of_inputs(self, task: TaskPlan) -> dict[int, list[tuple[int, bool]]]:
        origins = {origin for task_input in task.inputs for origin in task_input.origins}
        return {origin: list(self._channels[origin]) for origin in sorted(origins)}

    def watermarks(self) -> dict[int, int]:
        """Each task's event-time clock after the newest batch."""
        return {task: start.clock for task, start in self._starts.items()}
