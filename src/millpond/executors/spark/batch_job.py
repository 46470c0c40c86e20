"""Runs a batch as one Spark job: a stage per level, with a shuffle in between.

    stage 0    one task per partition, which runs the source tasks of its lane; yields (partition, chunk)
    stage n    partitionBy partition, mapPartitions: runs level n, and in the last stage sinks
    result     collect: the chunks for the driver

Spark places, runs and repeats the tasks and moves the chunks. What the tasks do, their partition's slot does.
Every stage is united with the anchors of the partitions, so that Spark prefers the machines where their slots
are (`placement.py`).

All batches run the same RDDs: building them takes as long as running two stages. What differs from batch to
batch, the plans of the lanes, reaches the tasks as local properties of the Spark job. Before the RDDs run
again, what their shuffles have left is removed, so that Spark computes everything anew. Should it ever take
an old result for a new one, the next stage refuses it, because it is told which batch it works on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from millpond.executors.spark.job_ref import JobRef
from millpond.executors.spark.placement import Placement, itself
from millpond.executors.spark.worker import (
    epoch_property,
    lane_property,
    lane_text,
    run_lane,
    run_stage,
    wake,
)

if TYPE_CHECKING:
    from pyspark import Broadcast, SparkContext

_log = logging.getLogger(__name__)
_TRIES = 4  # of a batch during which executors are lost
_MOST_IN_PROPERTIES = 256 << 10  # bytes; Spark sends properties to every task of every stage


class _Prepared(NamedTuple):
    """RDDs that can run again."""

    anchors: Any
    rows: Any


class BatchJob:
    """Runs the batches of one attempt at a job, one at a time, all of them in the same thread."""

    def __init__(
        self, context: SparkContext, job: JobRef, partitions: int, last_stage: int
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._last_stage = last_stage
        self._run_id = job.slots.run_id
        self._group = f"millpond-{self._run_id}"
        self._job = context.broadcast(job)
        self._placement = Placement(context, partitions, partial(wake, self._job), self._interrupt)
        self._is_running = self._is_interrupted = self._is_cancelled = False
        # A batch that is interrupted is the one that was running when that was decided, never the next one.
        self._interrupting = threading.Lock()
        self._prepared: _Prepared | None = None
        self._can_run_again = _forgets_shuffles(context)

    def run(self, epoch: int, lanes: list[bytes]) -> list[bytes]:
        """Run a batch, given the plans of its lanes; return the chunks for the driver. If a machine is lost,
        the batch begins anew on others. Raises whatever Spark raises if the batch fails or is cancelled."""
        self._is_cancelled = False  # whatever was cancelled before has ended
        for tries_left in reversed(range(_TRIES)):
            with self._interrupting:
                self._is_interrupted, self._is_running = False, True
            try:
                return self._run(epoch, lanes)
            except Exception:
                # A batch that executors do not survive must not be repeated for ever.
                if not tries_left or self._is_cancelled or not self._has_lost_machine():
                    raise
                _log.warning("An executor was lost: batch %d runs again on the others.", epoch)
            finally:
                with self._interrupting:
                    self._is_running = False
        raise AssertionError("the last try returns or raises")

    def _run(self, epoch: int, lanes: list[bytes]) -> list[bytes]:
        anchors = self._place()
        fits = sum(map(len, lanes)) <= _MOST_IN_PROPERTIES
        prepared = self._take_prepared(anchors if fits else None)
        self._set_properties(epoch, map(lane_text, lanes) if fits else [""] * len(lanes))
        if not fits:
            return self._run_once(anchors, lanes)
        rows = prepared or self._rows(anchors)
        chunks = [chunk for _, chunk in rows.collect()]
        if self._can_run_again:
            self._prepared = _Prepared(anchors, rows)
        else:
            rows.cleanShuffleDependencies(False)
        return chunks

    def _take_prepared(self, anchors: Any | None) -> Any | None:
        """Return the RDDs of the batch before if they can run again, with these anchors. If the batch fails,
        nobody knows what is left of it: the next one does not run the same RDDs."""
        before, self._prepared = self._prepared, None
        if before is None:
            return None
        can_run_again = before.anchors is anchors
        # If the RDDs are to run again, this waits until everything is gone.
        before.rows.cleanShuffleDependencies(can_run_again)
        return before.rows if can_run_again else None

    def _run_once(self, anchors: Any, lanes: list[bytes]) -> list[bytes]:
        """Run a batch whose plans are too large for properties."""
        broadcast = self._context.broadcast(lanes)
        try:
            rows = self._rows(anchors, broadcast)
            chunks = [chunk for _, chunk in rows.collect()]
            rows.cleanShuffleDependencies(False)
            return chunks
        finally:
            broadcast.destroy()

    def _place(self) -> Any:
        """Return the anchors. Placing them can be cancelled, as a batch can."""
        self._context.setJobGroup(self._group, "millpond batch", interruptOnCancel=True)
        return self._placement.anchors()

    def _set_properties(self, epoch: int, lanes: Iterable[str]) -> None:
        self._context.setLocalProperty(epoch_property(self._run_id), str(epoch))
        for number, lane in enumerate(lanes):
            self._context.setLocalProperty(lane_property(self._run_id, number), lane)

    def _rows(self, anchors: Any, lanes: Broadcast[list[bytes]] | None = None) -> Any:
        """Return the RDD with what comes out of the last stage. `lanes` has the plans of the lanes if they
        are not in properties."""
        rows = anchors.mapPartitions(partial(run_lane, self._job, lanes))
        for stage in range(1, self._last_stage + 1):
            rows = self._shuffled(rows)
            # Spark follows the majority. Twice the anchors outvote the machine that most of the data is on.
            rows = self._context.union([anchors, anchors, rows])
            rows = rows.mapPartitions(partial(run_stage, self._job, stage))
        return rows

    def _shuffled(self, rows: Any) -> Any:
        """Return the rows, each in its partition. Spark would serialize them with Kryo, which it sets up in
        every task, for writing and for reading: 3 ms per shuffle. Java's way is slower for many small
        objects, but these are few and large. It would keep them all in memory until the end of the task,
        unless it is told to forget each one."""
        shuffled = rows.partitionBy(self._partitions, itself)
        jvm = self._context._jvm
        assert jvm is not None
        # PySpark takes the keys off again after the shuffle. The RDD below is the shuffle.
        in_jvm = shuffled._jrdd.rdd().dependencies().head().rdd()
        conf = self._context._jsc.getConf().set("spark.serializer.objectStreamReset", "1")  # a copy
        in_jvm.setSerializer(jvm.org.apache.spark.serializer.JavaSerializer(conf))
        return shuffled

    def prepare_anew(self) -> None:
        """Do not run the RDDs of the batch before again."""
        self._prepared = None

    def wake_slots(self) -> None:
        """Place the partitions, which starts Python processes and slots, before there is any work."""
        self._place()

    def cancel(self) -> None:
        """Make a batch that is running fail; it does not run again. Any thread may call this."""
        self._is_cancelled = True
        self._context.cancelJobGroup(self._group)

    def _interrupt(self) -> None:
        """Make a batch that is running fail because a machine is lost."""
        with self._interrupting:
            if self._is_running:
                self._is_interrupted = True
                self._context.cancelJobGroup(self._group)

    def _has_lost_machine(self) -> bool:
        """Return whether a batch has failed because a machine is lost, or is likely to have."""
        return self._is_interrupted or self._placement.has_lost_machine()

    def close(self) -> None:
        """Stop watching executors, and forget the properties of the batches: Spark would send them to all
        tasks of later attempts. It frees the rest when nothing refers to it any more. Call this in the thread
        of `run`."""
        self._placement.close()
        with contextlib.suppress(Exception):  # the JVM may be gone
            self._context.setLocalProperty(epoch_property(self._run_id), None)
            for number in range(self._partitions):
                self._context.setLocalProperty(lane_property(self._run_id, number), None)


def _forgets_shuffles(context: SparkContext) -> bool:
    """Return whether `cleanShuffleDependencies` removes all that shuffles have left, and they can run again
    after that. Of shuffle services other than Spark's, nobody knows."""
    conf = context.getConf()
    is_cleaned = conf.get("spark.cleaner.referenceTracking", "true") == "true"
    is_pushed = conf.get("spark.shuffle.push.enabled", "false") == "true"
    is_sparks = conf.get("spark.shuffle.manager", "sort") in ("sort", "tungsten-sort")
    has_plugin = conf.get("spark.shuffle.sort.io.plugin.class") is not None
    return is_cleaned and not is_pushed and is_sparks and not has_plugin
