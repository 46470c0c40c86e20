"""The capping job in Millpond on columns: the same answers as millpond_job, computed by NumPy.

python -m bench.capping.columns_job SETTINGS_JSON    prints a line of JSON
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy

from bench.capping.millpond_job import CAP, WINDOW_MS, main
from millpond.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from millpond.datastream import RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.columns import (
    ColumnStateDescriptor,
    KeyedColumnFunction,
    KeyedColumns,
    TimestampField,
    fields,
)
from millpond.datastream.connectors.file_system import FileSink, FileSource
from millpond.datastream.formats.csv import CsvReaderFormat, CsvSchema


class Cap(KeyedColumnFunction):
    """Per user and ad: how often it was seen within the window. Every view has a timer that ends it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_column_state(ColumnStateDescriptor("counts", Types.INT()))

    def process_columns(self, events: KeyedColumns, ctx: KeyedColumnFunction.Context) -> None:
        seen = ~events.fired
        counts = self.counts.running_sum(events.rows, numpy.where(seen, 1, -1))
        ctx.register_event_time_timers(seen, events.times[seen] + WINDOW_MS)
        self._report("cap", seen & (counts == CAP), events, ctx)
        self._report("free", events.fired & (counts == CAP - 1), events, ctx)

    @staticmethod
    def _report(word: str, where: Any, events: KeyedColumns, ctx: Any) -> None:
        pairs = zip(events.keys(where), events.times[where].tolist(), strict=True)
        ctx.collect(where, [f"{word},{user},{ad},{time_ms}" for (user, ad), time_ms in pairs])


def run(files: list[str], output: str, checkpoints: str, configuration: dict[str, Any]) -> float:
    """The seconds the job took, in a Spark session that may be running already."""
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": checkpoints, **configuration})
    )
    schema = (
        CsvSchema.builder()
        .add_string_column("user")
        .add_string_column("ad")
        .add_number_column("seen_at_ms")
        .build()
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(30_000)
    ).with_timestamp_assigner(TimestampField("seen_at_ms"))
    source = FileSource.for_record_stream_format(CsvReaderFormat.for_schema(schema), *files).build()
    (
        environment.from_source(source, strategy, "views")
        .key_by(fields("user", "ad"))
        .process_columns(Cap())
        .uid("cap")
        .sink_to(FileSink.for_row_format(output, Encoder.simple_string_encoder()).build())
    )
    started = time.monotonic()
    environment.execute("capping")
    return time.monotonic() - started


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), run)
