"""Where reading a topic begins and ends, with PyFlink's names."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from millpond.datastream.connectors.kafka.client import client_module, make_client
from millpond.errors import JobExecutionError

_TIMEOUT_S = 30.0


class KafkaTopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class KafkaOffsetResetStrategy(Enum):
    """What to do if there is no offset for a partition: begin at its end, at its beginning, or fail."""

    LATEST = 0
    EARLIEST = 1
    NONE = 2


class KafkaOffsetsInitializer:
    """Where reading begins or ends: earliest, latest, timestamp, committed or offsets (`kind`)."""

    def __init__(
        self,
        kind: str,
        timestamp_ms: int = 0,
        offsets: dict[KafkaTopicPartition, int] | None = None,
        otherwise: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> None:
        self.kind = kind
        self.timestamp_ms = timestamp_ms
        self.given = dict(offsets or {})
        self.otherwise = otherwise

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Begin at the oldest record of each partition."""
        return KafkaOffsetsInitializer("earliest")

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Begin, or end, at the end of each partition."""
        return KafkaOffsetsInitializer("latest")

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """Begin at the first record of each partition that is not older, or at the end if there is none."""
        return KafkaOffsetsInitializer("timestamp", timestamp_ms=timestamp)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Begin at the offsets that the consumer group has committed; the strategy decides where there are
        none."""
        return KafkaOffsetsInitializer("committed", otherwise=offset_reset_strategy)

    @staticmethod
    def offsets(
        offsets: dict[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Begin, or end, at these offsets; the strategy decides for other partitions."""
        return KafkaOffsetsInitializer("offsets", 0, offsets, offset_reset_strategy)


class KafkaMetadata:
    """Asks Kafka for partitions and offsets, on the driver. Its methods raise JobExecutionError if Kafka
    does not answer."""

    def __init__(self, servers: str, properties: dict[str, str], group: str) -> None:
        self._servers = servers
        self._properties = properties
        self._group = group
        self._admin = make_client("admin.AdminClient", servers, properties)

    def topics(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches the pattern, except Kafka's internal ones."""
        try:
            known = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        except client_module().KafkaException as problem:
            raise JobExecutionError(
                f"Kafka at {self._servers} does not answer: {problem}."
            ) from None
        names = sorted(name for name in known if not name.startswith("__"))
        return [name for name in names if re.fullmatch(pattern, name)]

    def partitions(self, topics: list[str]) -> list[KafkaTopicPartition]:
        """Return the partitions of these topics, in order. Raise JobExecutionError if a topic does not
        exist."""
        found: list[KafkaTopicPartition] = []
        for topic in topics:
            try:
                known = self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
            except client_module().KafkaException as problem:
                raise JobExecutionError(
                    f"Kafka at {self._servers} does not answer: {problem}."
                ) from None
            if known.error is not None:
                raise JobExecutionError(
                    f"Topic '{topic}' of the Kafka at {self._servers} cannot be read: {known.error}."
                )
            found += [KafkaTopicPartition(topic, number) for number in sorted(known.partitions)]
        return found

    def ends(self, partitions: list[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        """Return the offset after the last committed record of each partition."""
        return self._ask(partitions, client_module(".admin").OffsetSpec.latest())

    def resolve(
        self, wanted: KafkaOffsetsInitializer, partitions: list[KafkaTopicPartition]
    ) -> dict[KafkaTopicPartition, int]:
        """Return the offset that the initializer means for each partition."""
        specs = client_module(".admin").OffsetSpec
        if wanted.kind == "earliest":
            return self._ask(partitions, specs.earliest())
        if wanted.kind == "latest":
            return self.ends(partitions)
        if wanted.kind == "timestamp":
            ends = self.ends(partitions)
            found = self._ask(partitions, specs.for_timestamp(wanted.timestamp_ms))
            return {
                partition: ends[partition] if found[partition] < 0 else found[partition]
                for partition in partitions
            }
        known = wanted.given if wanted.kind == "offsets" else self._committed(partitions)
        missing = [partition for partition in partitions if partition not in known]
        if missing and wanted.otherwise is KafkaOffsetResetStrategy.NONE:
            raise JobExecutionError(
                f"There is no offset to begin at for {', '.join(f'{t}-{p}' for t, p in missing)}: set a "
                "KafkaOffsetResetStrategy other than NONE."
            )
        otherwise = (
            specs.earliest()
            if wanted.otherwise is KafkaOffsetResetStrategy.EARLIEST
            else specs.latest()
        )
        return {
            partition: known[partition] for partition in partitions if partition in known
        } | self._ask(missing, otherwise)

    def _ask(
        self, partitions: list[KafkaTopicPartition], spec: object
    ) -> dict[KafkaTopicPartition, int]:
        if not partitions:
            return {}
        topic_partition = client_module().TopicPartition
        asked = {
            topic_partition(partition.topic, partition.partition): spec for partition in partitions
        }
        try:
            answers = self._admin.list_offsets(
                asked,
                request_timeout=_TIMEOUT_S,
                # What belongs to a transaction that is still open cannot be read yet.
                isolation_level=client_module().IsolationLevel.READ_COMMITTED,
            )
            return {
                KafkaTopicPartition(asked_for.topic, asked_for.partition): answer.result().offset
                for asked_for, answer in answers.items()
            }
        except client_module().KafkaException as problem:
            raise JobExecutionError(
                f"Kafka at {self._servers} does not answer: {problem}."
            ) from None

    def _committed(self, partitions: list[KafkaTopicPartition]) -> dict[KafkaTopicPartition, int]:
        topic_partition = client_module().TopicPartition
        consumer = make_client(
            "Consumer", self._servers, self._properties, **{"group.id": self._group}
        )
        try:
            found = consumer.committed(
                [topic_partition(*partition) for partition in partitions], timeout=_TIMEOUT_S
            )
        finally:
            consumer.close()
        return {KafkaTopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}
