"""Reports, in which a pass over a lane, a level or a sink's records tells the driver what has happened.

The payload of the blob (see core/codec.py for the envelope) is a tuple of the fields of `Report`, in order.
Named tuples become plain tuples.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.core.labels import make_label
from millpond.engine.exchange.batch import Unread, UnreadSplits, plain_unread
from millpond.engine.exchange.controls import SplitEnd
from millpond.engine.exchange.frames import SINK_LEVEL, Row
from millpond.engine.metric_group import MetricChanges
from millpond.plan.settings import StoredForm
from millpond.savepoint.parts import Part
from millpond.state.partition_log import LogPosition
from millpond.state.timers import earliest

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
    keyed: tuple[tuple[int, int], ...] = ()
    """(key group, number of records that came by key)"""
    hottest: tuple[tuple[str, int], ...] = ()
    """(key as text, estimated number of records)"""
    to_sinks: tuple[tuple[int, int, int, int], ...] = ()
    """(sink, its subtask, records, bytes)"""
    memory_share: float = 0.0
    machine: str = ""


class PassRun(NamedTuple):
    """One run of the pass over a lane (level 0) or over a level in one partition. Spark may run a pass again,
    and nothing guarantees that it gives the same result. `token` is new with every run; `inputs` are the
    tokens of the runs whose rows it has read. So the driver can tell whether all readers of a pass have read
    the same run of it. `epoch` is the batch of what it has read.

    `log` is how far the log of the level in this partition reaches after the pass."""

    epoch: int
    level: int
    partition: int
    token: bytes
    inputs: tuple[bytes, ...]
    log: LogPosition


class LogSize(NamedTuple):
    """What a batch has written to the change logs of a shard, and how large they are now."""

    task: int
    shard: int
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
    metrics: list[MetricChanges] = field(default_factory=list)
    log_sizes: list[LogSize] = field(default_factory=list)
    unions: list[UnionLists] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    """The parts of a savepoint that were written."""
    types: dict[str, Mapping[str, list[StoredForm]]] = field(default_factory=dict)
    """The states that functions have declared. Each host reports them once per task."""
    prepared: list[Prepared] = field(default_factory=list)
    works: list[WorkCounts] = field(default_factory=list)
    runs: list[PassRun] = field(default_factory=list)
    unread: UnreadSplits = field(default_factory=dict)
    """What is left of splits for which the time was not enough."""

    def __bool__(self) -> bool:
        return any(self._lists()) or self.wakeup_ms is not None

    def _lists(self) -> tuple[Any, ...]:
        return (
            *(self.ends, self.generators, self.metrics, self.log_sizes, self.unions, self.parts),
            *(self.types, self.prepared, self.works, self.runs, self.unread),
        )

    def add_metrics(self, changes: MetricChanges) -> None:
        """Add how the metrics of a task have changed."""
        if changes:
            self.metrics.append(changes)

    def add(self, other: Report) -> None:
        """Add what another report says."""
        self.ends += other.ends
        self.generators |= other.generators
        self.wakeup_ms = earliest(self.wakeup_ms, other.wakeup_ms)
        self.metrics += other.metrics
        self.log_sizes += other.log_sizes
        self.unions += other.unions
        self.parts += other.parts
        self.types |= other.types
        self.prepared += other.prepared
        self.works += other.works
        self.runs += other.runs
        self.unread |= other.unread

    def to_row(self) -> Row:
        """Return the report as a row that reaches the driver."""
        return SINK_LEVEL, DRIVER_LABEL, self.encode()

    def encode(self) -> bytes:
        """Return the report as a blob."""
        return codec.encode(
            BlobKind.REPORT,
            (
                _plain(self.ends),
                self.generators,
                self.wakeup_ms,
                self.metrics,
                _plain(self.log_sizes),
                _plain(self.unions),
                self.parts,
                self.types,
                _plain(self.prepared),
                _plain(self.works),
                _plain(self.runs),
                plain_unread(self.unread),
            ),
        )

    @staticmethod
    def decode(blob: bytes) -> Report:
        """Return the report in a blob. Raises CorruptDataError if it is damaged."""
        (
            ends,
            generators,
            wakeup_ms,
            metrics,
            log_sizes,
            unions,
            parts,
            types,
            prepared,
            works,
            runs,
            unread,
        ) = codec.decode(BlobKind.REPORT, blob)
        return Report(
            [SplitEnd(*end) for end in ends],
            generators,
            wakeup_ms,
            metrics,
            [LogSize(*size) for size in log_sizes],
            [UnionLists(*lists) for lists in unions],
            parts,
            types,
            [Prepared(*message) for message in prepared],
            [WorkCounts(*work) for work in works],
            [PassRun(*run) for run in runs],
            {split: Unread(*left) for split, left in unread.items()},
        )


def _plain(values: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [tuple(value) for value in values]
