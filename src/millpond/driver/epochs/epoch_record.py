"""What a batch leaves behind for the next one: `epochs/N.epoch` in the job folder.

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
from millpond.engine.exchange.controls import Start
from millpond.engine.exchange.reports import Generators, Prepared, Split
from millpond.plan.settings import StoredTypes
from millpond.savepoint.job_state import Channels
from millpond.savepoint.parts import Part


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
    parts: list[Part]
    """The parts of a savepoint that the batch has written."""
    statistics: Totals
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
                self.parts,
                self.statistics,
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
            parts,
            statistics,
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
            parts,
            statistics,
            state_types,
            key_types,
        )
