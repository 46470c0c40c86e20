"""Reads one split in one batch, and sends its records through a source task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core.bundle import PHASE_RECORD, Bundle
from millpond.core.record_columns import Values, cut
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.batch import LanePlan, SplitPlan, Unread
from millpond.engine.exchange.controls import SplitEnd
from millpond.engine.exchange.frames import Producer, Row
from millpond.engine.exchange.reports import Report
from millpond.engine.operators.user_errors import user_error
from millpond.engine.work_meter import Pass
from millpond.state.timers import earliest

_PIECE_NS = 10_000_000
_MOST_AT_ONCE = 1 << 20


def run_split(
    chain: OperatorChain,
    split: SplitPlan,
    batch: LanePlan,
    report: Report,
    work: Pass,
    until_ns: int | None = None,
) -> Iterator[Row]:
    """Read a split, and yield frames for other tasks and for sinks. What the driver is to know is added to
    `report`. While the caller handles a row, time does not count as work.

    At `until_ns`, if it is given, reading stops, after some records at least, and the report says what is
    left."""
    router = chain.router
    router.begin(Producer(chain.task.root, split.split), chain.subtask)
    now_ms = batch.processing_time_ms
    chain.clock.watermark = MIN_TIMESTAMP
    chain.clock.processing_time_ms = now_ms
    chain.clock.epoch = batch.epoch
    for operator in chain.assigners.values():
        operator.resume(split.saved.get(operator.plan.id), now_ms)
    count = 0
    pieces = _Pieces(chain, split, work.clock_ns, until_ns)
    for values, timestamps in pieces:
        sequences = numpy.arange(count, count + len(values), dtype=numpy.int64)
        count += len(values)
        chain.root.process(Bundle(values, timestamps, MIN_TIMESTAMP, PHASE_RECORD, sequences))
        if router.has_packed:
            work.pause()
            yield from router.packed()
            work.resume()
    rows = router.take_rows()
    work.pause()
    yield from rows
    work.resume()
    if pieces.unread is not None:
        report.unread[split.source, split.split] = pieces.unread
        split = replace(split, ended=False)
    report.add(_finish(chain, split, batch))
    work.records_in = count
    work.add_sent(router)
    work.end(report)


Records = tuple[Values, "list[int | None] | None"]
"""(values, their timestamps or None)"""


class _Pieces:
    """The records of a split in pieces, until there are no more or the time is over.

    A piece is what a source reads at once. If the time is limited, it is cut into pieces that take only a
    small part of the time, because functions may be slow: how slow shows in the pieces before."""

    def __init__(
        self,
        chain: OperatorChain,
        split: SplitPlan,
        clock_ns: Callable[[], int],
        until_ns: int | None,
    ) -> None:
        self._chain = chain
        self._split = split
        self._clock_ns = clock_ns
        self._until_ns = until_ns
        self.unread: Unread | None = None

    def __iter__(self) -> Iterator[Records]:
        reads = self._split.reads
        for number, arguments in enumerate(reads):
            done = self._split.skipped if number == 0 else 0
            for piece in self._cut(_read(self._chain, arguments, done)):
                began_ns = self._clock_ns()
                yield piece
                done += len(piece[0])
                if self._until_ns is not None:
                    now_ns = self._clock_ns()
                    self._adjust(len(piece[0]), now_ns - began_ns)
                    if now_ns >= self._until_ns:
                        self.unread = self._rest(reads[number:], done)
                        return

    def _rest(self, reads: list[Any], done: int) -> Unread:
        """Return what is left if the first `done` records of the first of these reads are done."""
        chain = self._chain
        try:
            first, skipped = chain.root.plan.function.rest(reads[0], done)
        except Exception as problem:
            action = "asking the source for the rest of a read"
            raise user_error(problem, chain.root.name, chain.subtask, action, None) from None
        return Unread([first, *reads[1:]], skipped)

    def _cut(self, records: Iterable[Records]) -> Iterator[Records]:
        for values, timestamps in records:
            start = 0
            while start < len(values):
                most = len(values) if self._until_ns is None else self._chain.records_at_once
                end = min(start + most, len(values))
                yield cut(values, start, end), None if timestamps is None else timestamps[start:end]
                start = end

    def _adjust(self, records: int, took_ns: int) -> None:
        chain = self._chain
        wanted = records * _PIECE_NS // max(took_ns, 1)
        chain.records_at_once = max(1, min(wanted, 4 * chain.records_at_once, _MOST_AT_ONCE))


def _read(chain: OperatorChain, arguments: object, skipped: int) -> Iterator[Records]:
    """Yield what the source reads, without the first `skipped` records."""
    try:
        for values, timestamps in chain.root.plan.function.read_many(arguments):
            count = len(values)
            if skipped:
                left = min(skipped, count)
                values = cut(values, left, count)
                timestamps = None if timestamps is None else timestamps[left:]
                skipped -= left
            if len(values):
                yield values, timestamps
    except Exception as problem:
        action = "reading the source"
        raise user_error(problem, chain.root.name, chain.subtask, action, None) from None


def _finish(chain: OperatorChain, split: SplitPlan, batch: LanePlan) -> Report:
    """Advance the watermarks to the end of the batch, and return what the driver is to know."""
    now_ms, source = batch.processing_time_ms, chain.root.plan.function
    for operator in chain.assigners.values():
        if batch.event_time is None:
            operator.go_on_when_idle(now_ms)
        else:
            operator.go_to(batch.event_time)
    ends = _ends(chain, split, batch)
    saved = {op.plan.id: op.suspend(now_ms) for op in chain.assigners.values()}
    idle_times = [
        operator.idle_at_ms(now_ms)
        for operator in chain.assigners.values()
        if not split.ended or (source.endless and operator.strategy.goes_on_when_idle)
    ]
    return Report(
        ends=ends,
        generators={(split.source, split.split): saved},
        wakeup_ms=earliest(*idle_times),
        metrics=[chain.metrics.take()],
    )


def _ends(chain: OperatorChain, split: SplitPlan, batch: LanePlan) -> list[SplitEnd]:
    """Return how far the split has come, for each watermark origin of the source task."""
    now_ms, ends = batch.processing_time_ms, []
    for origin in chain.task.origins:
        operator = chain.assigners.get(origin)
        watermark, active = MIN_TIMESTAMP, True
        if operator is not None:
            watermark = MIN_TIMESTAMP if chain.job.batch_mode else operator.watermark
            active = operator.is_active(now_ms)
        endless = chain.root.plan.function.endless and not batch.last_batch
        if batch.event_time is not None:
            active = True  # all splits are at the same time now
        elif split.ended and endless:
            active = False  # other splits will come, and this one must not hold them back
        elif split.ended:
            watermark, active = MAX_TIMESTAMP, True
        ends.append(SplitEnd(origin, split.split, watermark, active))
    return ends
