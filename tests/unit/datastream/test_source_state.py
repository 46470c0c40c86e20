"""Source functions that keep lists (E31), and are told about checkpoints (E44): nothing lost or doubled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millpond.common import JobStatus, Types, WatermarkStrategy
from millpond.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    ListCheckpointed,
    SourceFunction,
)
from millpond.datastream.connectors.function_source import FunctionSource
from millpond.datastream.connectors.hybrid_source import HybridSource
from millpond.datastream.state import ListStateDescriptor
from millpond.datastream.stream_graph import SinkKind
from millpond.driver.planning import plan_job
from millpond.errors import IncompatibleCheckpointError, JobExecutionError
from millpond.executors.direct.executor import DirectExecutors
from millpond.plan.physical import JobPlan
from millpond.testing import direct_environment
from tests.conftest import delivered_lines
from tests.unit.driver.test_recovery import Crash, StandInForSpark, sink

COUNT = 40
SETTINGS = {"millpond.batch.max-records": 7}
calls: list[Any] = []  # of the source that runs


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


class Counting(SourceFunction, CheckpointedFunction, CheckpointListener):
    """Emits numbers from where its list says it is."""

    def __init__(self, type_info: Any = None, end: int = COUNT) -> None:
        self._type = type_info or Types.INT()
        self._end = end
        self._next = 0

    def initialize_state(self, context: Any) -> None:
        self._list = context.get_operator_state_store().get_list_state(
            ListStateDescriptor("next", self._type)
        )
        for number in self._list.get():
            self._next = int(number)
        calls.append(("initialized", context.is_restored(), self._next))

    def open(self, runtime_context: Any) -> None:
        calls.append("opened")

    def run(self, ctx: Any) -> None:
        while self._next < self._end:
            with ctx.get_checkpoint_lock():
                self._next += 1  # before the record is out: the lock keeps both together
                ctx.collect(self._next - 1)

    def snapshot_state(self, context: Any) -> None:
        self._list.update([self._next])
        calls.append(("snapshot", context.get_checkpoint_id()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        calls.append(("complete", checkpoint_id))


class Listing(SourceFunction, ListCheckpointed):
    """The same, the short way."""

    def __init__(self) -> None:
        self._next = 0

    def run(self, ctx: Any) -> None:
        while self._next < COUNT:
            with ctx.get_checkpoint_lock():
                ctx.collect(self._next)
                self._next += 1

    def snapshot_state(self, checkpoint_id: int, timestamp: int) -> list[Any]:
        return [self._next]

    def restore_state(self, state: list[Any]) -> None:
        (self._next,) = state


def plan_of(
    function: SourceFunction, output: Path | None, uid: str = "numbers", **settings: Any
) -> JobPlan:
    environment = direct_environment(SETTINGS | settings)
    stream = environment.add_source(function, "numbers", Types.INT()).uid(uid)
    if output is None:
        stream._sink("results", SinkKind.COLLECT, None)
    else:
        stream.map(str, Types.STRING()).sink_to(sink(output))
    config = environment.get_config()
    return plan_job(environment._pending_graph(), environment._configuration, config, None)


@pytest.mark.parametrize("make", [Counting, Listing])
@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("epoch", [0, 2])
def test_source_goes_on_where_its_list_says(
    make: Any, point: str, epoch: int, tmp_path: Path
) -> None:
    spark = StandInForSpark()
    with pytest.raises(Crash):
        spark.run(plan_of(make(), tmp_path / "out"), tmp_path / "jobs", (epoch, point))
    spark.run(plan_of(make(), tmp_path / "out"), tmp_path / "jobs", None)
    assert sorted(map(int, delivered_lines(tmp_path / "out"))) == list(range(COUNT))


def save(plan: JobPlan, folder: Path) -> tuple[list[Any], str]:
    collected: list[Any] = []
    executors = DirectExecutors(plan, collected.extend)
    executor = executors.attempt(0)
    executors.start()
    executor._run_batch()
    path = executor.savepoints().ask(str(folder), stop=True)
    executor.run()
    executors.close(JobStatus.FINISHED)
    return collected, path.result(timeout=1)


def go_on(plan: JobPlan) -> list[Any]:
    collected: list[Any] = []
    executors = DirectExecutors(plan, collected.extend)
    executors.attempt(0).run()
    executors.close(JobStatus.FINISHED)
    return collected


def test_list_of_a_source_is_in_savepoints(tmp_path: Path) -> None:
    before, path = save(plan_of(Counting(), None), tmp_path)
    calls.clear()
    after = go_on(plan_of(Counting(), None, **{"execution.state-recovery.path": path}))
    assert 0 < len(before) < COUNT
    assert before + after == list(range(COUNT))
    assert calls[0] == ("initialized", True, len(before))
    assert calls[1] == "opened"


def test_list_of_a_source_may_get_another_type(tmp_path: Path) -> None:
    """E47."""
    before, path = save(plan_of(Counting(), None), tmp_path)
    recovery = {"execution.state-recovery.path": path}
    after = go_on(plan_of(Counting(Types.DOUBLE()), None, **recovery))
    assert before + after == list(range(COUNT))
    with pytest.raises(IncompatibleCheckpointError, match=r"'numbers'.*next'.*int.*boolean"):
        go_on(plan_of(Counting(Types.BOOLEAN()), None, **recovery))


def test_source_is_told_of_every_checkpoint() -> None:
    assert go_on(plan_of(Counting(end=20), None)) == list(range(20))
    complete = [call[1] for call in calls if call[0] == "complete"]
    assert complete == list(range(len(complete))) and len(complete) >= 3
    asked = [call[1] for call in calls if call[0] == "snapshot"]
    assert asked == sorted(asked) and set(complete) <= set(asked)


def test_batch_takes_no_more_than_it_may() -> None:
    executors = DirectExecutors(plan_of(Counting(), None), lambda _: None)
    executors.start()
    lanes = executors.coordinator.plan()
    (read,) = [read for lane in lanes for split in lane.splits for read in split.reads]
    assert len(read) <= 7
    executors.close(JobStatus.CANCELED)


def test_failing_source_names_what_failed() -> None:
    class Failing(Counting):
        def snapshot_state(self, context: Any) -> None:
            raise OSError("disk full")

    with pytest.raises(JobExecutionError, match=r"Failing\.snapshot_state failed: .*disk full"):
        go_on(plan_of(Failing(), None))


def test_source_within_another_is_told_of_every_checkpoint() -> None:
    first, second = FunctionSource(Counting(end=10)), FunctionSource(Counting(end=5))
    environment = direct_environment(SETTINGS)
    source = HybridSource.builder(first).add_source(second).build()
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "both")
    assert list(stream.execute_and_collect()) == [*range(10), *range(5)]
    complete = [call[1] for call in calls if call[0] == "complete"]
    assert set(complete) == set(range(max(complete) + 1))
    assert max(call[1] for call in calls if call[0] == "snapshot") > 0
