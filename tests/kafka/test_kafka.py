"""Kafka as source and sink, with a real broker (E9, E43)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from millpond.common import WatermarkStrategy
from millpond.common.serialization import ByteArraySchema, SimpleStringSchema
from millpond.datastream.connectors import DeliveryGuarantee
from millpond.datastream.connectors.kafka import (
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
    KafkaTopicPartition,
)
from millpond.driver.planning import plan_job
from millpond.errors import JobExecutionError, ProgramError, UserFunctionError
from millpond.plan.physical import JobPlan
from millpond.testing import CUT, MarkedSource, direct_environment
from tests.servers import KafkaServer
from tests.unit.driver.test_recovery import Crash, StandInForSpark

START = KafkaOffsetsInitializer
ALL = [f"{n}" for n in range(10)]


def fill(kafka: KafkaServer, topic: str, values: list[str] = ALL) -> None:
    kafka.send(topic, [(n % 2, value.encode()) for n, value in enumerate(values)])


def source(kafka: KafkaServer, topic: str) -> KafkaSourceBuilder:
    return (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topics(topic)
        .set_value_only_deserializer(SimpleStringSchema())
        .set_bounded(START.latest())
    )


def read(built: KafkaSource, **settings: Any) -> list[Any]:
    environment = direct_environment(settings)
    stream = environment.from_source(built, WatermarkStrategy.no_watermarks(), "kafka")
    return list(stream.execute_and_collect())


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("parallelism", [1, 2])
def test_topic_is_read_from_its_beginning(
    kafka: KafkaServer, topic: str, batch: int, parallelism: int
) -> None:
    fill(kafka, topic)
    settings = {"millpond.batch.max-records": batch, "parallelism.default": parallelism}
    found = read(source(kafka, topic).build(), **settings)
    assert sorted(found) == ALL
    assert [v for v in found if int(v) % 2 == 0] == ALL[::2], "in the order of their partition"


def test_null_is_left_out_unless_it_is_asked_for(kafka: KafkaServer, topic: str) -> None:
    class WithNulls(SimpleStringSchema):
        takes_null = True

        def deserialize(self, data: bytes | None) -> str:
            return "null" if data is None else super().deserialize(data)

    kafka.send(topic, [(0, b"a"), (0, None), (0, b"")])
    assert read(source(kafka, topic).build()) == ["a", ""]
    built = source(kafka, topic).set_value_only_deserializer(WithNulls()).build()
    assert read(built) == ["a", "null", ""]


def test_reading_begins_where_it_is_told(kafka: KafkaServer, topic: str) -> None:
    fill(kafka, topic, ALL[:6])
    time.sleep(0.05)  # the broker's clock must go on
    between_ms = time.time_ns() // 1_000_000
    fill(kafka, topic, ALL[6:])
    offsets = {KafkaTopicPartition(topic, 0): 4}
    beginnings = {
        "earliest": START.earliest(),
        "latest": START.latest(),
        "timestamp": START.timestamp(between_ms),
        "offsets": START.offsets(offsets, KafkaOffsetResetStrategy.LATEST),
        "no offsets": START.committed_offsets(KafkaOffsetResetStrategy.EARLIEST),
    }
    found = {
        name: sorted(read(source(kafka, topic).set_starting_offsets(at).build()))
        for name, at in beginnings.items()
    }
    assert found == {
        "earliest": ALL,
        "latest": [],
        "timestamp": ALL[6:],
        "offsets": ["8"],
        "no offsets": ALL,
    }


def test_partitions_can_be_named(kafka: KafkaServer, topic: str) -> None:
    fill(kafka, topic)
    only = source(kafka, topic).set_partitions({KafkaTopicPartition(topic, 1)})
    assert read(only.build()) == ALL[1::2]


def test_records_have_the_time_that_kafka_has(kafka: KafkaServer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    producer.produce(topic, value=b"x", timestamp=1234)
    producer.flush(30)
    built = source(kafka, topic).set_value_only_deserializer(ByteArraySchema()).build()
    (works,) = (built.create_enumerator(1, None),)  # type: ignore[arg-type]
    works.start()
    reads = [work.arguments for work in works.poll(10)]
    assert [record for own in reads for record in built.read(own)] == [(b"x", 1234)]


def test_records_of_aborted_transactions_are_left_out(kafka: KafkaServer, topic: str) -> None:
    """Their offsets are part of what a batch reads, also at the end of it."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(30)
    for values, ends in (("ab", True), ("cd", False), ("e", True), ("f", False)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value.encode(), partition=0)
        producer.flush(30)
        producer.commit_transaction(30) if ends else producer.abort_transaction(30)
    for batch in (1, 2, 1000):
        settings = {"millpond.batch.max-records": batch}
        assert read(source(kafka, topic).build(), **settings) == ["a", "b", "e"]


def test_new_partitions_are_found(kafka: KafkaServer, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    fill(kafka, topic)
    built = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topics(topic)
        .set_value_only_deserializer(SimpleStringSchema())
        .set_property("partition.discovery.interval.ms", "0")
        .build()
    )
    works = built.create_enumerator(1, None)  # type: ignore[arg-type]
    works.start()
    assert len(works.poll(100)) == 2
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    kafka.send(topic, [(2, b"new")])
    (work,) = works.poll(100)
    assert [value for value, _ in built.read(work.arguments)] == ["new"]
    assert works.split_count() == 3


def test_what_cannot_be_read_is_named(kafka: KafkaServer, topic: str) -> None:
    kafka.send(topic, [(1, b"fine"), (1, b"\xff\xfe")])
    with pytest.raises(UserFunctionError, match=f"message at {topic}-1, offset 1, cannot be read"):
        read(source(kafka, topic).build())


def test_wrong_settings_are_told(kafka: KafkaServer, topic: str) -> None:
    with pytest.raises(JobExecutionError, match=r"Topic 'nowhere' .* cannot be read"):
        read(source(kafka, "nowhere").build())
    with pytest.raises(ProgramError, match="does not accept the settings"):
        read(source(kafka, topic).set_property("no.such.setting", "1").build())
    with pytest.raises(JobExecutionError, match="no offset to begin at"):
        read(source(kafka, topic).set_starting_offsets(START.committed_offsets()).build())
    with pytest.raises(ProgramError, match="needs set_topics, set_topic_pattern"):
        KafkaSource.builder().set_bootstrap_servers("x").set_value_only_deserializer(
            SimpleStringSchema()
        ).build()


# --- the sink ----------------------------------------------------------------------------------------


def sink(kafka: KafkaServer, topic: str, guarantee: DeliveryGuarantee) -> KafkaSink:
    schema = KafkaRecordSerializationSchema.builder()
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_delivery_guarantee(guarantee)
        .set_record_serializer(
            schema.set_topic(topic).set_value_serialization_schema(SimpleStringSchema()).build()
        )
        .build()
    )


def job(kafka: KafkaServer, topic: str, guarantee: DeliveryGuarantee) -> JobPlan:
    environment = direct_environment()
    records = [item for n in range(3) for item in (f"{n}-a", f"{n}-b", CUT)]
    stream = environment._source(MarkedSource(records), "records", None)
    stream.sink_to(sink(kafka, topic, guarantee)).uid("out")
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, None)


WRITTEN = [b"0-a", b"0-b", b"1-a", b"1-b", b"2-a", b"2-b"]


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
def test_every_record_comes_once_wherever_the_job_dies(
    kafka: KafkaServer, topic: str, point: str, tmp_path: Path
) -> None:
    """E43."""
    spark, plan = StandInForSpark(), DeliveryGuarantee.EXACTLY_ONCE
    with pytest.raises(Crash):
        spark.run(job(kafka, topic, plan), tmp_path, (1, point))
    spark.run(job(kafka, topic, plan), tmp_path, None)
    assert sorted(kafka.received(topic)) == WRITTEN


def test_a_committed_epoch_is_not_sent_again(
    kafka: KafkaServer, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies after Kafka has committed, and before it knows."""
    from millpond.datastream.connectors.kafka import sink as kafka_sink

    commit = kafka_sink.KafkaSink.commit

    def commit_and_die(self: Any, epoch: Any, messages: Any) -> None:
        commit(self, epoch, messages)
        if epoch.number == 1:
            raise Crash

    spark, plan = StandInForSpark(), DeliveryGuarantee.EXACTLY_ONCE
    monkeypatch.setattr(kafka_sink.KafkaSink, "commit", commit_and_die)
    with pytest.raises(UserFunctionError, match="Crash"):
        spark.run(job(kafka, topic, plan), tmp_path, None)
    monkeypatch.undo()
    spark.run(job(kafka, topic, plan), tmp_path, None)
    assert sorted(kafka.received(topic)) == WRITTEN


def test_at_least_once_sends_all(kafka: KafkaServer, topic: str, tmp_path: Path) -> None:
    StandInForSpark().run(job(kafka, topic, DeliveryGuarantee.AT_LEAST_ONCE), tmp_path, None)
    assert sorted(kafka.received(topic)) == WRITTEN


def test_topic_and_key_come_from_the_record(kafka: KafkaServer, topic: str) -> None:
    schema = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(lambda value: topic if value else "never")
        .set_key_serialization_schema(SimpleStringSchema())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    assert schema.message("v", 5) == (topic, b"v", b"v", 5)
