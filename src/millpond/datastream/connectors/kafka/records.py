"""What a Kafka source makes of messages: of their values, or of everything Kafka knows about them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from millpond.common.serialization import ByteArraySchema, DeserializationSchema


class Records(NamedTuple):
    """What a few messages have given."""

    values: list[Any]
    times: list[int | None]
    """When Kafka says that they were written."""
    offsets: list[int]
    """The offset of each record's message."""


class ConsumerRecord(NamedTuple):
    """A message. `timestamp` is in milliseconds; `value` is None in a message that deletes its key."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class KafkaRecordDeserializationSchema(ABC):
    """Turns whole messages into records, for `KafkaSourceBuilder.set_deserializer`."""

    @abstractmethod
    def deserialize(self, record: ConsumerRecord) -> Iterable[Any] | None:
        """Return or yield the records of a message; None means none."""

    @staticmethod
    def value_only(
        value_deserialization_schema: DeserializationSchema,
    ) -> KafkaRecordDeserializationSchema:
        """Return a schema that reads only the value of each message."""
        return _ValueOnly(value_deserialization_schema)

    @staticmethod
    def whole_record() -> KafkaRecordDeserializationSchema:
        """Return a schema that gives each message as a ConsumerRecord. Beyond Flink."""
        return _Whole()


class _ValueOnly(KafkaRecordDeserializationSchema):
    def __init__(self, schema: DeserializationSchema) -> None:
        self.schema = schema

    def deserialize(self, record: ConsumerRecord) -> Iterable[Any] | None:
        value = None if record.value is None else self.schema.deserialize(record.value)
        return None if value is None else (value,)


class _Whole(KafkaRecordDeserializationSchema):
    def deserialize(self, record: ConsumerRecord) -> Iterable[Any]:
        return (record,)


def reader_for(
    schema: DeserializationSchema | KafkaRecordDeserializationSchema,
) -> Callable[[list[Any]], Records]:
    """Return a function that turns the client library's messages into records."""
    if isinstance(schema, _ValueOnly):
        schema = schema.schema
    if isinstance(schema, DeserializationSchema):
        value_schema = schema
        return lambda messages: _values(value_schema, messages)
    by_record = schema.deserialize
    return lambda messages: _records(by_record, messages)


def _values(schema: DeserializationSchema, messages: list[Any]) -> Records:
    if not getattr(schema, "takes_null", False):  # a message without a value is a deletion
        messages = [message for message in messages if message.value() is not None]
    data = [message.value() for message in messages]
    times: list[int | None] = [message.timestamp()[1] for message in messages]
    offsets = [message.offset() for message in messages]
    if type(schema) is ByteArraySchema:
        return Records(data, times, offsets)
    try:
        values = schema.deserialize_many(data)
    except Exception:
        values = _one_by_one(schema.deserialize, data, messages)
    kept = [index for index, value in enumerate(values) if value is not None]
    if len(kept) < len(values):
        values = [values[index] for index in kept]
        times = [times[index] for index in kept]
        offsets = [offsets[index] for index in kept]
    return Records(values, times, offsets)


def _records(
    deserialize: Callable[[ConsumerRecord], Iterable[Any] | None], messages: list[Any]
) -> Records:
    values: list[Any] = []
    times: list[int | None] = []
    offsets: list[int] = []
    records = map(_as_record, messages)
    for found, message in zip(
        _one_by_one(lambda record: list(deserialize(record) or ()), records, messages),
        messages,
        strict=True,
    ):
        values += found
        times += [message.timestamp()[1]] * len(found)
        offsets += [message.offset()] * len(found)
    return Records(values, times, offsets)


def _one_by_one(
    convert: Callable[[Any], Any], data: Iterable[Any], messages: list[Any]
) -> list[Any]:
    values: list[Any] = []
    try:
        values.extend(map(convert, data))
    except Exception as problem:
        bad = messages[len(values)]
        raise ValueError(
            f"The Kafka message at {bad.topic()}-{bad.partition()}, offset {bad.offset()}, cannot be read: "
            f"{problem}"
        ) from None
    return values


def _as_record(message: Any) -> ConsumerRecord:
    return ConsumerRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers() or [],
    )
