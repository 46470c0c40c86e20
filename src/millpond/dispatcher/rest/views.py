"""Turns job reports (docs/job-report.md) into the JSON that Flink's clients know.

All functions are pure. A vertex or subtask that they take is an entry of the report.
"""

from __future__ import annotations

from collections.abc import Callable

from millpond import __version__
from millpond.common.job import JobStatus
from millpond.dispatcher.messages import Json, Report, has_ended

# Clients read this to learn which fields to expect.
FLINK_VERSION = f"2.3.0-millpond-{__version__}"
REVISION = "millpond"
# Flink's states of tasks; those of jobs are `JobStatus`.
_TASK_STATES = (
    "CREATED",
    "SCHEDULED",
    "DEPLOYING",
    "INITIALIZING",
    "RUNNING",
    "FINISHED",
    "CANCELING",
    "CANCELED",
    "FAILED",
    "RECONCILING",
)
# The state of tasks while their job is in a state that tasks do not have.
_TASK_STATE_OF_JOB = {
    JobStatus.CANCELLING: "CANCELING",
    JobStatus.RESTARTING: "SCHEDULED",
    JobStatus.FAILING: "FAILED",
    JobStatus.SUSPENDED: "CANCELED",
}


# --- jobs ----------------------------------------------------------------------------------------


def job_overview(report: Report, now_ms: int) -> Json:
    """Return a job's entry in /jobs/overview: state, times and numbers of tasks."""
    counts = _task_counts(report)
    return {
        "jid": report["jid"],
        "name": report["name"],
        "state": report["state"],
        "start-time": report["start-time"],
        "end-time": report["end-time"],
        "duration": duration_ms(report, now_ms),
        "last-modification": report.get("last-modification", report["start-time"]),
        "tasks": {"total": sum(counts.values())}
        | {state.lower(): count for state, count in counts.items()},
    }


def duration_ms(timed: Json, now_ms: int) -> int:
    """Return how long a job, vertex or subtask has run, or ran if it has ended; -1 if it has not started."""
    if timed["start-time"] <= 0:
        return -1
    end_ms = timed["end-time"] if timed["end-time"] >= 0 else now_ms
    return int(max(0, end_ms - timed["start-time"]))


def job_details(report: Report, now_ms: int) -> Json:
    """Return a job with its vertices and plan."""
    return {
        "jid": report["jid"],
        "name": report["name"],
        "isStoppable": False,
        "state": report["state"],
        "job-type": report["job-type"],
        "start-time": report["start-time"],
        "end-time": report["end-time"],
        "duration": duration_ms(report, now_ms),
        "maxParallelism": report["max-parallelism"] or -1,
        "now": now_ms,
        "timestamps": report["timestamps"],
        "vertices": [_vertex_in_job(vertex, report, now_ms) for vertex in report["vertices"]],
        "status-counts": _task_counts(report, by_vertex=True),
        "plan": plan(report),
        "pending-operators": 0,
    }


def task_state(vertex: Json, report: Report) -> str:
    """Return the state of a vertex's tasks, as Flink names it. It follows from the job's state unless the job
    is running or has ended."""
    status = JobStatus.of(report)
    if status is JobStatus.RUNNING or status.is_globally_terminal_state():
        state = str(vertex["status"])
    else:
        state = _TASK_STATE_OF_JOB.get(status, status.name)
    return state if state in _TASK_STATES else "CREATED"


def _task_counts(report: Report, by_vertex: bool = False) -> dict[str, int]:
    counts = dict.fromkeys(_TASK_STATES, 0)
    for vertex in report["vertices"]:
        counts[task_state(vertex, report)] += 1 if by_vertex else vertex["parallelism"]
    return counts


def _vertex_in_job(vertex: Json, report: Report, now_ms: int) -> Json:
    state = task_state(vertex, report)
    return {
        "id": vertex["id"],
        "slotSharingGroupId": report["jid"],
        "name": vertex["name"],
        "maxParallelism": vertex["maxParallelism"],
        "parallelism": vertex["parallelism"],
        "status": state,
        "start-time": vertex["start-time"],
        "end-time": vertex["end-time"],
        "duration": duration_ms(vertex, now_ms),
        "tasks": dict.fromkeys(_TASK_STATES, 0) | {state: vertex["parallelism"]},
        "metrics": _io_metrics(vertex["metrics"]),
    }


def _io_metrics(counts: Json) -> Json:
    result: Json = {}
    for name in ("read-bytes", "write-bytes", "read-records", "write-records"):
        result[name] = counts.get(name, 0)
        result[f"{name}-complete"] = True
    for name in ("backpressured", "idle"):
        result[f"accumulated-{name}-time"] = counts.get(f"accumulated-{name}-time", 0)
    result["accumulated-busy-time"] = float(counts.get("accumulated-busy-time", 0))
    return result


def plan(report: Report) -> Json:
    """Return the plan of a job: its vertices as nodes, with their inputs."""
    nodes = []
    for vertex in report["vertices"]:
        node: Json = {
            "id": vertex["id"],
            "parallelism": vertex["parallelism"],
            "operator": "",
            "operator_strategy": "",
            "description": vertex["name"],
            "optimizer_properties": {},
        }
        if vertex["inputs"]:
            node["inputs"] = [
                {
                    "num": number,
                    "id": task_input["id"],
                    "ship_strategy": task_input["ship-strategy"],
                    "exchange": "pipelined_bounded",
                }
                for number, task_input in enumerate(vertex["inputs"])
            ]
        nodes.append(node)
    return {
        "jid": report["jid"],
        "name": report["name"],
        "type": report["job-type"],
        "nodes": nodes,
    }


def job_config(report: Report) -> Json:
    """Return the settings of a job; the report has no secrets in them."""
    return {
        "jid": report["jid"],
        "name": report["name"],
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": report["restart-strategy"],
            "job-parallelism": report["parallelism"],
            "object-reuse-mode": False,
            "user-config": {},
            "millpond-settings": report["settings"],
        },
    }


def exceptions(report: Report, most: int) -> Json:
    """Return the newest exceptions of a job, at most `most`, newest first."""
    newest_first = list(reversed(report["exceptions"]))
    entries = [
        {
            "exceptionName": exception["exceptionName"],
            "stacktrace": exception["stacktrace"],
            "timestamp": exception["timestamp"],
            "taskName": exception.get("taskName"),
            "endpoint": None,
            "taskManagerId": None,
            "failureLabels": {},
            "concurrentExceptions": [],
        }
        for exception in newest_first[:most]
    ]
    newest = newest_first[0] if newest_first else None
    return {
        "root-exception": None if newest is None else newest["stacktrace"],
        "timestamp": None if newest is None else newest["timestamp"],
        "all-exceptions": [],
        "truncated": len(newest_first) > most,
        "exceptionHistory": {"entries": entries, "truncated": len(newest_first) > most},
    }


# --- vertices ------------------------------------------------------------------------------------


def vertex_details(vertex: Json, report: Report, now_ms: int) -> Json:
    """Return a vertex with its subtasks."""
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "parallelism": vertex["parallelism"],
        "maxParallelism": vertex["maxParallelism"],
        "now": now_ms,
        "subtasks": [_subtask(subtask, vertex, report, now_ms) for subtask in vertex["subtasks"]],
    }


def _subtask(subtask: Json, vertex: Json, report: Report, now_ms: int) -> Json:
    state = task_state(vertex, report)
    return {
        "subtask": subtask["subtask"],
        "status": state,
        "attempt": subtask["attempt"],
        "endpoint": subtask["host"],
        "start-time": subtask["start-time"],
        "end-time": subtask["end-time"],
        "duration": duration_ms(subtask, now_ms),
        "metrics": _io_metrics(subtask),
        "taskmanager-id": subtask["host"],
        "status-duration": dict.fromkeys(_TASK_STATES, -1) | {state: duration_ms(subtask, now_ms)},
        "other-concurrent-attempts": None,
        "start_time": subtask["start-time"],
    }


def subtask_times(vertex: Json, report: Report, now_ms: int) -> Json:
    """Return how long each subtask has run, and when its present state began."""
    state = task_state(vertex, report)
    return {
        "id": vertex["id"],
        "name": vertex["name"],
        "now": now_ms,
        "subtasks": [
            {
                "subtask": subtask["subtask"],
                "endpoint": subtask["host"],
                "duration": duration_ms(subtask, now_ms),
                "timestamps": dict.fromkeys(_TASK_STATES, 0) | {state: subtask["start-time"]},
            }
            for subtask in vertex["subtasks"]
        ],
    }


def back_pressure(vertex: Json, now_ms: int) -> Json:
    """Return how busy, idle and back-pressured a vertex's subtasks are; an unknown ratio counts as 0."""
    ratio = vertex["backpressure-ratio"] or 0.0
    level = _pressure(ratio)
    return {
        "status": "ok",
        "backpressureLevel": level,
        "backpressure-level": level,
        "end-timestamp": now_ms,
        "subtasks": [
            {
                "subtask": subtask["subtask"],
                "attempt-number": subtask["attempt"],
                "backpressureLevel": _pressure(subtask["backpressure-ratio"] or 0.0),
                "backpressure-level": _pressure(subtask["backpressure-ratio"] or 0.0),
                "ratio": subtask["backpressure-ratio"] or 0.0,
                "busyRatio": subtask["busy-ratio"] or 0.0,
                "idleRatio": subtask["idle-ratio"] or 0.0,
            }
            for subtask in vertex["subtasks"]
        ],
    }


def _pressure(ratio: float) -> str:
    """Return the level of back pressure, with Flink's limits."""
    if ratio <= 0.10:
        return "ok"
    return "low" if ratio <= 0.5 else "high"


def watermarks(vertex: Json) -> list[Json]:
    """Return the watermark of each subtask, which is that of the vertex; an empty list if it has none yet."""
    if vertex["watermark"] is None:
        return []
    return [
        {"id": f"{subtask['subtask']}.currentInputWatermark", "value": str(vertex["watermark"])}
        for subtask in vertex["subtasks"]
    ]


def vertex_metrics(vertex: Json) -> dict[str, float]:
    """Return the metrics of a vertex and of its subtasks by Flink's names; those of subtasks begin with the
    number of the subtask."""
    result: dict[str, float] = {}
    for subtask in vertex["subtasks"]:
        for name, value in _task_metrics(subtask, vertex).items():
            result[f"{subtask['subtask']}.{name}"] = value
    result |= {
        "numRecordsInPerSecond": vertex["records-in-per-second"],
        "numRecordsOutPerSecond": vertex["records-out-per-second"],
        "stateBytes": vertex["state-bytes"],
        "stateGrowthBytesPerSecond": vertex["state-growth-per-second"],
    }
    if vertex["key-group-skew"] is not None:
        result["keyGroupSkew"] = vertex["key-group-skew"]
    return result


def _task_metrics(subtask: Json, vertex: Json) -> dict[str, float]:
    metrics: dict[str, float] = {
        "numRecordsIn": subtask["read-records"],
        "numRecordsOut": subtask["write-records"],
        "numBytesIn": subtask["read-bytes"],
        "numBytesOut": subtask["write-bytes"],
        "accumulateBusyTimeMs": subtask["accumulated-busy-time"],
    }
    for name, ratio in (
        ("busyTimeMsPerSecond", "busy-ratio"),
        ("idleTimeMsPerSecond", "idle-ratio"),
        ("backPressuredTimeMsPerSecond", "backpressure-ratio"),
    ):
        if subtask[ratio] is not None:
            metrics[name] = round(1000 * subtask[ratio])
    if vertex["watermark"] is not None:
        metrics["currentInputWatermark"] = vertex["watermark"]
    return metrics


def job_metrics(report: Report, now_ms: int) -> dict[str, float]:
    """Return the metrics of a job by Flink's names, with the numeric metrics of its functions."""
    counts, history = report["checkpoints"]["counts"], report["checkpoints"]["history"]
    result: dict[str, float] = {
        "numRestarts": report["restarts"],
        "uptime": duration_ms(report, now_ms),
        "totalNumberOfCheckpoints": counts["total"],
        "numberOfCompletedCheckpoints": counts["completed"],
        "numberOfInProgressCheckpoints": counts["in_progress"],
        "numberOfFailedCheckpoints": counts["failed"],
    }
    if history:
        result |= {
            "lastCheckpointDuration": history[-1]["duration_ms"],
            "lastCheckpointSize": history[-1]["bytes_written"],
            "lastCheckpointFullSize": history[-1]["bytes_full"],
        }
    for name, key in (
        ("pendingRecords", "backlog-records"),
        ("credits", "credits"),
        ("recordsPerSecond", "records-per-second"),
        ("batchDurationMs", "batch-duration-ms"),
    ):
        value = report["flow"].get(key)
        if value is not None:
            result[name] = value
    numbers = {k: v for k, v in report["metrics"].items() if isinstance(v, int | float)}
    return result | numbers


def as_metrics(values: dict[str, float], wanted: list[str] | None) -> list[Json]:
    """Return Flink's answer for metrics: the values of those that are wanted and exist, or if `wanted` is
    None, the names of all."""
    if wanted is None:
        return [{"id": name} for name in sorted(values)]
    return [{"id": name, "value": str(values[name])} for name in wanted if name in values]


def subtask_metrics(vertex: Json, chosen: set[int] | None) -> dict[str, list[float]]:
    """Return the metrics of a vertex's subtasks by name: one value for each subtask, or for each chosen
    one."""
    values: dict[str, list[float]] = {}
    for subtask in vertex["subtasks"]:
        if chosen is None or subtask["subtask"] in chosen:
            for name, value in _task_metrics(subtask, vertex).items():
                values.setdefault(name, []).append(float(value))
    return values


def aggregated(
    values: dict[str, list[float]], wanted: list[str] | None, modes: list[str] | None
) -> list[Json]:
    """Return Flink's answer for metrics of several jobs or subtasks: those that are wanted and exist,
    aggregated by `modes` (min, max, sum, avg; None means all), or if `wanted` is None, the names of all."""
    if wanted is None:
        return [{"id": name} for name in sorted(values)]
    how: dict[str, Callable[[list[float]], float]] = {
        "min": min,
        "max": max,
        "sum": sum,
        "avg": lambda numbers: sum(numbers) / len(numbers),
    }
    chosen = [mode for mode in modes or how if mode in how]
    return [
        {"id": name} | {mode: float(how[mode](values[name])) for mode in chosen}
        for name in wanted
        if values.get(name)
    ]


def execution_result(report: Report) -> Json:
    """Return how a job has ended, or that it is still in progress."""
    if not has_ended(report):
        return {"status": {"id": "IN_PROGRESS"}}
    status = JobStatus.of(report)
    newest = report["exceptions"][-1] if report["exceptions"] else None
    result: Json = {
        "id": report["jid"],
        "application-status": "SUCCEEDED" if status is JobStatus.FINISHED else status.name,
        "accumulator-results": {},
        "net-runtime": duration_ms(report, report["end-time"]),
    }
    if status is JobStatus.FAILED and newest is not None:
        result["failure-cause"] = {
            "class": newest["exceptionName"],
            "stack-trace": newest["stacktrace"],
            "serialized-throwable": None,
        }
    return {"status": {"id": "COMPLETED"}, "job-execution-result": result}


# --- the cluster ---------------------------------------------------------------------------------


def task_managers(reports: list[Report]) -> list[Json]:
    """Return the Spark executors of all jobs that have not ended and are not restarting or suspended, as
    Flink's task managers."""
    found = []
    for report in reports:
        status = JobStatus.of(report)
        if status.is_terminal_state() or status is JobStatus.RESTARTING:
            continue
        for executor in report["executors"]:
            used = executor["slots"]
            found.append(
                {
                    "id": f"{report['jid'][:8]}-{executor['id']}",
                    "path": f"{executor['host']}:{executor['port']}",
                    "dataPort": executor["port"],
                    "jmxPort": -1,
                    "timeSinceLastHeartbeat": report["heartbeat"],
                    "slotsNumber": used,
                    "freeSlots": max(0, executor["slots"] - report["parallelism"]),
                    "totalResource": _resource(executor["cores"], executor["memory-bytes"]),
                    "freeResource": _resource(0, 0),
                    "hardware": {
                        "cpuCores": executor["cores"],
                        "physicalMemory": executor["memory-bytes"],
                        "freeMemory": executor["memory-bytes"],
                        "managedMemory": 0,
                    },
                    "memoryConfiguration": {"totalProcessMemory": executor["memory-bytes"]},
                    "blocked": False,
                    "job": report["jid"],
                }
            )
    return found


def _resource(cores: float, memory_bytes: int) -> Json:
    return {
        "cpuCores": float(cores),
        "taskHeapMemory": memory_bytes >> 20,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }
