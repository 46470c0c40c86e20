"""Reads one split in one batch, and sends its records through a source task."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from millpond.common.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from millpond.core.bundle import PHASE_RECORD, Bundle
from millpond.core.record_columns import Values
from millpond.engine.chain import OperatorChain
from millpond.engine.exchange.batch import LanePlan, SplitPlan
from millpond.engine.exchange.controls import SplitEnd
from millpond.engine.exchange.frames import Producer, Row
from millpond.engine.exchange.reports import DRIVER_LABEL, Report
from millpond.engine.operators.user_errors import user_error
from millpond.engine.work_meter import Pass
from millpond.state.timers import earliest


def run_split(
    chain: OperatorChain, split: SplitPlan, batch: LanePlan, ends: list[SplitEnd], work: Pass
) -> Iterator[Row]:
    """Read a split, and yield frames for other tasks and for sinks, then a report for the driver.

    How far the split has come is added to `ends`. While the caller handles a row, time does not count as
    work."""
    router = chain.router
    router.begin(Producer(chain.task.root, split.split), chain.subtask)
    now_ms = batch.processing_time_ms
    chain.clock.watermark = MIN_TIMESTAMP
    chain.clock.processing_time_ms = now_ms
    chain.clock.epoch = batch.epoch
    for operator in chain.assigners.values():
        operator.resume(split.saved.get(operator.plan.id), now_ms)
    count = 0
    for arguments in split.reads:
        for values, timestamps in _read(chain, arguments):
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
    report = _finish(chain, split, batch)
    ends.extend(report.ends)
    work.records_in = count
    work.end(router, report)
    yield report.to_row(DRIVER_LABEL)


def _read(
    chain: OperatorChain, arguments: object
) -> Iterator[tuple[Values, list[int | None] | None]]:
    """Yield (values, their timestamps or None) as the source reads them."""
    try:
        for values, timestamps in chain.root.plan.function.read_many(arguments):
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
        metrics=chain.metrics.take(),
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
