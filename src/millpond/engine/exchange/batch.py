"""A batch as workers see it: which splits to read from where, and what time it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.engine.exchange.controls import Start
from millpond.state.partition_log import LogPosition

LogPositions = dict[tuple[int, int], LogPosition]
"""(level, partition) -> how far its log counts"""


class Unread(NamedTuple):
    """What is left to read of a split: the arguments of its reads, and how many records of the first read
    earlier batches have read already."""

    reads: list[Any]
    skipped: int = 0


UnreadSplits = dict[tuple[int, int], Unread]
"""(source, number of the split) -> what is left to read of it"""


def plain_unread(unread: UnreadSplits) -> dict[tuple[int, int], tuple[list[Any], int]]:
    """Return the same as plain containers, for a blob."""
    return {split: (list(left.reads), left.skipped) for split, left in unread.items()}


@dataclass
class SplitPlan:
    """One split of one source in one batch. `reads` may be empty, and `skipped` is as in Unread. `saved` is
    what its watermark operators remember from the previous batch, by operator id."""

    source: int
    split: int
    reads: list[Any]
    ended: bool
    saved: dict[int, Any] = field(default_factory=dict)
    skipped: int = 0


@dataclass
class LanePlan:
    """The share of a batch that one source pass reads."""

    epoch: int
    lane: int
    processing_time_ms: int
    splits: list[SplitPlan]
    starts: dict[int, Start]
    last_batch: bool
    savepoint: str | None = None  # the folder for the parts of a savepoint
    event_time: int | None = None
    """If set, the job ends and may be continued later, and all splits advance to this time."""
    logs: LogPositions = field(default_factory=dict)
    """In lane 0 only: what the batch builds upon."""
    read_ms: int | None = None
    """How long the source tasks may read; later batches read what is left then. None: as long as it takes."""

    def encode(self) -> bytes:
        """Return the plan as a blob."""
        starts = {task: tuple(start) for task, start in self.starts.items()}
        splits = [(s.source, s.split, s.reads, s.ended, s.saved, s.skipped) for s in self.splits]
        return codec.encode(
            BlobKind.LANE_PLAN,
            (
                self.epoch,
                self.lane,
                self.processing_time_ms,
                splits,
                starts,
                self.last_batch,
                self.savepoint,
                self.event_time,
                self.logs,
                self.read_ms,
            ),
        )

    @staticmethod
    def decode(blob: bytes, where: str) -> LanePlan:
        """Return the plan in a blob. Raises CorruptDataError, which names `where`, if it is damaged."""
        (
            epoch,
            lane,
            time_ms,
            splits,
            starts,
            last,
            savepoint,
            event_time,
            logs,
            read_ms,
        ) = codec.decode(BlobKind.LANE_PLAN, blob, where)
        return LanePlan(
            epoch,
            lane,
            time_ms,
            [SplitPlan(*split) for split in splits],
            {task: Start(*start) for task, start in starts.items()},
            last,
            savepoint,
            event_time,
            logs,
            read_ms,
        )
