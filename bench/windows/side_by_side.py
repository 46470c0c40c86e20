"""Tumbling, sliding and session windows: Millpond, Flink in Java and plain Spark in turn."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from bench.capping import side_by_side
from bench.capping.systems import (
    Command,
    System,
    Workshop,
    beside,
    flink_java,
    millpond,
)

KINDS = {
    "tumbling": "count per user and hour",
    "sliding": "average per ad over an hour, every minute",
    "session": "count per user until 6 hours of silence",
}
# Minutes; each slides by one. The cost of an element should not depend on it.
SIZES = (10, 60, 24 * 60)
_PEERS = Path(__file__).parent / "peers"


def _plain_spark(kind: str) -> Command:
    def command(workshop: Workshop, runs: list[list[str]], folder: Path) -> list[str]:
        settings = json.dumps({"kind": kind, "runs": runs, "folder": str(folder)})
        return [sys.executable, str(_PEERS / "spark_job.py"), settings]

    return command


def measure(
    views: int,
    users: int,
    repeat: int,
    only: str | None,
    folder: Path,
    before: Path | None = None,
) -> dict[str, list[dict[str, Any]]]:
    kinds = only.split(",") if only else list(KINDS)
    results = {}
    for kind in kinds:
        print(f"{kind}: {KINDS[kind]}", file=sys.stderr)
        job = _PEERS / "WindowsJob.java"
        systems = [
            System("millpond", "Millpond", millpond("windows.millpond_job", kind=kind)),
            System("flink", "Flink 2.3 in Java, hashmap", flink_java(job, kind)),
            System("spark", "Spark 4.3, groupBy(window)", _plain_spark(kind), share=0.1, once=True),
        ]
        results[kind] = side_by_side.measure(
            beside(systems, before), views, users, repeat, folder / "workshop"
        )
    return results


def measure_sizes(views: int, users: int, repeat: int, folder: Path) -> list[dict[str, Any]]:
    print("sliding windows of different sizes, every minute", file=sys.stderr)
    systems = [
        System(str(size), f"{size} min", millpond("windows.millpond_job", kind=f"sliding:{size}"))
        for size in SIZES
    ]
    return side_by_side.measure(systems, views, users, repeat, folder / "workshop")


def sizes_table(results: list[dict[str, Any]]) -> str:
    lines = [
        "| sliding window | windows an element is in | events/s (median) | smallest to largest |"
    ]
    lines.append("|---|---|---|---|")
    for result in results:
        shown = f"{result['events_per_s']:,.0f}" if result["events_per_s"] else "failed"
        lines.append(f"| {result['name']} | {result['key']} | {shown} | {result['spread']} |")
    return "\n".join(lines)


def table(results: dict[str, list[dict[str, Any]]]) -> str:
    lines = ["| windows | system | events/s (median) | smallest to largest | Millpond is |"]
    lines.append("|---|---|---|---|---|")
    for kind, systems in results.items():
        ours = systems[0]["events_per_s"]
        for result in systems:
            speed = result["events_per_s"]
            ratio = f"{ours / speed:.2f}x" if speed and result["key"] != "millpond" else ""
            shown = f"{speed:,.0f}" if speed else "failed"
            lines.append(f"| {kind} | {result['name']} | {shown} | {result['spread']} | {ratio} |")
    return "\n".join(lines)
