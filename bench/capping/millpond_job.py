"""The capping job in Millpond, one record at a time.

python -m bench.capping.millpond_job SETTINGS_JSON    prints a line of JSON
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from millpond.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from millpond.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millpond.datastream.state import MapStateDescriptor

CAP = 3
WINDOW_MS = 5 * 86_400_000


class Cap(KeyedProcessFunction):
    """Per user: how often each ad was seen within the window, and which view ends when."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.STRING(), Types.INT())
        )
        self.ends = runtime_context.get_map_state(
            MapStateDescriptor("ends", Types.LONG(), Types.STRING())
        )

    def process_element(self, view: tuple[str, str, int], ctx: Any) -> Any:
        user, ad, seen_at_ms = view
        count = (self.counts.get(ad) or 0) + 1
        self.counts.put(ad, count)
        ends_at_ms = seen_at_ms + WINDOW_MS
        self.ends.put(ends_at_ms, ad)
        ctx.timer_service().register_event_time_timer(ends_at_ms)
        if count == CAP:
            return [f"cap,{user},{ad},{seen_at_ms}"]
        return None

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        ad = self.ends.get(timestamp)
        self.ends.remove(timestamp)
        count = self.counts.get(ad) - 1
        if count:
            self.counts.put(ad, count)
        else:
            self.counts.remove(ad)
        if count == CAP - 1:
            return [f"free,{ctx.get_current_key()},{ad},{timestamp}"]
        return None


def parse(line: str) -> tuple[str, str, int]:
    user, ad, time_ms = line.split(",")
    return user, ad, int(time_ms)


def run(files: list[str], output: str, checkpoints: str, configuration: dict[str, Any]) -> float:
    """The seconds the job took, in a Spark session that may be running already."""
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.dir": checkpoints, **configuration})
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(30_000)
    ).with_timestamp_assigner(lambda view, _: view[2])
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "views")
        .map(parse)
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda view: view[0])
        .process(Cap())
        .uid("cap")
        .sink_to(FileSink.for_row_format(output, Encoder.simple_string_encoder()).build())
    )
    started = time.monotonic()
    environment.execute("capping")
    return time.monotonic() - started


def main(settings: dict[str, Any], run: Callable[..., float]) -> None:
    for number, files in enumerate(settings["runs"]):
        folder = settings["folder"]
        seconds = run(
            files,
            f"{folder}/output-{number}",
            f"{folder}/state-{number}",
            settings["configuration"],
        )
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), run)
