"""Kafka topics as a source, with PyFlink's names.

The driver decides which offsets a batch reads; workers read them.
"""

from __future__ import annotations

import bisect
import logging
import re
import time
from collections.abc import Iterator
from typing import Any

from millpond.common.serialization import DeserializationSchema
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.datastream.connectors.kafka.offsets import (
    KafkaMetadata,
    KafkaOffsetsInitializer,
    KafkaTopicPartition,
)
from millpond.datastream.connectors.kafka.reader import reader_of
from millpond.datastream.connectors.kafka.records import (
    KafkaRecordDeserializationSchema,
    reader_for,
)
from millpond.datastream.functions import RuntimeContext
from millpond.errors import JobExecutionError, ProgramError

_POLL_MS = 50
_DISCOVERY = "partition.discovery.interval.ms"
_DISCOVERY_MS = 300_000
_log = logging.getLogger(__name__)
Range = tuple[str, int, int, int, int]
"""topic, partition, from offset, up to offset, how many records of the message at the first one are done"""


class KafkaSource(Source):
    """Reads records from Kafka topics; every partition is a split. Offsets are kept in the job's
    checkpoints, not committed to Kafka."""

    def __init__(
        self,
        servers: str,
        topics: list[str] | str,
        partitions: list[KafkaTopicPartition],
        schema: DeserializationSchema | KafkaRecordDeserializationSchema,
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        bounded: bool,
        group: str,
        properties: dict[str, str],
    ) -> None:
        self._servers = servers
        self._topics = topics
        self._partitions = partitions
        self._schema = schema
        self._starting = starting
        self._stopping = stopping
        self._group = group
        self._properties = properties
        self.bounded = bounded
        self.endless = stopping is None
        # Of what was read last, and how many records of the read came before it.
        self._newest_offsets: list[int] = []
        self._before_newest = 0

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Return a builder for the source."""
        return KafkaSourceBuilder()

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        metadata = KafkaMetadata(self._servers, self._properties, self._group)
        every_ms = int(self._properties.get(_DISCOVERY, _DISCOVERY_MS))
        return _KafkaEnumerator(
            metadata, self._topics, self._partitions, self._starting, self._stopping, every_ms
        )

    def read(self, arguments: Range) -> Iterator[tuple[Any, int | None]]:
        for values, timestamps in self.read_many(arguments):
            yield from zip(values, timestamps or [], strict=True)

    def read_many(self, arguments: Range) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        topic, partition, start, end, done = arguments
        reader = reader_of(self._servers, self._properties, topic, partition)
        to_records = reader_for(self._schema)
        self._before_newest = 0
        if start >= end:
            return
        for messages in reader.read(start, end):
            values, times, offsets = to_records(messages)
            if done and messages[0].offset() == start:  # it may be gone: topics are compacted
                values, times, offsets = values[done:], times[done:], offsets[done:]
            done = 0
            self._newest_offsets = offsets
            yield values, times
            self._before_newest += len(values)

    def rest(self, arguments: Range, done: int) -> tuple[Range, int]:
        topic, partition, start, end, done_at_start = arguments
        offsets, index = self._newest_offsets, done - self._before_newest
        if index == len(offsets):
            return (topic, partition, offsets[-1] + 1, end, 0), 0
        next_offset = offsets[index]
        of_message = index - bisect.bisect_left(offsets, next_offset)
        if next_offset == start:
            of_message += done_at_start
        return (topic, partition, next_offset, end, of_message), 0


class _KafkaEnumerator(SplitEnumerator):
    """Makes a partition a split. The position is a list of (topic, partition, next offset).

    `topics` are names, or a pattern for names.
    """

    def __init__(
        self,
        metadata: KafkaMetadata,
        topics: list[str] | str,
        partitions: list[KafkaTopicPartition],
        starting: KafkaOffsetsInitializer,
        stopping: KafkaOffsetsInitializer | None,
        discovery_ms: int,
    ) -> None:
        super().__init__()
        self._metadata = metadata
        self._topics = topics
        self._given = partitions
        self._starting = starting
        self._stopping = stopping
        self._discovery_s = discovery_ms / 1000
        self._discovered_s = 0.0
        self._next: dict[KafkaTopicPartition, int] = {}
        self._stops: dict[KafkaTopicPartition, int] | None = None
        self._ends: dict[KafkaTopicPartition, int] = {}  # how far the last poll could have read
        self._is_away = False
        self._has_begun = False

    def start(self) -> None:
        self._discover(self._starting)
        known = list(self._next)
        if self._stopping is not None:
            self._stops = self._metadata.resolve(self._stopping, known)
        elif self.stops_at_end:
            self._stops = self._metadata.ends(known)

    def _discover(self, begin: KafkaOffsetsInitializer) -> None:
        """Add new partitions: at `begin` when the job starts, and later at their oldest record."""
        topics = self._topics
        if isinstance(topics, str):
            topics = self._metadata.topics(topics)
        found = self._given or self._metadata.partitions(topics)
        new = [partition for partition in found if partition not in self._next]
        if new:
            at = KafkaOffsetsInitializer.earliest() if self._has_begun else begin
            self._next.update(self._metadata.resolve(at, new))
        self._has_begun = True
        self._discovered_s = time.monotonic()

    def split_count(self) -> int:
        return max(1, len(self._next))

    def poll(self, max_records: int) -> list[SplitWork]:
        try:
            if self._stops is None and time.monotonic() - self._discovered_s > self._discovery_s:
                self._discover(self._starting)
            partitions = list(self._next)
            if not partitions:
                return []
            ends = self._metadata.ends(partitions)
        except JobExecutionError as problem:
            if not self._is_away:
                _log.warning("%s Waiting for it.", problem)
            self._is_away = True
            return []
        self._is_away = False
        works: list[SplitWork] = []
        share = max(1, max_records // len(partitions))
        for split, partition in enumerate(partitions):
            end = (
                ends[partition]
                if self._stops is None
                else min(ends[partition], self._stops.get(partition, 0))
            )
            self._ends[partition] = end
            start = self._next[partition]
            end = min(end, start + share)
            if end > start and split not in self.paused:
                arguments = (partition.topic, partition.partition, start, end, 0)
                works.append(SplitWork(split, arguments))
                self._next[partition] = end
        return works

    def position(self) -> list[tuple[str, int, int]]:
        return [
            (partition.topic, partition.partition, offset)
            for partition, offset in self._next.items()
        ]

    def restore(self, position: list[tuple[str, int, int]]) -> None:
        self._next = {KafkaTopicPartition(topic, number): at for topic, number, at in position}
        self._has_begun = True

    def ended(self) -> list[bool]:
        if self._stopping is None or self._stops is None:
            return [False] * self.split_count()
        return [self._is_through(partition) for partition in self._next] or [True]

    def _is_through(self, partition: KafkaTopicPartition) -> bool:
        assert self._stops is not None
        return self._next[partition] >= self._stops.get(partition, 0)

    def caught_up(self) -> bool:
        return self._stops is not None and all(map(self._is_through, self._next))

    def backlog(self) -> int | None:
        if not self._ends:
            return None
        return sum(max(0, end - self._next[partition]) for partition, end in self._ends.items())

    def next_poll_in_ms(self) -> int | None:
        return _POLL_MS


class KafkaSourceBuilder:
    """Builds a KafkaSource. Setters return the builder itself."""

    def __init__(self) -> None:
        self._servers: str | None = None
        self._topics: list[str] | str = []
        self._partitions: list[KafkaTopicPartition] = []
        self._schema: DeserializationSchema | KafkaRecordDeserializationSchema | None = None
        self._starting = KafkaOffsetsInitializer.earliest()
        self._stopping: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._group = "millpond"
        self._properties: dict[str, str] = {}

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSourceBuilder:
        """Set the Kafka servers, HOST:PORT separated by commas."""
        self._servers = bootstrap_servers
        return self

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """Set the consumer group whose committed offsets `KafkaOffsetsInitializer.committed_offsets`
        reads."""
        self._group = group_id
        return self

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """Read these topics."""
        self._topics = list(topics)
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """Read the topics whose whole names match a regular expression; raise ProgramError if it is not one.

        Topics created later are found at the interval of `partition.discovery.interval.ms`, and read from
        their beginning.
        """
        try:
            re.compile(topic_pattern)
        except re.error as problem:
            raise ProgramError(
                f"The topic pattern '{topic_pattern}' is not a regular expression: {problem}."
            ) from None
        self._topics = topic_pattern
        return self

    def set_partitions(self, partitions: set[KafkaTopicPartition]) -> KafkaSourceBuilder:
        """Read these partitions only."""
        self._partitions = sorted(partitions)
        return self

    def set_starting_offsets(
        self, starting_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Set where reading begins when the job starts for the first time."""
        self._starting = starting_offsets_initializer
        return self

    def set_unbounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop reading at these offsets, but treat the source as unbounded in AUTOMATIC mode."""
        self._stopping, self._bounded = stopping_offsets_initializer, False
        return self

    def set_bounded(
        self, stopping_offsets_initializer: KafkaOffsetsInitializer
    ) -> KafkaSourceBuilder:
        """Stop reading at these offsets, as determined when the job starts, and treat the source as
        bounded."""
        self._stopping, self._bounded = stopping_offsets_initializer, True
        return self

    def set_value_only_deserializer(
        self, deserialization_schema: DeserializationSchema
    ) -> KafkaSourceBuilder:
        """Set how the value of a message becomes a record."""
        self._schema = deserialization_schema
        return self

    def set_deserializer(
        self, record_deserializer: KafkaRecordDeserializationSchema
    ) -> KafkaSourceBuilder:
        """Set how a whole message becomes records: topic, partition, offset, timestamp, key, value,
        headers."""
        self._schema = record_deserializer
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """Set the client id under which Kafka sees the source."""
        return self.set_property("client.id", prefix)

    def set_property(self, key: str, value: str) -> KafkaSourceBuilder:
        """Set a property of the Kafka client or the source."""
        self._properties[key] = value
        return self

    def set_properties(self, props: dict[str, str]) -> KafkaSourceBuilder:
        """Set several properties of the Kafka client or the source."""
        self._properties.update(props)
        return self

    def build(self) -> KafkaSource:
        """Return the source; raise ProgramError without servers, topics or deserializer."""
        servers = self._servers or self._properties.get("bootstrap.servers")
        if servers is None or self._schema is None:
            raise ProgramError(
                "A KafkaSource needs set_bootstrap_servers and set_value_only_deserializer."
            )
        if not self._topics and not self._partitions:
            raise ProgramError(
                "A KafkaSource needs set_topics, set_topic_pattern or set_partitions."
            )
        return KafkaSource(
            servers,
            self._topics,
            self._partitions,
            self._schema,
            self._starting,
            self._stopping,
            self._bounded,
            self._properties.get("group.id", self._group),
            {k: v for k, v in self._properties.items() if k != "bootstrap.servers"},
        )
