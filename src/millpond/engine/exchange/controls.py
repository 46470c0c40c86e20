"""Controls, which tell everything that a task has in a partition about a batch.

Payload of the blob (see core/codec.py for the envelope), a tuple:

    (processing time in ms, start or None, ends, whether it is the last batch,
     folder for the parts of a savepoint or None, epoch, position of the log or None)

    start    (outputs of the valves of the inputs, origin -> channels, clock, union lists)
    ends     [(origin, split, watermark, active)]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.state.partition_log import LogPosition


class SplitEnd(NamedTuple):
    """How far a split of a watermark origin has come at the end of a batch."""

    origin: int
    split: int
    watermark: int
    active: bool


class Start(NamedTuple):
    """A task's event-time clock at the start of a batch: the output of the valve of each of its inputs, the
    (watermark, active) of each split of each origin, and the clock itself.

    `unions` has the union lists of all subtasks, for a subtask that starts anew (E31): either its lists as
    bytes by subtask, or the location of an object with them (`core/storage.py`)."""

    inputs: list[int]
    origins: dict[int, list[tuple[int, bool]]]
    clock: int
    unions: dict[int, bytes] | str = {}


class Control(NamedTuple):
    """What a task is told about a batch: the processing time, where its clock starts (None if another control
    of the batch says it), and how far splits have come at the end of the batch."""

    processing_time_ms: int
    start: Start | None
    ends: list[SplitEnd]
    last_batch: bool = False
    savepoint: str | None = None  # the folder for the parts of a savepoint
    epoch: int = -1  # the number of the batch
    log: LogPosition | None = None
    """How far the log of the level in this partition counts; None if another control says it."""


def encode_control(control: Control) -> bytes:
    """Return a control as a blob."""
    start = None if control.start is None else tuple(control.start)
    ends = [tuple(end) for end in control.ends]
    return codec.encode(
        BlobKind.CONTROL,
        (
            control.processing_time_ms,
            start,
            ends,
            control.last_batch,
            control.savepoint,
            control.epoch,
            control.log,
        ),
    )


def decode_control(blob: bytes) -> Control:
    """Return the control in a blob. Raises CorruptDataError if it is damaged."""
    processing_time_ms, start, ends, last_batch, savepoint, epoch, log = codec.decode(
        BlobKind.CONTROL, blob
    )
    return Control(
        processing_time_ms,
        None if start is None else Start(*start),
        [SplitEnd(*end) for end in ends],
        last_batch,
        savepoint,
        epoch,
        log,
    )


def join_controls(controls: Iterable[Control]) -> Control:
    """Return all controls for one task in one partition joined into one. One of them must have a start."""
    known = list(controls)
    start = next(control.start for control in known if control.start is not None)
    ends = sorted(end for control in known for end in control.ends)
    savepoint = next((c.savepoint for c in known if c.savepoint is not None), None)
    last_batch = any(c.last_batch for c in known)
    epoch = max(c.epoch for c in known)
    log = next((c.log for c in known if c.log is not None), None)
    return Control(known[0].processing_time_ms, start, ends, last_batch, savepoint, epoch, log)
