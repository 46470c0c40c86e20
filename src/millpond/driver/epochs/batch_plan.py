"""What is fixed about a batch before it runs: a record of the journal.

Payload of the blob (see core/codec.py for the envelope), a tuple:

    (positions of the sources after the batch, which splits have ended, processing time in ms,
     savepoint request as a tuple or None, whether the job stops after the batch, blobs of its lanes,
     split -> what is left to read of it and not part of the batch)
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, field

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.driver.savepoint_requests import SavepointRequest
from millpond.engine.exchange.batch import LanePlan, Unread, UnreadSplits, plain_unread


@dataclass(frozen=True)
class BatchPlan:
    """The plan of a batch. A planned batch runs with exactly this, however often it runs."""

    positions: dict[int, object]
    """source -> what its enumerator needs to go on after the batch"""
    ended: dict[int, list[bool]]
    """source -> for each split, whether it gives no records after this batch"""
    time_ms: int
    """The processing time of the batch."""
    savepoint: SavepointRequest | None = None
    stops: bool = False
    """Whether the job stops after this batch, having read all there was. It may go on later."""
    lanes: list[LanePlan] = field(default_factory=list)
    unread: UnreadSplits = field(default_factory=dict)
    """What earlier batches have left unread, and this one does not read either."""

    def encode(self) -> bytes:
        """Return the plan as a blob."""
        savepoint = None if self.savepoint is None else astuple(self.savepoint)
        lanes = [lane.encode() for lane in self.lanes]
        return codec.encode(
            BlobKind.BATCH_PLAN,
            (
                self.positions,
                self.ended,
                self.time_ms,
                savepoint,
                self.stops,
                lanes,
                plain_unread(self.unread),
            ),
        )

    @staticmethod
    def decode(blob: bytes, where: str) -> BatchPlan:
        """Return the plan in a blob. Raises CorruptDataError, which names `where`, if it is damaged."""
        positions, ended, time_ms, savepoint, stops, lanes, unread = codec.decode(
            BlobKind.BATCH_PLAN, blob, where
        )
        request = None if savepoint is None else SavepointRequest(*savepoint)
        decoded = [LanePlan.decode(lane, where) for lane in lanes]
        left = {split: Unread(*own) for split, own in unread.items()}
        return BatchPlan(positions, ended, time_ms, request, stops, decoded, left)
