"""Reads ranges of Kafka partitions on workers. A reader goes on where the last range ended or was left."""

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
    """Return the reader of a partition; a process has one for each."""
    settings_key = (servers, tuple(sorted(properties.items())), topic, partition)
    if settings_key not in _readers:
        _readers[settings_key] = PartitionReader(servers, properties, topic, partition)
    return _readers[settings_key]


class PartitionReader:
    """Reads one partition, with a consumer of its own."""

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
                "group.id": "millpond",  # required but unused: offsets are in the job's checkpoints
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            },
        )
        self._next_offset = -1  # what was fetched, or is fetched next, begins here; -1: not known
        # Messages beyond the last range, or that were left of it.
        self._fetched: deque[Any] = deque()
        self._end_offset = -1  # the end of the partition, once everything before it was fetched

    def read(self, start: int, end: int) -> Iterator[list[Any]]:
        """Yield the messages from offset `start` up to, but not including, `end`.

        Raise JobExecutionError if Kafka reports an error, or gives nothing for a minute.
        """
        if not self._skip_to(start):
            self._fetched.clear()
            self._end_offset = -1
            position = client_module().TopicPartition(self._topic, self._partition, start)
            self._consumer.assign([position])
        self._next_offset = -1  # until the whole range has been read
        while self._fetched or self._end_offset < end:
            messages = list(self._fetched) or self._fetch()
            self._fetched.clear()
            notices = [message for message in messages if message.error() is not None]
            inside, beyond = _cut(messages, notices, end)
            self._note_end(notices)
            self._fetched.extend(beyond)
            if inside:
                try:
                    yield inside
                except GeneratorExit:  # the rest of the range may be read next
                    self._fetched.extendleft(reversed(inside))
                    self._next_offset = inside[0].offset()
                    raise
            if beyond or (inside and inside[-1].offset() == end - 1):
                break
        self._next_offset = end

    def _skip_to(self, start: int) -> bool:
        """Drop what was fetched before an offset. Return whether what comes next begins there."""
        if not 0 <= self._next_offset <= start:
            return False
        while self._fetched and self._fetched[0].offset() < start:
            self._next_offset = self._fetched.popleft().offset() + 1
        return bool(self._fetched) or self._next_offset == start

    def _note_end(self, notices: list[Any]) -> None:
        """Note where the partition ends: aborted transactions use offsets too, so a range may end without
        a message."""
        for message in notices:
            error = message.error()
            if error.code() != client_module().KafkaError._PARTITION_EOF:
                raise JobExecutionError(
                    f"Kafka at {self._servers}, topic '{self._topic}', partition {self._partition}: {error}."
                )
            self._end_offset = message.offset()

    def _fetch(self) -> list[Any]:
        messages: list[Any] = self._consumer.consume(_AT_ONCE, timeout=0.05)
        waited_s = 0.05
        while not messages:
            if waited_s > _PATIENCE_S:
                raise JobExecutionError(
                    f"Kafka at {self._servers} has sent nothing of topic '{self._topic}', partition "
                    f"{self._partition}, for {_PATIENCE_S:g} s."
                )
            messages = self._consumer.consume(1, timeout=0.5)
            waited_s += 0.5
        return messages


def _cut(messages: list[Any], notices: list[Any], end: int) -> tuple[list[Any], list[Any]]:
    """Divide messages, whose offsets ascend, into records before offset `end` and those from there on.

    `notices` are the messages that are not records.
    """
    if not notices and messages[-1].offset() < end:
        return messages, []
    records = [message for message in messages if message.error() is None] if notices else messages
    cut = bisect.bisect_left(records, end, key=lambda record: record.offset())
    return records[:cut], records[cut:]
