"""From source to sink at a fixed rate: how long until the output of a record is visible, exactly once."""

from __future__ import annotations

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
from millpond.datastream.functions import SinkContext
from millpond.datastream.state import ValueStateDescriptor

PER_S = 10_000
SECONDS = 60
WARM_UP_S = 20
KEYS = 20_000


class CountPerKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        return [(value[1], count)]


class LatencySink(TwoPhaseSink):
    """Writes down, when an epoch is committed, how old each of its records is."""

    def __init__(self, path: str) -> None:
        self._path = path

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Writer()

    def commit(self, epoch: Epoch, messages: list[bytes]) -> None:
        now_ms = time.time_ns() // 1_000_000
        with open(self._path, "ab") as file:
            for message in messages:
                appeared_ms = numpy.frombuffer(message, numpy.int64)
                file.write(numpy.stack([appeared_ms, now_ms - appeared_ms]).T.tobytes())


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._appeared_ms: list[int] = []

    def write(self, value: Any, context: SinkContext) -> None:
        self._appeared_ms.append(value[0])

    def prepare(self) -> bytes:
        return numpy.array(self._appeared_ms, numpy.int64).tobytes()


def measure() -> dict[str, float]:
    """Run the job once and return percentiles of the latency in milliseconds."""
    folder = Path(tempfile.mkdtemp(prefix="millpond-bench-"))
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "millpond.master": "local[2]",
                "parallelism.default": 2,
                "execution.checkpointing.dir": str(folder / "state"),
            }
        )
    )
    source = GeneratedSource(per_s=PER_S, seconds=SECONDS)
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "paced")
        .key_by(lambda record: record[0] % KEYS)
        .process(CountPerKey())
        .sink_to(LatencySink(str(folder / "latencies")))
    )
    print(f"{PER_S:,} records/s for {SECONDS} s ...", file=sys.stderr)
    environment.execute("latency")
    table = numpy.fromfile(folder / "latencies", numpy.int64).reshape(-1, 2)
    steady = table[table[:, 0] > table[0, 0] + WARM_UP_S * 1000][:, 1]
    assert len(table) == PER_S * SECONDS, "every record once"
    return {f"p{p}_ms": float(numpy.percentile(steady, p)) for p in (50, 90, 99, 100)}


def table(results: dict[str, float]) -> str:
    """Return the results as a Markdown table."""
    names = " | ".join(name.removesuffix("_ms") for name in results)
    values = " | ".join(f"{value:,.0f} ms" for value in results.values())
    title = f"{PER_S:,} records/s, source to committed output, after {WARM_UP_S} s"
    return f"| latency | {names} |\n|---|{'---|' * len(results)}\n| {title} | {values} |"
