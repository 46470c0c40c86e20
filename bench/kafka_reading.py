"""Reading a topic: Spark's own connector beside librdkafka, with which Millpond's slots read (decision 19).

Both hand every value to Python; two partitions, two cores. Spark's connector is not published for the Spark
that Millpond runs on; the release before works with it. It would need a job of its own before each batch,
which is not counted here.

python -m bench.kafka_reading SERVERS PARTITION    reads one partition with librdkafka, for measurement
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.servers import KafkaServer

from bench.capping import product_data as data
from bench.capping.systems import Workshop

_TOPIC = "views"
_JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def measure(views: int, repeat: int, folder: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="millpond-bench-") as own:
        kafka = KafkaServer(Path(own) / "kafka")
        kafka.start()
        try:
            data.send(kafka.servers, _TOPIC, data.views(views, views // 10))
            spark = _session(Workshop(folder))
            rates: dict[str, list[float]] = {"spark": [], "librdkafka": []}
            _with_spark(spark, kafka.servers, views)  # classes are loaded
            for _ in range(repeat):
                rates["spark"].append(views / _with_spark(spark, kafka.servers, views))
                rates["librdkafka"].append(views / _with_librdkafka(kafka.servers, views))
            spark.stop()
        finally:
            kafka.stop()
    return {name: statistics.median(found) for name, found in rates.items()}


def _session(workshop: Workshop) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(workshop.jars(*_JARS)).parent
    names = [f"{name}-{version}.jar" for _, name, version in (own.split(":") for own in _JARS)]
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(folder / name) for name in names))
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def _with_spark(spark: Any, servers: str, views: int) -> float:
    def count(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        found = sum(len(batch.column(0).to_pylist()) for batch in batches)
        yield pyarrow.RecordBatch.from_pydict({"n": [found]})

    begin_s = time.perf_counter()
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", _TOPIC)
        .load()
        .select("value")
        .mapInArrow(count, "n long")
        .collect()
    )
    assert sum(row.n for row in rows) == views
    return time.perf_counter() - begin_s


def _with_librdkafka(servers: str, views: int) -> float:
    """A process per partition, as slots are."""
    command = [sys.executable, "-m", "bench.kafka_reading", servers]
    readers = [
        subprocess.Popen([*command, str(partition)], stdout=subprocess.PIPE, text=True)
        for partition in range(data.PARTITIONS)
    ]
    found = [reader.communicate()[0].split() for reader in readers]
    assert sum(int(count) for count, _ in found) == views
    return max(float(seconds) for _, seconds in found)


def read_partition(servers: str, partition: int) -> tuple[int, float]:
    """How many there are, and how long it took, from the connection on."""
    from confluent_kafka import Consumer, TopicPartition

    begin_s = time.perf_counter()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    place = TopicPartition(_TOPIC, partition, 0)
    _, end = consumer.get_watermark_offsets(place)
    consumer.assign([place])
    count = 0
    while count < end:
        count += len([message.value() for message in consumer.consume(10_000, 1.0)])
    seconds = time.perf_counter() - begin_s
    consumer.close()
    return count, seconds


def table(results: dict[str, Any]) -> str:
    return (
        "| a topic is read by | records/s |\n|---|---|\n"
        f"| Spark's connector, then Arrow to Python | {results['spark']:,.0f} |\n"
        f"| librdkafka in Python | {results['librdkafka']:,.0f} |\n"
    )


if __name__ == "__main__":
    print(*read_partition(sys.argv[1], int(sys.argv[2])))
