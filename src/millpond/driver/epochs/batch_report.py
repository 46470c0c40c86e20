"""The reports of all passes of one batch, put together."""

from __future__ import annotations

from collections.abc import Iterable

from millpond.core import codec
from millpond.core.codec import BlobKind
from millpond.engine.exchange.batch import LogPositions
from millpond.engine.exchange.frames import Row
from millpond.engine.exchange.reports import PassRun, Report


def report_of(rows: Iterable[Row]) -> Report:
    """Return the reports among the rows of a batch, put together."""
    batch = Report()
    for _, _, blob in rows:
        if codec.kind_of(blob) == BlobKind.REPORT:
            batch.add(Report.decode(blob))
    return batch


def is_consistent(runs: list[PassRun], epoch: int) -> bool:
    """Return whether all of it is of this batch, every pass counts once, and all its readers have read the
    run that counts.

    That can fail if Spark loses what a pass has given, after some but not all of its readers have read it:
    Spark then runs the pass again, for the others. A function that does not give the same result twice, or a
    source that is cut by time, would have given one thing to some readers and another to the rest. And all
    batches use the same shuffles, whose files are removed in between: what goes wrong there must not pass for
    a result."""
    tokens = {run.token for run in runs}
    passes = {(run.level, run.partition) for run in runs}
    return len(passes) == len(runs) and all(
        run.epoch == epoch and tokens.issuperset(run.inputs) for run in runs
    )


def log_positions(runs: list[PassRun]) -> LogPositions:
    """Return how far each log counts once the batch counts."""
    return {(run.level, run.partition): run.log for run in runs if run.level > 0}
