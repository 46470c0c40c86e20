"""One level of tasks as a Spark stateful processor, which is called once per label and batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import Row as SparkRow
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from millpond.executors.spark.error_text import reported_errors
from millpond.executors.spark.job_ref import JobRef

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import MapState, TimerValues, ValueState

    from millpond.executors.spark.worker import Runner

SCHEMA = "level INT, label INT, payload BINARY"


class SparkLogStore:
    """The change log of one label in Spark's state store: a LogStore (`state/change_log.py`). Spark sets the
    key, which is the label, before it calls the processor."""

    def __init__(self, head: ValueState, rows: MapState) -> None:
        self._head = head
        self._rows = rows

    def read_head(self) -> bytes | None:
        """Return the head, or None if the log is new."""
        value = self._head.get()
        return None if value is None else bytes(value[0])

    def write_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head.update((head,))

    def read_row(self, number: int) -> bytes:
        """Return a row that was written and not deleted."""
        return bytes(self._rows.getValue((number,))[0])

    def write_row(self, number: int, row: bytes) -> None:
        """Write or replace a row."""
        self._rows.updateValue((number,), (row,))

    def delete_row(self, number: int) -> None:
        """Delete a row that is there."""
        self._rows.removeKey((number,))


class LevelProcessor(StatefulProcessor):
    """Runs the tasks of one level on the rows for this level. Rows for later levels pass through."""

    def __init__(self, job: JobRef, level: int) -> None:
        self._job = job
        self._level = level
        self._runner: Runner | None = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the states. Spark calls this before the first rows."""
        self._store = SparkLogStore(
            handle.getValueState("head", "head BINARY"),
            handle.getMapState("log", "number INT", "row BINARY"),
        )

    def close(self) -> None:
        """Close functions if the job ends. Spark calls this after each batch and partition, and once on the
        driver, where nothing has run."""
        if self._runner is not None:
            with reported_errors():
                self._runner.close_level(self._level)
            self._runner.close()
            self._runner = None

    def handleInputRows(
        self,
        key: tuple[int],
        rows: Iterator[SparkRow],
        timerValues: TimerValues,  # noqa: N803 (Spark passes it by this name)
    ) -> Iterator[SparkRow]:
        """Run the task of one label, which is the `key`, on its rows of a batch. Spark calls this."""
        level = self._level
        blobs = []
        for row in rows:
            if row.level == level:
                blobs.append(bytes(row.payload))
            else:
                yield row
        if blobs:
            with reported_errors():
                if self._runner is None:
                    self._runner = self._job.runner()
                done = self._runner.run_label(level, key[0], blobs, self._store)
            for row_level, label, payload in done:
                yield SparkRow(level=row_level, label=label, payload=payload)
