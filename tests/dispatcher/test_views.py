"""The JSON of Flink's REST API, field by field (O1), as Flink 2.3 documents it."""

from __future__ import annotations

from typing import Any

import pytest

from millpond.dispatcher.job_manager import empty_report
from millpond.dispatcher.rest import checkpoint_views, prometheus, views
from millpond.dispatcher.storage import Submission

NOW = 1_700_000_100_000
JID, SOURCE, COUNT = "a" * 32, "b" * 32, "c" * 32

FIELDS = {
    "overview of a job": (
        lambda r: views.job_overview(r, NOW),
        "jid name state start-time end-time duration last-modification tasks",
    ),
    "tasks": (
        lambda r: views.job_overview(r, NOW)["tasks"],
        "total created scheduled deploying initializing running finished canceling canceled failed "
        "reconciling",
    ),
    "job": (
        lambda r: views.job_details(r, NOW),
        "jid name isStoppable state job-type start-time end-time duration maxParallelism now timestamps "
        "vertices status-counts plan",
    ),
    "vertex of a job": (
        lambda r: views.job_details(r, NOW)["vertices"][0],
        "id slotSharingGroupId name maxParallelism parallelism status start-time end-time duration "
        "tasks metrics",
    ),
    "metrics of a vertex": (
        lambda r: views.job_details(r, NOW)["vertices"][0]["metrics"],
        "read-bytes read-bytes-complete write-bytes write-bytes-complete read-records read-records-complete "
        "write-records write-records-complete accumulated-backpressured-time accumulated-idle-time "
        "accumulated-busy-time",
    ),
    "plan": (views.plan, "jid name type nodes"),
    "node": (
        lambda r: views.plan(r)["nodes"][1],
        "id parallelism operator operator_strategy description inputs optimizer_properties",
    ),
    "input": (lambda r: views.plan(r)["nodes"][1]["inputs"][0], "num id ship_strategy exchange"),
    "config": (views.job_config, "jid name execution-config"),
    "execution config": (
        lambda r: views.job_config(r)["execution-config"],
        "execution-mode restart-strategy job-parallelism object-reuse-mode user-config",
    ),
    "exceptions": (lambda r: views.exceptions(r, 20), "exceptionHistory"),
    "exception": (
        lambda r: views.exceptions(r, 20)["exceptionHistory"]["entries"][0],
        "exceptionName stacktrace timestamp taskName endpoint taskManagerId failureLabels "
        "concurrentExceptions",
    ),
    "checkpoints": (checkpoint_views.checkpoints, "counts summary latest history"),
    "counts": (
        lambda r: checkpoint_views.checkpoints(r)["counts"],
        "restored total in_progress completed failed",
    ),
    "summary": (
        lambda r: checkpoint_views.checkpoints(r)["summary"],
        "checkpointed_size state_size end_to_end_duration alignment_buffered processed_data persisted_data",
    ),
    "statistics": (
        lambda r: checkpoint_views.checkpoints(r)["summary"]["state_size"],
        "min max avg p50 p90 p95 p99 p999",
    ),
    "latest": (
        lambda r: checkpoint_views.checkpoints(r)["latest"],
        "completed savepoint failed restored",
    ),
    "checkpoint": (
        lambda r: checkpoint_views.checkpoints(r)["history"][0],
        "id status is_savepoint trigger_timestamp latest_ack_timestamp state_size end_to_end_duration "
        "alignment_buffered processed_data persisted_data num_subtasks num_acknowledged_subtasks "
        "checkpoint_type tasks external_path discarded checkpointed_size",
    ),
    "checkpoint config": (
        checkpoint_views.checkpoint_config,
        "mode interval timeout min_pause max_concurrent externalization state_backend checkpoint_storage "
        "unaligned_checkpoints tolerable_failed_checkpoints aligned_checkpoint_timeout",
    ),
    "vertex": (
        lambda r: views.vertex_details(r["vertices"][1], r, NOW),
        "id name parallelism maxParallelism now subtasks",
    ),
    "subtask": (
        lambda r: views.vertex_details(r["vertices"][1], r, NOW)["subtasks"][0],
        "subtask status attempt endpoint start-time end-time duration metrics taskmanager-id status-duration",
    ),
    "back pressure": (
        lambda r: views.back_pressure(r["vertices"][1], NOW),
        "status backpressureLevel end-timestamp subtasks",
    ),
    "back pressure of a subtask": (
        lambda r: views.back_pressure(r["vertices"][1], NOW)["subtasks"][0],
        "subtask backpressureLevel ratio idleRatio busyRatio",
    ),
    "task manager": (
        lambda r: views.task_managers([r])[0],
        "id path dataPort jmxPort timeSinceLastHeartbeat slotsNumber freeSlots totalResource freeResource "
        "hardware memoryConfiguration",
    ),
    "hardware": (
        lambda r: views.task_managers([r])[0]["hardware"],
        "cpuCores physicalMemory freeMemory managedMemory",
    ),
    "trigger": (lambda r: checkpoint_views.trigger({"path": "/s"}), "status operation"),
}


def vertex(vertex_id: str, name: str, inputs: list[dict[str, str]]) -> dict[str, Any]:
    ratios = {"busy-ratio": 0.25, "idle-ratio": 0.05, "backpressure-ratio": 0.7}
    counts = {"read-records": 30, "write-records": 20, "read-bytes": 300, "write-bytes": 200}
    times = {"start-time": NOW - 1000, "end-time": -1}
    subtask = {"status": "RUNNING", "attempt": 0, "host": "h", "accumulated-busy-time": 40}
    return {
        "id": vertex_id,
        "name": name,
        "parallelism": 2,
        "maxParallelism": 128,
        "status": "RUNNING",
        "level": len(inputs),
        "keyed": bool(inputs),
        "operators": [],
        "inputs": inputs,
        "metrics": counts | {"accumulated-busy-time": 80},
        "records-in-per-second": 3.0,
        "records-out-per-second": 2.0,
        "watermark": 1234,
        "subtasks": [
            {"subtask": i, "start-time": NOW - 1000, "end-time": -1, **subtask, **counts, **ratios}
            for i in range(2)
        ],
        "state-bytes": 10,
        "state-growth-per-second": 0.5,
        "key-groups": [1.0, 3.0],
        "key-group-skew": 1.5,
        "hottest-keys": [['ann"', 7]],
        **ratios,
        **times,
    }


@pytest.fixture
def report() -> dict[str, Any]:
    return make_report()


def make_report() -> dict[str, Any]:
    own = empty_report(Submission(JID, "app.py", "program/app.py"), NOW - 1000)
    inputs = [{"id": SOURCE, "ship-strategy": "HASH"}]
    checkpoint = {"started_ms": NOW - 500, "duration_ms": 20, "bytes_written": 5, "bytes_full": 50}
    return own | {
        "jid": JID,
        "state": "RUNNING",
        "parallelism": 2,
        "heartbeat": NOW,
        "vertices": [vertex(SOURCE, "Source: lines", []), vertex(COUNT, "count", inputs)],
        "exceptions": [
            {
                "timestamp": NOW - i,
                "exceptionName": "E",
                "stacktrace": f"text {i}",
                "taskName": None,
            }
            for i in (2, 1)
        ],
        "checkpoints": {
            "counts": {"restored": 0, "total": 3, "in_progress": 0, "completed": 3, "failed": 0},
            "history": [
                {"id": i, "is_savepoint": i == 1, **checkpoint, "records": 1} for i in range(3)
            ],
        },
        "executors": [
            {
                "id": "driver",
                "host": "h",
                "port": 1,
                "cores": 2,
                "memory-bytes": 1 << 30,
                "slots": 2,
            }
        ],
        "metrics": {"count.seen": 12, "d.distribution": [1, 2, 1, 1]},
        "flow": {"backlog-records": 9, "credits": 100, "latency-ms": {"p50": 1, "p99": 3}},
    }


@pytest.mark.parametrize("what", FIELDS)
def test_answers_have_the_fields_that_flinks_have(report: dict[str, Any], what: str) -> None:
    """O1"""
    make, names = FIELDS[what]
    assert set(names.split()) <= set(make(report))


def test_a_program_without_a_job_yet_has_all_views(report: dict[str, Any]) -> None:
    own = empty_report(Submission(JID, "app.py", "program/app.py"), NOW) | {"jid": JID}
    for what in (
        "overview of a job",
        "job",
        "plan",
        "config",
        "exceptions",
        "checkpoints",
        "checkpoint config",
    ):
        assert FIELDS[what][0](own)
    assert views.exceptions(own, 5)["root-exception"] is None


def test_tasks_are_counted_by_state(report: dict[str, Any]) -> None:
    assert views.job_overview(report, NOW)["tasks"]["running"] == 4
    assert views.job_details(report, NOW)["status-counts"]["RUNNING"] == 2
    report["state"] = "RESTARTING"
    assert views.job_overview(report, NOW)["tasks"]["scheduled"] == 4


def test_exceptions_come_newest_first_and_say_if_there_are_more(report: dict[str, Any]) -> None:
    shown = views.exceptions(report, 1)
    assert [own["stacktrace"] for own in shown["exceptionHistory"]["entries"]] == ["text 1"]
    assert shown["exceptionHistory"]["truncated"]


def test_savepoints_are_told_apart_from_checkpoints(report: dict[str, Any]) -> None:
    shown = checkpoint_views.checkpoints(report)
    assert [own["id"] for own in shown["history"]] == [2, 1, 0]
    assert shown["latest"]["savepoint"]["id"] == 1 and shown["latest"]["completed"]["id"] == 2


@pytest.mark.parametrize(
    ("answer", "operation"),
    [
        (None, None),
        ({"path": "/s"}, {"location": "/s"}),
        ({}, {}),
        (
            {"error": "no"},
            {
                "failure-cause": {
                    "class": "millpond.errors.SavepointError",
                    "stack-trace": "no",
                    "serialized-throwable": None,
                }
            },
        ),
    ],
)
def test_asynchronous_operations_are_told_as_flink_does(answer: Any, operation: Any) -> None:
    shown = checkpoint_views.trigger(answer)
    assert shown["operation"] == operation
    assert shown["status"]["id"] == ("IN_PROGRESS" if answer is None else "COMPLETED")


@pytest.mark.parametrize(
    ("ratio", "level"), [(0.0, "ok"), (0.1, "ok"), (0.4, "low"), (0.8, "high")]
)
def test_back_pressure_has_flinks_levels(report: dict[str, Any], ratio: float, level: str) -> None:
    report["vertices"][1]["backpressure-ratio"] = ratio
    assert views.back_pressure(report["vertices"][1], NOW)["backpressureLevel"] == level


def test_metrics_are_listed_by_name_and_read_by_get(report: dict[str, Any]) -> None:
    values = views.vertex_metrics(report["vertices"][1])
    assert {"id": "0.numRecordsIn"} in views.as_metrics(values, None)
    assert views.as_metrics(values, ["1.numRecordsOut", "nothing"]) == [
        {"id": "1.numRecordsOut", "value": "20"}
    ]


def test_prometheus_gets_flinks_names_and_labels(report: dict[str, Any]) -> None:
    """O7"""
    text = prometheus.exposition([report], NOW).decode()
    labels = f'job_id="{JID}",job_name="app.py"'
    assert f"flink_jobmanager_job_lastCheckpointSize{{{labels}}} 5.0" in text
    assert "flink_jobmanager_numRunningJobs 1.0" in text
    assert f'flink_taskmanager_job_task_numRecordsIn{{{labels},subtask_index="1"' in text
    assert (
        f'flink_taskmanager_job_task_operator_seen{{{labels},operator_name="count"}} 12.0' in text
    )
    assert f'{{{labels},quantile="0.99"}} 3.0' in text
    assert 'key="ann\\""' in text
