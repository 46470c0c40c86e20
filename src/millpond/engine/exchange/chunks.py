"""Chunks: what one pass of a batch sends to one partition of the next pass.

Payload of the blob (see core/codec.py for the envelope), a tuple:

    (token of the run of the pass, epoch, processing time in ms, whether it is the last batch, rows)

A pass sends at least one chunk to every partition, so that every reader knows which run it has read from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.labels import ALL_OF_PARTITION, split_label
from millpond.engine.exchange.frames import SINK_LEVEL, Row
from millpond.plan.physical import JobPlan

CHUNK_BYTES = 16 << 20


class BatchInfo(NamedTuple):
    """What every pass of a batch knows about the batch."""

    epoch: int
    processing_time_ms: int
    last_batch: bool


class Chunk(NamedTuple):
    """Rows from one run of a pass for one partition."""

    token: bytes
    batch: BatchInfo
    rows: list[Row]


def encode_chunks(token: bytes, batch: BatchInfo, rows: list[Row]) -> Iterator[bytes]:
    """Yield rows as one or more blobs, none of which is very large unless a row is."""
    start = size = 0
    for end, row in enumerate(rows):
        size += len(row[2])
        if size > CHUNK_BYTES:
            yield codec.encode(BlobKind.CHUNK, (token, *batch, rows[start : end + 1]))
            start, size = end + 1, 0
    if start < len(rows) or start == 0:
        yield codec.encode(BlobKind.CHUNK, (token, *batch, rows[start:]))


def decode_chunk(blob: bytes) -> Chunk:
    """Return the chunk in a blob. Raises CorruptDataError if it is damaged."""
    token, epoch, processing_time_ms, last_batch, rows = codec.decode(BlobKind.CHUNK, blob)
    return Chunk(token, BatchInfo(epoch, processing_time_ms, last_batch), rows)


class Partitions:
    """Knows which partition a row has to go to."""

    def __init__(self, plan: JobPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[int, int], int] = {}

    def scatter(self, rows: Iterable[Row]) -> list[list[Row]]:
        """Return the rows for each partition."""
        scattered: list[list[Row]] = [[] for _ in range(self._plan.parallelism)]
        for row in rows:
            partition = self._known.get(row[:2])
            if partition is None:
                partition = self._known[row[:2]] = self._of(*row[:2])
            scattered[partition].append(row)
        return scattered

    def _of(self, level: int, label: int) -> int:
        ordinal, number = split_label(label)
        if number >= ALL_OF_PARTITION:
            return number - ALL_OF_PARTITION
        if level != SINK_LEVEL:
            number = self._plan.tasks_at(level)[ordinal].subtask_of(number)
        return number % self._plan.parallelism
