"""Writes records to Kafka, with PyFlink's names.

Exactly once: workers serialize; the driver sends the records of an epoch in one transaction, together with
the epoch's number as an offset of a consumer group that belongs to the sink. After a crash that offset shows
whether the transaction was committed. At least once: workers send, and wait until Kafka has everything.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic

from millpond.common.serialization import SerializationSchema
from millpond.common.type_variables import IN
from millpond.datastream.connectors.base import DeliveryGuarantee, Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.connectors.kafka.client import client_module, make_client
from millpond.datastream.functions import SinkContext
from millpond.errors import JobExecutionError, ProgramError

_TIMEOUT_S = 60.0
Message = tuple[str, bytes | None, bytes | None, int | None]  # topic, key, value, timestamp


class KafkaTopicSelector(ABC, Generic[IN]):
    """Chooses the topic of each record."""

    @abstractmethod
    def apply(self, data: IN) -> str:
        """Return the name of the topic for a record."""


class KafkaRecordSerializationSchema:
    """Turns records into messages. `topic` is a name, or a function of the record."""

    def __init__(
        self,
        topic: str | Callable[[Any], str],
        value: SerializationSchema,
        key: SerializationSchema | None,
    ) -> None:
        self._topic = topic
        self._value = value
        self._key = key

    @staticmethod
    def builder() -> KafkaRecordSerializationSchemaBuilder:
        """Return a builder for the schema."""
        return KafkaRecordSerializationSchemaBuilder()

    def message(self, value: object, timestamp_ms: int | None) -> Message:
        """Return the (topic, key, value, timestamp) of a record."""
        topic = self._topic if isinstance(self._topic, str) else self._topic(value)
        key = None if self._key is None else self._key.serialize(value)
        return topic, key, self._value.serialize(value), timestamp_ms


class KafkaRecordSerializationSchemaBuilder:
    """Builds a KafkaRecordSerializationSchema. Setters return the builder itself."""

    def __init__(self) -> None:
        self._topic: str | Callable[[Any], str] | None = None
        self._value: SerializationSchema | None = None
        self._key: SerializationSchema | None = None

    def set_topic(self, topic: str) -> KafkaRecordSerializationSchemaBuilder:
        """Send all records to this topic."""
        self._topic = topic
        return self

    def set_topic_selector(
        self, topic_selector: Callable[[Any], str] | KafkaTopicSelector
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Choose the topic of each record by a KafkaTopicSelector or a function."""
        selects = isinstance(topic_selector, KafkaTopicSelector)
        self._topic = topic_selector.apply if selects else topic_selector  # type: ignore[union-attr, assignment]
        return self

    def set_key_serialization_schema(
        self, key_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set how the key of a message is made from a record; without it messages have no key."""
        self._key = key_serialization_schema
        return self

    def set_value_serialization_schema(
        self, value_serialization_schema: SerializationSchema
    ) -> KafkaRecordSerializationSchemaBuilder:
        """Set how the value of a message is made from a record."""
        self._value = value_serialization_schema
        return self

    def build(self) -> KafkaRecordSerializationSchema:
        """Return the schema; raise ProgramError without a topic or value schema."""
        if self._topic is None or self._value is None:
            raise ProgramError(
                "A KafkaRecordSerializationSchema needs set_topic or set_topic_selector, and "
                "set_value_serialization_schema."
            )
        return KafkaRecordSerializationSchema(self._topic, self._value, self._key)


class KafkaSink(TwoPhaseSink):
    """Writes records to Kafka, exactly once or at least once."""

    def __init__(
        self,
        servers: str,
        schema: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        prefix: str,
        properties: dict[str, str],
    ) -> None:
        self._servers = servers
        self._schema = schema
        self._exactly_once = guarantee is DeliveryGuarantee.EXACTLY_ONCE
        self._prefix = prefix
        self._properties = properties
        self._transactions: _Transactions | None = None

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Return a builder for the sink."""
        return KafkaSinkBuilder()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_transactions": None}

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        if self._exactly_once:
            return _KeepingWriter(self._schema)
        return _SendingWriter(self._schema, self._servers, self._properties)

    def commit(self, epoch: Epoch, messages: list[list[Message]]) -> None:
        records = [record for message in messages for record in message]
        if records:
            if self._transactions is None:
                self._transactions = _Transactions(
                    self._servers, self._properties, self._name(epoch)
                )
            try:
                self._transactions.send(epoch.number, records)
            except JobExecutionError:
                self.close()  # a new producer starts without the errors of this one
                raise

    def close(self) -> None:
        if self._transactions is not None:
            self._transactions.close()
            self._transactions = None

    def _name(self, epoch: Epoch) -> str:
        sink = hashlib.sha256(epoch.sink_uid.encode()).hexdigest()[:8]
        return f"{self._prefix}-{epoch.job_id}-{sink}"


class _KeepingWriter(SinkWriter):
    def __init__(self, schema: KafkaRecordSerializationSchema) -> None:
        self._schema = schema
        self._messages: list[Message] = []

    def write(self, value: Any, context: SinkContext) -> None:
        self._messages.append(self._schema.message(value, context.timestamp()))

    def prepare(self) -> list[Message]:
        return self._messages


_producers: dict[tuple[Any, ...], Any] = {}


class _SendingWriter(SinkWriter):
    def __init__(
        self, schema: KafkaRecordSerializationSchema, servers: str, properties: dict[str, str]
    ) -> None:
        settings_key = (servers, tuple(sorted(properties.items())))
        if settings_key not in _producers:
            settings = {"linger.ms": "20", "enable.idempotence": "true", **properties}
            _producers[settings_key] = make_client("Producer", servers, settings)
        self._schema, self._servers, self._producer = schema, servers, _producers[settings_key]
        self._problems: list[Any] = []

    def write(self, value: Any, context: SinkContext) -> None:
        message = self._schema.message(value, context.timestamp())
        _produce(self._producer, message, self._on_delivery)

    def prepare(self) -> list[Message]:
        unsent = self._producer.flush(_TIMEOUT_S)
        if unsent or self._problems:
            reason = self._problems[0] if self._problems else f"{unsent} records were not sent"
            raise JobExecutionError(f"Kafka at {self._servers} did not take all records: {reason}.")
        return []

    def _on_delivery(self, error: object, _: object) -> None:
        if error is not None:
            self._problems.append(error)


def _produce(producer: Any, message: Message, on_delivery: Callable[[Any, Any], None]) -> None:
    topic, key, value, timestamp_ms = message
    more = {} if timestamp_ms is None or timestamp_ms < 0 else {"timestamp": timestamp_ms}
    while True:
        try:
            producer.produce(topic, value=value, key=key, on_delivery=on_delivery, **more)
            producer.poll(0)
            return
        except BufferError:  # the queue is full: give it time to send
            producer.poll(0.1)


class _Transactions:
    """The transactions of one sink, on the driver."""

    def __init__(self, servers: str, properties: dict[str, str], name: str) -> None:
        self._servers, self._name = servers, name
        self._producer = make_client("Producer", servers, properties, **{"transactional.id": name})
        self._consumer = make_client(
            "Consumer", servers, properties, **{"group.id": name, "enable.auto.commit": False}
        )
        self._epoch: int | None = None  # the newest known to be committed; None: unknown
        self._is_ready = False

    def send(self, epoch: int, messages: list[Message]) -> None:
        failure = client_module().KafkaException
        partition = client_module().TopicPartition(messages[0][0], 0)
        try:
            if not self._is_ready:
                self._producer.init_transactions(_TIMEOUT_S)  # locks out any earlier producer
                self._is_ready = True
            if self._epoch is None:
                (known,) = self._consumer.committed([partition], timeout=_TIMEOUT_S)
                if known.error is not None:
                    raise failure(known.error)
                self._epoch = known.offset - 1 if known.offset >= 0 else -1
            if epoch <= self._epoch:
                return
            self._producer.begin_transaction()
            for message in messages:
                _produce(self._producer, message, lambda *_: None)  # errors show up in the commit
            marker = client_module().TopicPartition(partition.topic, 0, epoch + 1)
            group = self._consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction([marker], group, _TIMEOUT_S)
            self._producer.commit_transaction(_TIMEOUT_S)
            self._epoch = epoch
        except failure as problem:
            self._epoch = None
            if not problem.args[0].fatal():
                self._abort()
            raise JobExecutionError(
                f"Kafka at {self._servers} did not take the records of epoch {epoch}: {problem}. They are "
                "kept, and are sent when the job resumes."
            ) from None

    def close(self) -> None:
        self._consumer.close()

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(_TIMEOUT_S)
        except client_module().KafkaException:
            self._is_ready = False


class KafkaSinkBuilder:
    """Builds a KafkaSink. Setters return the builder itself."""

    def __init__(self) -> None:
        self._servers: str | None = None
        self._schema: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix = "millpond"
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        """Set the Kafka servers, HOST:PORT separated by commas."""
        self._servers = bootstrap_servers
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """Set the guarantee. EXACTLY_ONCE uses transactions; AT_LEAST_ONCE and NONE (the default) both
        mean at least once."""
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Set what transactional ids begin with; `millpond` by default. The ids of a job and sink are
        always unique."""
        self._prefix = transactional_id_prefix
        return self

    def set_record_serializer(
        self, record_serializer: KafkaRecordSerializationSchema
    ) -> KafkaSinkBuilder:
        """Set how records become messages."""
        self._schema = record_serializer
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """Set a property of the Kafka client."""
        self._properties[key] = value
        return self

    def build(self) -> KafkaSink:
        """Return the sink; raise ProgramError without servers or serializer."""
        given = dict(self._properties)
        servers = given.pop("bootstrap.servers", None)
        servers = self._servers or servers
        if servers is None or self._schema is None:
            raise ProgramError("A KafkaSink needs set_bootstrap_servers and set_record_serializer.")
        return KafkaSink(servers, self._schema, self._guarantee, self._prefix, given)
