"""Runs a batch as one Spark job: a stage per level, with a shuffle in between.

    lanes      parallelize: one element per partition, the plan of its lane
    stage 0    mapPartitions: runs the source tasks; yields (partition, chunk)
    stage n    partitionBy partition, mapPartitions: runs level n, and in the last stage sinks
    result     collect: the chunks for the driver

Spark places, runs and repeats the tasks and moves the chunks. What the tasks do, their partition's slot does.
The functions are prepared once; what differs from batch to batch is in the lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from millpond.executors.spark.job_ref import JobRef
from millpond.executors.spark.worker import run_lane, run_stage, wake

if TYPE_CHECKING:
    from pyspark import SparkContext


class BatchJob:
    """Runs the batches of one attempt at a job, one at a time."""

    def __init__(
        self, context: SparkContext, job: JobRef, partitions: int, last_stage: int
    ) -> None:
        self._context = context
        self._partitions = partitions
        self._group = f"millpond-{job.slots.run_id}"
        self._job = context.broadcast(job)
        self._run_lane = partial(run_lane, self._job)
        self._stages: list[Callable[[Any], Any]] = [
            partial(run_stage, self._job, stage) for stage in range(1, last_stage + 1)
        ]

    def run(self, lanes: list[bytes]) -> list[bytes]:
        """Run a batch, given the plans of its lanes; return the chunks for the driver. Raises whatever Spark
        raises if the batch fails or is cancelled."""
        self._context.setJobGroup(self._group, "millpond batch", interruptOnCancel=True)
        rows: Any = self._context.parallelize(lanes, self._partitions).mapPartitions(self._run_lane)
        for stage in self._stages:
            rows = rows.partitionBy(self._partitions, _itself).mapPartitions(stage)
        chunks = [chunk for _, chunk in rows.collect()]
        rows.cleanShuffleDependencies(False)  # Spark would do that when it collects garbage
        return chunks

    def wake_slots(self) -> None:
        """Start Python processes and slots before there is any work."""
        numbers = range(self._partitions)
        self._context.parallelize(numbers, self._partitions).mapPartitions(
            partial(wake, self._job)
        ).count()

    def cancel(self) -> None:
        """Make a batch that is running fail. Any thread may call this."""
        self._context.cancelJobGroup(self._group)


def _itself(partition: int) -> int:
    return partition
