"""What is in Kafka's messages: formats, and all that Kafka knows of them (E9)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import Producer

from millpond.common import Row, Types, WatermarkStrategy
from millpond.common.serialization import SimpleStringSchema
from millpond.datastream.connectors.kafka import (
    ConsumerRecord,
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
)
from millpond.datastream.formats.avro import (
    AvroRowDeserializationSchema,
    AvroRowSerializationSchema,
)
from millpond.datastream.formats.csv import CsvRowDeserializationSchema, CsvRowSerializationSchema
from millpond.datastream.formats.json import (
    JsonRowDeserializationSchema,
    JsonRowSerializationSchema,
)
from millpond.errors import ProgramError, UserFunctionError
from millpond.testing import direct_environment
from tests.servers import KafkaServer, wait_until

TYPE = Types.ROW_NAMED(["id", "name"], [Types.INT(), Types.STRING()])
AVRO = """{"type": "record", "name": "R", "fields": [
    {"name": "id", "type": "int"}, {"name": "name", "type": "string"}]}"""
FORMATS: dict[str, tuple[Any, Any]] = {
    "json": (
        JsonRowSerializationSchema.builder().with_type_info(TYPE).build(),
        JsonRowDeserializationSchema.builder().type_info(TYPE).build(),
    ),
    "csv": (
        CsvRowSerializationSchema.Builder(TYPE).build(),
        CsvRowDeserializationSchema.Builder(TYPE).build(),
    ),
    "avro": (
        AvroRowSerializationSchema(avro_schema_string=AVRO),
        AvroRowDeserializationSchema(avro_schema_string=AVRO),
    ),
}


def source(kafka: KafkaServer, topic: str) -> KafkaSourceBuilder:
    settings = {"bootstrap.servers": kafka.servers, "group.id": "some"}
    builder = KafkaSource.builder().set_properties(settings).set_topics(topic)
    return builder.set_bounded(KafkaOffsetsInitializer.latest())


def read(built: KafkaSource) -> list[Any]:
    stream = direct_environment().from_source(built, WatermarkStrategy.no_watermarks(), "kafka")
    return list(stream.execute_and_collect())


@pytest.mark.parametrize("name", FORMATS)
def test_rows_go_to_kafka_and_come_back(kafka: KafkaServer, topic: str, name: str) -> None:
    writes, reads = FORMATS[name]
    schema = KafkaRecordSerializationSchema.builder().set_topic(topic)
    sink = (
        KafkaSink.builder()
        .set_property("bootstrap.servers", kafka.servers)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_record_serializer(schema.set_value_serialization_schema(writes).build())
        .build()
    )
    environment = direct_environment()
    environment.from_collection([(1, "hi"), (2, "a,b")], TYPE).sink_to(sink)
    environment.execute()
    found = read(source(kafka, topic).set_value_only_deserializer(reads).build())
    assert sorted(found, key=lambda row: row.id) == [Row(id=1, name="hi"), Row(id=2, name="a,b")]


def test_what_cannot_be_read_is_named_or_left_out(kafka: KafkaServer, topic: str) -> None:
    kafka.send(topic, [(0, b'{"id":1,"name":"x"}'), (0, b"broken"), (0, b'{"id":2}')])
    builder = JsonRowDeserializationSchema.builder().type_info(TYPE)
    strict = source(kafka, topic).set_value_only_deserializer(builder.build()).build()
    with pytest.raises(UserFunctionError, match=f"message at {topic}-0, offset 1, cannot be read"):
        read(strict)
    lenient = source(kafka, topic).set_value_only_deserializer(
        builder.ignore_parse_errors().build()
    )
    assert [row.id for row in read(lenient.build())] == [1, 2]


def send_all_kinds(kafka: KafkaServer, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.servers})
    headers = [("trace", b"t1"), ("empty", None)]
    producer.produce(topic, b"v", b"k", partition=1, timestamp=1234, headers=headers)
    producer.produce(topic, None, b"gone", partition=1, timestamp=1235)
    assert producer.flush(30) == 0


class Twice(KafkaRecordDeserializationSchema):
    def deserialize(self, record: ConsumerRecord) -> Iterable[Any]:
        if record.value is None:
            yield f"deleted {record.key!r}"
        else:
            yield from [record.offset, record.headers[0][1]]


def test_whole_messages_can_be_had(kafka: KafkaServer, topic: str) -> None:
    send_all_kinds(kafka, topic)
    whole = KafkaRecordDeserializationSchema.whole_record()
    found = read(source(kafka, topic).set_deserializer(whole).build())
    assert found == [
        ConsumerRecord(topic, 1, 0, 1234, b"k", b"v", [("trace", b"t1"), ("empty", None)]),
        ConsumerRecord(topic, 1, 1, 1235, b"gone", None, []),
    ]
    assert read(source(kafka, topic).set_deserializer(Twice()).build()) == [
        0,
        b"t1",
        "deleted b'gone'",
    ]
    only = KafkaRecordDeserializationSchema.value_only(SimpleStringSchema())
    assert read(source(kafka, topic).set_deserializer(only).build()) == ["v"]


def test_times_are_those_of_the_messages(kafka: KafkaServer, topic: str) -> None:
    send_all_kinds(kafka, topic)
    built = source(kafka, topic).set_deserializer(Twice()).build()
    works = built.create_enumerator(1, None)  # type: ignore[arg-type]
    works.start()
    reads = [work.arguments for work in works.poll(10)]
    times = [time_ms for own in reads for _, time_ms in built.read(own)]
    assert times == [1234, 1234, 1235]


def test_topics_that_match_are_read_also_those_that_come_later(kafka: KafkaServer) -> None:
    """New ones from their beginning, wherever the first ones began."""
    prefix = uuid.uuid4().hex[:8]
    for name in ("a", "b", "other-a"):
        kafka.create(f"{prefix}-{name}", 1)
        kafka.send(f"{prefix}-{name}", [(0, name.encode())])
    builder = source(kafka, "nothing").set_topic_pattern(f"{prefix}-[a-z]")
    built = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    assert sorted(read(built)) == ["a", "b"]
    endless = (
        KafkaSource.builder()
        .set_bootstrap_servers(kafka.servers)
        .set_topic_pattern(f"{prefix}-later-.")
        .set_starting_offsets(KafkaOffsetsInitializer.latest())
        .set_property("partition.discovery.interval.ms", "0")
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    works = endless.create_enumerator(1, None)  # type: ignore[arg-type]
    works.start()
    assert works.split_count() == 1 and works.poll(10) == []
    kafka.create(f"{prefix}-later-1", 1)
    kafka.send(f"{prefix}-later-1", [(0, b"new")])
    found: list[Any] = []
    wait_until(lambda: found.extend(works.poll(10)) or found, "the new topic is not found")
    assert [value for value, _ in endless.read(found[0].arguments)] == ["new"]
    assert works.split_count() == 1


def test_wrong_pattern_is_refused() -> None:
    with pytest.raises(ProgramError, match="not a regular expression"):
        KafkaSource.builder().set_topic_pattern("[")


class Letters(KafkaRecordDeserializationSchema):
    """A record per letter; a message may have none."""

    def deserialize(self, record: ConsumerRecord) -> Iterable[Any]:
        return (record.value or b"").decode()


def read_some(built: KafkaSource, arguments: Any, count: int) -> list[str]:
    """The first `count` records of a read, which then is left alone."""
    values: list[str] = []
    for more, _ in built.read_many(arguments):
        values += more
        if len(values) >= count:
            break
    return values[:count]


def test_what_is_left_of_a_read_is_the_same_wherever_it_was_cut(
    kafka: KafkaServer, topic: str
) -> None:
    """Also twice, and within the records of one message."""
    texts = ["ab", "", "cd", "e"]
    kafka.send(topic, [(0, text.encode()) for text in texts])
    built, records = source(kafka, topic).set_deserializer(Letters()).build(), "".join(texts)
    whole = (topic, 0, 0, len(texts), 0)
    for first in range(1, len(records) + 1):
        assert read_some(built, whole, first) == list(records[:first])
        rest, skipped = built.rest(whole, first)
        assert skipped == 0
        for second in range(1, len(records) - first + 1):
            assert read_some(built, rest, second) == list(records[first : first + second])
            last, _ = built.rest(rest, second)
            found = [value for values, _ in built.read_many(last) for value in values]
            assert found == list(records[first + second :])


def test_records_that_are_done_may_be_gone_when_reading_goes_on(
    kafka: KafkaServer, topic: str
) -> None:
    """A topic that is cleaned up in between: neither an error, nor is anything left out."""
    kafka.send(topic, [(0, text) for text in (b"ab", b"cd", b"ef")])
    built = source(kafka, topic).set_deserializer(Letters()).build()
    whole = (topic, 0, 0, 3, 0)
    assert read_some(built, whole, 3) == ["a", "b", "c"]
    rest, _ = built.rest(whole, 3)
    kafka.delete(topic, 0, before=1)
    assert read_some(built, rest, 9) == ["d", "e", "f"]


def test_records_of_another_message_are_not_taken_for_done(kafka: KafkaServer, topic: str) -> None:
    """The message that was cut is not there any more: here, because its transaction is aborted."""
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"ab", partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    kafka.send(topic, [(0, b"cd")])
    built = source(kafka, topic).set_deserializer(Letters()).build()
    assert read_some(built, (topic, 0, 0, 3, 1), 9) == ["c", "d"]
