"""The product end to end, Kafka in and Redis out, beside the same job in Flink: how fast a backlog is worked
through, how long a cap takes at a fixed rate, what a hot user costs, and how much memory pairs take."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.servers import KafkaServer, RedisServer

from bench.capping import product_data as data
from bench.capping import product_latency
from bench.capping.product_systems import MILLPOND, PYFLINK, SYSTEMS, Place, System
from bench.capping.systems import Workshop, beside
from bench.measure import BenchmarkFailed, Measurement, run_program

_TIMEOUT_S = 900
_WARM_UP = 0.05
_HOT_SHARE = 0.2
_FEW_PAIRS, _MANY_PAIRS = 100_000, 1_100_000
_SMALL_BATCHES = (f"millpond.batch.max-records={_FEW_PAIRS}",)
_SLOT = b"millpond.executors.slot"
SPEED_GOAL, LATENCY_GOAL_MS, HOT_GOAL = 1.3, 1500, 1.5


class Stage:
    """Kafka, Redis and a folder, for all runs."""

    def __init__(self, folder: Path, workshop: Workshop) -> None:
        self.folder, self.workshop = folder, workshop
        (folder / "redis").mkdir()
        self.kafka, self.redis = KafkaServer(folder / "kafka"), RedisServer(folder / "redis")

    def place(self, *topics: str, rules: str = "default") -> Place:
        own = Path(tempfile.mkdtemp(prefix="run-", dir=self.folder))
        return Place(self.kafka.servers, self.redis.port, topics, rules, own)

    def run(self, system: System, *topics: str, rules: str = "default") -> Measurement:
        """Redis is empty before, and has only what belongs to the last topic afterwards."""
        place = self.place(*topics, rules=rules)
        with self.redis.client() as client:
            client.flushall()
        try:
            command = system.command(self.workshop, place)
            return run_program(
                command,
                _TIMEOUT_S,
                checkout=system.checkout,
                PYTHONPATH=os.pathsep.join(sys.path),
            )
        finally:
            shutil.rmtree(place.folder, ignore_errors=True)

    def members(self) -> int:
        with self.redis.client() as client:
            return sum(client.scard(key) for key in client.scan_iter("cap:*", 10_000))


@contextmanager
def _stage(workshop: Workshop) -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    stage = Stage(folder, workshop)
    try:
        stage.kafka.start()
        stage.redis.start()
        yield stage
    finally:
        stage.kafka.stop()
        stage.redis.stop()
        shutil.rmtree(folder, ignore_errors=True)


def measure(
    views: int,
    users: int,
    repeat: int,
    only: str | None,
    folder: Path,
    before: Path | None = None,
) -> dict[str, Any]:
    """`only`: comma-separated parts: catch-up, latency, hot, memory. `before`: another checkout of Millpond,
    for catch-up."""
    parts = (only or "catch-up,hot,memory,latency").split(",")
    results: dict[str, Any] = {"views": views, "users": users}
    with _stage(Workshop(folder)) as stage:
        servers = stage.kafka.servers
        warm = int(views * _WARM_UP)
        _say(f"Sending {views:,} views to Kafka ...")
        data.send(servers, "warm-up", data.views(warm, max(2, users // 20)))
        if {"catch-up", "hot"} & set(parts):
            data.send(servers, "views", data.views(views, users))
        if "catch-up" in parts:
            results["catch-up"] = _catch_up(stage, views, users, repeat, before)
            results["start-up"] = _start_up(stage, views)
        if "hot" in parts:
            data.send(servers, "hot", data.views(views, users, _HOT_SHARE))
            results["hot"] = _hot(stage, repeat)
        if "memory" in parts:
            results["memory"] = _memory(stage)
        if "latency" in parts:
            results["latency"] = _latency(stage)
    return results


def _catch_up(
    stage: Stage, views: int, users: int, repeat: int, before: Path | None
) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], dict[str, Any]] = {}
    systems = beside(SYSTEMS, before)
    for number in range(repeat):
        for rules in data.RULES:
            for system in systems:
                _say(f"[{number + 1}/{repeat}] catch-up, {rules} rules: {system.name} ...")
                new = {"key": system.key, "name": system.name, "rules": rules, "runs": []}
                own = found.setdefault((rules, system.key), {**new, "peak_mb": 0.0})
                done = stage.run(system, "warm-up", "views", rules=rules)
                own["runs"].append(views / done.lines[-1]["seconds"])
                own["peak_mb"] = max(own["peak_mb"], done.peak_mb)
                own["members"] = stage.members()
                _say(f"      {own['runs'][-1]:,.0f} events/s")
    count = int(views * PYFLINK.share)
    _say(f"catch-up: {PYFLINK.name}, {count:,} views ...")
    data.send(stage.kafka.servers, "few", data.views(count, int(users * PYFLINK.share)))
    new = {"key": PYFLINK.key, "name": PYFLINK.name, "rules": "default", "members": None}
    try:
        done = stage.run(PYFLINK, "few", "few")
        runs = [count / done.lines[-1]["seconds"]]
        found["default", PYFLINK.key] = {**new, "runs": runs, "peak_mb": done.peak_mb}
    except BenchmarkFailed as failure:
        _say(f"      failed: {failure}")
    for own in found.values():
        own["events_per_s"] = statistics.median(own["runs"])
    return list(found.values())


def _start_up(stage: Stage, views: int) -> dict[str, float]:
    """The same in a new process, with all that it takes to start."""
    _say("catch-up in a new process ...")
    started_s = time.monotonic()
    stage.run(MILLPOND, "views", rules="full")
    return {"events_per_s": views / (time.monotonic() - started_s)}


def _hot(stage: Stage, repeat: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"views": [], "hot": []}
    for number in range(repeat):
        for topic, own in seconds.items():
            _say(f"[{number + 1}/{repeat}] hot user: {topic} ...")
            own.append(stage.run(MILLPOND, "warm-up", topic, rules="full").lines[-1]["seconds"])
            _say(f"      {own[-1]:.1f} s")
    uniform_s, hot_s = (statistics.median(own) for own in seconds.values())
    return {"share": _HOT_SHARE, "seconds": seconds, "ratio": hot_s / uniform_s}


def _memory(stage: Stage) -> dict[str, float]:
    """Of the slots, which hold the state. What a slot needs for a batch is in both and falls out."""
    peaks, logs = [], []
    for count in (_FEW_PAIRS, _MANY_PAIRS):
        _say(f"memory: {count:,} pairs ...")
        data.send(stage.kafka.servers, f"pairs-{count}", data.pairs(count))
        place = replace(stage.place(f"pairs-{count}"), settings=_SMALL_BATCHES)
        command = MILLPOND.command(stage.workshop, place)
        done = run_program(command, _TIMEOUT_S, _SLOT, PYTHONPATH=os.pathsep.join(sys.path))
        peaks.append(done.peak_mb)
        logs.append(_size_mb(place.folder))
        shutil.rmtree(place.folder, ignore_errors=True)
    millions = (_MANY_PAIRS - _FEW_PAIRS) / 1e6
    return {
        "slots_mb": peaks[1],
        "mb_per_million": (peaks[1] - peaks[0]) / millions,
        "on_disk_mb_per_million": (logs[1] - logs[0]) / millions,
    }


def _latency(stage: Stage) -> list[dict[str, Any]]:
    results = []
    for system in SYSTEMS[:2]:
        topic = f"live-{system.key}"
        _say(f"latency at {product_latency.RATE:,} events/s: {system.name} ...")
        stage.kafka.create(topic, data.PARTITIONS)
        place = replace(stage.place(topic), late_ms=0, live=True)
        with stage.redis.client() as client:
            found = product_latency.measure(stage.workshop, system, place, client)
        results.append({"key": system.key, "name": system.name, **found})
        _say(f"      p50 {found['p50_ms']:,.0f} ms, p99 {found['p99_ms']:,.0f} ms")
    return results


def _size_mb(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(results: dict[str, Any]) -> str:
    """Markdown, part by part."""
    parts = []
    if "catch-up" in results:
        parts.append(_catch_up_table(results["catch-up"]))
        rate = results["start-up"]["events_per_s"]
        parts.append(
            f"Millpond from a new process, full rules, Spark's start included: {rate:,.0f} events/s."
        )
    if "hot" in results:
        hot = results["hot"]
        parts.append(
            f"One user has {hot['share']:.0%} of all views: {hot['ratio']:.2f} times as long as without "
            f"(goal < {HOT_GOAL:g})."
        )
    if "memory" in results:
        memory = results["memory"]
        parts.append(
            f"Memory of the slots for a million (user, ad) pairs: {memory['mb_per_million']:,.0f} MB; "
            f"{memory['on_disk_mb_per_million']:,.0f} MB in the checkpoint."
        )
    if "latency" in results:
        lines = [
            f"| {product_latency.RATE:,} events/s, timestamp to Redis | caps | median, ms | 90 % | "
            f"99 % (goal < {LATENCY_GOAL_MS:,}) | longest |",
            "|---|---|---|---|---|---|",
        ]
        for own in results["latency"]:
            times = " | ".join(f"{own[f'p{p}_ms']:,.0f}" for p in (50, 90, 99, 100))
            lines.append(f"| {own['name']} | {own['caps']:,} | {times} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _catch_up_table(found: list[dict[str, Any]]) -> str:
    lines = [
        "| catch-up | rules | events/s (median) | smallest to largest | Millpond is | peak memory "
        "| members in Redis |",
        "|---|---|---|---|---|---|---|",
    ]
    ours = {own["rules"]: own["events_per_s"] for own in found if own["key"] == MILLPOND.key}
    for own in found:
        ratio = ""
        if own["key"] != MILLPOND.key:
            ratio = f"{ours[own['rules']] / own['events_per_s']:.2f}x"
            if own["key"].startswith("flink") and own["rules"] == "full":
                ratio += f" (goal {SPEED_GOAL:g}x)"
        members = "" if own["members"] is None else f"{own['members']:,}"
        lines.append(
            f"| {own['name']} | {own['rules']} | {own['events_per_s']:,.0f} | {min(own['runs']):,.0f} to "
            f"{max(own['runs']):,.0f} | {ratio} | {own['peak_mb']:,.0f} MB | {members} |"
        )
    return "\n".join(lines)
