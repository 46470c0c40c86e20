"""Keeps the partitions of a job on the machines where their state is.

Spark runs a task wherever a core is free, unless the task's partition has a preferred location. So there is
an RDD, the anchors: it has a partition for each one of the job, and is cached where it was computed, which is
also where slots were started. Every stage is united with it, and takes over its locations. If a machine is
busy, Spark waits for it (spark.locality.wait) before it runs the task elsewhere.

If an executor is lost on one of these machines, the batch is stopped, and its partitions are placed on those
that are left. If executors are added, partitions move to them, but no more than it takes to use all machines
alike, and only when no executor has come or gone for a while.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millpond.executors.spark.executor_list import (
    ExecutorInfo,
    executor_ids,
    executors_of,
    machines_of_cached,
)
from millpond.executors.spark.executor_watch import ExecutorWatch

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_SETTLED_S = 10.0
"""How long the list of executors must stay the same before partitions move to other ones. One that was lost
is often replaced within seconds, when its partitions have just been taken over by others."""


def spread(current: Sequence[str | None], room: Mapping[str, int]) -> list[str | None]:
    """Return the machine on which each partition is to be. `current` has the machine on which it is, None if
    it is on none; `room` has the number of tasks that each machine can run at once. A partition stays where
    it is, unless its machine has more than its share of them. Without any machine, all are None."""
    wanted: list[str | None] = [None] * len(current)
    load = dict.fromkeys(room, 0)
    # Shares are rounded up: a partition does not move just to be the odd one out elsewhere.
    share = {machine: -(-len(current) * own // sum(room.values())) for machine, own in room.items()}
    for partition, machine in enumerate(current):
        if machine in share and load[machine] < share[machine]:
            wanted[partition] = machine
            load[machine] += 1
    for partition, kept in enumerate(wanted):
        if kept is None and room:
            can_take = [machine for machine in room if load[machine] < share[machine]]
            emptiest = min(
                can_take, key=lambda machine: ((load[machine] + 1) / room[machine], machine)
            )
            wanted[partition] = emptiest
            load[emptiest] += 1
    return wanted


def room_on(executors: Iterable[ExecutorInfo]) -> dict[str, int]:
    """Return how many tasks each machine can run at once."""
    room: dict[str, int] = {}
    for executor in executors:
        room[executor.host] = room.get(executor.host, 0) + executor.slots
    return room


class Placement:
    """The anchors of one attempt at a job. Any thread may use it."""

    def __init__(
        self,
        context: SparkContext,
        partitions: int,
        wake: Callable[[Iterable[Any]], Iterator[Any]],
        on_loss: Callable[[], None],
    ) -> None:
        """`wake` gets (partition, None) on the machine where the partition is placed, and yields the same.
        `on_loss` stops the batch because a machine is lost; it is called in another thread."""
        self._context = context
        self._partitions = partitions
        self._wake = wake
        # On one machine there is nothing to choose.
        is_local = context.master.startswith("local")
        self._watch = None if is_local else ExecutorWatch(context, on_loss)
        self._anchors: Any = None
        self._known: frozenset[str] = frozenset()  # executors when they were last looked at
        self._changed_s: float | None = None  # None if partitions are spread over these executors
        self._looked_s = 0.0
        self._placing = threading.Lock()

    def anchors(self) -> Any:
        """Return the anchors: those of the call before, unless partitions have to move."""
        with self._placing:
            if self._anchors is None:
                # Spark waits until the executors are there, and gives them tasks in turn.
                self._place([None] * self._partitions)
            elif self.has_lost_machine():
                self._place(spread(self._current(), room_on(self._executors())))
            elif self._watch is not None and self._is_time_to_look():
                self._look(self._watch)
            return self._anchors

    def has_lost_machine(self) -> bool:
        """Return whether an executor is lost on a machine that has partitions."""
        return self._watch is not None and self._watch.has_lost_one()

    def close(self) -> None:
        """Stop watching executors."""
        if self._watch is not None:
            self._watch.close()

    def _is_time_to_look(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._looked_s < _LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def _look(self, watch: ExecutorWatch) -> None:
        """Rely on the machines where partitions are. Move some if it is better to use other machines, too."""
        current = self._current()
        executors = self._executors()
        watch.rely_on(executor.id for executor in executors if executor.host in current)
        known = frozenset(executor.id for executor in executors)
        if known != self._known:
            self._known, self._changed_s = known, self._looked_s
        elif self._changed_s is not None and self._looked_s - self._changed_s >= _SETTLED_S:
            self._changed_s = None
            wanted = spread(current, room_on(executors))
            if any(now not in (None, then) for now, then in zip(current, wanted, strict=True)):
                _log.info("Partitions move to other machines: %s, now %s", current, wanted)
                self._place(wanted)

    def _current(self) -> list[str | None]:
        """Return the machine of each partition, None for those that have none."""
        return machines_of_cached(self._context, self._anchors.id(), self._partitions)

    def _executors(self) -> list[ExecutorInfo]:
        # What Spark reports about them comes a little later than what it knows.
        alive = executor_ids(self._context)
        return [executor for executor in executors_of(self._context) if executor.id in alive]

    def _place(self, machines: list[str | None]) -> None:
        from pyspark import StorageLevel

        before = self._anchors
        if self._watch is not None:
            self._watch.rely_on([])  # if one is lost meanwhile, Spark copes
        # After a shuffle, a task prefers the machine that its data is on: where `wake` ran. And only what
        # comes out of a shuffle can be united, partition by partition, with what comes out of another one.
        self._anchors = (
            _on_machines(self._context, machines)
            .mapPartitions(self._wake)
            .partitionBy(self._partitions, itself)
            .persist(StorageLevel.MEMORY_AND_DISK)  # under pressure they must not be forgotten
        )
        # Whatever is wrong, the next batch will report it: it needs the anchors as well.
        with contextlib.suppress(Exception):
            self._anchors.count()
        if before is not None:
            before.unpersist()


def itself(partition: int) -> int:
    """Return the partition: what partitions by number. Spark takes no other function for this one."""
    return partition


def _on_machines(context: SparkContext, machines: list[str | None]) -> Any:
    """Return an RDD that has an element (number, None) in each partition, which prefers its machine."""
    from pyspark.core.rdd import RDD
    from pyspark.serializers import CPickleSerializer

    # PySpark can do this in the JVM only.
    jvm = context._jvm
    assert jvm is not None
    serializer = CPickleSerializer()
    elements = [
        jvm.scala.Tuple2(
            serializer.dumps((partition, None)),
            jvm.PythonUtils.toSeq([] if machine is None else [machine]),
        )
        for partition, machine in enumerate(machines)
    ]
    array_of_bytes = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    placed = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(elements), array_of_bytes)
    return RDD(placed.toJavaRDD(), context, serializer)
