"""From source to sink at a fixed rate: how long until the output of a record is there, beside Flink in Java.

An idempotent sink has a record as soon as it is written. With a transactional one it is there when it is
committed: in Flink with the next checkpoint, every second; in Millpond with its batch.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.capping.systems import FLINK, Workshop
from bench.measure import run_program

RATES = (1, 1_000, 10_000, 50_000)
STAGES = (1, 3)
SINKS = ("transactional", "idempotent")
SECONDS = 40
WARM_UP_S = 15
_SOURCE = Path(__file__).parent / "peers" / "LatencyJob.java"
_TIMEOUT_S = 300


def measure(only: str | None, workshop_folder: Path) -> list[dict[str, Any]]:
    """`only`: comma-separated rates, or systems (millpond, flink)."""
    wanted = set((only or "").split(",")) - {""}
    systems = [
        name
        for name in ("millpond", "flink")
        if not wanted & {"millpond", "flink"} or name in wanted
    ]
    rates = [rate for rate in RATES if str(rate) in wanted] or list(RATES)
    results = []
    for per_s in rates:
        for stages in STAGES:
            for sink in SINKS:
                for system in systems:
                    print(
                        f"{system}: {per_s:,}/s, {stages} stages, {sink} ...",
                        file=sys.stderr,
                        flush=True,
                    )
                    run = _millpond if system == "millpond" else _flink
                    found = run(per_s, stages, sink, workshop_folder)
                    results.append(
                        {"system": system, "per_s": per_s, "stages": stages, "sink": sink, **found}
                    )
    return results


def _millpond(per_s: int, stages: int, sink: str, _: Path) -> dict[str, Any]:
    settings = {
        "per_s": per_s,
        "seconds": SECONDS,
        "warm_up_s": WARM_UP_S,
        "stages": stages,
        "sink": sink,
    }
    command = [sys.executable, "-m", "bench.latency.millpond_job", json.dumps(settings)]
    return run_program(command, _TIMEOUT_S).lines[-1]


def _flink(per_s: int, stages: int, sink: str, workshop_folder: Path) -> dict[str, Any]:
    workshop = Workshop(workshop_folder)
    version = FLINK.rpartition("=")[2]
    datagen = workshop.jars(f"org.apache.flink:flink-connector-datagen:{version}")
    path = f"{workshop.flink_classes(_SOURCE, datagen)}:{workshop.flink_jars()}:{datagen}"
    opens = [f"--add-opens=java.base/java.{p}=ALL-UNNAMED" for p in ("util", "lang")]
    folder = tempfile.mkdtemp(prefix="millpond-bench-")
    command = ["java", "-Xmx2g", *opens, "-cp", path, _SOURCE.stem]
    command += [str(per_s), str(SECONDS), str(WARM_UP_S), str(stages), sink, "1s", folder]
    try:
        return run_program(command, _TIMEOUT_S).lines[-1]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def table(results: list[dict[str, Any]]) -> str:
    """Return the results as a Markdown table."""
    lines = [
        f"{SECONDS} s at each rate, the first {WARM_UP_S} s left out; milliseconds; Flink makes a checkpoint "
        "every second",
        "",
        "| records/s | keyed stages | sink | system | p50 | p90 | p99 | largest | a batch | cores |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for own in results:
        figures = " | ".join(f"{own[f'p{p}']:,.0f}" for p in (50, 90, 99, 100))
        batch = f"{own['batch_ms']:.0f} | {own['cores']:.2f}" if "batch_ms" in own else "|"
        lines.append(
            f"| {own['per_s']:,} | {own['stages']} | {own['sink']} | {own['system']} | {figures} | {batch} |"
        )
    return "\n".join(lines)
