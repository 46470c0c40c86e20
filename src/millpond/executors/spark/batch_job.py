"""Runs a batch as one Spark job: a stage per level, with a shuffle in between.

    stage 0    one task per partition, which runs the source tasks of its lane; yields (partition, chunk)
    stage n    partitionBy partition, mapPartitions: runs level n, and in the last stage sinks
    result     collect: the chunks for the driver

Spark places, runs and repeats the tasks and moves the chunks. What the tasks do, their partition's slot does.

All batches run the same RDDs: building them takes as long as running two stages. What differs from batch to
batch, the plans of the lanes, reaches the tasks as local properties of the Spark job. Before the RDDs run
again, what their shuffles have left is removed, so that Spark computes everything anew. Should it ever take
an old result for a new one, the next stage refuses it, because it is told which batch it works on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from millpond.executors.spark.job_ref import JobRef
from millpond.executors.spark.worker import (
    epoch_property,
    lane_property,
    lane_text,
    run_lane,
    run_stage,
    wake,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

_MOST_IN_PROPERTIES = 256 << 10  # bytes; Spark sends properties to every task of every stage


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
        self._prepared: Any = None
        self._can_run_again = _forgets_shuffles(context)

    def run(self, epoch: int, lanes: list[bytes]) -> list[bytes]:
        """Run a batch, given the plans of its lanes; return the chunks for the driver. Raises whatever Spark
        raises if the batch fails or is cancelled."""
        context = self._context
        context.setJobGroup(self._group, "millpond batch", interruptOnCancel=True)
        # If this fails, nobody knows what is left of it: the next one does not run the same RDDs.
        rows, self._prepared = self._prepared, None
        fits = self._can_run_again and sum(map(len, lanes)) <= _MOST_IN_PROPERTIES
        if rows is not None:
            # If the RDDs are to run again, this waits until everything is gone.
            rows.cleanShuffleDependencies(fits)
        if not fits:
            rows = self._rows(context.parallelize(lanes, self._partitions))
        elif rows is None:
            rows = self._rows(context.parallelize([None] * self._partitions, self._partitions))
        context.setLocalProperty(epoch_property(self._run_id), str(epoch))
        for number, lane in enumerate(lanes):
            text = lane_text(lane) if fits else ""
            context.setLocalProperty(lane_property(self._run_id, number), text)
        chunks = [chunk for _, chunk in rows.collect()]
        if fits:
            self._prepared = rows
        else:
            rows.cleanShuffleDependencies(False)
        return chunks

    def _rows(self, lanes: Any) -> Any:
        """Return the RDD with what comes out of the last stage."""
        rows = lanes.mapPartitions(partial(run_lane, self._job))
        for stage in range(1, self._last_stage + 1):
            rows = rows.partitionBy(self._partitions, _itself)
            rows = rows.mapPartitions(partial(run_stage, self._job, stage))
        return rows

    def prepare_anew(self) -> None:
        """Do not run the RDDs of the batch before again."""
        self._prepared = None

    def wake_slots(self) -> None:
        """Start Python processes and slots before there is any work."""
        numbers = range(self._partitions)
        self._context.parallelize(numbers, self._partitions).mapPartitions(
            partial(wake, self._job)
        ).count()

    def cancel(self) -> None:
        """Make a batch that is running fail. Any thread may call this."""
        self._context.cancelJobGroup(self._group)


def _forgets_shuffles(context: SparkContext) -> bool:
    """Return whether `cleanShuffleDependencies` removes all that shuffles have left."""
    conf = context.getConf()
    is_cleaned = conf.get("spark.cleaner.referenceTracking", "true") == "true"
    is_pushed = conf.get("spark.shuffle.push.enabled", "false") == "true"
    return is_cleaned and not is_pushed


def _itself(partition: int) -> int:
    return partition
