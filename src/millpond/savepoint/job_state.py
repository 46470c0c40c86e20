"""What a savepoint holds about the job as a whole, by uid: positions of sources, watermarks, clocks
(`job.blob`).

Payload of the blob (see core/codec.py for the envelope), a tuple:

    (uid of a source -> (position, ended, split -> uid of an assigner -> its generator,
                         split -> (reads, number of records of the first read that were read already)),
     uid of a watermark origin -> channels,
     uid of the root of a task -> (watermarks of its inputs, clock),
     processing time in ms)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from millpond.core import codec
from millpond.core.codec import BlobKind

T = TypeVar("T")
Channels = list[tuple[int, bool]]
"""(watermark, active) of each split of a watermark origin"""


@dataclass(frozen=True)
class SourceState:
    """How far a source has come."""

    position: object
    """What the enumerator of the source needs to go on."""
    ended: list[bool]
    """For each split, whether it gives no further records."""
    generators: dict[int, dict[str, object]]
    """split -> uid of an assigner -> what its watermark generator remembers"""
    unread: dict[int, tuple[list[object], int]] = field(default_factory=dict)
    """split -> what was handed out and not read: the arguments of reads, and how many records of the first
    one were read"""


@dataclass(frozen=True)
class TaskClockState:
    """Where the clock of a task stands."""

    inputs: list[int]
    """The watermark of each input."""
    clock: int


@dataclass(frozen=True)
class SavedJobState:
    """The state of the driver in a savepoint. The defaults are the state of a job that has never run."""

    sources: dict[str, SourceState] = field(default_factory=dict)
    channels: dict[str, Channels] = field(default_factory=dict)
    clocks: dict[str, TaskClockState] = field(default_factory=dict)
    time_ms: int = 0

    def encode(self) -> bytes:
        """Return the state as a blob."""
        return codec.encode(
            BlobKind.JOB_STATE,
            (
                {
                    uid: (source.position, source.ended, source.generators, source.unread)
                    for uid, source in self.sources.items()
                },
                self.channels,
                {uid: (clock.inputs, clock.clock) for uid, clock in self.clocks.items()},
                self.time_ms,
            ),
        )

    @staticmethod
    def decode(blob: bytes, where: str) -> SavedJobState:
        """Return the state in a blob. Raises CorruptDataError, which names `where`, if it is damaged."""
        sources, channels, clocks, time_ms = codec.decode(BlobKind.JOB_STATE, blob, where)
        return SavedJobState(
            {uid: SourceState(*source) for uid, source in sources.items()},
            channels,
            {uid: TaskClockState(*clock) for uid, clock in clocks.items()},
            time_ms,
        )


def _with_unread(payload: tuple[dict[str, tuple[object, ...]], *tuple[object, ...]]) -> object:
    """Return a payload of version 1, in which sources have left nothing unread, as one of version 2."""
    sources, *rest = payload
    return ({uid: (*source, {}) for uid, source in sources.items()}, *rest)


codec.UPGRADES[BlobKind.JOB_STATE, 1] = _with_unread


@dataclass(frozen=True)
class UidChanges:
    """Changes of uids, one after the other: the new uid of an operator or source, or None if it was
    removed."""

    changes: tuple[tuple[str, str | None], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)

    def then(self, uid: str, new: str | None) -> UidChanges:
        """Return these changes and one more."""
        return UidChanges((*self.changes, (uid, new)))

    def applied(self, uids: Iterable[str]) -> list[str]:
        """Return the uids after the changes, without those that were removed."""
        return list(self._by_new_uid(dict.fromkeys(uids)))

    def in_job_state(self, state: SavedJobState) -> SavedJobState:
        """Return the state of the job after the changes."""
        return replace(
            state,
            sources={
                uid: replace(
                    source,
                    generators={
                        split: self._by_new_uid(generators)
                        for split, generators in source.generators.items()
                    },
                )
                for uid, source in self._by_new_uid(state.sources).items()
            },
            channels=self._by_new_uid(state.channels),
            clocks=self._by_new_uid(state.clocks),
        )

    def _by_new_uid(self, by_uid: Mapping[str, T]) -> dict[str, T]:
        result = dict(by_uid)
        for old, new in self.changes:
            result = {
                new if uid == old and new is not None else uid: value
                for uid, value in result.items()
                if uid != old or new is not None
            }
        return result
