"""kill -9 at every fault point, several times in one job: nothing is lost, nothing comes twice (E42, E43).

Driver and slots are one process here, so this is fast and reaches every point; tests/faults has it with
Spark. Logs are so small that segments end, rows are moved, key groups write snapshots and the journal begins
new logs all the time.
"""

from __future__ import annotations

import os
import signal
import traceback
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Types, WatermarkStrategy
from millpond.core import fault_points, journal
from millpond.core.fault_points import OUTPUT_POINTS, POINTS, RARE_POINTS, STORAGE_POINTS
from millpond.datastream import (
    CheckpointedFunction,
    KeyedProcessFunction,
    ProcessFunction,
    RuntimeContext,
)
from millpond.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millpond.driver.planning import plan_job
from millpond.plan.physical import JobPlan
from millpond.state import change_log, partition_log
from millpond.testing import direct_environment
from tests.conftest import delivered_lines
from tests.unit.driver.test_recovery import StandInForSpark, sink

COUNT = 60
# Those of the loop that runs batches on Spark; `StandInForSpark` has none.
OF_THE_LOOP = {"driver before plan", "driver after plan"}
OF_THE_LOOP |= {"driver before complete", "driver after complete"}
HERE = [p for p in (*POINTS, *STORAGE_POINTS, *RARE_POINTS, *OUTPUT_POINTS) if p not in OF_THE_LOOP]
WITH_EVERY_PASS = {
    "slot before level",
    "slot before append",
    "slot after append",
    "log before sync",
}
SMALL = (
    (partition_log, "SEGMENT_BYTES", 3000),
    (partition_log, "MIN_BYTES", 500),
    (partition_log, "MAX_WASTE", 1.5),
    (partition_log, "_MOVED_BYTES", 100),
    (change_log, "COMPACT_MIN_BYTES", 300),
    (change_log, "JOINED_BYTES", 400),
    (journal, "LOG_BYTES", 1000),
)


class Count(KeyedProcessFunction):
    """Counts, and keeps a text that is overwritten all the time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.text = runtime_context.get_state(ValueStateDescriptor("text", Types.STRING()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = value if isinstance(value, int) else value[0]
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self.text.update(f"{number}" * 50)
        ctx.timer_service().register_event_time_timer(number + 20)
        yield number, count

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield timestamp, "timer", self.text.value()[:5]


class Total(ProcessFunction, CheckpointedFunction):
    """Keeps how many records it has seen in a union list."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self._list = store.get_union_list_state(ListStateDescriptor("total", Types.INT()))
        self._total = sum(self._list.get()) if context.is_restored() else 0

    def snapshot_state(self, context: Any) -> None:
        self._list.update([self._total])

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._total += 1
        yield "total", self._total


def job(output: Path) -> JobPlan:
    environment = direct_environment({"parallelism.default": 2, "millpond.batch.max-records": 3})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    numbers = environment.from_collection(list(range(COUNT)))
    numbers = numbers.assign_timestamps_and_watermarks(strategy)
    once = numbers.key_by(lambda number: number % 5).process(Count()).uid("once")
    twice = once.key_by(lambda pair: pair[0] % 3).process(Count()).uid("twice")
    total = numbers.rebalance().process(Total()).uid("total").set_parallelism(1)
    for name, stream in (("once", once), ("twice", twice), ("total", total)):
        stream.sink_to(sink(output, name))
    graph, config = environment._pending_graph(), environment.get_config()
    return plan_job(graph, environment._configuration, config, "job")


def run_life(folder: Path) -> bool:
    """One life of the job, in a process of its own; returns whether it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            fault_points._folder = str(folder / "faults")
            for module, name, value in SMALL:
                setattr(module, name, value)
            StandInForSpark().run(job(folder / "output"), folder / "jobs", None)
            os._exit(0)
        except BaseException:
            (folder / "failure").write_text(traceback.format_exc())
        os._exit(1)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), (folder / "failure").read_text()
    return code != 0


def run_job(folder: Path, point: str, visits: list[int]) -> int:
    """All lives of a job that is killed at these visits to a fault point; returns how often it was."""
    (folder / "faults").mkdir(parents=True)
    (folder / "faults" / f"{point}.at").write_text(" ".join(map(str, visits)))
    killed = 0
    while run_life(folder):
        killed += 1
    return killed


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert run_job(folder, "none", []) == 0
    lines = delivered_lines(folder / "output")
    assert len(lines) == 2 * COUNT + (2 * COUNT + COUNT + 20) + COUNT, "with timers"
    return lines


@pytest.mark.parametrize("point", HERE)
def test_result_is_that_of_an_undisturbed_run(
    point: str, expected: list[str], tmp_path: Path
) -> None:
    visits = [1, 2, 6, 13, *([21, 34, 47] if point in WITH_EVERY_PASS else [])]
    assert run_job(tmp_path, point, visits) == len(visits)
    assert delivered_lines(tmp_path / "output") == expected
    assert not (tmp_path / "jobs" / "job").exists(), "the job has cleaned up"
    assert not [path for path in (tmp_path / "output").iterdir() if path.name.startswith(".")]
