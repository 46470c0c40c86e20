"""Frequency capping from Kafka to Redis in PyFlink, process mode, with the default rule. Run by the
interpreter of PyFlink's own environment.

python pyflink_product_job.py SETTINGS_JSON    prints a line of JSON per run
"""

import json
import sys
import time

from pyflink.common import Configuration, Duration, Types, WatermarkStrategy
from pyflink.common.serialization import SimpleStringSchema
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import KeyedProcessFunction, MapFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from pyflink.datastream.state import MapStateDescriptor

SETTINGS = json.loads(sys.argv[1])
LIMIT, WINDOW_MS = SETTINGS["limit"], SETTINGS["window_ms"]
END_OF_TIME = (1 << 63) - 1


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
        if count == LIMIT:
            yield user, f"ad:{ad}", True

    def on_timer(self, timestamp, ctx):
        if ctx.timer_service().current_watermark() == END_OF_TIME:
            return
        ad = self.ends.get(timestamp)
        if ad is None:
            return
        self.ends.remove(timestamp)
        count = self.counts.get(ad) - 1
        if count:
            self.counts.put(ad, count)
        else:
            self.counts.remove(ad)
        if count == LIMIT - 1:
            yield ctx.get_current_key(), f"ad:{ad}", False


class ToRedis(MapFunction):
    """There are no sinks in Python; changes are few."""

    def open(self, runtime_context):
        import redis

        self.client = redis.Redis(port=SETTINGS["redis_port"])

    def map(self, change):
        user, member, is_capped = change
        key = "cap:{" + user + "}"
        if is_capped:
            self.client.sadd(key, member)
        else:
            self.client.srem(key, member)
        return member


class LogTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


def parse(text):
    record = json.loads(text)
    return record["user_no"], record["da_id"], record["log_time"]


def run(topic, number):
    configuration = Configuration()
    configuration.set_string("state.backend.type", "hashmap")
    configuration.set_string("execution.checkpointing.interval", "3s")
    configuration.set_string(
        "execution.checkpointing.dir", f"file://{SETTINGS['folder']}/pyflink-{number}"
    )
    configuration.set_string("python.execution-mode", "process")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("pipeline.jars", ";".join(f"file://{j}" for j in SETTINGS["jars"]))
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(2)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(SETTINGS["servers"])
        .set_topics(topic)
        .set_group_id(f"pyflink-{number}-{time.time()}")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(SETTINGS["late_ms"])
    ).with_timestamp_assigner(LogTime())
    (
        environment.from_source(source, WatermarkStrategy.no_watermarks(), "views")
        .map(parse, Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()]))
        .assign_timestamps_and_watermarks(strategy)
        .key_by(lambda view: view[0], Types.STRING())
        .process(Cap(), Types.TUPLE([Types.STRING(), Types.STRING(), Types.BOOLEAN()]))
        .map(ToRedis(), Types.STRING())
        .filter(lambda member: False)
        .print()
    )
    started = time.monotonic()
    environment.execute("capping")
    return time.monotonic() - started


for number, topic in enumerate(SETTINGS["topics"]):
    print(json.dumps({"seconds": run(topic, number)}), flush=True)
