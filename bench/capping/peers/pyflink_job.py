"""The capping job in PyFlink, process mode. Run by the interpreter of PyFlink's own environment.

python pyflink_job.py SETTINGS_JSON    prints a line of JSON per run
"""

import json
import sys
import time

from pyflink.common import Configuration, Duration, Encoder, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from pyflink.datastream.state import MapStateDescriptor

CAP = 3
WINDOW_MS = 5 * 86_400_000


class Cap(KeyedProcessFunction):
    def open(self, runtime_context):
        self.counts = runtime_context.get_map_state(
            MapStateDescriptor("counts", Types.STRING(), Types.INT())
        )
        self.ends = runtime_context.get_map_state(
            MapStateDescriptor("ends", Types.LONG(), Types.STRING())
        )

    def process_element(self, view, ctx):
        user, ad, seen_at_ms = view
        count = (self.counts.get(ad) or 0) + 1
        self.counts.put(ad, count)
        ends_at_ms = seen_at_ms + WINDOW_MS
        self.ends.put(ends_at_ms, ad)
        ctx.timer_service().register_event_time_timer(ends_at_ms)
        if count == CAP:
            yield f"cap,{user},{ad},{seen_at_ms}"

    def on_timer(self, timestamp, ctx):
        ad = self.ends.get(timestamp)
        self.ends.remove(timestamp)
        count = self.counts.get(ad) - 1
        if count:
            self.counts.put(ad, count)
        else:
            self.counts.remove(ad)
        if count == CAP - 1:
            yield f"free,{ctx.get_current_key()},{ad},{timestamp}"


class SeenAt(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


def parse(line):
    user, ad, time_ms = line.split(",")
    return user, ad, int(time_ms)


def run(files, output, checkpoints):
    configuration = Configuration()
    configuration.set_string("state.backend.type", "hashmap")
    configuration.set_string("execution.checkpointing.interval", "3s")
    configuration.set_string("execution.checkpointing.dir", f"file://{checkpoints}")
    configuration.set_string("python.execution-mode", "process")
    configuration.set_string("python.executable", sys.executable)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(30_000)
    ).with_timestamp_assigner(SeenAt())
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), *files).build()
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "views")
        .map(parse, Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()]))
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda view: view[0], Types.STRING())
        .process(Cap(), Types.STRING())
        .sink_to(FileSink.for_row_format(output, Encoder.simple_string_encoder()).build())
    )
    started = time.monotonic()
    environment.execute("capping")
    return time.monotonic() - started


settings = json.loads(sys.argv[1])
for number, files in enumerate(settings["runs"]):
    folder = settings["folder"]
    seconds = run(files, f"{folder}/output-{number}", f"{folder}/state-{number}")
    print(json.dumps({"seconds": seconds}), flush=True)
