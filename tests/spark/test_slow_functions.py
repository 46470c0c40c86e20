"""Slow functions: output, savepoints and cancelling do not wait for long batches (E9, E45).

How soon something happens is told in records that were processed until then, not in seconds: 50 records of
20 ms each are a second of work, however slow the machine is.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from millpond.datastream import DataStream, KeyedProcessFunction, SourceFunction
from millpond.datastream.connectors.base import Epoch, SinkWriter, TwoPhaseSink
from millpond.datastream.functions import SinkContext
from tests.conftest import MakeEnvironment
from tests.slot.processes import wait_until

pytestmark = pytest.mark.spark
SLOW = 3000  # records


class Steps:
    """Counts what was processed, in a file to which all processes append."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def add(self) -> None:
        with open(self.path, "ab") as file:
            file.write(b".")

    def count(self) -> int:
        return Path(self.path).stat().st_size if Path(self.path).exists() else 0


class NotingSink(TwoPhaseSink):
    """Notes with every commit how many records are visible, and how many were processed until then."""

    def __init__(self, steps: Steps, path: Path) -> None:
        self._steps = steps
        self._path = str(path)

    def create_writer(self, subtask: int, epoch: Epoch) -> SinkWriter:
        return _Counting()

    def commit(self, epoch: Epoch, messages: list[int]) -> None:
        if sum(messages):
            with open(self._path, "a") as file:
                file.write(f"{sum(messages)} {self._steps.count()}\n")


class _Counting(SinkWriter):
    def __init__(self) -> None:
        self._count = 0

    def write(self, value: Any, context: SinkContext) -> None:
        self._count += 1

    def prepare(self) -> int:
        return self._count


class SlowMap:
    def __init__(self, steps: Steps, seconds: float) -> None:
        self._steps = steps
        self._seconds = seconds

    def __call__(self, value: Any) -> Any:
        time.sleep(self._seconds)
        self._steps.add()
        return value


class SlowProcess(KeyedProcessFunction):
    def __init__(self, slow: SlowMap) -> None:
        self._slow = slow

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield self._slow(value)


def slowly(stream: DataStream, where: str, slow: SlowMap) -> DataStream:
    if where == "in the source task":
        return stream.map(slow)
    return stream.key_by(lambda n: n).process(SlowProcess(slow))


@pytest.mark.parametrize("where", ["in the source task", "behind a shuffle"])
def test_output_and_savepoint_do_not_wait_for_slow_records(
    where: str, spark_environment: MakeEnvironment, tmp_path: Path
) -> None:
    """3,000 records of 20 ms: a minute of work for one subtask."""
    environment = spark_environment()
    steps, notes = Steps(tmp_path / "steps"), tmp_path / "notes"
    numbers = environment.from_collection(list(range(SLOW)))
    slow = SlowMap(steps, 0.02)
    slowly(numbers, where, slow).sink_to(NotingSink(steps, notes))
    client = environment.execute_async("slow")
    wait_until(notes.exists, "no output")
    visible, processed = map(int, notes.read_text().splitlines()[0].split())
    assert visible <= processed <= 100, "within two seconds of work, or less"

    wait_until(lambda: steps.count() > 300, "no progress")
    before = steps.count()
    client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    subtasks = 1 if where == "in the source task" else 2
    assert steps.count() - before <= 150 * subtasks, "within three seconds of work"

    before = steps.count()
    client.cancel().result()
    assert steps.count() - before <= 150 * subtasks, "the batch that ran was not awaited"
    assert steps.count() < SLOW


class TwoThousandPerSecond(SourceFunction):
    def run(self, ctx: Any) -> None:
        number = 0
        while not ctx.is_cancelled():
            for _ in range(20):
                ctx.collect(number)
                number += 1
            time.sleep(0.01)


def test_stream_with_a_small_wait_flows(spark_environment: MakeEnvironment, tmp_path: Path) -> None:
    """2,000 records a second through a function that waits a little for each."""
    environment = spark_environment()
    steps, notes = Steps(tmp_path / "steps"), tmp_path / "notes"
    stream = environment.add_source(TwoThousandPerSecond()).map(SlowMap(steps, 0.0005))
    stream.sink_to(NotingSink(steps, notes))
    client = environment.execute_async("small wait")
    wait_until(notes.exists, "no output")
    _, processed = map(int, notes.read_text().splitlines()[0].split())
    assert processed <= 2 * 2000
    wait_until(lambda: steps.count() > 3000, "no progress")
    before = steps.count()
    client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    assert steps.count() - before <= 3 * 2000
    visible = sum(int(line.split()[0]) for line in notes.read_text().splitlines())
    assert visible == steps.count(), "what was read before the stop is visible"
