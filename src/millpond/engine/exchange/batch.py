"""A batch as workers see it: which splits to read from where, and what time it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.engine.exchange.controls import Start


@dataclass
class SplitPlan:
    """One split of one source in one batch. `reads` may be empty. `saved` is what its watermark operators
    remember from the previous batch, by operator id."""

    source: int
    split: int
    reads: list[Any]
    ended: bool
    saved: dict[int, Any] = field(default_factory=dict)


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

    def encode(self) -> bytes:
        """Return the plan as a blob."""
        starts = {task: tuple(start) for task, start in self.starts.items()}
        splits = [(s.source, s.split, s.reads, s.ended, s.saved) for s in self.splits]
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
            ),
        )

    @staticmethod
    def decode(blob: bytes, where: str) -> LanePlan:
        """Return the plan in a blob. Raises CorruptDataError, which names `where`, if it is damaged."""
        epoch, lane, time_ms, splits, starts, last, savepoint, event_time = codec.decode(
            BlobKind.LANE_PLAN, blob, where
        )
        return LanePlan(
            epoch,
            lane,
            time_ms,
            [SplitPlan(*split) for split in splits],
            {task: Start(*start) for task, start in starts.items()},
            last,
            savepoint,
            event_time,
        )
