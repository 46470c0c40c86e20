"""The passes of a batch in one process: chunks in, chunks out.

Stage 0 reads lanes, stages 1 to n run the levels. Sinks are served at the end of the last stage, where their
records are; if the program wants them elsewhere, there is one more stage for them. What comes out of the last
stage is for the driver.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from millpond.core import fault_points
from millpond.engine.exchange.batch import LanePlan
from millpond.engine.exchange.chunks import BatchInfo, Partitions, decode_chunk, encode_chunks
from millpond.engine.exchange.frames import Row
from millpond.engine.exchange.reports import PassRun, Report
from millpond.engine.host import JobHost
from millpond.engine.sink_pass import SinkHost, has_worker_sinks, sinks_stay_where_records_are
from millpond.errors import BatchInconsistentError
from millpond.plan.physical import JobPlan
from millpond.state.partition_log import EMPTY, LogPosition

Sent = list[tuple[int, bytes]]
"""(partition, chunk); from the last stage, the partition does not matter"""
_TOKEN_BYTES = 8


def last_stage(plan: JobPlan) -> int:
    """Return the number of the last stage of a job."""
    moves = has_worker_sinks(plan) and not sinks_stay_where_records_are(plan)
    return plan.levels + 1 if moves else plan.levels


class Passes:
    """Runs passes of a job, for one partition or for several."""

    def __init__(self, host: JobHost, sinks: SinkHost) -> None:
        self._host = host
        self._sinks = sinks
        self._last_stage = last_stage(host.plan)
        self._partitions = Partitions(host.plan)

    def run_lane(self, lane: LanePlan) -> Sent:
        """Run the source tasks for a lane."""
        batch = BatchInfo(lane.epoch, lane.processing_time_ms, lane.last_batch)
        report = Report()
        rows = list(self._host.run_lane(lane, report))
        return self._send(0, lane.lane, batch, rows, report, (), EMPTY)

    def run_stage(self, stage: int, partition: int, epoch: int, blobs: Iterable[bytes]) -> Sent:
        """Run a stage after the first one in a partition, on the chunks that have come for it. Raises
        BatchInconsistentError, before anything has changed, if one of them is of another batch."""
        chunks = [decode_chunk(blob) for blob in blobs]
        others = {chunk.batch.epoch for chunk in chunks} - {epoch}
        if others:
            raise BatchInconsistentError(
                f"Batch {epoch}: Spark has kept results of batch {others.pop()} instead of computing them "
                "anew."
            )
        rows = [row for chunk in chunks for row in chunk.rows]
        batch = chunks[0].batch
        inputs = tuple({chunk.token for chunk in chunks})
        fault_points.reach("slot before level")
        if stage > self._host.plan.levels:
            return self._send(stage, partition, batch, rows, Report(), inputs, EMPTY)
        done = self._host.run_level(stage, partition, rows)
        return self._send(stage, partition, batch, done.rows, done.report, inputs, done.position)

    def _send(
        self,
        stage: int,
        partition: int,
        batch: BatchInfo,
        rows: list[Row],
        report: Report,
        inputs: tuple[bytes, ...],
        log: LogPosition,
    ) -> Sent:
        token = os.urandom(_TOKEN_BYTES)
        report.runs.append(PassRun(batch.epoch, stage, partition, token, inputs, log))
        is_last = stage == self._last_stage
        if is_last:
            # In stage 0, records are where their lane is, whatever subtask they come from.
            subtask = partition if stage == 0 else None
            rows = self._sinks.run(rows, subtask, batch, report)
            if batch.last_batch:
                self._sinks.close(partition)
        rows.append(report.to_row())
        fault_points.reach("slot before reply")
        if is_last:
            return [(0, blob) for blob in encode_chunks(token, batch, rows)]
        return [
            (target, blob)
            for target, own in enumerate(self._partitions.scatter(rows))
            for blob in encode_chunks(token, batch, own)
        ]

    def retire(self) -> JobHost:
        """Close sinks, whatever they say to it. Return the host, for the one that succeeds it."""
        with contextlib.suppress(Exception):  # the run that they belong to is over
            self._sinks.close()
        return self._host

    def close(self) -> None:
        """Close all functions."""
        self._host.close()
        self._sinks.close()


def run_batch(passes: Passes, plan: JobPlan, lanes: Iterable[LanePlan]) -> list[Row]:
    """Run all passes of a batch one after the other. Return the rows for the driver."""
    sent: Sent = []
    epoch = -1
    for lane in lanes:
        epoch = lane.epoch
        # A copy, such as a slot would get: a failed attempt must not leave traces in the plan.
        sent += passes.run_lane(LanePlan.decode(lane.encode(), "a lane"))
    for stage in range(1, last_stage(plan) + 1):
        received, sent = sent, []
        for partition in range(plan.parallelism):
            chunks = [blob for target, blob in received if target == partition]
            sent += passes.run_stage(stage, partition, epoch, chunks)
    return rows_for_driver(blob for _, blob in sent)


def rows_for_driver(blobs: Iterable[bytes]) -> list[Row]:
    """Return the rows in the chunks that have come out of the last stage."""
    return [row for blob in blobs for row in decode_chunk(blob).rows]
