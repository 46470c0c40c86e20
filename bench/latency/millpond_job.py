"""Millpond's side: a paced source, one or three keyed stages, a sink that measures how old records are.

python -m bench.latency.millpond_job '{"per_s": .., "seconds": .., "warm_up_s": .., "stages": .., "sink": ..}'
Prints a line of JSON: percentiles of the latency in milliseconds, how long a batch takes that has hardly any
records, and how many cores were busy.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy

from bench.generated import GeneratedSource
from millpond.common import Configuration, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext, SinkFunction
from millpond.datastream.state import ValueStateDescriptor

KEYS = 20_000


class CountPerKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        return [value]


def write_latencies(path: str, appeared_ms: Any) -> None:
    """Append when records appeared, and how old they are now."""
    now_ms = time.time_ns() // 1_000_000
    with open(path, "ab") as file:
        file.write(numpy.stack([appeared_ms, now_ms - appeared_ms]).T.tobytes())


class TransactionalSink(TwoPhaseSink):
    """Its records are there when their epoch is committed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Writer()

    def commit(self, epoch: Epoch, messages: list[bytes]) -> None:
        for message in messages:
            write_latencies(self._path, numpy.frombuffer(message, numpy.int64))


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._appeared_ms: list[int] = []

    def write(self, value: Any, context: SinkContext) -> None:
        self._appeared_ms.append(value[1])

    def prepare(self) -> bytes:
        return numpy.array(self._appeared_ms, numpy.int64).tobytes()


class IdempotentSink(SinkFunction):
    """Its records are there as soon as they are written."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, runtime_context: RuntimeContext) -> None:
        self._file = open(f"{self._path}-{os.getpid()}", "ab", buffering=1 << 20)  # noqa: SIM115

    def invoke(self, value: Any, context: SinkContext) -> None:
        appeared_ms = value[1]
        age_ms = time.time_ns() // 1_000_000 - appeared_ms
        self._file.write(struct.pack("<qq", appeared_ms, age_ms))

    def close(self) -> None:
        self._file.close()


def main() -> None:
    settings = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as folder:
        print(json.dumps(measure(settings, Path(folder))), flush=True)


def measure(settings: dict[str, Any], folder: Path) -> dict[str, float]:
    """Run the job; return percentiles of the latency, the length of a batch, and how many cores were busy."""
    configuration = {
        "millpond.master": "local[2]",
        "parallelism.default": 2,
        "execution.checkpointing.dir": str(folder / "state"),
    }
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(configuration)
    )
    source = GeneratedSource(per_s=settings["per_s"], seconds=settings["seconds"])
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "paced")
    for stage in range(settings["stages"]):
        divisor = 1 + stage  # other keys in each stage, so that records change places
        stream = stream.key_by(lambda record, d=divisor: record[0] // d % KEYS).process(
            CountPerKey()
        )
    if settings["sink"] == "transactional":
        stream.sink_to(TransactionalSink(str(folder / "latencies")))
    else:
        stream.add_sink(IdempotentSink(str(folder / "latencies")))
    client = environment.execute_async("latency")
    time.sleep(settings["warm_up_s"])
    busy_s, began_s = _busy_s(), time.monotonic()
    client.get_job_execution_result().result()
    cores = (_busy_s() - busy_s) / (time.monotonic() - began_s)
    batches = client.get_checkpoints()[-60:]
    table = numpy.concatenate(
        [numpy.fromfile(path, numpy.int64).reshape(-1, 2) for path in folder.glob("latencies*")]
    )
    total = int(settings["per_s"] * settings["seconds"])
    assert len(table) == total, f"{len(table)} of {total} records"
    steady = table[table[:, 0] > table[:, 0].min() + settings["warm_up_s"] * 1000][:, 1]
    result = {f"p{p}": float(numpy.percentile(steady, p)) for p in (50, 90, 99, 100)}
    result["batch_ms"] = statistics.median(batch["duration_ms"] for batch in batches)
    return {**result, "cores": cores}


def _busy_s() -> float:
    """The processor time of this process and all that come from it."""
    children: dict[int, list[int]] = {}
    ticks: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has just ended
            children.setdefault(int(fields[1]), []).append(int(entry))
            ticks[int(entry)] = sum(map(int, fields[11:15]))
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += ticks.get(pid, 0)
        waiting += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
