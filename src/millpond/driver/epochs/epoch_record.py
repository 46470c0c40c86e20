"""What a batch leaves behind for the next one: a record of the journal. Once it is there, the batch counts.

Payload of the blob (see core/codec.py for the envelope): a tuple of the fields of `EpochRecord`, in order;
records in it are tuples of their fields.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.datastream.formats.avro_schemas import Schema
from millpond.driver.reporting.checkpoint_history import CheckpointRecord, LogBytes
from millpond.driver.reporting.statistics import Totals
from millpond.engine.exchange.batch import LogPositions, Unread, UnreadSplits, plain_unread
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.reports import Generators, Prepared, Split
from millpond.plan.settings import StoredTypes
from millpond.savepoint.job_state import Channels
from millpond.savepoint.parts import Part

UnfinishedSavepoint = tuple[tuple[object, ...], bytes, int, list[Part]]
"""(fields of the request, state of the job as a blob, epoch, parts)"""


@dataclass(frozen=True)
class EpochRecord:
    """What the next batch builds upon."""

    generators: dict[Split, Generators]
    """split -> the state of its watermark generators"""
    channels: dict[int, Channels]
    """watermark origin -> its channels"""
    starts: dict[int, Start]
    """task -> where its clock stands"""
    wakeup_ms: int | None
    """When the next batch is due although no record has arrived."""
    metrics: dict[str, object]
    prepared: list[Prepared]
    """What two-phase sinks have prepared; they commit it when the batch counts."""
    finished: bool
    """Whether no batch can come after this one."""
    checkpoint: CheckpointRecord
    log_bytes: LogBytes
    statistics: Totals
    positions: dict[int, object]
    """source -> what its enumerator needs to go on after the batch"""
    ended: dict[int, list[bool]]
    """source -> for each split, whether it gives no further records"""
    time_ms: int
    """The processing time of the batch."""
    logs: LogPositions
    """How far each log counts. Whatever else is in its segments was never committed."""
    savepoints: list[UnfinishedSavepoint] = field(default_factory=list)
    """The savepoints that this batch and earlier ones have taken, and that were not put together yet."""
    has_savepoint: bool = False
    """Whether this batch has taken one."""
    unread: UnreadSplits = field(default_factory=dict)
    """What was handed out to batches, but not read by them."""
    state_types: StoredTypes = field(default_factory=dict)
    key_types: dict[str, Schema] = field(default_factory=dict)
    """uid -> the declared type of its keys"""

    def encode(self) -> bytes:
        """Return the record as a blob."""
        return codec.encode(
            BlobKind.EPOCH,
            (
                self.generators,
                self.channels,
                {task: tuple(start) for task, start in self.starts.items()},
                self.wakeup_ms,
                self.metrics,
                [tuple(prepared) for prepared in self.prepared],
                self.finished,
                astuple(self.checkpoint),
                self.log_bytes,
                self.statistics,
                self.positions,
                self.ended,
                self.time_ms,
                self.logs,
                self.savepoints,
                self.has_savepoint,
                plain_unread(self.unread),
                self.state_types,
                self.key_types,
            ),
        )

    @staticmethod
    def decode(blob: bytes, where: str) -> EpochRecord:
        """Return the record in a blob. Raises CorruptDataError, which names `where`, if it is damaged."""
        (
            generators,
            channels,
            starts,
            wakeup_ms,
            metrics,
            prepared,
            finished,
            checkpoint,
            log_bytes,
            statistics,
            positions,
            ended,
            time_ms,
            logs,
            savepoints,
            has_savepoint,
            unread,
            state_types,
            key_types,
        ) = codec.decode(BlobKind.EPOCH, blob, where)
        return EpochRecord(
            generators,
            channels,
            {task: Start(*start) for task, start in starts.items()},
            wakeup_ms,
            metrics,
            [Prepared(*message) for message in prepared],
            finished,
            CheckpointRecord(*checkpoint),
            log_bytes,
            statistics,
            positions,
            ended,
            time_ms,
            logs,
            savepoints,
            has_savepoint,
            {split: Unread(*left) for split, left in unread.items()},
            state_types,
            key_types,
        )
