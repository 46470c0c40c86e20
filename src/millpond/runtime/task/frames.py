"""What travels between passes: frames of records, controls, meta messages. One row is one of them.

    row = (level, label, blob)    level: the pass it is for; label: what Spark groups by

Payloads (see codec.py for the envelope):
    frame    (exchange or sink, source task, part, number, values, timestamps, keys, clocks,
              phases, sequences): columns of equal length; timestamps and keys may be None;
              clocks and phases are one number if all are equal
    control  (processing time, start or None, ends, whether it is the last batch)
    meta     a dict, see `meta_row`

A record's *place* is (clock, phase, sequence): the event-time clock at which it came to be, then
0 processing-time timers before the batch's records, 1 records, 2 event-time timers, 3 processing-time
timers after the batch's records, then its number in the source partition. Runs are sorted by place
and merged by it, so the order at the next task does not depend on how the work was spread or cut.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from millpond.runtime.task import codec
from millpond.runtime.task.codec import BlobKind, freeze, thaw

SINK_LEVEL = 127

PHASE_BEFORE, PHASE_RECORD, PHASE_EVENT_TIMER, PHASE_AFTER = range(4)
Place = tuple[int, int, int]
Row = tuple[int, int, bytes]


class Part(NamedTuple):
    """Which run a frame belongs to: a split of an origin, or (origin -1) a label of a task."""

    origin: int
    number: int


class Frame(NamedTuple):
    target: int  # exchange id, or sink id in rows of SINK_LEVEL
    source_task: int
    part: Part
    number: int
    values: list[Any]
    timestamps: list[int | None] | None
    keys: list[Any] | None
    clocks: int | list[int]
    phases: int | list[int]
    sequences: list[int]

    def records(self) -> Iterator[Record]:
        count = len(self.values)
        clocks = self.clocks if isinstance(self.clocks, list) else [self.clocks] * count
        phases = self.phases if isinstance(self.phases, list) else [self.phases] * count
        timestamps = self.timestamps or [None] * count
        keys = self.keys if self.keys is not None else [None] * count
        for clock, phase, sequence, value, timestamp, key in zip(
            clocks, phases, self.sequences, self.values, timestamps, keys, strict=True
        ):
            yield Record((clock, phase, sequence), self, thaw(value), timestamp, thaw(key))


class Record(NamedTuple):
    place: Place
    frame: Frame
    value: Any
    timestamp: int | None
    key: Any


class SplitEnd(NamedTuple):
    """How far a split of a watermark origin has come at the end of a batch."""

    origin: int
    split: int
    watermark: int
    active: bool


class Start(NamedTuple):
    """A task's event-time clock at the start of a batch: the output of the valve of each of its
    inputs, the (watermark, active) of each split of each origin, and the clock itself."""

    inputs: list[int]
    origins: dict[int, list[tuple[int, bool]]]
    clock: int


class Control(NamedTuple):
    """Time for one label: the batch's processing time, where its task's clock starts (None if
    another control of the batch says so), and how far splits have come at the batch's end."""

    processing_time_ms: int
    start: Start | None
    ends: list[SplitEnd]
    last_batch: bool = False


class FrameBuilder:
    """Collects records for one target and label, column by column."""

    __slots__ = ("clocks", "keys", "phases", "sequences", "timestamps", "values")

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.timestamps: list[int | None] = []
        self.keys: list[Any] = []
        self.clocks: list[int] = []
        self.phases: list[int] = []
        self.sequences: list[int] = []

    def add(self, value: Any, timestamp: int | None, key: Any, place: Place) -> None:
        self.values.append(freeze(value))
        self.timestamps.append(timestamp)
        self.keys.append(key)
        clock, phase, sequence = place
        self.clocks.append(clock)
        self.phases.append(phase)
        self.sequences.append(sequence)

    def build(self, target: int, source_task: int, part: Part, number: int, keyed: bool) -> bytes:
        frame = Frame(
            target,
            source_task,
            part,
            number,
            self.values,
            None if _all_equal(self.timestamps, None) else self.timestamps,
            [freeze(key) for key in self.keys] if keyed else None,
            _compact(self.clocks),
            _compact(self.phases),
            self.sequences,
        )
        return codec.encode(BlobKind.FRAME, tuple(frame))


def _all_equal(column: list[Any], value: Any) -> bool:
    return column.count(value) == len(column)


def _compact(column: list[int]) -> int | list[int]:
    return column[0] if _all_equal(column, column[0]) else column


def decode_frame(blob: bytes) -> Frame:
    frame = Frame(*codec.decode(BlobKind.FRAME, blob))
    return frame._replace(part=Part(*frame.part))


def encode_control(control: Control) -> bytes:
    start = None if control.start is None else tuple(control.start)
    ends = [tuple(end) for end in control.ends]
    content = (control.processing_time_ms, start, ends, control.last_batch)
    return codec.encode(BlobKind.CONTROL, content)


def decode_control(blob: bytes) -> Control:
    processing_time_ms, start, ends, last_batch = codec.decode(BlobKind.CONTROL, blob)
    return Control(
        processing_time_ms,
        None if start is None else Start(*start),
        [SplitEnd(*end) for end in ends],
        last_batch,
    )


def join_controls(controls: Iterable[Control]) -> Control:
    """One control from all that reached a label."""
    known = list(controls)
    start = next(control.start for control in known if control.start is not None)
    ends = sorted(end for control in known for end in control.ends)
    return Control(known[0].processing_time_ms, start, ends, any(c.last_batch for c in known))


def meta_row(content: dict[str, Any], label: int) -> Row:
    """A message to the driver. Keys: ends [SplitEnd], splits {split key: state}, wakeup_ms,
    metrics {name: value}, records {operator: count}."""
    return SINK_LEVEL, label, codec.encode(BlobKind.META, content)


def rows_of_level(rows: Iterable[Row], level: int) -> tuple[list[Row], dict[int, list[bytes]]]:
    """(rows that are for other levels, label -> blobs for this one)."""
    passed: list[Row] = []
    groups: dict[int, list[bytes]] = {}
    for row in rows:
        if row[0] == level:
            groups.setdefault(row[1], []).append(row[2])
        else:
            passed.append(row)
    return passed, groups


def merge(frames: Iterable[Frame]) -> Iterator[Record]:
    """All records of the frames of one label, in the order of their places."""
    runs: dict[tuple[int, int, Part], list[Frame]] = {}
    for frame in frames:
        runs.setdefault((frame.target, frame.source_task, frame.part), []).append(frame)
    streams = []
    for _, run in sorted(runs.items()):
        run.sort(key=lambda frame: frame.number)
        streams.append(_chain(run))
    if len(streams) == 1:
        return streams[0]
    return heapq.merge(*streams, key=lambda record: record.place)


def _chain(run: list[Frame]) -> Iterator[Record]:
    for frame in run:
        yield from frame.records()
