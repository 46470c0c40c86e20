"""Answers of a dispatcher with one job, in the shape of docs/job-report.md."""

from __future__ import annotations

import time
from typing import Any

JID = "0123456789abcdef0123456789abcdef"
VERTICES = {name: name[0] * 32 for name in ("source", "count", "print")}


def answers(name: str = "views", state: str = "RUNNING") -> dict[str, Any]:
    """ "GET /path" -> JSON. Each report has more records than the one before."""
    rounds = 0

    def moving_report() -> dict[str, Any]:
        nonlocal rounds
        rounds += 1
        return report(name, state, rounds)

    return {
        "GET /overview": {
            "taskmanagers": 1,
            "slots-total": 4,
            "slots-available": 1,
            "jobs-running": 1,
            "jobs-finished": 0,
            "jobs-cancelled": 0,
            "jobs-failed": 0,
            "flink-version": "0.1.0",
        },
        "GET /config": {"features": {"web-submit": True, "web-cancel": True}},
        "GET /taskmanagers": {"taskmanagers": []},
        "GET /jobs/overview": lambda: {"jobs": [job(name, state)]},
        f"GET /jobs/{JID}": lambda: job(name, state),
        f"GET /jobs/{JID}/report": moving_report,
        "GET /jars": {"files": []},
    }


def job(name: str, state: str) -> dict[str, Any]:
    now_ms = _now_ms()
    return {
        "jid": JID,
        "name": name,
        "state": state,
        "start-time": now_ms - 65_000,
        "end-time": -1,
        "duration": 65_000,
        "now": now_ms,
        "tasks": {"total": 3, "running": 3, "finished": 0},
    }


def report(name: str, state: str, rounds: int) -> dict[str, Any]:
    now_ms = _now_ms()
    checkpoint = {"duration_ms": 120, "bytes_written": 1000, "is_savepoint": False, "records": 10}
    return {
        "format": 1,
        "jid": JID,
        "name": name,
        "state": state,
        "start-time": now_ms - 65_000,
        "end-time": -1,
        "restarts": 0,
        "attempt": 0,
        "heartbeat": now_ms,
        "parallelism": 1,
        "max-parallelism": 128,
        "settings": {},
        "vertices": [
            _vertex("source", ["Source: views", "Map"], [], rounds),
            _vertex("count", ["Count"], [("source", "HASH")], rounds),
            _vertex("print", ["Sink: print"], [("count", "FORWARD")], rounds),
        ],
        "checkpoints": {
            "counts": {"completed": rounds, "failed": 0, "in_progress": 0, "restored": 0},
            "history": [
                {"id": i, "started_ms": now_ms - 1000 * (9 - i), "bytes_full": 5000, **checkpoint}
                for i in range(8)
            ],
        },
        "savepoints": [],
        "exceptions": [],
        "metrics": {"Count.seen": rounds},
        "flow": {"credits": 100, "records-per-second": 1000.0 * rounds, "backpressured": False},
        "executors": [],
        "queryable": {},
    }


def _vertex(
    name: str, operators: list[str], inputs: list[tuple[str, str]], rounds: int
) -> dict[str, Any]:
    return {
        "id": VERTICES[name],
        "name": " -> ".join(operators),
        "parallelism": 1,
        "status": "RUNNING",
        "keyed": name == "count",
        "operators": [{"id": f"{n:032x}", "uid": op, "name": op} for n, op in enumerate(operators)],
        "inputs": [{"id": VERTICES[one], "ship-strategy": ship} for one, ship in inputs],
        "metrics": {"read-records": 1000 * rounds, "write-records": 1000 * rounds},
        "records-in-per-second": 1000.0 * rounds,
        "records-out-per-second": 1000.0 * rounds,
        "busy-ratio": 0.5,
        "idle-ratio": 0.4,
        "backpressure-ratio": 0.1,
        "watermark": 1_700_000_000_000,
        "subtasks": [],
        "state-bytes": 5000 if name == "count" else 0,
        "key-groups": [3, 1, 2, 50] if name == "count" else [],
        "key-group-skew": 3.6 if name == "count" else None,
        "hottest-keys": [["<i>ann</i>", 50]] if name == "count" else [],
    }


def _now_ms() -> int:
    return int(time.time() * 1000)
