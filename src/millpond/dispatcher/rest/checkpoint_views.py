"""Turns the checkpoints and savepoints of job reports into the JSON that Flink's clients know."""

from __future__ import annotations

import math

from millpond.common import options
from millpond.common.configuration import Configuration
from millpond.dispatcher.messages import Answer, Json, Report


def checkpoints(report: Report) -> Json:
    """Return counts, statistics and the newest checkpoints of a job; the newest comes first."""
    history = [checkpoint(record, report) for record in reversed(report["checkpoints"]["history"])]
    ordinary = [record for record in history if not record["is_savepoint"]]
    saved = [record for record in history if record["is_savepoint"]]
    return {
        "counts": report["checkpoints"]["counts"],
        "summary": {
            "checkpointed_size": _summary([record["checkpointed_size"] for record in history]),
            "state_size": _summary([record["state_size"] for record in history]),
            "end_to_end_duration": _summary([record["end_to_end_duration"] for record in history]),
            "alignment_buffered": _summary([0 for _ in history]),
            "processed_data": _summary([0 for _ in history]),
            "persisted_data": _summary([0 for _ in history]),
        },
        "latest": {
            "completed": ordinary[0] if ordinary else None,
            "savepoint": saved[0] if saved else None,
            "failed": None,
            "restored": None,
        },
        "history": history,
    }


def checkpoint(record: Json, report: Report) -> Json:
    """Return one checkpoint; `own` is its entry in the job report."""
    subtasks = sum(vertex["parallelism"] for vertex in report["vertices"])
    kind = "SAVEPOINT" if record["is_savepoint"] else "CHECKPOINT"
    return {
        "className": "completed",
        "id": record["id"],
        "status": "COMPLETED",
        "is_savepoint": record["is_savepoint"],
        "savepointFormat": "CANONICAL" if record["is_savepoint"] else None,
        "trigger_timestamp": record["started_ms"],
        "latest_ack_timestamp": record["started_ms"] + record["duration_ms"],
        "checkpointed_size": record["bytes_written"],
        "state_size": record["bytes_full"],
        "end_to_end_duration": record["duration_ms"],
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": subtasks,
        "num_acknowledged_subtasks": subtasks,
        "checkpoint_type": kind,
        "tasks": {},
        "external_path": report["folder"],
        "discarded": False,
    }


def _summary(values: list[int]) -> Json:
    ordered = sorted(values)

    def percentile(share: float) -> float:
        if not ordered:
            return 0.0
        return float(ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)])

    return {
        "min": ordered[0] if ordered else 0,
        "max": ordered[-1] if ordered else 0,
        "avg": sum(ordered) // len(ordered) if ordered else 0,
        "p50": percentile(0.5),
        "p90": percentile(0.9),
        "p95": percentile(0.95),
        "p99": percentile(0.99),
        "p999": percentile(0.999),
    }


def checkpoint_config(report: Report) -> Json:
    """Return the job's checkpoint settings, times in milliseconds."""
    settings = Configuration.from_dict(report["settings"])
    return {
        "mode": "exactly_once",
        "interval": options.CHECKPOINT_INTERVAL.read_ms(settings),
        "timeout": options.CHECKPOINT_TIMEOUT.read_ms(settings),
        "min_pause": options.MIN_PAUSE.read_ms(settings),
        "max_concurrent": 1,
        "externalization": {
            "enabled": True,
            "delete_on_cancellation": options.RETENTION.read(settings) == "DELETE_ON_CANCELLATION",
        },
        "state_backend": options.STATE_BACKEND.read(settings),
        "checkpoint_storage": "folder",
        "unaligned_checkpoints": False,
        "tolerable_failed_checkpoints": options.TOLERATED_TIMEOUTS.read(settings),
        "aligned_checkpoint_timeout": 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": True,
        "changelog_storage": "filesystem",
        "changelog_periodic_materialization_interval": 0,
    }


def trigger(answer: Answer | None) -> Json:
    """Return the status of an asynchronous operation; `answer` is None as long as it is being worked on."""
    if answer is None:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if "error" in answer:
        operation: Json = {
            "failure-cause": {
                "class": "millpond.errors.SavepointError",
                "stack-trace": answer["error"],
                "serialized-throwable": None,
            }
        }
    else:
        operation = {"location": answer["path"]} if "path" in answer else {}
    return {"status": {"id": "COMPLETED"}, "operation": operation}
