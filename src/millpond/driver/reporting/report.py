"""The job report: everything about a job as one JSON object (O2, O7, E9, P6, E36). See docs/job-report.md."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millpond.common.job import JobStatus
from millpond.driver.reporting.checkpoint_history import CheckpointHistory, CheckpointRecord
from millpond.driver.reporting.job_life import JobLife
from millpond.driver.reporting.job_record import JobRecord
from millpond.driver.reporting.statistics import Counts, Ratios, SubtaskView, VertexView, View
from millpond.plan.physical import JobPlan
from millpond.plan.vertices import Vertex, operator_id
from millpond.queryable.desk import states_of

FORMAT = 1
_SECRET = (
    "password",
    "secret",
    "token",
    "credential",
    "apikey",
    "api-key",
    "access-key",
    "account.key",
    "jaas.config",
    "basic-auth",
)
_HIDDEN = "******"
# The state of a vertex follows from that of its job. The names are Flink's for the states of tasks.
_VERTEX_STATUS = {
    JobStatus.INITIALIZING: "CREATED",
    JobStatus.CREATED: "CREATED",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FAILING: "CANCELING",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.CANCELED: "CANCELED",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.RESTARTING: "SCHEDULED",
    JobStatus.SUSPENDED: "CANCELED",
    JobStatus.RECONCILING: "RECONCILING",
}


@dataclass(frozen=True)
class JobFacts:
    """What does not change while a job lives. `settings` may contain secrets; the report hides them."""

    settings: dict[str, str]
    restart_strategy: str
    max_parallelism: int


def build_report(
    plan: JobPlan,
    facts: JobFacts,
    life: JobLife,
    record: JobRecord,
    metrics: dict[str, Any],
    folder: str | None,
    executors: list[dict[str, Any]],
    now_ms: int,
) -> dict[str, Any]:
    """Return the job report. Any thread may call this: each argument is a copy, or any thread may read it."""
    view = record.statistics.view()
    ended_ms = -1 if life.ended_ms is None else life.ended_ms
    counts = _checkpoint_counts(record.checkpoints, view.is_running)
    history = list(record.checkpoints.records.copy())
    running_ms = life.times_ms.get(JobStatus.RUNNING, 0)
    times = (running_ms, ended_ms)
    host = socket.gethostname()
    return {
        "format": FORMAT,
        "jid": plan.start.job_id,
        "name": plan.name,
        "state": life.status.name,
        "job-type": "BATCH" if plan.batch_mode else "STREAMING",
        "start-time": life.began_ms,
        "end-time": ended_ms,
        "timestamps": {status.name: life.times_ms.get(status, 0) for status in JobStatus},
        "restarts": life.restarts,
        "attempt": life.attempt,
        "pid": os.getpid(),
        "host": host,
        "heartbeat": now_ms,
        "folder": folder,
        "parallelism": plan.parallelism,
        "max-parallelism": facts.max_parallelism,
        "restart-strategy": facts.restart_strategy,
        "settings": shown_settings(facts.settings),
        "vertices": [
            _vertex(vertex, view.vertices[vertex.number], life, times, host)
            for vertex in record.vertices
        ],
        "checkpoints": {"counts": counts, "history": [record.to_dict() for record in history]},
        "savepoints": record.savepoints(),
        "exceptions": _exceptions(life),
        "metrics": flat_metrics(metrics) | _job_metrics(life, counts, history, now_ms),
        "flow": _flow(view, plan.settings.target_latency_ms),
        "executors": executors,
        "queryable": states_of(record.queryable, operator_id),
    }


def shown_settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings sorted by key, with the values of secrets hidden."""
    return {
        key: _HIDDEN if any(word in key.lower() for word in _SECRET) else value
        for key, value in sorted(settings.items())
    }


def _vertex(
    vertex: Vertex, view: VertexView, life: JobLife, times: tuple[int, int], host: str
) -> dict[str, object]:
    began_ms, ended_ms = times
    status = _VERTEX_STATUS[life.status]
    mean = sum(view.key_groups) / len(view.key_groups) if view.key_groups else 0.0
    return {
        "id": vertex.id,
        "name": vertex.name,
        "parallelism": vertex.parallelism,
        "maxParallelism": vertex.max_parallelism,
        "status": status,
        "start-time": began_ms,
        "end-time": ended_ms,
        "level": vertex.level,
        "keyed": vertex.keyed,
        "operators": [{"id": o.id, "uid": o.uid, "name": o.name} for o in vertex.operators],
        "inputs": [{"id": before, "ship-strategy": way} for before, way in vertex.inputs],
        "metrics": {
            **_counts(_total(view.subtasks)),
            "accumulated-busy-time": round(view.busy_ms),
            "accumulated-idle-time": round(view.idle_ms),
            "accumulated-backpressured-time": round(view.backpressured_ms),
        },
        "records-in-per-second": round(view.records_in_per_s, 2),
        "records-out-per-second": round(view.records_out_per_s, 2),
        **_ratios(view.ratios),
        "watermark": view.watermark,
        "subtasks": [
            {
                "subtask": number,
                "status": status,
                "attempt": life.attempt,
                "host": subtask.machine or host,
                "start-time": began_ms,
                "end-time": ended_ms,
                **_subtask(subtask),
            }
            for number, subtask in enumerate(view.subtasks)
        ],
        "state-bytes": view.state_bytes,
        "state-growth-per-second": round(view.state_growth_per_s, 2),
        "key-groups": view.key_groups,
        "key-group-skew": round(max(view.key_groups) / mean, 3) if mean > 0 else None,
        "hottest-keys": [[text, count] for text, count in view.hottest],
    }


def _total(subtasks: list[SubtaskView]) -> Counts:
    total = Counts()
    for subtask in subtasks:
        total.records_in += subtask.counts.records_in
        total.records_out += subtask.counts.records_out
        total.bytes_in += subtask.counts.bytes_in
        total.bytes_out += subtask.counts.bytes_out
    return total


def _subtask(subtask: SubtaskView) -> dict[str, object]:
    busy_ms = round(subtask.counts.busy_ns / 1e6)
    return {**_counts(subtask.counts), "accumulated-busy-time": busy_ms, **_ratios(subtask.ratios)}


def _counts(counts: Counts) -> dict[str, int]:
    return {
        "read-records": counts.records_in,
        "write-records": counts.records_out,
        "read-bytes": counts.bytes_in,
        "write-bytes": counts.bytes_out,
    }


def _ratios(ratios: Ratios | None) -> dict[str, float | None]:
    return {
        "busy-ratio": None if ratios is None else round(ratios.busy, 4),
        "idle-ratio": None if ratios is None else round(ratios.idle, 4),
        "backpressure-ratio": None if ratios is None else round(ratios.backpressured, 4),
    }


def _checkpoint_counts(history: CheckpointHistory, is_running: bool) -> dict[str, int]:
    completed, failed, in_progress = history.completed, history.failed, int(is_running)
    return {
        "restored": history.restored,
        "total": completed + failed + in_progress,
        "in_progress": in_progress,
        "completed": completed,
        "failed": failed,
    }


def _exceptions(life: JobLife) -> list[dict[str, object]]:
    return [
        {
            "timestamp": failure.at_ms,
            "exceptionName": failure.exception,
            "stacktrace": failure.text,
            "taskName": failure.operator,
        }
        for failure in life.failures
    ]


def flat_metrics(metrics: Mapping[str, object]) -> dict[str, int | float]:
    """Return the metrics that are finite numbers. A distribution becomes four numbers, a boolean 0 or 1;
    other values are left out."""
    flat: dict[str, object] = {}
    for name, value in metrics.items():
        if isinstance(value, tuple) and len(value) == 4:
            parts = zip(("count", "sum", "min", "max"), value, strict=True)
            flat.update((f"{name}.{part}", number) for part, number in parts)
        else:
            flat[name] = value
    return {
        name: int(value) if isinstance(value, bool) else value
        for name, value in flat.items()
        if isinstance(value, (int, float)) and math.isfinite(value)
    }


def _job_metrics(
    life: JobLife, counts: dict[str, int], history: list[CheckpointRecord], now_ms: int
) -> dict[str, int]:
    """Return the metrics of the job itself, under the names that Flink's job manager gives them."""
    running_ms = life.times_ms.get(JobStatus.RUNNING, now_ms)
    metrics = {
        "numRestarts": life.restarts,
        "uptime": now_ms - running_ms if life.status is JobStatus.RUNNING else 0,
        "totalNumberOfCheckpoints": counts["total"],
        "numberOfInProgressCheckpoints": counts["in_progress"],
        "numberOfCompletedCheckpoints": counts["completed"],
        "numberOfFailedCheckpoints": counts["failed"],
    }
    if history:
        metrics["lastCheckpointDuration"] = history[-1].duration_ms
        metrics["lastCheckpointSize"] = history[-1].bytes_written
        metrics["lastCheckpointFullSize"] = history[-1].bytes_full
    return metrics


def _flow(view: View, target_latency_ms: int | None) -> dict[str, object]:
    latencies = sorted(view.latencies_ms)
    return {
        "backlog-records": view.backlog,
        "credits": view.credits,
        "target-latency-ms": target_latency_ms,
        "batch-duration-ms": round(view.duration_ms),
        "batch-records": view.records,
        "records-per-second": round(view.records_per_s, 2),
        "backpressured": view.is_waiting,
        "latency-ms": {
            f"p{percent}": round(_percentile(latencies, percent), 1) for percent in (50, 90, 99)
        }
        if latencies
        else None,
    }


def _percentile(ordered: list[float], percent: int) -> float:
    """Return the smallest number that `percent` percent of the numbers do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
