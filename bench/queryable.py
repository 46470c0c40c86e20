"""Queryable state while a job runs: look-ups at a fixed rate, how long answers take, what they cost the job.

A process of its own asks, over one connection per slot, each look-up when it is due, whether or not those
before it have been answered. What counts is the time since it was due: a server that falls behind shows it.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from bench.generated import GeneratedSource
from millpond.common import Configuration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.state import ValueStateDescriptor
from millpond.queryable import AsyncQueryableStateClient, QueryableStateClient

PER_S = 10_000
KEYS = 20_000
RATE = 2_000
SECONDS = 30.0
_QUIET_S = 10.0
_WARM_UP_S = 10.0
_NAME = "queryable"


class CountPerKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable("counts")
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> None:
        self.count.update((self.count.value() or 0) + 1)


def measure() -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        return _measure(Path(folder))


def _measure(folder: Path) -> dict[str, Any]:
    settings = {
        "millpond.master": "local[2]",
        "parallelism.default": 2,
        "execution.checkpointing.dir": str(folder),
    }
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings)
    )
    source = GeneratedSource(per_s=PER_S, seconds=600)
    records = environment.from_source(source, WatermarkStrategy.no_watermarks(), "paced")
    keyed = records.key_by(lambda record: record[0] % KEYS, Types.LONG())
    keyed.process(CountPerKey()).name("count").print()
    print(f"{PER_S:,} records/s; {RATE:,} look-ups/s for {SECONDS:g} s ...", file=sys.stderr)
    job = environment.execute_async(_NAME)
    job_folder = folder / _NAME
    with QueryableStateClient.for_folder(job_folder) as client:
        while len(client.get_many(None, "counts", range(KEYS), timeout_s=120)) < KEYS:
            time.sleep(0.5)
    time.sleep(_WARM_UP_S)
    began_ms = _now_ms()
    time.sleep(_QUIET_S)
    quiet, quiet_until_ms = job.get_checkpoints(), _now_ms()
    command = [sys.executable, "-m", "bench.queryable", str(job_folder), str(RATE), str(SECONDS)]
    asked = subprocess.run(command, capture_output=True, text=True, check=True)
    batches, ended_ms = job.get_checkpoints(), _now_ms()  # the newest hundred
    job.cancel().result()
    return {
        **json.loads(asked.stdout),
        "records_per_s": PER_S,
        "keys": KEYS,
        "quiet": _batches(quiet, began_ms, quiet_until_ms),
        "asked": _batches(batches, quiet_until_ms, ended_ms),
    }


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _batches(batches: list[dict[str, Any]], from_ms: int, to_ms: int) -> dict[str, float]:
    took = [b["duration_ms"] for b in batches if from_ms <= b["started_ms"] < to_ms]
    median = statistics.median(took) if took else float("nan")
    return {"batches": len(took), "median_ms": median}


async def ask(folder: Path, rate: int, seconds: float) -> dict[str, Any]:
    latencies: list[float] = []
    failures: list[str] = []
    chance = random.Random(1)
    async with AsyncQueryableStateClient.for_folder(folder) as client:
        await client.get_many(None, "counts", range(100))  # connected
        begin_s = time.perf_counter() + 0.1

        async def one(key: int, due_s: float) -> None:
            try:
                count = await client.get(None, "counts", key)
                assert count > 0
                latencies.append(time.perf_counter() - due_s)
            except Exception as problem:
                failures.append(repr(problem))

        under_way: set[asyncio.Task[None]] = (
            set()
        )  # a list of all would be walked through by the collector
        for number in range(int(rate * seconds)):
            due_s = begin_s + number / rate
            wait_s = due_s - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            task = asyncio.ensure_future(one(chance.randrange(KEYS), due_s))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)
    latencies.sort()
    at = {
        share: latencies[int(share * (len(latencies) - 1))] * 1000 for share in (0.5, 0.9, 0.99, 1)
    }
    return {
        "rate": rate,
        "seconds": seconds,
        "answers": len(latencies),
        "failures": len(failures),
        "first_failures": failures[:5],
        "p50": at[0.5],
        "p90": at[0.9],
        "p99": at[0.99],
        "max": at[1],
    }


def table(results: dict[str, Any]) -> str:
    quiet, asked = results["quiet"], results["asked"]
    return (
        f"{results['records_per_s']:,} records/s, {results['keys']:,} keys, hashmap, 2 slots\n\n"
        "| look-ups/s | answers | no answer | median, ms | 90 %, ms | 99 %, ms (goal < 10) | longest, ms |\n"
        "|---|---|---|---|---|---|---|\n"
        f"| {results['rate']:,} | {results['answers']:,} | {results['failures']} | {results['p50']:.2f} "
        f"| {results['p90']:.2f} | {results['p99']:.2f} | {results['max']:.1f} |\n\n"
        f"A batch took {quiet['median_ms']:.0f} ms (median of {quiet['batches']}) before, "
        f"{asked['median_ms']:.0f} ms (of {asked['batches']}) while it was asked: "
        f"{asked['median_ms'] / quiet['median_ms']:.2f} times as long.\n"
    )


if __name__ == "__main__":
    # uvloop: whoever asks that often has it, and it leaves more of the two cores to the job.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(ask(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
    print(json.dumps(found))
