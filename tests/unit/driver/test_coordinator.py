"""The driver's part: plans, clocks, wake-ups, replays; with a manual clock and no Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millpond.common import Duration, JobStatus, WatermarkGenerator, WatermarkStrategy
from millpond.core import journal
from millpond.core.storage import FileStorage
from millpond.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from millpond.datastream.connectors.base import Source, SplitEnumerator, SplitWork
from millpond.driver.coordinator import Coordinator
from millpond.driver.epochs.batch_plan import BatchPlan
from millpond.driver.epochs.epoch_log import EpochLog
from millpond.driver.epochs.epoch_record import EpochRecord
from millpond.driver.job_folder import JobFolder
from millpond.driver.output import OutputDelivery
from millpond.driver.planning import plan_job
from millpond.driver.reporting.checkpoint_history import CheckpointRecord
from millpond.errors import CheckpointInUseError, JobCancelledError
from millpond.executors.direct.executor import DirectExecutors
from millpond.testing import ManualClock, direct_environment


class Steps(Source):
    """Each poll gives the next step: records per split, or nothing. `clock` moves with each step."""

    def __init__(self, steps: list[dict[int, list[Any]]], splits: int, clock: ManualClock) -> None:
        self.steps = steps
        self.splits = splits
        self.clock = clock

    def create_enumerator(self, parallelism: int, context: Any) -> SplitEnumerator:
        return _StepsEnumerator(self)

    def read(self, arguments: Any) -> Any:
        return ((record, None) for record in arguments)


class _StepsEnumerator(SplitEnumerator):
    def __init__(self, source: Steps) -> None:
        super().__init__()
        self._source = source
        self._next = 0

    def split_count(self) -> int:
        return self._source.splits

    def poll(self, max_records: int) -> list[SplitWork]:
        if self._next >= len(self._source.steps):
            return []
        step = self._source.steps[self._next]
        self._next += 1
        self._source.clock.advance(1000)
        return [SplitWork(split, records) for split, records in step.items()]

    def position(self) -> int:
        return self._next

    def restore(self, position: int) -> None:
        self._next = position

    def ended(self) -> list[bool]:
        return [self._next >= len(self._source.steps)] * self._source.splits

    def next_poll_in_ms(self) -> int:
        return 1


def run(environment: StreamExecutionEnvironment, stream: DataStream, clock: ManualClock) -> Any:
    """The values of a stream, batch by batch."""
    from millpond.datastream.stream_graph import SinkKind

    stream._sink("collect", SinkKind.COLLECT, None)
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), None
    )
    batches: list[list[Any]] = []
    job = DirectExecutors(plan, batches.append, clock)
    job.attempt(0).run()
    job.close(JobStatus.FINISHED)
    return batches


class Remind(KeyedProcessFunction):
    """Emits when a processing-time timer fires, and how late it is."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + value)
        yield ("in", value, timers.current_processing_time())

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("timer", timestamp, ctx.timer_service().current_processing_time())
        assert ctx.timestamp() == timestamp


def test_processing_time_timers_fire_in_the_first_batch_after_they_are_due() -> None:
    clock = ManualClock(0)
    environment = direct_environment()
    source = Steps([{0: [1500]}, {}, {0: [9]}, {0: [7]}], 1, clock)
    stream = environment.from_source(source, WatermarkStrategy.no_watermarks(), "steps")
    batches = run(environment, stream.key_by(lambda v: 0).process(Remind()), clock)
    flat = [value for batch in batches for value in batch]
    assert flat[0] == ("in", 1500, 1000)
    # due at 2500: the batch at 3000 fires it before its own record
    assert flat[1:3] == [("timer", 2500, 3000), ("in", 9, 3000)]
    assert flat[3] == ("timer", 3009, 4000)


class Watermarks(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value)
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (timestamp, ctx.timer_service().current_processing_time())


def stamped(strategy: WatermarkStrategy) -> WatermarkStrategy:
    return strategy.with_timestamp_assigner(lambda value, _: value)


def test_slow_split_holds_the_clock_back() -> None:
    """E22: per task the minimum over its source partitions."""
    clock = ManualClock(0)
    environment = direct_environment({"parallelism.default": 2})
    source = Steps([{0: [10, 20, 30]}, {1: [15]}, {1: [100]}], 2, clock)
    strategy = stamped(WatermarkStrategy.for_monotonous_timestamps())
    stream = environment.from_source(source, strategy, "steps")
    batches = run(environment, stream.key_by(lambda v: 0).process(Watermarks()), clock)
    assert [[time for time, _ in batch] for batch in batches] == [[], [10], [15, 20, 30, 100]]


def test_idle_split_is_left_out_and_counts_again_when_it_speaks() -> None:
    clock = ManualClock(0)
    environment = direct_environment()
    source = Steps(
        [{0: [10], 1: [5]}, {0: [20]}, {0: [30]}, {1: [25], 0: [40]}, {0: [50]}], 2, clock
    )
    strategy = stamped(
        WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(1500))
    )
    stream = environment.from_source(source, strategy, "steps")
    batches = run(environment, stream.key_by(lambda v: 0).process(Watermarks()), clock)
    # split 1 spoke at 1000; at 3000 it has been silent for longer than 1500 ms
    assert [[time for time, _ in batch] for batch in batches[:3]] == [[], [], [5, 10, 20]]


class Sequence(KeyedProcessFunction):
    """Everything that happens to a key, in order; a timer 10 ms after each record."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(value + 10)
        yield ("record", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ("timer", timestamp)


def test_splits_in_step_give_the_same_in_one_batch_and_in_many() -> None:
    """E22: a key whose records come from one split still sees time pass with the other."""

    def happened(steps: list[dict[int, list[Any]]]) -> list[Any]:
        clock = ManualClock(0)
        environment = direct_environment({"parallelism.default": 2})
        strategy = stamped(WatermarkStrategy.for_monotonous_timestamps())
        stream = environment.from_source(Steps(steps, 2, clock), strategy, "steps")
        # odd times come from split 1 and belong to another key
        batches = run(environment, stream.key_by(lambda v: v % 2).process(Sequence()), clock)
        return [value for batch in batches for value in batch if value[1] % 2 == 0]

    times = range(0, 400, 100)
    many = [{0: [time], 1: [time + 1]} for time in times]
    one = [{0: list(times), 1: [time + 1 for time in times]}]
    expected = [("record", 0), ("record", 100), ("timer", 10), ("record", 200), ("timer", 110)]
    assert happened(many)[:5] == expected
    assert happened(one) == happened(many)


def test_new_split_holds_the_clock_until_it_has_caught_up() -> None:
    clock = ManualClock(0)
    environment = direct_environment()
    source = Steps([{0: [10]}, {0: [50]}, {0: [90]}, {1: [60]}, {0: [95]}], 1, clock)

    class Growing(_StepsEnumerator):
        def split_count(self) -> int:
            return 1 if self._next < 3 else 2

        def ended(self) -> list[bool]:
            return [self._next >= len(source.steps)] * self.split_count()

    source.create_enumerator = lambda parallelism, context: Growing(source)  # type: ignore[method-assign]
    strategy = stamped(WatermarkStrategy.for_monotonous_timestamps())
    stream = environment.from_source(source, strategy, "steps")
    batches = run(environment, stream.key_by(lambda v: 0).process(Watermarks()), clock)
    fired = [[time for time, _ in batch] for batch in batches]
    # the second split appears with the third batch: the clock stays at 49, then follows it to 59
    assert fired[:4] == [[], [10], [], [50]]


class Punctuated(WatermarkGenerator):
    """Every tenth value is a watermark."""

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event % 10 == 0:
            output.emit_watermark(event)

    def on_periodic_emit(self, output: Any) -> None:
        """Punctuated: nothing periodic."""


class Periodic(WatermarkGenerator):
    """The largest value seen, kept in the generator's own state."""

    def __init__(self) -> None:
        self.largest = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        self.largest = max(self.largest, event)

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(self.largest)


class Clock(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timer_service().current_watermark()


@pytest.mark.parametrize(
    ("generator", "expected"),
    [
        (Punctuated, [None, None, 10, 10, 10]),
        (Periodic, [None, 7, 10, 12, 12]),
    ],
)
@pytest.mark.parametrize("records_per_batch", [1, 2, 100])
def test_generators_written_in_python_keep_their_state(
    generator: Any, expected: list[int | None], records_per_batch: int
) -> None:
    environment = direct_environment({"millpond.batch.max-records": records_per_batch})
    numbers = environment.from_collection([7, 10, 12, 9, 15])
    strategy = stamped(WatermarkStrategy.for_generator(generator))
    stream = numbers.assign_timestamps_and_watermarks(strategy).key_by(lambda v: 0).process(Clock())
    seen = [clock if clock > -(2**63) else None for _, clock in stream.execute_and_collect()]
    assert seen == expected


def planned(tmp_path: Path, clock: ManualClock) -> tuple[Coordinator, JobFolder]:
    environment = direct_environment({"parallelism.default": 2, "millpond.batch.max-records": 2})
    environment.from_collection([1, 2, 3, 4, 5]).key_by(lambda v: v).sum().print()
    plan = plan_job(
        environment._pending_graph(), environment._configuration, environment.get_config(), "job"
    )
    folder = JobFolder.open(str(tmp_path), "a job: with / odd name")
    coordinator = Coordinator(plan, folder, OutputDelivery(plan), clock)
    coordinator.start()
    coordinator.commit_output()
    return coordinator, folder


def test_planned_batch_is_the_same_again_after_a_crash(tmp_path: Path) -> None:
    """Also its processing time: a replay must not see another one."""
    coordinator, folder = planned(tmp_path, ManualClock(500))
    before = coordinator.plan()
    folder.close(delete=False)
    again, folder = planned(tmp_path, ManualClock(900))
    assert again.plan() == before
    assert again.planned_time_ms == 500
    again.complete([])
    again.commit_output()
    assert again.plan()[0].splits[0].reads == [[3, 4]]
    folder.close(delete=True)
    assert not folder.path.exists()


def test_plan_that_was_not_written_whole_is_forgotten(tmp_path: Path) -> None:
    coordinator, folder = planned(tmp_path, ManualClock(500))
    coordinator.plan()
    (log,) = (folder.path / "journal").iterdir()
    content = log.read_bytes().rstrip(b"\0")
    log.write_bytes(content[:-1] + b"\0" * 1000)
    folder.close(delete=False)
    again, folder = planned(tmp_path, ManualClock(900))
    again.plan()
    assert again.planned_time_ms == 900
    folder.close(delete=True)


def test_folder_is_locked_while_its_job_runs(tmp_path: Path) -> None:
    folder = JobFolder.open(str(tmp_path), "job")
    with pytest.raises(CheckpointInUseError, match="in use by another running job"):
        JobFolder.open(str(tmp_path), "job")
    folder.close(delete=False)
    JobFolder.open(f"file://{tmp_path}", "job").close(delete=True)


def epoch_record(epoch: int) -> EpochRecord:
    checkpoint = CheckpointRecord(epoch, 0, 0, 0, 0, is_savepoint=False)
    padding: dict[str, object] = {"padding": "x" * 20_000}
    return EpochRecord({}, {}, {}, None, padding, [], False, checkpoint, {}, {}, {}, {}, 0, {})


def test_old_batches_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "LOG_BYTES", 100_000)
    folder = JobFolder.open(str(tmp_path), "job")
    log = EpochLog(folder)
    log.open(1, 1)
    for epoch in range(100):
        log.write_plan(epoch, BatchPlan({}, {}, time_ms=epoch))
        log.write(epoch, epoch_record(epoch))
    log.close()
    assert len(list((folder.path / "journal").iterdir())) == 2
    again = EpochLog(folder)
    assert again.open(1, 1) == (epoch_record(99), None)
    assert again.newest == 99
    folder.close(delete=True)


def test_segments_that_no_batch_needs_are_deleted(tmp_path: Path) -> None:
    folder = JobFolder.open(str(tmp_path), "job")
    storage, log = FileStorage(folder.path), EpochLog(folder)
    log.open(1, 1)
    for name in ("a", "b", "zombie"):
        storage.new_log(f"log/1/0/{name}").close()
    for epoch, segments in enumerate([("a",), ("a", "b"), ("b",)]):
        position = tuple((f"log/1/0/{name}", 0) for name in segments)
        log.write(epoch, replace(epoch_record(epoch), logs={(1, 0): position}))
    assert storage.names("log/1/0") == ["log/1/0/b", "log/1/0/zombie"]
    EpochLog(folder).open(1, 1)
    assert storage.names("log/1/0") == ["log/1/0/b"]
    folder.close(delete=True)


def test_cancelled_job_stops_waiting_for_work(tmp_path: Path) -> None:
    coordinator, folder = planned(tmp_path, ManualClock(0))
    coordinator.cancel()
    with pytest.raises(JobCancelledError):
        coordinator.plan()
    folder.close(delete=True)
