"""The windows jobs in Millpond, one record at a time.

python -m bench.windows.millpond_job SETTINGS_JSON    prints a line of JSON per run
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from bench.capping.millpond_job import main, parse
from millpond.common import Configuration, Duration, Encoder, Time, WatermarkStrategy
from millpond.datastream import (
    AggregateFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
    TimeWindow,
)
from millpond.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millpond.datastream.window import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Average(AggregateFunction):
    """Of the milliseconds within the second: some number that is in every record."""

    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value[2] % 1000, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])


class Line(ProcessWindowFunction[Any, str, str, TimeWindow]):
    def process(self, key: str, context: Any, elements: Any) -> Any:
        (result,) = elements
        return [f"{key},{context.window().start},{result}"]


def _job(kind: str, views: Any) -> Any:
    if kind == "tumbling":
        windows = views.key_by(lambda view: view[0]).window(
            TumblingEventTimeWindows.of(Time.hours(1))
        )
        return windows.aggregate(Count(), Line())
    if kind.startswith("sliding"):  # sliding, or sliding:MINUTES
        size = Time.minutes(int(kind.partition(":")[2] or 60))
        windows = views.key_by(lambda view: view[1]).window(
            SlidingEventTimeWindows.of(size, Time.minutes(1))
        )
        return windows.aggregate(Average(), Line())
    windows = views.key_by(lambda view: view[0]).window(
        EventTimeSessionWindows.with_gap(Time.hours(6))
    )
    return windows.aggregate(Count(), Line())


def run(files: list[str], output: str, checkpoints: str, configuration: dict[str, Any]) -> float:
    settings = dict(configuration)
    kind = settings.pop("kind")
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": checkpoints, **settings})
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(30_000)
    ).with_timestamp_assigner(lambda view, _: view[2])
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
    views = (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "views")
        .map(parse)
        .assign_timestamps_and_watermarks(strategy)
    )
    results = _job(kind, views).uid("windows")
    results.sink_to(FileSink.for_row_format(output, Encoder.simple_string_encoder()).build())
    started = time.monotonic()
    environment.execute("windows")
    return time.monotonic() - started


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), run)
