"""Reads ranges of Kafka partitions on the workers. A reader goes on where the last range ended."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from typing import Any

from millpond.datastream.connectors.kafka.client import client_module, make_client
from millpond.errors import JobExecutionError

_AT_ONCE = 8192
_PATIENCE_S = 60.0
_readers: dict[tuple[Any, ...], PartitionReader] = {}


def reader_of(
    servers: str, properties: dict[str, str], topic: str, partition: int
) -> PartitionReader:
    """One for each partition in a process."""
    place = (servers, tuple(sorted(properties.items())), topic, partition)
    if place not in _readers:
        _readers[place] = PartitionReader(servers, properties, topic, partition)
    return _readers[place]


class PartitionReader:
    def __init__(
        self, servers: str, properties: dict[str, str], topic: str, partition: int
    ) -> None:
        self._servers, self._topic, self._partition = servers, topic, partition
        self._consumer = make_client(
            "Consumer",
            servers,
            {
                "queued.max.messages.kbytes": "16384",
                "isolation.level": "read_committed",
                **properties,
            },
            **{
                "group.id": "millpond",  # a name only: offsets are in the job's checkpoints
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            },
        )
        self._next_offset = -1
        self._fetched: deque[Any] = deque()  # beyond the last range
        self._end_offset = -1  # of the partition, when all before it was fetched

    def read(self, start: int, end: int) -> Iterator[list[Any]]:
        """The messages from offset `start` up to, not including, `end`."""
        if start != self._next_offset:
            self._fetched.clear()
            self._end_offset = -1
            place = client_module().TopicPartition(self._topic, self._partition, start)
            self._consumer.assign([place])
        self._next_offset = -1  # until the range is through
        while self._fetched or self._end_offset < end:
            messages = list(self._fetched) or self._fetch()
            self._fetched.clear()
            told = [message for message in messages if message.error() is not None]
            inside, beyond = _cut(messages, told, end)
            if inside:
                yield inside
            self._note_end(told)
            self._fetched.extend(beyond)
            if beyond or (inside and inside[-1].offset() == end - 1):
                break
        self._next_offset = end

    def _note_end(self, told: list[Any]) -> None:
        """Records of transactions that were aborted take offsets, too: a range may end without a message."""
        for message in told:
            error = message.error()
            if error.code() != client_module().KafkaError._PARTITION_EOF:
                raise JobExecutionError(
                    f"Kafka at {self._servers}, topic '{self._topic}', partition {self._partition}: {error}."
                )
            self._end_offset = message.offset()

    def _fetch(self) -> list[Any]:
        found: list[Any] = self._consumer.consume(_AT_ONCE, timeout=0.05)
        waited_s = 0.05
        while not found:
            if waited_s > _PATIENCE_S:
                raise JobExecutionError(
                    f"Kafka at {self._servers} gave nothing of topic '{self._topic}', partition "
                    f"{self._partition}, for {_PATIENCE_S:g} s."
                )
            found = self._consumer.consume(1, timeout=0.5)
            waited_s += 0.5
        return found


def _cut(messages: list[Any], told: list[Any], end: int) -> tuple[list[Any], list[Any]]:
    """Records before offset `end`, and those from there on. Offsets ascend. `told`: what is no record."""
    if not told and messages[-1].offset() < end:
        return messages, []
    records = [message for message in messages if message.error() is None] if told else messages
    place = bisect.bisect_left(records, end, key=lambda record: record.offset())
    return records[:place], records[place:]
