"""What runs inside Spark's Python workers: relays, which hand the work to the partition's slot."""

from __future__ import annotations

import base64
import contextlib
import gc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext

from millpond.errors import SlotError
from millpond.executors.slot.protocol import BEFORE_ALL_TASKS
from millpond.executors.slot.relay import Relay
from millpond.executors.spark.error_text import reported_errors
from millpond.executors.spark.job_ref import JobRef

if TYPE_CHECKING:
    from pyspark import Broadcast

_FIRST_TASKS = 5
_tasks_begun = 0


def epoch_property(run_id: str) -> str:
    """Return the name of the local property of a Spark job that says which batch it is."""
    return f"millpond.{run_id}.epoch"


def lane_property(run_id: str, lane: int) -> str:
    """Return the name of the local property of a Spark job that has the plan of a lane as text."""
    return f"millpond.{run_id}.lane.{lane}"


def lane_text(lane: bytes) -> str:
    """Return the plan of a lane as text."""
    return base64.b64encode(lane).decode("ascii")


def run_lane(
    job: Broadcast[JobRef], lanes: Broadcast[list[bytes]] | None, anchors: Iterator[object]
) -> Iterator[tuple[int, bytes]]:
    """Run the source tasks of the lane of this Spark task's partition. Yield (partition, chunk). `lanes` has
    the plans of all lanes if they are too large for local properties."""
    for _ in anchors:  # Spark ends workers that do not read everything
        pass
    with reported_errors():
        relay = _relay(job.value)
        if lanes is None:
            lane = _lane_in_property(job.value)
        else:
            lane = lanes.value[_task().partitionId()]
        yield from relay.run_lane(lane)
        relay.close()


def _lane_in_property(job: JobRef) -> bytes:
    return base64.b64decode(_property(lane_property(job.slots.run_id, _task().partitionId())))


def _property(name: str) -> str:
    text: str | None = _task().getLocalProperty(name)
    assert text, f"the Spark job has no property {name}"
    return text


def _task() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def run_stage(
    job: Broadcast[JobRef], stage: int, chunks: Iterator[tuple[int, bytes | None]]
) -> Iterator[tuple[int, bytes]]:
    """Run a later stage in this Spark task's partition. Yield (partition, chunk). Among the chunks are
    anchors, which have None instead."""
    with reported_errors():
        relay = _relay(job.value)
        epoch = int(_property(epoch_property(job.value.slots.run_id)))
        yield from relay.run_stage(
            stage, epoch, [chunk for _, chunk in chunks if chunk is not None]
        )
        relay.close()


def wake(
    job: Broadcast[JobRef], partitions: Iterable[tuple[int, None]]
) -> Iterator[tuple[int, None]]:
    """Start the slots of partitions, and let them load the job, before there is any work."""
    with reported_errors():
        known = job.value
        for partition, nothing in partitions:
            # It claims to be older than any task, so that a task with work takes over. A slot that has had
            # such a task refuses it. Whatever else may be wrong, the next task with work will say.
            with contextlib.suppress(SlotError):
                Relay(known.slots, partition, BEFORE_ALL_TASKS, known.blob, known.attempt).close()
            yield partition, nothing


def _relay(job: JobRef) -> Relay:
    """Return the relay of the Spark task that is running now."""
    _set_modules_aside()
    context = _task()
    return Relay(job.slots, context.partitionId(), context.taskAttemptId(), job.blob, job.attempt)


def _set_modules_aside() -> None:
    """Exempt the modules from garbage collection. PySpark collects garbage after each task and walks through
    all modules for that: 60 to 80 ms, more than a batch takes. What exists when one of the first tasks begins
    has just been looked through, and stays."""
    global _tasks_begun
    if _tasks_begun < _FIRST_TASKS:
        _tasks_begun += 1
        gc.freeze()
