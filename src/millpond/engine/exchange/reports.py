"""Reports, in which a pass over a split, a label or a sink's records tells the driver what has happened.

The payload of the blob (see core/codec.py for the envelope) is a tuple of the fields of `Report`, in order.
Named tuples become plain tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.labels import make_label
from millpond.engine.exchange.controls import SplitEnd
from millpond.engine.exchange.frames import SINK_LEVEL, Row
from millpond.engine.metric_group import MetricChanges
from millpond.plan.settings import StoredTypes
from millpond.savepoint.parts import Part

DRIVER_LABEL = make_label(0, 0)
Split = tuple[int, int]
"""(source, number of the split)"""
Generators = dict[int, Any]
"""operator -> what its watermark generator remembers from one batch to the next"""


class WorkCounts(NamedTuple):
    """The work of one pass. `task` is the id of the task or sink. `busy_ns` may include earlier passes of the
    same subtask that had nothing else to report."""

    task: int
    subtask: int
    records_in: int = 0
    records_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    busy_ns: int = 0
    keyed: tuple[int, int] | None = None
    """(key group, number of records that came by key)"""
    hottest: tuple[tuple[str, int], ...] = ()
    """(key as text, estimated number of records)"""
    to_sinks: tuple[tuple[int, int, int, int], ...] = ()
    """(sink, its subtask, records, bytes)"""
    memory_share: float = 0.0
    machine: str = ""


class LogSize(NamedTuple):
    """What a batch has written to the change log of a key group, and how large the log is now."""

    task: int
    key_group: int
    bytes_written: int
    bytes_full: int


class UnionLists(NamedTuple):
    """The union lists of one subtask, encoded by OperatorState."""

    task: int
    subtask: int
    lists: bytes


class Prepared(NamedTuple):
    """What a subtask of a sink has prepared. `message` is for `commit`; None if it is not two-phase."""

    sink: int
    subtask: int
    message: object


@dataclass(slots=True)
class Report:
    """What a pass tells the driver. Empty fields say nothing; a report is false if all fields are empty."""

    ends: list[SplitEnd] = field(default_factory=list)
    """How far the splits that were read have come."""
    generators: dict[Split, Generators] = field(default_factory=dict)
    wakeup_ms: int | None = None
    """When the pass wants to run again even if no record comes."""
    metrics: MetricChanges = field(default_factory=dict)
    log_size: LogSize | None = None
    unions: UnionLists | None = None
    part: Part | None = None
    """The part of a savepoint that was written."""
    types: StoredTypes = field(default_factory=dict)
    """The states that functions have declared. Each host reports them once per task."""
    prepared: Prepared | None = None
    work: WorkCounts | None = None

    def __bool__(self) -> bool:
        return any(
            (
                *(self.ends, self.generators, self.metrics, self.types),
                *(self.log_size, self.unions, self.part, self.prepared, self.work),
                self.wakeup_ms is not None,
            )
        )

    def to_row(self, label: int) -> Row:
        """Return the report as a row that reaches the driver."""
        return SINK_LEVEL, label, self.encode()

    def encode(self) -> bytes:
        """Return the report as a blob."""
        return codec.encode(
            BlobKind.REPORT,
            (
                [tuple(end) for end in self.ends],
                self.generators,
                self.wakeup_ms,
                self.metrics,
                _plain(self.log_size),
                _plain(self.unions),
                _plain(self.part),
                self.types,
                _plain(self.prepared),
                _plain(self.work),
            ),
        )

    @staticmethod
    def decode(blob: bytes) -> Report:
        """Return the report in a blob. Raises CorruptDataError if it is damaged."""
        ends, generators, wakeup_ms, metrics, log_size, unions, part, types, prepared, work = (
            codec.decode(BlobKind.REPORT, blob)
        )
        return Report(
            [SplitEnd(*end) for end in ends],
            generators,
            wakeup_ms,
            metrics,
            None if log_size is None else LogSize(*log_size),
            None if unions is None else UnionLists(*unions),
            part,
            types,
            None if prepared is None else Prepared(*prepared),
            None if work is None else WorkCounts(*work),
        )


def _plain(value: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)
