"""The reports of all tasks and sinks about one batch, put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.engine.exchange.controls import SplitEnd
from millpond.engine.exchange.frames import Row
from millpond.engine.exchange.reports import (
    Generators,
    LogSize,
    Prepared,
    Report,
    Split,
    WorkCounts,
)
from millpond.engine.metric_group import MetricChanges
from millpond.plan.settings import StoredTypes
from millpond.savepoint.parts import Part
from millpond.state.timers import earliest


@dataclass
class BatchReport:
    """What all tasks and sinks have reported about one batch."""

    ends: list[SplitEnd] = field(default_factory=list)
    generators: dict[Split, Generators] = field(default_factory=dict)
    prepared: list[Prepared] = field(default_factory=list)
    metrics: list[MetricChanges] = field(default_factory=list)
    log_sizes: list[LogSize] = field(default_factory=list)
    unions: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """task -> subtask -> its union lists"""
    parts: list[Part] = field(default_factory=list)
    wakeup_ms: int | None = None
    """The earliest time at which a task wants to run again."""
    works: list[WorkCounts] = field(default_factory=list)
    types: list[StoredTypes] = field(default_factory=list)

    @staticmethod
    def of(rows: Iterable[Row]) -> BatchReport:
        """Return the reports among the rows of a batch, put together."""
        batch = BatchReport()
        for _, _, blob in rows:
            if codec.kind_of(blob) == BlobKind.REPORT:
                batch._add(Report.decode(blob))
        return batch

    def _add(self, report: Report) -> None:
        self.ends.extend(report.ends)
        self.generators.update(report.generators)
        if report.prepared is not None:
            self.prepared.append(report.prepared)
        if report.metrics:
            self.metrics.append(report.metrics)
        if report.log_size is not None:
            self.log_sizes.append(report.log_size)
        if report.unions is not None:
            self.unions.setdefault(report.unions.task, {})[report.unions.subtask] = (
                report.unions.lists
            )
        if report.part is not None:
            self.parts.append(report.part)
        self.wakeup_ms = earliest(self.wakeup_ms, report.wakeup_ms)
        if report.types:
            self.types.append(report.types)
        if report.work is not None:
            self.works.append(report.work)
