"""A job that builds up state as fast as it can and then touches it at a fixed rate, for ever.

python -m bench.recovery.millpond_job SETTINGS_JSON

Settings: entries, per_s, marks (the path of a file, see `marks.py`), modules (folders of modules to ship to
the workers) and configuration. It marks when its imports are done, when Spark is there, when a slot opens the
function, how large its state is, and every commit of results.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

from bench.recovery.marks import mark
from bench.state.millpond_job import Touch, place
from millpond.common import Configuration, WatermarkStrategy
from millpond.datastream import RuntimeContext, StreamExecutionEnvironment
from millpond.datastream.connectors.base import (
    Epoch,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitWork,
    TwoPhaseSink,
)
from millpond.datastream.functions import SinkContext

NAME = "recovery"
_SIZE_EVERY_S = 1.0
Position = tuple[int, int]
"""(number of the next record, when the first record that is not for building up state appeared, in ms)"""


class BuildThenPace(Source):
    """Records 0 to `entries` - 1 are there from the start; later ones appear at a fixed rate. A record is
    (number, milliseconds at which it appeared, or 0)."""

    endless = True
    bounded = False

    def __init__(self, entries: int, per_s: int) -> None:
        self.entries = entries
        self.per_s = per_s

    def create_enumerator(self, parallelism: int, context: RuntimeContext) -> SplitEnumerator:
        return _Enumerator(self, parallelism)

    def read(self, arguments: Any) -> Iterator[tuple[Any, int | None]]:
        for values, _ in self.read_many(arguments):
            yield from ((value, None) for value in values)

    def read_many(self, arguments: Any) -> Iterator[tuple[list[Any], list[int | None] | None]]:
        first, last, paced_from_ms = arguments
        if last <= self.entries:
            yield [(number, 0) for number in range(first, last)], None
        else:
            yield (
                [
                    (n, paced_from_ms + (n - self.entries) * 1000 // self.per_s)
                    for n in range(first, last)
                ],
                None,
            )


class _Enumerator(SplitEnumerator):
    def __init__(self, source: BuildThenPace, splits: int) -> None:
        super().__init__()
        self._source = source
        self._splits = splits
        self._next = 0
        self._paced_from_ms = 0

    def split_count(self) -> int:
        return self._splits

    def position(self) -> Position:
        return self._next, self._paced_from_ms

    def restore(self, position: Position) -> None:
        self._next, self._paced_from_ms = position

    def backlog(self) -> int:
        return self._there() - self._next

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._next == self._source.entries and not self._paced_from_ms:
            self._paced_from_ms = time.time_ns() // 1_000_000
        first, self._next = self._next, min(self._there(), self._next + max_records)
        count, splits = self._next - first, self._splits
        bounds = [first + count * split // splits for split in range(splits + 1)]
        return [
            SplitWork(split, (bounds[split], bounds[split + 1], self._paced_from_ms))
            for split in range(splits)
            if bounds[split + 1] > bounds[split]
        ]

    def _there(self) -> int:
        """Return how many records have appeared."""
        entries, since_ms = self._source.entries, self._paced_from_ms
        if not since_ms:
            return entries
        passed_ms = time.time_ns() // 1_000_000 - since_ms
        return entries + passed_ms * self._source.per_s // 1000

    def ended(self) -> list[bool]:
        return [False] * self._splits

    def next_poll_in_ms(self) -> int:
        return 5


class TouchAndTell(Touch):
    """Returns when the record appeared, unless it is for building up state."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        mark(self._marks, "opened")

    def process_element(self, value: Any, ctx: Any) -> Any:
        super().process_element(value[:3], ctx)
        return [value[3]] if value[3] else None


class MarkingSink(TwoPhaseSink):
    """Marks the commit of every batch with results: its number, how many, and when the newest appeared."""

    def __init__(self, marks: str) -> None:
        self._marks = marks

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Writer()

    def commit(self, epoch: Epoch, messages: list[tuple[int, int]]) -> None:
        results = sum(count for count, _ in messages)
        if results:
            newest_ms = max(newest for _, newest in messages)
            mark(
                self._marks,
                "commit",
                epoch=epoch.number,
                results=results,
                newest_s=newest_ms / 1000,
            )


class _Writer(SinkWriter):
    def __init__(self) -> None:
        self._count = self._newest_ms = 0

    def write(self, value: Any, context: SinkContext) -> None:
        self._count += 1
        self._newest_ms = max(self._newest_ms, value)

    def prepare(self) -> tuple[int, int]:
        return self._count, self._newest_ms


def main(settings: dict[str, Any]) -> None:
    marks = settings["marks"]
    mark(marks, "imported")
    environment = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(settings["configuration"])
    )
    for module in settings["modules"]:
        environment.add_python_file(module)
    placed = place(settings["entries"])
    (
        environment.from_source(
            BuildThenPace(settings["entries"], settings["per_s"]),
            WatermarkStrategy.no_watermarks(),
            "numbers",
        )
        .uid("numbers")
        .map(lambda record: (*placed(record), record[1]))
        .key_by(lambda record: record[0])
        .process(TouchAndTell(marks))
        .uid("touch")
        .sink_to(MarkingSink(marks))
    )
    client = environment.execute_async(NAME)
    mark(marks, "session")
    while not client.get_job_status().result().is_terminal_state():
        checkpoints = client.get_checkpoints()
        if checkpoints:
            mark(marks, "size", bytes=checkpoints[-1]["bytes_full"])
        time.sleep(_SIZE_EVERY_S)
    client.get_job_execution_result().result()  # says why it ended


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
