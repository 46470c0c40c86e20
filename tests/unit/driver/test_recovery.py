"""Crashes between any two steps of a batch, without Spark.

(The same with real processes and kill -9 is in tests/faults.)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millpond.common import Encoder, RestartStrategies, Types, WatermarkStrategy
from millpond.core.storage import FileStorage
from millpond.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from millpond.datastream.connectors.file_system import FileSink, OutputFileConfig
from millpond.datastream.state import ValueStateDescriptor
from millpond.driver.coordinator import Coordinator
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.driver.type_registry import stored_types
from millpond.engine.host import JobHost
from millpond.engine.passes import Passes, run_batch
from millpond.engine.sink_pass import SinkHost
from millpond.engine.work_meter import Surroundings
from millpond.errors import IncompatibleCheckpointError, UserFunctionError
from millpond.plan.identity import identity_of
from millpond.plan.physical import JobPlan
from millpond.plan.settings import JobStart
from millpond.testing import FAIL, MarkedSource, direct_environment
from tests.conftest import delivered_lines
from tests.cuts import JumpingClock


class Crash(Exception):
    """The process dies here."""


class StandInForSpark:
    """Runs batches as Spark does, one pass after the other, in this process. Nothing of it survives a crash;
    the job folder does."""

    def __init__(
        self,
        clock_ms: Callable[[], int] = lambda: 0,
        cutting_clock_ns: Callable[[], int] | None = None,
    ) -> None:
        self._clock_ms = clock_ms
        self._cutting_clock_ns = cutting_clock_ns

    def run(
        self, plan: JobPlan, checkpoints: Path, crash: tuple[int, str] | None, keep: bool = False
    ) -> None:
        """One life of the driver: until the job is finished, has stopped, or crashes."""
        folder = JobFolder.open(str(checkpoints), plan.name)
        try:
            identity = folder.check_identity(identity_of(plan))
            stored = stored_types(folder) or {}
            plan = plan.starting_from(JobStart(identity.job_id, identity.savepoint, stored))
            generation = folder.start_run()
            cuts = self._cutting_clock_ns is not None
            coordinator = Coordinator(
                plan, folder, OutputDelivery(plan), self._clock_ms, cuts_by_time=cuts
            )
            coordinator.start()
            try:
                coordinator.commit_output()
                blob = cloudpickle.dumps(plan)
                surroundings = Surroundings(self._cutting_clock_ns or (lambda: 0))
                storage = FileStorage(folder.path)
                host = JobHost(blob, storage, str(generation), surroundings=surroundings)
                self._run_batches(plan, Passes(host, SinkHost(blob)), coordinator, crash)
            finally:
                coordinator.close()
            folder.close(delete=not keep)
        finally:
            folder.close(delete=False)

    def _run_batches(
        self, plan: JobPlan, passes: Passes, coordinator: Coordinator, crash: Any
    ) -> None:
        while coordinator.end is None:
            epoch = coordinator.epoch
            lanes = coordinator.plan()
            _die(crash, epoch, "planned")
            rows = run_batch(passes, plan, lanes)
            _die(crash, epoch, "ran")
            coordinator.complete(rows)
            _die(crash, epoch, "completed")
            coordinator.commit_output()
            _die(crash, epoch, "committed")


def _die(crash: tuple[int, str] | None, epoch: int, point: str) -> None:
    if crash == (epoch, point):
        raise Crash


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value: int, ctx: Any) -> Any:
        self.seen.inc()
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(value + 3)
        yield (value, self.count.value())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("timer", timestamp)


class Numbers(SourceFunction):
    deterministic = True

    def run(self, ctx: Any) -> None:
        for number in range(12):
            ctx.collect(number)


def sink(folder: Path, prefix: str = "part") -> FileSink:
    config = OutputFileConfig.builder().with_part_prefix(prefix).build()
    builder = FileSink.for_row_format(str(folder), Encoder.simple_string_encoder())
    return builder.with_output_file_config(config).build()


Source = Callable[[StreamExecutionEnvironment], DataStream]
SOURCES: dict[str, Source] = {
    "collection": lambda env: env.from_collection(list(range(12))),
    "function": lambda env: env.add_source(Numbers()),
}


def job(source: str, output: Path) -> JobPlan:
    environment = direct_environment({"parallelism.default": 2, "millpond.batch.max-records": 3})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda number, _: number
    )
    numbers = SOURCES[source](environment).assign_timestamps_and_watermarks(strategy)
    counted = numbers.key_by(lambda number: number % 3).process(Count()).uid("count").name("count")
    counted.sink_to(sink(output))
    # Where a record goes is not the same when a batch runs again: only what was prepared counts.
    anywhere = counted.partition_custom(lambda _, n: random.randrange(n), lambda event: event)
    anywhere.sink_to(sink(output, "any"))
    return plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), "job"
    )


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("epoch", [0, 1, 3])
@pytest.mark.parametrize("source", SOURCES)
def test_crash_between_any_two_steps_changes_nothing(
    source: str, epoch: int, point: str, tmp_path: Path
) -> None:
    """E42, E43: also for functions that do not give the same result twice."""
    undisturbed = StandInForSpark()
    undisturbed.run(job("collection", tmp_path / "expected"), tmp_path / "a", None)
    spark = StandInForSpark()
    plan = job(source, tmp_path / "output")
    try:
        spark.run(plan, tmp_path / "b", (epoch, point))
        crashed = False  # a function source may end in fewer batches
    except Crash:
        crashed = True
        spark.run(job(source, tmp_path / "output"), tmp_path / "b", None)
    assert crashed or source == "function"
    assert delivered_lines(tmp_path / "output") == delivered_lines(tmp_path / "expected")
    assert len(delivered_lines(tmp_path / "output")) == 2 * 24
    assert not [path for path in (tmp_path / "output").iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("point", ["planned", "ran", "completed", "committed"])
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("source", SOURCES)
def test_crash_changes_nothing_where_batches_are_cut_by_time(
    source: str, seed: int, point: str, tmp_path: Path
) -> None:
    """E42, E43: a batch that runs again may be cut elsewhere; what counts is what its epoch says."""
    StandInForSpark().run(job("collection", tmp_path / "expected"), tmp_path / "a", None)
    chance = random.Random(seed)
    spark = StandInForSpark(cutting_clock_ns=JumpingClock(chance, 400))
    for epoch in (1, 3, 4):
        try:
            spark.run(job(source, tmp_path / "output"), tmp_path / "b", (epoch, point))
        except Crash:
            continue
        break
    else:
        spark.run(job(source, tmp_path / "output"), tmp_path / "b", None)
    assert delivered_lines(tmp_path / "output") == delivered_lines(tmp_path / "expected")


def test_metrics_of_a_replayed_batch_count_once(tmp_path: Path) -> None:
    spark, plan = StandInForSpark(), job("collection", tmp_path / "output")
    with pytest.raises(Crash):
        spark.run(plan, tmp_path / "jobs", (1, "ran"))
    folder = JobFolder.open(str(tmp_path / "jobs"), "job")
    coordinator = Coordinator(plan, folder, OutputDelivery(plan))
    coordinator.start()
    assert coordinator.metrics["count.seen"] == 3
    coordinator.close()
    folder.close(delete=True)


def test_second_run_of_a_program_adds_files(tmp_path: Path) -> None:
    for _ in range(2):
        StandInForSpark().run(job("collection", tmp_path / "out"), tmp_path / "jobs", None)
    assert len(delivered_lines(tmp_path / "out")) == 2 * 2 * 24


def test_another_program_is_refused_in_the_same_folder(tmp_path: Path) -> None:
    def swapped(first: str, second: str) -> JobPlan:
        environment = direct_environment()
        numbers = environment.from_collection([1])
        for uid in (first, second):
            numbers.key_by(lambda n: n).sum().uid(uid).print()
        return plan_job(
            environment._pending_graph(),
            environment._configuration,
            environment.get_config(),
            "job",
        )

    folder = JobFolder.open(str(tmp_path), "job")
    folder.check_identity(identity_of(swapped("counts", "alerts")))
    folder.check_identity(identity_of(swapped("counts", "alerts")))
    with pytest.raises(IncompatibleCheckpointError, match="written by another program"):
        folder.check_identity(identity_of(swapped("alerts", "counts")))
    folder.close(delete=True)


class Flagged(SourceFunction):
    """The usual shape: a flag that cancel() clears."""

    def __init__(self) -> None:
        self.running = True

    def open(self, runtime_context: RuntimeContext) -> None:
        self.name = runtime_context.get_task_name()

    def run(self, ctx: Any) -> None:
        number = 0
        while self.running and number < 50:
            ctx.collect((self.name, number))
            number += 1

    def cancel(self) -> None:
        self.running = False


def test_restarted_job_goes_on_where_it_failed_in_the_same_process(tmp_path: Path) -> None:
    environment = direct_environment({"millpond.batch.max-records": 2})
    environment.get_config().set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 0))
    source = MarkedSource([1, 2, 3, FAIL, 4, FAIL, 5], tmp_path)
    numbers = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    sums = numbers.key_by(lambda _: 0).reduce(lambda a, b: a + b)
    assert list(sums.execute_and_collect()) == [1, 3, 6, 10, 15]


def test_source_function_is_opened_and_its_flag_is_its_own() -> None:
    environment = direct_environment()
    function = Flagged()
    stream = environment.add_source(function, "flagged")
    assert len(list(stream.execute_and_collect())) == 50
    assert function.running
    again = environment.add_source(function, "again").map(lambda pair: pair[0])
    assert set(again.execute_and_collect()) == {"again"}


class _Stubborn(Flagged):
    def run(self, ctx: Any) -> None:
        ctx.collect("x")
        while not ctx.is_cancelled():
            pass

    def cancel(self) -> None:
        raise OSError("cannot close the connection")


def test_failing_cancel_of_a_source_does_not_hide_how_the_job_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment = direct_environment()

    def fail(value: str) -> str:
        raise ValueError("the real problem")

    stream = environment.add_source(_Stubborn(), "stubborn").map(fail)
    with pytest.raises(UserFunctionError, match="the real problem"):
        list(stream.execute_and_collect())
    assert "Source 'stubborn' failed while it was closed" in caplog.text
