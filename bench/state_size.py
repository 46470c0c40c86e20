"""What a batch costs, and how much memory slots take, with 0.1, 1 and 10 million map entries."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.generated import GeneratedSource
from millpond.common import Configuration, Types, WatermarkStrategy
from millpond.core.journal import newest_epoch
from millpond.core.storage import FileStorage
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.state import MapStateDescriptor

SIZES = (100_000, 1_000_000, 10_000_000)
ENTRIES_PER_KEY = 10
FILL_BATCH = 500_000
BATCH = 20_000
BATCHES = 40
SKIPPED = 8  # the first small batches, while everything warms up


class Touch(KeyedProcessFunction):
    """Puts an entry; record n touches entry n of `size`, spread over all keys."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.entries = runtime_context.get_map_state(
            MapStateDescriptor("entries", Types.STRING(), Types.LONG())
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.entries.put(f"ad-{value[1]:02d}", value[2])


def measure() -> list[dict[str, float]]:
    results = [_measure(size) for size in SIZES]
    base = results[0]["batch_ms"]
    print("| entries | a batch of 20,000 takes | against 0.1 M | longest | memory of slots |")
    print("|---|---|---|---|---|")
    for result in results:
        print(
            f"| {result['entries']:,.0f} | {result['batch_ms']:.0f} ms "
            f"| {result['batch_ms'] / base:.2f}x | {result['longest_ms']:.0f} ms "
            f"| {result['slots_mb']:,.0f} MB |"
        )
    return results


def _measure(size: int) -> dict[str, float]:
    print(f"{size:,} entries ...", file=sys.stderr)
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    fill = [FILL_BATCH] * (size // FILL_BATCH) + [size % FILL_BATCH] * (size % FILL_BATCH > 0)
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "millpond.master": "local[2]",
                "parallelism.default": 2,
                "execution.checkpointing.dir": str(folder),
                "millpond.checkpoint.retain-on-finish": True,
            }
        )
    )
    keys = size // ENTRIES_PER_KEY
    watch = _Watch(folder / "state-size", len(fill))
    watch.start()
    source = GeneratedSource(batches=fill + [BATCH] * BATCHES)
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "generated")
        # A stride that touches all keys evenly, whatever the number of batches.
        .map(lambda record: (record[0] * 7919 % keys, record[0] // keys % 10, record[0]))
        .key_by(lambda record: record[0])
        .process(Touch())
        .print()
    )
    environment.execute("state-size")
    watch.join()
    took_ms = watch.durations_ms[SKIPPED:]
    return {
        "entries": size,
        "batch_ms": statistics.median(took_ms),
        "longest_ms": max(took_ms),
        "slots_mb": watch.slots_mb,
    }


class _Watch(threading.Thread):
    """Notes when the epochs of the small batches appear, and the memory of slots at the end."""

    def __init__(self, job_folder: Path, fill: int) -> None:
        super().__init__(daemon=True)
        self._job_folder = job_folder
        self._first, self._last = fill, fill + BATCHES - 1
        self.durations_ms: list[float] = []
        self.slots_mb = 0.0

    def run(self) -> None:
        before: float | None = None
        storage = FileStorage(self._job_folder)
        for epoch in range(self._first - 1, self._last):
            while newest_epoch(storage) < epoch:
                time.sleep(0.002)
            now = time.monotonic()
            if before is not None:
                self.durations_ms.append((now - before) * 1000)
            before = now
            if epoch == self._last - 2:
                self.slots_mb = _slots_mb(str(self._job_folder))


def _slots_mb(job_folder: str) -> float:
    total = 0.0
    for entry in os.listdir("/proc"):
        try:
            command = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdigit() else b""
            if b"executors.slot.process" in command and job_folder.encode() in command:
                status = Path(f"/proc/{entry}/status").read_text()
                total += int(status.split("VmRSS:")[1].split()[0]) / 1024
        except OSError:
            continue  # it has just ended
    return total
