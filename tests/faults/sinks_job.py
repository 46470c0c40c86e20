"""A job with every sink that is exactly once: Kafka, PostgreSQL, lines and Parquet in rolling part files."""

from __future__ import annotations

import json
import sys
from typing import Any

from millpond.common import Configuration, Encoder, Types
from millpond.common.serialization import SimpleStringSchema
from millpond.datastream import StreamExecutionEnvironment
from millpond.datastream.connectors import DeliveryGuarantee
from millpond.datastream.connectors.file_system import FileSink, RollingPolicy
from millpond.datastream.connectors.jdbc import JdbcConnectionOptions, JdbcSink
from millpond.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
from millpond.datastream.formats.parquet import ParquetBulkWriters
from millpond.testing import CUT, MarkedSource

BATCHES, RECORDS = 5, 20
PART_BYTES = 700  # some batches of lines
TYPE = Types.ROW_NAMED(["id", "text"], [Types.INT(), Types.STRING()])
VALUES = [(number, f"record {number}") for number in range(BATCHES * RECORDS)]


def records() -> list[Any]:
    result: list[Any] = []
    for start in range(0, len(VALUES), RECORDS):
        result += [*VALUES[start : start + RECORDS], CUT]
    return result


def main(settings: dict[str, Any]) -> None:
    configuration = Configuration.from_dict(
        {
            "millpond.master": "local[2]",
            "parallelism.default": 2,
            "execution.checkpointing.dir": settings["checkpoints"],
        }
    )
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = MarkedSource(records(), settings["marks"])
    rows = environment._source(source, "records", None).rebalance()
    texts = rows.map(lambda row: row[1])
    schema = KafkaRecordSerializationSchema.builder().set_topic(settings["topic"])
    kafka = (
        KafkaSink.builder()
        .set_bootstrap_servers(settings["kafka"])
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_record_serializer(schema.set_value_serialization_schema(SimpleStringSchema()).build())
        .build()
    )
    texts.sink_to(kafka).uid("kafka")
    options = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
    database = options.with_url(f"jdbc:{settings['postgres']}").build()
    rows.add_sink(JdbcSink.sink("insert into texts values (?, ?)", TYPE, database)).uid("jdbc")
    policy = RollingPolicy.default_rolling_policy(part_size=PART_BYTES)
    lines = FileSink.for_row_format(f"{settings['output']}/lines", Encoder.simple_string_encoder())
    texts.sink_to(lines.with_rolling_policy(policy).build()).uid("lines")
    factory = ParquetBulkWriters.for_row_type(TYPE)
    columns = FileSink.for_bulk_format(f"{settings['output']}/parquet", factory)
    rows.sink_to(columns.with_rolling_policy(policy).build()).uid("parquet")
    environment.execute("sinks")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
