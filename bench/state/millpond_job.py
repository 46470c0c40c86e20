"""Large state in Millpond: every record reads and writes one of many map entries.

python -m bench.state.millpond_job SETTINGS_JSON    prints lines of JSON
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.generated import GeneratedSource
from millpond.common import Configuration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.state import MapStateDescriptor

ENTRIES_PER_KEY = 10
_VALUE_REPEATS = 14  # of 19 digits
_STRIDE = 7_919


def entry_bytes() -> int:
    """What an entry is without any encoding: key, entry and value."""
    return len("u1000000") + len("ad-5") + 19 * _VALUE_REPEATS


class Touch(KeyedProcessFunction):
    """A record is (key, entry, number)."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.entries = runtime_context.get_map_state(
            MapStateDescriptor("entries", Types.STRING(), Types.STRING())
        )

    def process_element(self, value: tuple[str, str, int], ctx: Any) -> Any:
        _, entry, number = value
        before = self.entries.get(entry)
        self.entries.put(entry, str(10**18 + number) * _VALUE_REPEATS)
        return None if before is None or before.startswith("1") else [number]


def place(size: int) -> Any:
    """Which entry a record touches: first each of `size` once, then some of them again, all over."""
    keys = size // ENTRIES_PER_KEY

    def placed(record: tuple[int, int]) -> tuple[str, str, int]:
        number = record[0]
        spread = number * _STRIDE
        return f"u{spread % keys}", f"ad-{number // keys % ENTRIES_PER_KEY}", number

    return placed


def main(settings: dict[str, Any]) -> None:
    size, batch = settings["entries"], settings["batch"]
    fill = [batch] * (size // batch)
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings["configuration"])
    )
    source = GeneratedSource(batches=fill + [batch] * settings["touch_batches"])
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .map(place(size))
        .key_by(lambda record: record[0])
        .process(Touch())
        .uid("touch")
        .print()
    )
    watch = SlotMemory(settings["configuration"]["execution.checkpointing.dir"])
    watch.start()
    client = environment.execute_async("state")
    seen, stop_after = settings["first_batch"], settings["stop_after"]
    while not client.get_job_status().result().is_terminal_state():
        for record in client.get_checkpoints():
            if record["id"] >= seen:
                seen = record["id"] + 1
                report(batch=record["id"], slots_mb=watch.peak_mb, **record)
        if seen >= stop_after:
            if settings["savepoints"]:
                asked = time.monotonic()
                path = client.trigger_savepoint(settings["savepoints"]).result()
                report(savepoint=path, seconds=time.monotonic() - asked, slots_mb=watch.peak_mb)
            client.cancel().result()
            return
        time.sleep(0.01)
    client.get_job_execution_result().result()  # says why it ended so early


def report(**content: Any) -> None:
    print(json.dumps(content), flush=True)


class SlotMemory(threading.Thread):
    """The most memory that the slots of a job had together, as the kernel counts it (VmHWM)."""

    def __init__(self, folder: str) -> None:
        super().__init__(daemon=True)
        self._folder = folder.encode()
        self._peaks: dict[str, float] = {}

    @property
    def peak_mb(self) -> float:
        return sum(sorted(self._peaks.values())[-2:])

    def run(self) -> None:
        while True:
            for entry in filter(str.isdigit, os.listdir("/proc")):
                try:
                    command = Path(f"/proc/{entry}/cmdline").read_bytes()
                    if b"executors.slot.process" in command and self._folder in command:
                        status = Path(f"/proc/{entry}/status").read_text()
                        self._peaks[entry] = int(status.split("VmHWM:")[1].split()[0]) / 1024
                except OSError:
                    continue  # it has just ended
            time.sleep(0.5)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
